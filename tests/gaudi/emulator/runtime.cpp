// SPDX-License-Identifier: Apache-2.0
// In the place of Habana's runtime: custom operators that ask the glue about each node, as the
// graph compiler does, and run the kernel that it names over the index space that it gives, in
// parts.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <hpu_custom_op_pt2.h>

#include <algorithm>
#include <map>

#include "machine.h"
#include "tpc_kernel_lib_interface.h"

namespace api = tpc_lib_api;

extern "C" {
api::GlueCodeReturn GetKernelGuids(api::DeviceId, uint32_t*, api::GuidInfo*);
api::GlueCodeReturn InstantiateTpcKernel(api::HabanaKernelParams*, api::HabanaKernelInstantiation*);
}

namespace {

struct Settings {
  int parts = 3;  // into which every dimension of the index space is split
  bool linear_lanes = false;
};
Settings settings;
int64_t launches = 0;
int64_t padded_loads = 0;

struct UserCustomOp {
  std::string guid;
  habana::custom_op::OutputMetaFn output_meta;
  habana::custom_op::FillParamsFn fill_params;
};

std::map<std::string, UserCustomOp>& registry() {
  static std::map<std::string, UserCustomOp> ops;
  return ops;
}

api::Tensor describe(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous(), "emulator: tensors must be contiguous");
  TORCH_CHECK(tensor.dim() >= 1 && tensor.dim() <= emulator::kMaxDims,
              "emulator: tensors have 1 to 5 dimensions, got ", tensor.dim());
  TORCH_CHECK(tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16,
              "emulator: tensors are float32 or bfloat16, got ", tensor.scalar_type());
  api::Tensor result{};
  result.geometry.dims = static_cast<uint32_t>(tensor.dim());
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    const int64_t size = tensor.size(tensor.dim() - 1 - d);
    result.geometry.maxSizes[d] = result.geometry.minSizes[d] = static_cast<uint64_t>(size);
  }
  const bool half = tensor.scalar_type() == at::kBFloat16;
  result.geometry.dataType = half ? api::DATA_BF16 : api::DATA_F32;
  return result;
}

void place(emulator::TensorState& state, const at::Tensor& tensor, bool writable) {
  state = {};
  state.data = static_cast<char*>(tensor.data_ptr());
  state.element_size = static_cast<int>(tensor.element_size());
  state.dims = static_cast<int>(tensor.dim());
  state.writable = writable;
  long stride = 1;
  for (int d = 0; d < state.dims; ++d) {
    state.size[d] = tensor.size(tensor.dim() - 1 - d);
    state.stride[d] = stride;
    stride *= state.size[d];
  }
}

// What the part [offset, offset + size) of the index space may touch.
void restrict_access(emulator::TensorState& state, const api::TensorAccessPattern& pattern,
                     const emulator::Machine& m) {
  for (int d = 0; d < state.dims; ++d) {
    const api::DimIndexSpaceMapping& map = pattern.mapping[d];
    if (pattern.allRequired || map.allRequired) {
      state.low[d] = 0;
      state.high[d] = state.size[d] - 1;
      continue;
    }
    const int first = m.offset[map.indexSpaceDim];
    const int last = first + m.size[map.indexSpaceDim] - 1;
    state.low[d] = static_cast<long>(map.a * first + map.start_b);
    state.high[d] = static_cast<long>(map.a * last + map.end_b);
  }
}

struct Node {
  std::vector<api::Tensor> inputs, outputs;
  std::shared_ptr<void> user_params;
  api::HabanaKernelParams params{};
  std::vector<api::TensorAccessPattern> input_patterns, output_patterns;
  std::string elf;
  api::HabanaKernelInstantiation instance{};
};

void instantiate(Node& node, const UserCustomOp& op, size_t params_size) {
  node.params.deviceId = api::DEVICE_ID_GAUDI2;
  std::strncpy(node.params.guid.name, op.guid.c_str(), api::MAX_NODE_NAME - 1);
  node.params.nodeParams = {node.user_params.get(), static_cast<uint32_t>(params_size)};
  node.params.inputTensors = node.inputs.data();
  node.params.inputTensorNr = static_cast<uint32_t>(node.inputs.size());
  node.params.outputTensors = node.outputs.data();
  node.params.outputTensorNr = static_cast<uint32_t>(node.outputs.size());
  node.input_patterns.resize(node.inputs.size());
  node.output_patterns.resize(node.outputs.size());
  node.instance.inputTensorAccessPattern = node.input_patterns.data();
  node.instance.outputTensorAccessPattern = node.output_patterns.data();
  // First without room for the ELF, as a graph compiler that guessed too small a buffer.
  auto code = InstantiateTpcKernel(&node.params, &node.instance);
  TORCH_CHECK(code == api::GLUE_INSUFFICIENT_ELF_BUFFER, op.guid, ": the glue returned ",
              static_cast<int>(code));
  node.elf.resize(node.instance.kernel.elfSize);
  node.instance.kernel.kernelElf = node.elf.data();
  code = InstantiateTpcKernel(&node.params, &node.instance);
  TORCH_CHECK(code == api::GLUE_SUCCESS, op.guid, ": the glue returned ", static_cast<int>(code));
}

void run(Node& node, const std::string& guid) {
  using Entry = bool (*)(const uint32_t*, unsigned);
  const auto entry = reinterpret_cast<Entry>(dlsym(RTLD_DEFAULT, node.elf.c_str()));
  TORCH_CHECK(entry != nullptr, guid, ": no emulated kernel ", node.elf.c_str());
  emulator::Machine& m = emulator::machine();
  m.linear_lanes = settings.linear_lanes;
  m.padded_loads = 0;
  m.violation[0] = '\0';
  const auto& instance = node.instance;
  TORCH_CHECK(instance.indexSpaceRank >= 1 && instance.indexSpaceRank <= 2, guid,
              ": the emulator splits one or two dimensions, got ", instance.indexSpaceRank);
  const int extent[2] = {static_cast<int>(instance.indexSpaceGeometry[0]),
                         static_cast<int>(instance.indexSpaceGeometry[1])};
  const int step[2] = {(extent[0] + settings.parts - 1) / settings.parts,
                       (extent[1] + settings.parts - 1) / settings.parts};
  for (int d = 2; d < emulator::kMaxDims; ++d) m.offset[d] = 0, m.size[d] = 1;
  // The last part first: parts must not depend on their order.
  for (int j = (extent[1] - 1) / step[1]; j >= 0; --j) {
    for (int i = (extent[0] - 1) / step[0]; i >= 0; --i) {
      m.offset[0] = i * step[0];
      m.offset[1] = j * step[1];
      m.size[0] = std::min(step[0], extent[0] - m.offset[0]);
      m.size[1] = std::min(step[1], extent[1] - m.offset[1]);
      for (size_t t = 0; t < node.inputs.size(); ++t) {
        restrict_access(m.tensors[t], node.input_patterns[t], m);
      }
      for (size_t t = 0; t < node.outputs.size(); ++t) {
        restrict_access(m.tensors[node.inputs.size() + t], node.output_patterns[t], m);
      }
      TORCH_CHECK(entry(instance.kernel.scalarParams, instance.kernel.paramsNr), guid,
                  ": the glue gave ", instance.kernel.paramsNr,
                  " scalars, the kernel takes others");
    }
  }
  ++launches;
  padded_loads += m.padded_loads;
  TORCH_CHECK(m.violation[0] == '\0', guid, ": outside of its access pattern: ", m.violation);
}

}  // namespace

namespace habana::custom_op {

void registerUserCustomOp(const std::string& schema, const std::string& guid,
                          OutputMetaFn output_meta, FillParamsFn fill_params) {
  uint32_t count = 0;
  GetKernelGuids(api::DEVICE_ID_GAUDI2, &count, nullptr);
  std::vector<api::GuidInfo> guids(count);
  GetKernelGuids(api::DEVICE_ID_GAUDI2, &count, guids.data());
  const bool known = std::any_of(guids.begin(), guids.end(),
                                 [&](const api::GuidInfo& info) { return info.name == guid; });
  TORCH_CHECK(known, "no kernel library knows the GUID ", guid);
  registry()[schema] = {guid, std::move(output_meta), std::move(fill_params)};
}

UserCustomOpDescriptor UserCustomOpDescriptor::getUserCustomOpDescriptor(
    const std::string& schema) {
  TORCH_CHECK(registry().count(schema) == 1, "no custom operator ", schema);
  UserCustomOpDescriptor descriptor;
  descriptor.schema_ = schema;
  return descriptor;
}

std::vector<at::Tensor> UserCustomOpDescriptor::execute(const std::vector<c10::IValue>& inputs) {
  const UserCustomOp& op = registry().at(schema_);
  Node node;
  emulator::Machine& m = emulator::machine();
  m.tensor_count = 0;
  std::vector<at::Tensor> outputs;
  for (const c10::IValue& value : inputs) {
    if (!value.isTensor()) continue;
    node.inputs.push_back(describe(value.toTensor()));
    place(m.tensors[m.tensor_count++], value.toTensor(), false);
  }
  const auto options = inputs.at(0).toTensor().options();
  for (const PartialOutputMetaData& meta : op.output_meta(inputs)) {
    // Filled with a number that no kernel leaves behind by chance.
    outputs.push_back(at::full(meta.shape, 12345.0, options.dtype(meta.dtype)));
    node.outputs.push_back(describe(outputs.back()));
    place(m.tensors[m.tensor_count++], outputs.back(), true);
  }
  size_t size = 0;
  node.user_params = op.fill_params(inputs, size);
  instantiate(node, op, size);
  run(node, op.guid);
  return outputs;
}

}  // namespace habana::custom_op

// ---- for the tests ----

extern "C" {
void emulator_configure(int parts, bool linear_lanes) { settings = {parts, linear_lanes}; }
int64_t emulator_launches() { return launches; }

// A load of the third of four elements where only the first two are allowed.
bool emulator_reports_violations() {
  emulator::Machine& m = emulator::machine();
  float values[4] = {};
  m.tensor_count = 1;
  m.tensors[0] = {reinterpret_cast<char*>(values), sizeof(float), 1, {4}, {1}, {0}, {1}, false};
  m.violation[0] = '\0';
  const int at[emulator::kMaxDims] = {};
  const bool first = emulator::element(0, at, 1, false) != nullptr && m.violation[0] == '\0';
  return first && emulator::element(0, at, 2, false) == nullptr && m.violation[0] != '\0';
}

int64_t emulator_padded_loads() { return padded_loads; }
}
