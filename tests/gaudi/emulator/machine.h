// SPDX-License-Identifier: Apache-2.0
// The state of one emulated TPC: its tensors, its part of the index space, and what it may touch.
#pragma once

#include <cstdint>

namespace emulator {

constexpr int kMaxDims = 5;
constexpr int kMaxTensors = 8;

struct TensorState {
  char* data = nullptr;
  int element_size = 0;
  int dims = 0;
  long size[kMaxDims] = {};    // the fastest dimension first
  long stride[kMaxDims] = {};  // in elements
  // What the access pattern of the glue allows this part of the index space to touch, both ends
  // included.
  long low[kMaxDims] = {};
  long high[kMaxDims] = {};
  bool writable = false;
};

struct Machine {
  TensorState tensors[kMaxTensors];
  int tensor_count = 0;
  int offset[kMaxDims] = {};
  int size[kMaxDims] = {};
  // Elements that one half of a bf16 conversion takes: every second one, or the first 64. Kernels
  // must not depend on it.
  bool linear_lanes = false;
  // Of the elements that a load asked for: how many lay beyond the tensor and read as zero.
  long padded_loads = 0;
  // The first touch outside of the access pattern, as text; empty if there was none.
  char violation[160] = {};
};

// The machine of this thread.
Machine& machine();

// Element `lane` of a load or store at `at`; null beyond the tensor.
char* element(int tensor, const int* at, int lane, bool writing);

}  // namespace emulator
