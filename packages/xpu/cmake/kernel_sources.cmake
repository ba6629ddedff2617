# SPDX-License-Identifier: Apache-2.0
# generated/kernel_sources.h: the headers that the run-time compiler sees, and its options. The
# library carries its kernels' sources, so that nothing has to be found on a user's machine.

set(kernel_folder "${CMAKE_CURRENT_SOURCE_DIR}/../../shared/csrc/gpu")
set(kernel_headers activation.h angles.h layer_norm.h memory.h platform.h platform_sycl.h
  qk_norm_rope.h reduce.h rms_norm.h rms_norm_gated.h rotary.h softplus.h types.h)
# x * cos - x * sin is rounded twice, as in eager torch; sums ask for fma by name. Divisions and
# square roots are correctly rounded.
set(kernel_options -ffp-contract=off -foffload-fp32-prec-div -foffload-fp32-prec-sqrt)

set(sources "")
set(everything "${kernel_options}")
foreach(header ${kernel_headers})
  file(READ "${kernel_folder}/${header}" text)
  string(APPEND everything "${header}${text}")
  string(APPEND sources "    {\"${header}\", R\"kernel(${text})kernel\"},\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${kernel_folder}/${header}")
endforeach()
string(SHA256 kernel_hash "${everything}")
list(TRANSFORM kernel_options PREPEND "\"" OUTPUT_VARIABLE quoted)
list(TRANSFORM quoted APPEND "\"")
list(JOIN quoted ", " quoted)
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/generated/kernel_sources.h"
"// SPDX-License-Identifier: Apache-2.0
// Written by cmake/kernel_sources.cmake.
#pragma once

namespace vllm_ops::xpu {

struct SourceFile {
  const char* name;
  const char* text;
};
inline constexpr SourceFile kSources[] = {
${sources}};
inline constexpr const char* kOptions[] = {\"-DVLLM_OPS_SYCL\", ${quoted}};
// Of all of the above.
inline constexpr char kSourceHash[] = \"${kernel_hash}\";

}  // namespace vllm_ops::xpu
")
