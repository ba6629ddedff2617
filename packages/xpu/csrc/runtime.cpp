// SPDX-License-Identifier: Apache-2.0
#include "runtime.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

#include "compiler.h"
#include "launch.h"
#include "units.h"

// Nothing here is ever destroyed: at exit, SYCL's runtime may be gone before our statics, and a
// queue or a kernel that is released then aborts the process.
namespace vllm_ops::xpu {
namespace {

struct Place {
  int unit, index;
};

const std::unordered_map<const void*, Place>& places() {
  static const auto& found = *[] {
    auto* map = new std::unordered_map<const void*, Place>;
    for (int u = 0; u < int(units().size()); ++u) {
      const auto& instances = units()[u].instances;
      for (int i = 0; i < int(instances.size()); ++i) {
        if (!map->emplace(instances[i].address, Place{u, i}).second) {
          throw std::logic_error(std::string("two kernels share an address: ") + instances[i].name);
        }
      }
    }
    return map;
  }();
  return found;
}

struct Compiled {
  std::mutex mutex;
  std::atomic<bool> ready{false};
  std::vector<sycl::kernel> kernels;
};

struct OfDevice {
  sycl::context context;
  sycl::device device;
  std::vector<Compiled> units;
  explicit OfDevice(const sycl::queue& queue)
      : context(queue.get_context()), device(queue.get_device()), units(xpu::units().size()) {}
};

// Torch has one context for all of its devices; a unit is compiled for one of them.
OfDevice& of_device(const sycl::queue& queue) {
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::vector<std::unique_ptr<OfDevice>>;
  const std::lock_guard<std::mutex> lock(mutex);
  for (auto& each : known) {
    if (each->device == queue.get_device() && each->context == queue.get_context()) return *each;
  }
  known.push_back(std::make_unique<OfDevice>(queue));
  return *known.back();
}

// The compiled unit, and whether it was compiled now.
std::pair<Compiled*, bool> ready(const sycl::queue& queue, int unit) {
  Compiled& compiled = of_device(queue).units[size_t(unit)];
  if (compiled.ready.load(std::memory_order_acquire)) return {&compiled, false};
  const std::lock_guard<std::mutex> lock(compiled.mutex);
  if (compiled.ready.load(std::memory_order_relaxed)) return {&compiled, false};
  compiled.kernels = compile(queue, units()[unit]);
  compiled.ready.store(true, std::memory_order_release);
  return {&compiled, true};
}

std::atomic<sycl::queue*> cpu{nullptr};
thread_local std::string last_error;
thread_local std::string told_error;

}  // namespace

const sycl::kernel& kernel_for(const sycl::queue& queue, const void* address) {
  const Place place = places().at(address);
  return ready(queue, place.unit).first->kernels[place.index];
}

bool compile_unit(const sycl::queue& queue, int unit) { return ready(queue, unit).second; }

sycl::queue& cpu_queue() {
  static auto& queue = *new sycl::queue{sycl::cpu_selector_v, sycl::property::queue::in_order{}};
  cpu.store(&queue, std::memory_order_release);
  return queue;
}

void* cpu_queue_or_null(const char** reason) {
  static thread_local std::string text;
  try {
    return &cpu_queue();
  } catch (const std::exception& error) {
    text = error.what();
    *reason = text.c_str();
    return nullptr;
  }
}

bool is_cpu_queue(const sycl::queue* queue) { return queue == cpu.load(std::memory_order_acquire); }

std::string describe(const sycl::queue& queue) {
  const sycl::device device = queue.get_device();
  return device.get_info<sycl::info::device::name>() + ", driver " +
         device.get_info<sycl::info::device::driver_version>();
}

void remember_error(const char* what) {
  if (last_error.empty()) last_error = what;
}

}  // namespace vllm_ops::xpu

namespace vllm_ops::gpu {

const char* launch_error() {
  if (xpu::last_error.empty()) return nullptr;
  xpu::told_error = std::move(xpu::last_error);
  xpu::last_error.clear();
  return xpu::told_error.c_str();
}

const char* architecture() { return "its SYCL device"; }

}  // namespace vllm_ops::gpu
