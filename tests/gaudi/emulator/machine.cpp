// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <cstdio>

namespace emulator {

Machine& machine() {
  thread_local Machine state;
  return state;
}

char* element(int tensor, const int* at, int lane, bool writing) {
  Machine& m = machine();
  TensorState& t = m.tensors[tensor];
  bool inside = true;
  bool allowed = tensor < m.tensor_count && t.writable == writing;
  long offset = 0;
  for (int d = 0; d < kMaxDims; ++d) {
    const long index = at[d] + (d == 0 ? lane : 0);
    if (d >= t.dims) {
      inside = inside && index == 0;
      continue;
    }
    inside = inside && index >= 0 && index < t.size[d];
    allowed = allowed && index >= t.low[d] && index <= t.high[d];
    offset += index * t.stride[d];
  }
  if (!inside) {
    if (!writing) ++m.padded_loads;
    return nullptr;
  }
  if (!allowed && m.violation[0] == '\0') {
    std::snprintf(m.violation, sizeof(m.violation), "a %s of tensor %d at [%d + %d, %d, %d]",
                  writing ? "store" : "load", tensor, at[0], lane, at[1], at[2]);
  }
  return allowed ? t.data + offset * t.element_size : nullptr;
}

}  // namespace emulator
