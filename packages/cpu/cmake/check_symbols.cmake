# SPDX-License-Identifier: Apache-2.0
# Fails the build if an object of an ISA tier exports anything but its table.
#
# A function that several tiers export is one function to the linker, which keeps any of the copies:
# on a CPU without AVX-512 the AVX-512 copy is an illegal instruction.
#
# cmake -DNM=nm -DTIER=avx2 "-DOBJECTS=a.o|b.o" -P check_symbols.cmake

string(REPLACE "|" ";" objects "${OBJECTS}")
foreach(object IN LISTS objects)
  execute_process(
    COMMAND "${NM}" --defined-only --extern-only --format=posix "${object}"
    OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" symbols "${listing}")
  list(LENGTH symbols count)
  if(NOT count EQUAL 1 OR NOT listing MATCHES "_table_${TIER}E? ")
    message(FATAL_ERROR
      "${object} must export its table for ${TIER} and nothing else, exports:\n${listing}")
  endif()
endforeach()
