// SPDX-License-Identifier: Apache-2.0
#include "simt.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {

Settings settings;
Thread* current = nullptr;
Dim3 block_index, block_dim, grid_dim;

namespace {

constexpr size_t kStack = 256 << 10;

struct Fiber {
  ucontext_t context;
  jmp_buf jump;
  bool begun = false;
  char* stack = nullptr;
  void* sanitizer = nullptr;
};

enum class State { kNew, kBarrier, kShuffle, kDone };

struct Status : Thread {
  State state = State::kNew;
  Fiber* fiber = nullptr;
  Site site = {"", 0};
  unsigned wait = 0;  // the generation of the barrier or shuffle that it waits to see pass
};

struct Warp {
  float value[2][64];
  unsigned generation = 0;
  int arrived = 0, size = 0;
  Site site = {"", 0};
};

struct Range {
  const char *begin, *end;
  bool writable;
};

std::vector<Range> ranges;
std::vector<Status> threads;
std::vector<Warp> warps;
std::vector<int> order;
size_t next_new = 0;  // into `order`: threads before it have begun
unsigned barrier_generation = 1;
int barrier_arrived = 0;
Site barrier_site = {"", 0};
const std::function<void()>* kernel = nullptr;
std::exception_ptr error;

std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<Fiber*> idle;
Fiber* running = nullptr;
Fiber scheduler;

struct Allocation {
  std::vector<uint64_t> data;
  std::vector<SharedRecord> records;
};
std::map<const void*, Allocation> shared;
std::vector<const void*> declared;  // in this block

std::string at(Site site) {
  const char* name = strrchr(site.file, '/');
  return std::string(name != nullptr ? name + 1 : site.file) + ":" + std::to_string(site.line);
}

bool same(Site a, Site b) { return a.line == b.line && strcmp(a.file, b.file) == 0; }

// ---- fibers ----

#if defined(__SANITIZE_ADDRESS__)
size_t main_size = 0;
const void* main_stack = nullptr;

void switch_to(Fiber& from, Fiber& to) {
  const bool to_main = &to == &scheduler;
  __sanitizer_start_switch_fiber(&from.sanitizer, to_main ? main_stack : to.stack,
                                 to_main ? main_size : kStack);
  swapcontext(&from.context, &to.context);
  __sanitizer_finish_switch_fiber(from.sanitizer, nullptr, nullptr);
}
#else
// A context is only needed to begin on a new stack: swapcontext saves the signal mask with a system
// call each time, jumping doesn't.
void switch_to(Fiber& from, Fiber& to) {
  if (_setjmp(from.jump) != 0) return;
  if (&to == &scheduler || to.begun) _longjmp(to.jump, 1);
  to.begun = true;
  setcontext(&to.context);
}
#endif

void to_scheduler() { switch_to(*running, scheduler); }

Status* take_new() { return next_new < order.size() ? &threads[order[next_new++]] : nullptr; }

// A fiber runs new threads until one of them waits; it comes back to that one when it may go on.
void fiber_main() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &main_stack, &main_size);
#endif
  for (;;) {
    Fiber* self = running;
    while (!error) {
      Status* status = take_new();
      if (status == nullptr) break;
      status->fiber = self;
      current = status;
      try {
        (*kernel)();
      } catch (...) {
        error = std::current_exception();
      }
      // Another fiber may have run meanwhile, this thread is still the one that ends here.
      static_cast<Status*>(current)->state = State::kDone;
    }
    idle.push_back(self);
    to_scheduler();
  }
}

Fiber* idle_fiber() {
  if (!idle.empty()) {
    Fiber* fiber = idle.back();
    idle.pop_back();
    return fiber;
  }
  fibers.push_back(std::make_unique<Fiber>());
  Fiber* fiber = fibers.back().get();
  void* stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) throw std::runtime_error("simt: no memory for a fiber's stack");
  fiber->stack = static_cast<char*>(stack);
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack;
  fiber->context.uc_stack.ss_size = kStack;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, fiber_main, 0);
  return fiber;
}

// After an error the fibers that still wait hold half-run kernels: none of them is used again.
void drop_fibers() {
  for (auto& fiber : fibers) munmap(fiber->stack, kStack);
  fibers.clear();
  idle.clear();
}

void run_fiber(Fiber* fiber) {
  running = fiber;
  switch_to(scheduler, *fiber);
  running = nullptr;
}

void wait(State state, unsigned generation, Site site) {
  Status* self = static_cast<Status*>(current);
  self->state = state;
  self->wait = generation;
  self->site = site;
  to_scheduler();
  current = self;
}

// ---- one block ----

bool may_go_on(const Status& status) {
  if (status.state == State::kBarrier) return barrier_generation != status.wait;
  return warps[status.id / settings.warp].generation != status.wait;
}

[[noreturn]] void report_deadlock() {
  int done = 0;
  const Status* waiting = nullptr;
  for (const Status& status : threads) {
    if (status.state == State::kDone) {
      ++done;
    } else if (waiting == nullptr) {
      waiting = &status;
    }
  }
  current = const_cast<Status*>(waiting);
  const char* what = waiting->state == State::kBarrier ? "the barrier" : "the shuffle";
  fail(std::string("divergence: not all threads reach ") + what + " at " + at(waiting->site) +
       "; " + std::to_string(done) + " of " + std::to_string(threads.size()) +
       " threads have returned");
}

void run_block(std::mt19937& random) {
  for (const void* key : declared) {
    Allocation& allocation = shared[key];
    std::fill(allocation.data.begin(), allocation.data.end(), ~uint64_t{0});  // NaN in any dtype
    std::fill(allocation.records.begin(), allocation.records.end(), SharedRecord{});
  }
  declared.clear();
  barrier_generation = 1;
  barrier_arrived = 0;
  for (size_t i = 0; i < threads.size(); ++i) {
    threads[i].state = State::kNew;
    threads[i].fiber = nullptr;
  }
  for (size_t i = 0; i < warps.size(); ++i) {
    warps[i].generation = 0;
    warps[i].arrived = 0;
  }
  if (settings.order == Order::kRandom) std::shuffle(order.begin(), order.end(), random);
  next_new = 0;
  while (next_new < order.size() && !error) run_fiber(idle_fiber());
  for (bool done = false; !done && !error;) {
    if (settings.order == Order::kRandom) std::shuffle(order.begin(), order.end(), random);
    done = true;
    bool progress = false;
    for (int id : order) {
      Status& status = threads[id];
      if (status.state == State::kDone) continue;
      done = false;
      if (!may_go_on(status)) continue;
      progress = true;
      run_fiber(status.fiber);
      if (error) break;
    }
    if (!done && !progress && !error) report_deadlock();
  }
}

}  // namespace

void fail(const std::string& what) {
  std::string where;
  if (current != nullptr) {
    where = " (block " + std::to_string(block_index.x) + "," + std::to_string(block_index.y) +
            " thread " + std::to_string(current->x) + "," + std::to_string(current->y) + "," +
            std::to_string(current->z) + ")";
  }
  throw std::runtime_error("simt: " + what + where);
}

void sync_block(Site site) {
  if (barrier_arrived == 0) {
    barrier_site = site;
  } else if (!same(barrier_site, site)) {
    fail("divergence: one thread is at the barrier at " + at(barrier_site) + ", another at " +
         at(site));
  }
  if (++barrier_arrived == int(threads.size())) {
    barrier_arrived = 0;
    ++barrier_generation;
  } else {
    wait(State::kBarrier, barrier_generation, site);
  }
}

float shfl_xor(float v, int mask, Site site) {
  Warp& warp = warps[current->id / settings.warp];
  const int lane = current->id % settings.warp, from = lane ^ mask;
  if (from >= warp.size) {
    fail("shuffle at " + at(site) + " reads lane " + std::to_string(from) + " of a warp of " +
         std::to_string(warp.size) + " threads");
  }
  if (warp.arrived == 0) {
    warp.site = site;
  } else if (!same(warp.site, site)) {
    fail("divergence: one lane is at the shuffle at " + at(warp.site) + ", another at " + at(site));
  }
  const unsigned generation = warp.generation;
  warp.value[generation & 1][lane] = v;
  if (++warp.arrived == warp.size) {
    warp.arrived = 0;
    ++warp.generation;
  } else {
    wait(State::kShuffle, generation, site);
  }
  return warp.value[generation & 1][from];
}

void allow(const void* begin, int64_t bytes, bool writable) {
  const char* first = static_cast<const char*>(begin);
  if (bytes > 0) ranges.push_back({first, first + bytes, writable});
}

void release() { ranges.clear(); }

void check_access(const void* p, int64_t bytes, bool store) {
  const char* first = static_cast<const char*>(p);
  bool readable = false;
  for (const Range& range : ranges) {
    if (first >= range.begin && first + bytes <= range.end) {
      if (!store || range.writable) return;
      readable = true;
    }
  }
  fail(readable ? "store to a tensor that the operator only reads"
                : std::string(store ? "store to " : "load of ") + std::to_string(bytes) +
                      " bytes outside the tensors of the call");
}

void check_alignment(const void* p, int64_t bytes) {
  if (reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes) != 0) {
    fail("misaligned vector access: " + std::to_string(bytes) + " bytes at an address that is " +
         std::to_string(reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes)) + " modulo " +
         std::to_string(bytes));
  }
}

SharedBlock shared_block(const void* key, int64_t count, int64_t element_bytes) {
  Allocation& allocation = shared[key];
  if (allocation.records.empty()) {
    // Twice the size, so that a vector access past the end is reported and never wild.
    allocation.data.assign(2 * (count * element_bytes + 15) / 8, ~uint64_t{0});
    allocation.records.assign(count, SharedRecord{});
  }
  if (std::find(declared.begin(), declared.end(), key) == declared.end()) declared.push_back(key);
  char* data = reinterpret_cast<char*>(allocation.data.data());
  data += (16 - reinterpret_cast<uintptr_t>(data) % 16) % 16;
  return {data, allocation.records.data(), count};
}

void check_shared(const SharedBlock& block, int64_t first, int64_t count, bool store) {
  if (first < 0 || first + count > block.count) {
    fail("shared memory element " + std::to_string(first + count - 1) + " of " +
         std::to_string(block.count));
  }
  const int self = current->id;
  for (int64_t i = first; i < first + count; ++i) {
    SharedRecord& record = block.records[i];
    const bool written_now = record.writer >= 0 && record.written == barrier_generation;
    if (written_now && record.writer != self) {
      fail("race: thread " + std::to_string(record.writer) + " wrote shared memory element " +
           std::to_string(i) + " and this one touches it with no barrier between");
    }
    if (store) {
      if (record.read == barrier_generation && record.reader != self && record.reader != -1) {
        fail("race: another thread read shared memory element " + std::to_string(i) +
             " and this one writes it with no barrier between");
      }
      record.writer = self;
      record.written = barrier_generation;
    } else {
      if (record.writer < 0)
        fail("read of shared memory element " + std::to_string(i) + ", which nobody wrote");
      const bool read_now = record.read == barrier_generation && record.reader != -1;
      record.reader = read_now && record.reader != self ? kMany : self;
      record.read = barrier_generation;
    }
  }
}

void launch(Dim3 grid, Dim3 block, const std::function<void()>& body) {
  const unsigned count = block.x * block.y * block.z;
  if (count == 0 || count > 1024 || grid.x == 0 || grid.y == 0 || grid.y > 65535) {
    fail("no GPU takes a launch of " + std::to_string(grid.x) + "," + std::to_string(grid.y) +
         " blocks of " + std::to_string(count) + " threads");
  }
  kernel = &body;
  error = nullptr;
  grid_dim = grid;
  block_dim = block;
  threads.assign(count, Status{});
  order.resize(count);
  for (unsigned i = 0; i < count; ++i) {
    threads[i].id = int(i);
    threads[i].x = int(i % block.x);
    threads[i].y = int(i / block.x % block.y);
    threads[i].z = int(i / block.x / block.y);
    order[i] = int(settings.order == Order::kBackward ? count - 1 - i : i);
  }
  const unsigned warp = unsigned(settings.warp);
  warps.assign((count + warp - 1) / warp, Warp{});
  for (size_t i = 0; i < warps.size(); ++i) {
    warps[i].size = int(std::min<unsigned>(warp, count - unsigned(i) * warp));
  }
  std::mt19937 random(20260);
  const int64_t blocks = int64_t(grid.x) * grid.y;
  std::vector<int64_t> sequence(blocks);
  for (int64_t i = 0; i < blocks; ++i) {
    sequence[i] = settings.order == Order::kBackward ? blocks - 1 - i : i;
  }
  if (settings.order == Order::kRandom) std::shuffle(sequence.begin(), sequence.end(), random);
  try {
    for (int64_t i : sequence) {
      block_index = {unsigned(i % grid.x), unsigned(i / grid.x), 0};
      run_block(random);
      if (error) std::rethrow_exception(error);
    }
  } catch (...) {
    drop_fibers();
    current = nullptr;
    throw;
  }
  current = nullptr;
}

}  // namespace simt

extern "C" __attribute__((visibility("default"))) void vllm_ops_simt_configure(int warp, int order,
                                                                               int64_t max_blocks) {
  simt::settings.warp = warp;
  simt::settings.order = simt::Order(order);
  simt::settings.max_blocks = max_blocks;
}
