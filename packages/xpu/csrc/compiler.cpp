// SPDX-License-Identifier: Apache-2.0
#include "compiler.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "cache.h"
#include "kernel_sources.h"
#include "progress.h"

namespace vllm_ops::xpu {

#if defined(VLLM_OPS_AHEAD_OF_TIME)

std::vector<sycl::kernel> compile(const sycl::queue& queue, const Unit& unit) {
  std::vector<sycl::kernel> kernels;
  for (const Instance& instance : unit.instances) {
    kernels.push_back(instance.bundle(queue.get_context()).get_kernel(instance.id()));
  }
  return kernels;
}

#else

namespace {

namespace syclex = sycl::ext::oneapi::experimental;
using Bundle = sycl::kernel_bundle<sycl::bundle_state::executable>;

Bundle build_sources(const sycl::queue& queue, const Unit& unit) {
  std::string log;
  try {
    syclex::include_files files;
    for (const SourceFile& source : kSources) files.add(source.name, source.text);
    const std::string text =
        std::string("#include \"") + unit.header + "\"\nusing namespace vllm_ops::gpu;\n";
    std::vector<std::string> names;
    for (const Instance& instance : unit.instances) names.emplace_back(instance.name);
    auto source = syclex::create_kernel_bundle_from_source(
        queue.get_context(), syclex::source_language::sycl, text, syclex::properties{files});
    const std::vector<std::string> options(std::begin(kOptions), std::end(kOptions));
    return syclex::build(source, {queue.get_device()},
                         syclex::properties{syclex::save_log(&log), syclex::build_options{options},
                                            syclex::registered_names{names}});
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("the ") + unit.family + " kernels for " + unit.dtype +
                             " cannot be compiled: " + error.what() +
                             (log.empty() ? "" : "\n" + log));
  }
}

std::vector<Bundle> build_images(const sycl::queue& queue, const Program& program) {
  std::vector<Bundle> bundles;
  for (const auto& image : program.images) {
    auto source = syclex::create_kernel_bundle_from_source(queue.get_context(),
                                                           syclex::source_language::spirv, image);
    bundles.push_back(
        syclex::build(source, std::vector<sycl::device>{queue.get_device()}, syclex::properties{}));
  }
  return bundles;
}

// The kernels of a program that was on disk. Throws where the driver refuses it.
std::vector<sycl::kernel> from_disk(const sycl::queue& queue, const Program& program) {
  std::vector<Bundle> bundles = build_images(queue, program);
  std::vector<sycl::kernel> kernels;
  for (const auto& entry : program.entries) {
    kernels.push_back(bundles.at(size_t(entry.image)).ext_oneapi_get_kernel(entry.name));
  }
  return kernels;
}

// Whether SPIR-V has an entry point of this name: a word-aligned string that ends in a zero.
bool has_entry(const std::vector<std::byte>& image, const std::string& name) {
  const auto* begin = reinterpret_cast<const char*>(image.data());
  const auto* end = begin + image.size();
  const auto* found = std::search(begin, end, name.c_str(), name.c_str() + name.size() + 1);
  return found != end;
}

// What a bundle is made of; nothing where its images are no SPIR-V.
std::optional<Program> program_of(const Unit& unit, Bundle& bundle) {
  Program program;
  for (const auto& image : bundle) {
    program.images.push_back(image.ext_oneapi_get_backend_content());
    constexpr std::byte magic[] = {std::byte{3}, std::byte{2}, std::byte{0x23}, std::byte{7}};
    const auto& bytes = program.images.back();
    if (bytes.size() < 4 || !std::equal(std::begin(magic), std::end(magic), bytes.begin())) {
      return {};
    }
  }
  for (const Instance& instance : unit.instances) {
    const std::string name = bundle.ext_oneapi_get_raw_kernel_name(instance.name);
    int image = -1;
    for (int i = 0; i < int(program.images.size()); ++i) {
      if (has_entry(program.images[i], name)) image = i;
    }
    if (image < 0) return {};
    program.entries.push_back({image, name});
  }
  return program;
}

}  // namespace

std::vector<sycl::kernel> compile(const sycl::queue& queue, const Unit& unit) {
  const Progress progress(unit, queue);
  const std::string key = cache_key(queue, unit);
  if (const auto program = read_cache(key)) {
    try {
      return from_disk(queue, *program);
    } catch (const std::exception&) {
      // Compiled again below, and written over.
    }
  }
  Bundle bundle = build_sources(queue, unit);
  if (const auto program = program_of(unit, bundle)) write_cache(key, *program);
  std::vector<sycl::kernel> kernels;
  for (const Instance& instance : unit.instances) {
    kernels.push_back(bundle.ext_oneapi_get_kernel(instance.name));
  }
  return kernels;
}

#endif

}  // namespace vllm_ops::xpu
