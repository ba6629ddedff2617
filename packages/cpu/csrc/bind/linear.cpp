// SPDX-License-Identifier: Apache-2.0
// Binding of linear: checks, the cut into blocks of rows, chunks of k and blocks of channels, the
// work of the threads.
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "common.h"
#include "linear_path.h"
#include "register.h"
#include "rows.h"

namespace vllm_ops {
namespace {

constexpr auto kOp = "linear";

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

struct Problem {
  const LinearTable& table;
  int dtype;
  const void* x;
  int64_t x_step;
  const void* weight;
  int64_t weight_stride, weight_step;
  const void* bias;
  int64_t bias_stride;
  void* out;
  int64_t rows, k, channels;
};

// How a block of rows is computed. Nothing here changes a result.
struct Plan {
  int64_t block_rows;
  int64_t chunk;  // of k
  int64_t block_channels;
  bool wide;
};

Plan plan(const Problem& p, int64_t threads) {
  Plan plan{};
  const int64_t row_bytes = round_up(std::max<int64_t>(p.k, 1), p.table.step) * 4;
  const int64_t per_thread = kThreadBytes / threads;
  // A single row of weights that fit the caches: 8 channels 18 us at 576 x 1536, 32 channels 21; of
  // weights that don't (4096 x 11008), 1,640 and 1,480.
  const bool cached = p.k * p.channels <= int64_t{1} << 21;
  plan.block_channels = (p.rows == 1 && cached) || threads > 32 ? 8 : kLinearChannels;
  // x stays in the first-level cache while it meets the channels of a block: at most 16 KB of it
  // at a time, and pieces of the weight's rows as long as that allows. Of equal length, since one
  // piece asks for the next: a short one would ask for too little.
  const int64_t longest = p.rows <= 4 ? 1024 : p.rows <= 8 ? 512 : 256;
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
  const int64_t blocks = (p.rows + most - 1) / most;
  plan.block_rows = (p.rows + blocks - 1) / blocks;
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

void run(const Problem& p, const RowGrid<1>& grid) {
  const int64_t threads = std::max<int64_t>(1, torch::stable::get_num_threads());
  const Plan plan_ = plan(p, threads);
  const int64_t padded = round_up(p.k, p.table.step);
  const Buffer packed = allocate(plan_.block_rows * padded * 4);
  float* const to = static_cast<float*>(packed.get());
  const int64_t blocks = (p.channels + plan_.block_channels - 1) / plan_.block_channels;
  for (int64_t first = 0; first < p.rows; first += plan_.block_rows) {
    const int64_t rows = std::min(plan_.block_rows, p.rows - first);
    parallel(rows, p.k, [&](int64_t begin, int64_t end) {
      grid.for_runs(first + begin, first + end,
                    [&](int64_t row, const int64_t* offset, int64_t count) {
                      for (int64_t i = 0; i < count; ++i) {
                        const int64_t at_row = offset[0] + i * grid.inner_strides()[0];
                        p.table.pack[p.dtype]({at(p.x, at_row, p.dtype), p.x_step, p.k, plan_.chunk,
                                               rows, row - first + i, to});
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
        g.weight = at(p.weight, n * p.weight_stride, p.dtype);
        g.weight_stride = p.weight_stride;
        g.weight_step = p.weight_step;
        g.next = (std::min(next, blocks) * plan_.block_channels - n) * p.weight_stride;
        g.x = to;
        g.rows = rows;
        g.k = p.k;
        g.chunk = plan_.chunk;
        g.channels = std::min(plan_.block_channels, p.channels - n);
        g.bias = p.bias == nullptr ? nullptr : at(p.bias, n * p.bias_stride, p.dtype);
        g.bias_stride = p.bias_stride;
        g.out = at(p.out, first * p.channels + n, p.dtype);
        g.out_stride = p.channels;
        g.wide = static_cast<float*>(wide.get());
        g.sums = sums.get();
        p.table.linear[p.dtype](g);
      }
    });
  }
}

bool is_contiguous(const Meta& m) {
  int64_t stride = 1;
  for (int64_t i = m.dim - 1; i >= 0; --i) {
    if (m.sizes[i] != 1 && m.strides[i] != stride) return false;
    stride *= std::max<int64_t>(1, m.sizes[i]);
  }
  return true;
}

AtenTensorHandle another_handle(const Tensor& tensor) {
  AtenTensorHandle handle = nullptr;
  VLLM_OPS_SHIM(aoti_torch_new_tensor_handle(tensor.get(), &handle));
  return handle;
}

// A contiguous tensor, seen in another contiguous shape.
Tensor view(const Tensor& tensor, const int64_t* sizes, int64_t dim) {
  int64_t strides[64], offset = 0;
  for (int64_t i = dim - 1, stride = 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= std::max<int64_t>(1, sizes[i]);
  }
  AtenTensorHandle handle = nullptr;
  VLLM_OPS_SHIM(aoti_torch_get_storage_offset(tensor.get(), &offset));
  VLLM_OPS_SHIM(aoti_torch__reinterpret_tensor(tensor.get(), dim, sizes, strides, offset, &handle));
  return Tensor(handle);
}

// torch's own, always of two dimensions: in some others it rounds the product before it adds the
// bias.
Tensor native(Tensor x, const Tensor& weight, const Tensor& bias, const int64_t* out_sizes) {
  const Meta m = meta(x);
  const int64_t dim = m.dim;
  if (dim != 2) {
    const int64_t k = m.last();
    int64_t rows = 1;
    for (int64_t i = 0; i + 1 < dim; ++i) rows *= m.sizes[i];
    if (!is_contiguous(m)) x = contiguous(x);
    const int64_t flat[2] = {rows, k};
    x = view(x, flat, 2);
  }
  std::optional<AtenTensorHandle> b;
  if (bias) b = another_handle(bias);
  StableIValue stack[3] = {torch::stable::detail::from(another_handle(x)),
                           torch::stable::detail::from(another_handle(weight)),
                           torch::stable::detail::from(b)};
  VLLM_OPS_SHIM(torch_call_dispatcher("aten::linear", "", stack, TORCH_ABI_VERSION));
  Tensor out(stack[0]);
  if (!is_contiguous(meta(out))) out = contiguous(out);
  return dim == 2 ? std::move(out) : view(out, out_sizes, dim);
}

void check_parameter(const char* name, const Meta& m, const Meta& x) {
  VLLM_OPS_CHECK(m.dtype == x.dtype, kOp, name, " must be ", dtype_name(x.dtype), ", got ",
                 dtype_name(m.dtype));
}

void boxed_linear(StableIValue* stack, uint64_t num_args, uint64_t) {
  check_arity(kOp, num_args, 3);
  Tensor x(stack[0]), weight(stack[1]);
  Tensor bias = optional_tensor(stack[2]);
  const Meta m = check_floating(kOp, "x", x);
  const Meta w = check_any_floating(kOp, "weight", "x", weight);
  check_parameter("weight", w, m);
  VLLM_OPS_CHECK(w.dim == 2, kOp, "weight must have 2 dimensions, got ", w.dim);
  VLLM_OPS_CHECK(w.sizes[1] == m.last(), kOp, "x must have ", w.sizes[1],
                 " elements in the last dimension, got ", m.last());
  Meta b;
  if (bias) {
    b = check_any_floating(kOp, "bias", "x", bias);
    check_parameter("bias", b, m);
    if (b.dim != 1)
      fail(kOp, "bias must have ", w.sizes[0], " elements, got shape ", shape_string(b));
    VLLM_OPS_CHECK(b.last() == w.sizes[0], kOp, "bias must have ", w.sizes[0], " elements, got ",
                   b.last());
  }
  const int dtype = dtype_index(m.dtype);
  static const bool by_kernel[kNumDTypes] = {false, linear_path(linear_report(), kBF16).kernel,
                                             linear_path(linear_report(), kF16).kernel, false};
  int64_t sizes[64];
  std::copy(m.sizes, m.sizes + m.dim, sizes);
  sizes[m.dim - 1] = w.sizes[0];
  // Beyond a million elements in a row, one widened row would be more memory than is promised.
  if (!by_kernel[dtype] || m.last() > (int64_t{1} << 20)) {
    stack[0] = native(std::move(x), weight, bias, sizes).release();
    return;
  }
  Tensor out = empty(sizes, m.dim, m.dtype);
  const RowGrid<1> grid(m.sizes, m.dim - 1, {m.strides});
  if (grid.rows() > 0 && w.sizes[0] > 0) {
    run({*kernels().linear, dtype, data(x), m.strides[m.dim - 1], data(weight), w.strides[0],
         w.unit_last_stride() ? 1 : w.strides[1], bias ? data(bias) : nullptr,
         bias ? b.strides[0] : 0, mutable_data(out), grid.rows(), m.last(), w.sizes[0]},
        grid);
  }
  stack[0] = out.release();
}

}  // namespace

void register_linear(Library& m) { m.impl("linear", &boxed_linear); }

}  // namespace vllm_ops
