# Fails when a kernel asks a compiler's builtin for a prefetch: see prefetch.h.
# cmake -DKERNELS=src/device/cpu/kernels -P check_prefetch.cmake
file(GLOB sources "${KERNELS}/*.h" "${KERNELS}/*.cpp")
list(FILTER sources EXCLUDE REGEX "/prefetch.h$")
if(NOT sources)
  message(FATAL_ERROR "no sources in '${KERNELS}'")
endif()
foreach(source IN LISTS sources)
  file(STRINGS "${source}" lines REGEX "_mm_prefetch|__builtin_prefetch")
  if(lines)
    message(FATAL_ERROR "${source}: compilers remove some of these, use prefetch.h: ${lines}")
  endif()
endforeach()
