# SPDX-License-Identifier: Apache-2.0
# Compiles HIP with Debian 12's packages: clang-19 clang-tools-19 llvm-19 lld-19 libamdhip64-dev
# rocm-device-libs. Its device libraries (5.2) are of LLVM 14's time and lack the one file per target
# that newer targets need, a constant with the target's number, so it is written here.

find_program(hip_clang NAMES clang++-19)
find_program(llvm_as NAMES llvm-as-19 PATHS /usr/lib/llvm-19/bin)
set(debian_bitcode "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
if(NOT hip_clang OR NOT llvm_as OR NOT EXISTS "${debian_bitcode}/ocml.bc")
  message(FATAL_ERROR
    "no HIP compiler: install ROCm, or Debian's clang-19 clang-tools-19 llvm-19 lld-19 "
    "libamdhip64-dev rocm-device-libs.")
endif()

set(bitcode "${CMAKE_BINARY_DIR}/device_libs")
file(MAKE_DIRECTORY "${bitcode}")
file(GLOB debian_files "${debian_bitcode}/*.bc")
file(COPY ${debian_files} DESTINATION "${bitcode}")
execute_process(
  COMMAND "${hip_clang}" -x c --target=amdgcn-amd-amdhsa -nogpulib -S -emit-llvm -o - /dev/null
  OUTPUT_VARIABLE empty_module COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "target datalayout[^\n]*" datalayout "${empty_module}")
# Major, minor and stepping of gfxNNN as the device library counts them.
foreach(version 942:9402 950:9500 1100:11000 1201:12001)
  string(REGEX MATCHALL "[0-9]+" numbers "${version}")
  list(GET numbers 0 target)
  list(GET numbers 1 number)
  set(source "${bitcode}/oclc_isa_version_${target}.ll")
  file(WRITE "${source}" "${datalayout}
target triple = \"amdgcn-amd-amdhsa\"
@__oclc_ISA_version = linkonce_odr protected local_unnamed_addr addrspace(4) constant i32 ${number}, align 4
")
  execute_process(
    COMMAND "${llvm_as}" "${source}" -o "${bitcode}/oclc_isa_version_${target}.bc"
    COMMAND_ERROR_IS_FATAL ANY)
endforeach()

set(CMAKE_HIP_PLATFORM amd)
set(CMAKE_HIP_COMPILER "${hip_clang}")
set(CMAKE_HIP_COMPILER_ROCM_ROOT /usr)
set(CMAKE_HIP_FLAGS "--rocm-device-lib-path=${bitcode} ${CMAKE_HIP_FLAGS}")
