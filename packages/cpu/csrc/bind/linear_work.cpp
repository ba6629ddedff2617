// SPDX-License-Identifier: Apache-2.0
// The cut of a linear layer into blocks of rows, chunks of k and blocks of channels, and the work
// of the threads.
#include "linear_work.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

namespace vllm_ops {
namespace {

// All memory beyond the output: x widened, and for every thread its accumulators and weights. Both
// together stay below 8 MB, for any weight.
constexpr int64_t kRowBytes = int64_t{4} << 20;
constexpr int64_t kThreadBytes = int64_t{3} << 20;
constexpr int64_t kLine = 64;

// Rows of x that pass over the weight together. More than this gains nothing: the weight is then
// already multiplied 128 times for each time it is read and widened.
constexpr int64_t kBlockRows = 128;

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<void, Free>;

Buffer allocate(int64_t bytes) {
  void* p = std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine + kLine);
  if (p == nullptr) throw std::bad_alloc();
  return Buffer(p);
}

int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// How a block of rows is computed. Nothing here changes a result.
struct Plan {
  int64_t block_rows;
  int64_t chunk;  // of k
  int64_t block_channels;
  bool wide;
};

Plan plan(const LinearWork& p, int64_t rows, int64_t threads) {
  Plan plan{};
  const int64_t row_bytes = round_up(std::max<int64_t>(p.k, 1), p.table.step) * 4;
  const int64_t per_thread = kThreadBytes / threads;
  // A single row of weights that fit the caches: 8 channels 18 us at 576 x 1536, 32 channels 21; of
  // weights that don't (4096 x 11008), 1,640 and 1,480.
  const bool cached = p.k * p.channels * p.weight_bytes <= int64_t{1} << 22;
  plan.block_channels = (rows == 1 && cached) || threads > 32 ? 8 : kLinearChannels;
  // x stays in the first-level cache while it meets the channels of a block: at most 16 KB of it
  // at a time, and pieces of the weight's rows as long as that allows. Of equal length, since one
  // piece asks for the next: a short one would ask for too little.
  const int64_t longest = rows <= 4 ? 1024 : rows <= 8 ? 512 : 256;
  const int64_t pieces = std::max<int64_t>(1, (p.k + longest - 1) / longest);
  plan.chunk = round_up(std::max<int64_t>(1, (p.k + pieces - 1) / pieces), 64);
  // Widening a weight in registers, for every five rows again, hides behind the multiplications:
  // 128 rows at 4096 x 4096 reach 123 gigaflops a core, from a widened copy in the cache 116. The
  // copy is for weights whose elements do not follow each other.
  plan.wide = p.weight_step != 1;
  const int64_t sums_per_row = kLinearChannels * p.table.vector_bytes;
  const int64_t wide_bytes = plan.wide ? plan.block_channels * plan.chunk * 4 : 0;
  int64_t most = std::min(kBlockRows, kRowBytes / row_bytes);
  most = std::max<int64_t>(1, std::min(most, (per_thread - wide_bytes) / sums_per_row));
  const int64_t blocks = (rows + most - 1) / most;
  plan.block_rows = (rows + blocks - 1) / blocks;
  return plan;
}

// f(begin, end) over [0, n), on one thread if the work in multiplications is small.
template <class F>
void parallel(int64_t n, int64_t work, const F& f) {
  constexpr int64_t kSmall = 65536;  // some 5 us, what waking a second thread may cost
  if (n <= 1 || n * work <= kSmall) {
    f(int64_t{0}, n);
  } else {
    torch::stable::parallel_for(0, n, 1, f);
  }
}

}  // namespace

void run(const LinearWork& p, const RowGrid<1>& grid) {
  const int64_t total = grid.rows();
  if (total == 0 || p.channels == 0) return;
  const int64_t threads = std::max<int64_t>(1, torch::stable::get_num_threads());
  const Plan plan_ = plan(p, total, threads);
  const int64_t padded = round_up(p.k, p.table.step);
  const Buffer packed = allocate(plan_.block_rows * padded * 4);
  float* const to = static_cast<float*>(packed.get());
  const int64_t blocks = (p.channels + plan_.block_channels - 1) / plan_.block_channels;
  for (int64_t first = 0; first < total; first += plan_.block_rows) {
    const int64_t rows = std::min(plan_.block_rows, total - first);
    parallel(rows, p.k, [&](int64_t begin, int64_t end) {
      grid.for_runs(first + begin, first + end,
                    [&](int64_t row, const int64_t* offset, int64_t count) {
                      for (int64_t i = 0; i < count; ++i) {
                        const int64_t at_row = offset[0] + i * grid.inner_strides()[0];
                        p.pack({at(p.x, at_row, p.dtype), p.x_step, p.k, plan_.chunk, rows,
                                row - first + i, to});
                      }
                    });
    });
    // Threads take the next block when they are done with one, so that a slower core (or one that
    // is busy otherwise) holds nobody up.
    std::atomic<int64_t> taken{0};
    const int64_t workers =
        rows * p.k * p.channels <= 65536 ? 1 : std::min<int64_t>(threads, blocks);
    parallel(workers, rows * p.k * p.channels, [&](int64_t, int64_t) {
      const Buffer sums = allocate(rows * kLinearChannels * p.table.vector_bytes);
      const Buffer wide = plan_.wide ? allocate(plan_.block_channels * plan_.chunk * 4) : Buffer();
      int64_t next = taken.fetch_add(1, std::memory_order_relaxed);
      while (next < blocks) {
        const int64_t n = next * plan_.block_channels;
        next = taken.fetch_add(1, std::memory_order_relaxed);
        LinearArgs g{};
        g.weight = static_cast<const char*>(p.weight) + n * p.weight_stride * p.weight_bytes;
        g.weight_stride = p.weight_stride;
        g.weight_step = p.weight_step;
        g.next = (std::min(next, blocks) * plan_.block_channels - n) * p.weight_stride;
        g.x = to;
        g.rows = rows;
        g.k = p.k;
        g.chunk = plan_.chunk;
        g.channels = std::min(plan_.block_channels, p.channels - n);
        if (p.scale != nullptr) g.scale = p.scale + n * p.scale_stride;
        g.scale_stride = p.scale_stride;
        g.bias = p.bias == nullptr ? nullptr : at(p.bias, n * p.bias_stride, p.dtype);
        g.bias_stride = p.bias_stride;
        g.out = at(p.out, first * p.channels + n, p.dtype);
        g.out_stride = p.channels;
        g.wide = static_cast<float*>(wide.get());
        g.sums = sums.get();
        p.kernel(g);
      }
    });
  }
}

}  // namespace vllm_ops
