# SPDX-License-Identifier: Apache-2.0
# What the cuda, rocm and xpu packages share: torch's directory, the binding, the build information.

find_package(Python REQUIRED COMPONENTS Interpreter)
# torch's own CMake package asks for a GPU toolkit of its own. Only headers and one library are needed.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
    "import importlib.util, importlib.metadata, os\n\
spec = importlib.util.find_spec('torch')\n\
print(os.path.dirname(spec.origin) + ';' + importlib.metadata.version('torch') if spec else '')"
  OUTPUT_VARIABLE torch_found OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT torch_found)
  message(FATAL_ERROR
    "torch was not found: install torch first and build with pip's --no-build-isolation.")
endif()
list(GET torch_found 0 torch_dir)
list(GET torch_found 1 torch_version)
message(STATUS "torch ${torch_version} in ${torch_dir}")

set(gpu_dir "${CMAKE_CURRENT_LIST_DIR}")

# vllm_ops_gpu_package(cuda <launch file>...): the library libvllm_ops_cuda.so. The launch files see
# no torch header, the binding sees no GPU header.
function(vllm_ops_gpu_package name)
  set(target vllm_ops_${name})
  add_library(${target}_bind OBJECT
    "${gpu_dir}/binding/activation.cpp"
    "${gpu_dir}/binding/layernorm.cpp"
    "${gpu_dir}/binding/register.cpp"
    "${gpu_dir}/binding/rotary.cpp")
  target_include_directories(${target}_bind SYSTEM PRIVATE "${torch_dir}/include")
  target_compile_definitions(${target}_bind PRIVATE
    VLLM_OPS_PACKAGE=${name}
    TORCH_TARGET_VERSION=0x020a000000000000ULL)  # the stable ABI of torch 2.10 and later
  target_compile_options(${target}_bind PRIVATE -Wall -Wextra)

  add_library(${target} MODULE ${ARGN} $<TARGET_OBJECTS:${target}_bind>)
  target_include_directories(${target} PRIVATE "${gpu_dir}" csrc)
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME "libvllm_ops_${name}")
  # libtorch alone; --no-as-needed keeps it in NEEDED although its symbols come from libtorch_cpu.
  target_link_options(${target} PRIVATE
    LINKER:--no-as-needed "-L${torch_dir}/lib" LINKER:--exclude-libs,ALL LINKER:-s)
  target_link_libraries(${target} PRIVATE torch)

  file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/_build_info.py"
"# SPDX-License-Identifier: Apache-2.0
\"\"\"Written by the build.\"\"\"

BUILT_AGAINST_TORCH = \"${torch_version}\"
ARCHITECTURES = \"${VLLM_OPS_ARCHITECTURES}\"
${VLLM_OPS_BUILD_INFO}")
  install(TARGETS ${target} LIBRARY DESTINATION vllm_ops/${name})
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/_build_info.py" DESTINATION vllm_ops/${name})
endfunction()
