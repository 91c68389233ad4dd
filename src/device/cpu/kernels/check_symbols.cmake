# Fails when a kernel object defines a shared (weak) function that does not belong to its
# instruction set: the linker might keep that copy for code which runs on older machines.
# cmake -DNM=nm -DLIBRARY=libsluice_device_cpu.a -P check_symbols.cmake
execute_process(COMMAND ${NM} -A -C --defined-only ${LIBRARY}
                OUTPUT_VARIABLE symbols RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${NM} failed on ${LIBRARY}")
endif()
string(REPLACE ";" "," symbols "${symbols}")
string(REPLACE "\n" ";" symbols "${symbols}")
set(seen 0)
foreach(line IN LISTS symbols)
  if(NOT line MATCHES "kernels_a[a-z0-9_]*\\.cpp\\.o:[^ ]* ([WVu]) (.*)")
    continue()
  endif()
  math(EXPR seen "${seen} + 1")
  set(own "Avx2|Avx512|DotBf16Pairs|DotI8Quads|TileMatmul|matmul_tiles|DW\\.ref")
  if(NOT CMAKE_MATCH_2 MATCHES "${own}")
    message(SEND_ERROR "shared code in a kernel object: ${line}")
  endif()
endforeach()
if(seen EQUAL 0)
  message(FATAL_ERROR "no kernel symbols found in ${LIBRARY}: has a file been renamed?")
endif()
