# Fails when the loop that widens FP8 on tile registers fetches nothing ahead: a compiler may take a
# function that only prefetches for one without effect (tile_weights.h).
# cmake -DOBJDUMP=objdump -DLIBRARY=libsluice_device_cpu.a -P check_prefetch.cmake
execute_process(COMMAND ${OBJDUMP} -d --no-show-raw-insn ${LIBRARY}
                COMMAND awk "/^[0-9a-f]+ </ { inside = /WidenedF8.*(widen_rows|put_rows)/ }
                             /^[0-9a-f]+ </ { seen += inside }
                             inside && /prefetch/ { fetches += 1 }
                             END { print seen + 0, fetches + 0 }"
                OUTPUT_VARIABLE counts RESULTS_VARIABLE codes OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT codes STREQUAL "0;0")
  message(FATAL_ERROR "${OBJDUMP} failed on ${LIBRARY}: ${codes}")
endif()
if(NOT counts MATCHES "^([0-9]+) ([0-9]+)$" OR CMAKE_MATCH_1 EQUAL 0)
  message(FATAL_ERROR "no function that widens FP8 in ${LIBRARY}: has it been renamed? (${counts})")
endif()
if(CMAKE_MATCH_2 EQUAL 0)
  message(FATAL_ERROR "the loop that widens FP8 has no prefetch in ${LIBRARY}")
endif()
