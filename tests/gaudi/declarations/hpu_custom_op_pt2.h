// SPDX-License-Identifier: Apache-2.0
// Stand-in for the header of that name in habana_frameworks: only what the torch operators of
// vllm_ops use, written from the public description of the custom operator interface.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace habana {

struct PartialOutputMetaData {
  c10::ScalarType dtype;
  std::vector<int64_t> shape;
};
using PartialOutputMetaDataVector = std::vector<PartialOutputMetaData>;

namespace custom_op {

using OutputMetaFn = std::function<PartialOutputMetaDataVector(const at::Stack&)>;
using FillParamsFn = std::function<std::shared_ptr<void>(const at::Stack&, size_t&)>;

void registerUserCustomOp(const std::string& schema, const std::string& guid,
                          OutputMetaFn output_meta, FillParamsFn fill_params);

class UserCustomOpDescriptor {
 public:
  static UserCustomOpDescriptor getUserCustomOpDescriptor(const std::string& schema);
  std::vector<at::Tensor> execute(const std::vector<c10::IValue>& inputs);

 private:
  std::string schema_;
};

}  // namespace custom_op
}  // namespace habana
