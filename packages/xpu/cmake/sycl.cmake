# SPDX-License-Identifier: Apache-2.0
# SYCL's headers and library: VLLM_OPS_SYCL_ROOT (with include/ and lib/), else icpx's own, else the
# wheel intel-sycl-rt of the Python that builds. Sets sycl_include, sycl_library, sycl_soname and
# sycl_version.

find_package(Python REQUIRED COMPONENTS Interpreter)
set(sycl_needed "SYCL headers and libsycl were not found. Install the runtime first, \
pip install 'intel-sycl-rt>=2026.0,<2027', and build with pip's --no-build-isolation; or give \
-DVLLM_OPS_SYCL_ROOT=<folder with include/ and lib/>")
set(VLLM_OPS_SYCL_ROOT "" CACHE PATH "folder with include/sycl/sycl.hpp and lib/libsycl.so")
set(sycl_root "${VLLM_OPS_SYCL_ROOT}")
if(NOT sycl_root AND CMAKE_CXX_COMPILER_ID STREQUAL "IntelLLVM")
  cmake_path(GET CMAKE_CXX_COMPILER PARENT_PATH sycl_root)
  cmake_path(GET sycl_root PARENT_PATH sycl_root)
endif()
if(NOT sycl_root)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/find_sycl.py"
    OUTPUT_VARIABLE sycl_root OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
find_path(sycl_header_folder sycl/sycl.hpp PATHS "${sycl_root}/include" NO_DEFAULT_PATH NO_CACHE)
find_library(sycl_library sycl PATHS "${sycl_root}/lib" NO_DEFAULT_PATH NO_CACHE)
if(NOT sycl_root OR NOT sycl_header_folder OR NOT sycl_library)
  message(FATAL_ERROR "${sycl_needed}")
endif()
set(sycl_include "${sycl_header_folder}")

file(STRINGS "${sycl_header_folder}/sycl/version.hpp" sycl_defines REGEX "__LIBSYCL_[A-Z]+_VERSION")
string(REGEX MATCH "__LIBSYCL_MAJOR_VERSION ([0-9]+)" _ "${sycl_defines}")
if(NOT CMAKE_MATCH_1 OR CMAKE_MATCH_1 LESS 9)
  message(FATAL_ERROR "libsycl.so.${CMAKE_MATCH_1} in ${sycl_root} is too old. ${sycl_needed}")
endif()
set(sycl_soname "libsycl.so.${CMAKE_MATCH_1}")
file(STRINGS "${sycl_header_folder}/sycl/version.hpp" sycl_compiler REGEX "__SYCL_COMPILER_VERSION")
string(REGEX MATCH "[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]" sycl_version "${sycl_compiler}")
message(STATUS "SYCL: ${sycl_library} (${sycl_soname}, ${sycl_version})")
