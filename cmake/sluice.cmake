# One folder = one library. Each folder's CMakeLists names its sources, its dependencies and its
# tests; nothing is globbed, so a file that is in no list is dead (tools/tidy.py checks).

# sluice_library(NAME kv SRCS a.cpp b.cpp DEPS base request [PRIVATE_DEPS simdjson::simdjson]
#                [ALONE b.cpp])
# Creates the static library sluice_<name>; DEPS are names of other folders or imported targets.
# ALONE: see sluice_unity.
function(sluice_library)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS;PRIVATE_DEPS;ALONE" ${ARGN})
  set(target sluice_${ARG_NAME})
  if(ARG_SRCS)
    add_library(${target} STATIC ${ARG_SRCS})
    set(scope PUBLIC)
    target_compile_options(${target} PRIVATE ${SLUICE_WARNINGS})
    sluice_common_headers(${target})
    sluice_unity(${target} "${ARG_ALONE}")
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${PROJECT_SOURCE_DIR}/src)
  foreach(dep IN LISTS ARG_DEPS)
    sluice_resolve(${dep} resolved)
    target_link_libraries(${target} ${scope} ${resolved})
  endforeach()
  foreach(dep IN LISTS ARG_PRIVATE_DEPS)
    sluice_resolve(${dep} resolved)
    target_link_libraries(${target} PRIVATE ${resolved})
  endforeach()
endfunction()

# With SLUICE_UNITY, eight sources are compiled as one, so that their headers are parsed once, which
# halves the time of a build from scratch. The preset `dev` keeps files apart, so that each one
# includes what it uses. `alone` are sources whose names (of helpers in unnamed namespaces) clash
# with those of others. They stay by themselves, and so do sources with COMPILE_OPTIONS, which are
# to be set before.
#
# CMake's UNITY_BUILD would name sources by absolute paths, so that a compiler's cache would not
# serve a clone in another folder.
function(sluice_unity target alone)
  if(NOT SLUICE_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  set(joined)
  foreach(source IN LISTS sources)
    get_filename_component(path ${source} ABSOLUTE)
    file(RELATIVE_PATH inside ${PROJECT_SOURCE_DIR} ${path})
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR ${path} made)
    if(source MATCHES "[.]cpp$" AND NOT source IN_LIST alone AND NOT options AND NOT made)
      list(APPEND joined ${inside})
      set_source_files_properties(${path} PROPERTIES HEADER_FILE_ONLY ON)
    endif()
  endforeach()
  set(batch 0)
  while(joined)
    list(SUBLIST joined 0 8 batch_sources)
    list(REMOVE_ITEM joined ${batch_sources})
    list(TRANSFORM batch_sources REPLACE "(.+)" "#include \"\\1\"\n")
    list(JOIN batch_sources "" content)
    set(file ${CMAKE_CURRENT_BINARY_DIR}/unity/${target}_${batch}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "${content}" @ONLY)
    target_sources(${target} PRIVATE ${file})
    math(EXPR batch "${batch} + 1")
  endwhile()
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # A type of one source may hold types of its unnamed namespace; here it looks like a header's.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# With SLUICE_PCH: the headers that nearly every source includes, parsed once for all libraries.
# Sources still include what they use: the preset `dev` does without.
function(sluice_common_headers target)
  if(NOT SLUICE_PCH)
    return()
  endif()
  if(NOT TARGET sluice_headers)
    # The compiler wants the same flags for both, so the owner of the headers is a library as well.
    set(source ${PROJECT_BINARY_DIR}/sluice_headers.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "\n")
    add_library(sluice_headers STATIC EXCLUDE_FROM_ALL ${source})
    target_compile_options(sluice_headers PRIVATE ${SLUICE_WARNINGS})
    target_link_libraries(sluice_headers PRIVATE fmt::fmt tl::expected)
    target_precompile_headers(sluice_headers PRIVATE
      <algorithm> <array> <atomic> <chrono> <cstdint> <filesystem> <fstream> <functional> <map>
      <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread> <unordered_map>
      <utility> <variant> <vector> <fmt/format.h> <tl/expected.hpp>)
  endif()
  target_precompile_headers(${target} REUSE_FROM sluice_headers)
endfunction()

# A dependency is a folder of ours (base -> sluice_base) or an imported target (fmt::fmt).
function(sluice_resolve dep out)
  if(dep MATCHES "::" OR NOT TARGET sluice_${dep})
    set(${out} ${dep} PARENT_SCOPE)
  else()
    set(${out} sluice_${dep} PARENT_SCOPE)
  endif()
endfunction()

# With SLUICE_TEST_PCH: the headers that nearly every test includes, parsed once for all tests,
# which is a third of a test's compile time. Tests still include what they use.
function(sluice_test_headers target)
  if(NOT SLUICE_TEST_PCH)
    return()
  endif()
  if(NOT TARGET sluice_test_headers)
    # The compiler wants the same flags for both, so the owner of the headers is a program as well.
    set(source ${PROJECT_BINARY_DIR}/sluice_test_headers.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}\n")
    add_executable(sluice_test_headers EXCLUDE_FROM_ALL ${source})
    target_compile_options(sluice_test_headers PRIVATE ${SLUICE_WARNINGS} ${SLUICE_TEST_FLAGS})
    target_link_libraries(sluice_test_headers PRIVATE GTest::gmock tl::expected)
    target_precompile_headers(sluice_test_headers PRIVATE
      <algorithm> <chrono> <cstdint> <filesystem> <fstream> <functional> <memory> <optional> <span>
      <string> <string_view> <thread> <vector> <gmock/gmock.h> <gtest/gtest.h> <tl/expected.hpp>)
  endif()
  target_precompile_headers(${target} REUSE_FROM sluice_test_headers)
endfunction()

# sluice_test(NAME kv SRCS block_pool_test.cpp DEPS kv
#             [LABELS threads | THREAD_CASES "*Pool*:*Loop*"] [TIMEOUT 120] [ALONE b_test.cpp])
# One GoogleTest executable <name>_test; every case is a ctest of its own. The label `threads` is
# for code with threads in it: such tests also run under the thread sanitizer in CI, which builds
# the target thread_tests only. THREAD_CASES, a GoogleTest filter, gives it to some cases where the
# others would only cost time there. The label `binary` is for tests of the program `sluice`:
# library_tests are all others, which CI runs under the address sanitizer too. SERIAL: no other test
# runs beside it, because it measures times.
function(sluice_test)
  if(NOT SLUICE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "SERIAL" "NAME;TIMEOUT;THREAD_CASES" "SRCS;DEPS;LABELS;ALONE" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set(target ${ARG_NAME}_test)
  add_executable(${target} ${ARG_SRCS})
  target_compile_options(${target} PRIVATE ${SLUICE_WARNINGS} ${SLUICE_TEST_FLAGS})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  foreach(dep IN LISTS ARG_DEPS)
    sluice_resolve(${dep} resolved)
    target_link_libraries(${target} PRIVATE ${resolved})
  endforeach()
  target_link_libraries(${target} PRIVATE GTest::gmock GTest::gtest_main)
  sluice_test_headers(${target})
  sluice_unity(${target} "${ARG_ALONE}")
  if(NOT "binary" IN_LIST ARG_LABELS)
    if(NOT TARGET library_tests)
      add_custom_target(library_tests)
    endif()
    add_dependencies(library_tests ${target})
  endif()
  if("threads" IN_LIST ARG_LABELS OR ARG_THREAD_CASES)
    if(NOT TARGET thread_tests)
      add_custom_target(thread_tests)
    endif()
    add_dependencies(thread_tests ${target})
  endif()
  if(ARG_THREAD_CASES)
    sluice_discover("${ARG_THREAD_CASES}" threads)
    sluice_discover("-${ARG_THREAD_CASES}" "")
  else()
    sluice_discover("" "${ARG_LABELS}")
  endif()
endfunction()

# For sluice_test only: registers the cases of `target` that match `filter` as tests.
macro(sluice_discover filter labels)
  gtest_discover_tests(${target}
    DISCOVERY_MODE PRE_TEST
    TEST_FILTER "${filter}"
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_SERIAL} LABELS "${labels}")
endmacro()

# sluice_fuzz(NAME safetensors SRCS safetensors_fuzz.cpp DEPS checkpoint)
# A libFuzzer target fuzz_<name>, built by the `fuzz` preset only; seeds: tests/fuzz/corpus/<name>/.
function(sluice_fuzz)
  if(NOT SLUICE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  set(target fuzz_${ARG_NAME})
  add_executable(${target} ${ARG_SRCS})
  target_compile_options(${target} PRIVATE ${SLUICE_WARNINGS})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  if(NOT TARGET fuzz_targets)
    add_custom_target(fuzz_targets)
  endif()
  add_dependencies(fuzz_targets ${target})
  foreach(dep IN LISTS ARG_DEPS)
    sluice_resolve(${dep} resolved)
    target_link_libraries(${target} PRIVATE ${resolved})
  endforeach()
endfunction()

# Makes OUTPUT, a C++ file with INPUT as the string VARIABLE, in the build's folder. The page may
# include the files that all pages share.
function(sluice_page)
  cmake_parse_arguments(ARG "" "VARIABLE;INPUT;OUTPUT" "" ${ARGN})
  set(shared ${PROJECT_SOURCE_DIR}/src/server/page)
  add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${ARG_OUTPUT}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${CMAKE_CURRENT_SOURCE_DIR}/${ARG_INPUT}
            -DOUTPUT=${CMAKE_CURRENT_BINARY_DIR}/${ARG_OUTPUT} -DNAME=${ARG_VARIABLE}
            -DPARTS=${shared} -P ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake
    DEPENDS ${ARG_INPUT} ${shared}/base.css ${shared}/base.js
            ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake
    VERBATIM)
endfunction()
