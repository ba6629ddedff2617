// SPDX-License-Identifier: Apache-2.0
// A SIMT emulator: runs a kernel's own source on the CPU, one GPU thread after the other, switching
// between them where they wait for each other.
//
// A thread gets a fiber of its own only once it waits, so kernels without barriers run at the speed
// of a loop. What a GPU leaves undefined is an error here, with the kernel's line, block and
// thread: a barrier or a shuffle that not all threads reach, an access outside the tensors of the
// call, a store to a tensor that the call only reads, a misaligned vector access, a read of shared
// memory that nobody wrote, and two threads that touch one element of shared memory with no barrier
// between them, at least one writing.
//
// Not covered: atomics, memory order between blocks, tensor cores, and time.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <string>

namespace simt {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  Dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

enum class Order : int { kForward, kBackward, kRandom };

struct Settings {
  int warp = 32;
  Order order = Order::kForward;   // of the threads of a block and of the blocks of a grid
  int64_t max_blocks = INT32_MAX;  // what a launch claims to be able to have
};
extern Settings settings;

struct Thread {
  int id = 0;
  int x = 0, y = 0, z = 0;
};

// The thread that runs now, its block and its grid.
extern Thread* current;
extern Dim3 block_index, block_dim, grid_dim;

// Where in the kernel source something happens.
struct Site {
  const char* file;
  int line;
};

void sync_block(Site site);
// The value that lane ^ mask passed to the same shuffle.
float shfl_xor(float v, int mask, Site site);

// The tensors of the call: what a kernel may read, and may write. `release` forgets them.
void allow(const void* begin, int64_t bytes, bool writable);
void release();
// Raises unless [p, p + bytes) belongs to one of them.
void check_access(const void* p, int64_t bytes, bool store);
void check_alignment(const void* p, int64_t bytes);

[[noreturn]] void fail(const std::string& what);

// `bytes` of the block's shared memory for the declaration that `key` identifies, with the record
// of who touched which of its elements.
struct SharedRecord {
  int writer = -1, reader = -1;    // thread, or kMany
  unsigned written = 0, read = 0;  // after which barrier
};
constexpr int kMany = -2;
struct SharedBlock {
  char* data;
  SharedRecord* records;
  int64_t count;
};
SharedBlock shared_block(const void* key, int64_t count, int64_t element_bytes);
void check_shared(const SharedBlock& block, int64_t first, int64_t count, bool store);

// Runs `body` for every thread of every block.
void launch(Dim3 grid, Dim3 block, const std::function<void()>& body);

}  // namespace simt
