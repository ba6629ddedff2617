// SPDX-License-Identifier: Apache-2.0
#include "cache.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernel_sources.h"
#include "runtime.h"

namespace vllm_ops::xpu {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[] = "vllm_ops.xpu 1\n";

// FNV-1a. The file's name needs no more, and for its content this finds accidents; against
// other users there are the permissions.
uint64_t hash_of(const char* data, size_t size) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ uint8_t(data[i])) * 0x100000001b3u;
  return hash;
}

std::string hexadecimal(uint64_t value) {
  char text[17];
  snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// Empty where nothing shall be cached.
fs::path folder() {
  if (const char* chosen = getenv("VLLM_OPS_XPU_CACHE")) {
    return strcmp(chosen, "off") == 0 ? "" : chosen;
  }
  if (const char* cache = getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return fs::path(cache) / "vllm_ops" / "xpu";
  }
  const char* home = getenv("HOME");
  return home != nullptr && *home == '/' ? fs::path(home) / ".cache" / "vllm_ops" / "xpu" : "";
}

// What another user could write is code that we would run.
bool ours_alone(const fs::path& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && status.st_uid == geteuid() &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// The libsycl that runs, and the compiler beside it: path, size and time of each.
std::string runtime_files() {
  Dl_info found;
  const auto function = reinterpret_cast<void*>(&sycl::detail::get_kernel_id_impl);
  if (dladdr(function, &found) == 0) return "unknown";
  std::error_code error;
  const fs::path library = fs::canonical(found.dli_fname, error);
  std::ostringstream text;
  for (const fs::path& file : {library, fs::path(library.parent_path() / "libsycl-jit.so")}) {
    const auto time = fs::last_write_time(file, error).time_since_epoch().count();
    text << file.string() << ' ' << fs::file_size(file, error) << ' ' << time << '\n';
  }
  return text.str();
}

fs::path place(const fs::path& in, const std::string& key) {
  return in / (hexadecimal(hash_of(key.data(), key.size())) + ".spirv");
}

}  // namespace

std::string cache_key(const sycl::queue& queue, const Unit& unit) {
  const sycl::device device = queue.get_device();
  const sycl::platform platform = device.get_platform();
  return std::string(kSourceHash) + '\n' + unit.family + ' ' + unit.dtype + '\n' + runtime_files() +
         platform.get_info<sycl::info::platform::name>() + '\n' +
         platform.get_info<sycl::info::platform::version>() + '\n' + describe(queue) + '\n';
}

// The file: kMagic, the hash of what follows, then lengths and contents in turn: of the key, of
// the entries, of the images.
std::optional<Program> read_cache(const std::string& key) {
  const fs::path in = folder();
  if (in.empty() || !ours_alone(in) || !ours_alone(place(in, key))) return {};
  std::ifstream file(place(in, key), std::ios::binary);
  std::ostringstream copied;
  copied << file.rdbuf();
  const std::string all = copied.str();
  const size_t head = sizeof kMagic - 1 + 16;
  if (!file || all.size() < head || all.compare(0, sizeof kMagic - 1, kMagic) != 0 ||
      all.substr(head - 16, 16) != hexadecimal(hash_of(all.data() + head, all.size() - head))) {
    return {};
  }
  std::istringstream words(all.substr(head));
  const auto bytes = [&words] {
    size_t size = 0;
    words >> size;
    words.get();
    std::string text(size, '\0');
    words.read(text.data(), std::streamsize(size));
    return text;
  };
  if (bytes() != key) return {};
  Program program;
  size_t entries = 0, images = 0;
  words >> entries >> images;
  for (size_t i = 0; i < entries; ++i) {
    Program::Entry entry;
    words >> entry.image >> entry.name;
    program.entries.push_back(entry);
  }
  for (size_t i = 0; i < images; ++i) {
    const std::string image = bytes();
    const auto* data = reinterpret_cast<const std::byte*>(image.data());
    program.images.emplace_back(data, data + image.size());
  }
  if (!words) return {};
  return program;
}

void write_cache(const std::string& key, const Program& program) noexcept {
  try {
    const fs::path in = folder();
    if (in.empty()) return;
    std::error_code error;
    if (fs::create_directories(in, error)) fs::permissions(in, fs::perms::owner_all, error);
    if (!ours_alone(in)) return;
    std::ostringstream words;
    words << key.size() << '\n' << key << program.entries.size() << ' ' << program.images.size();
    for (const auto& entry : program.entries) words << '\n' << entry.image << ' ' << entry.name;
    for (const auto& image : program.images) {
      words << '\n' << image.size() << '\n';
      words.write(reinterpret_cast<const char*>(image.data()), std::streamsize(image.size()));
    }
    const std::string body = words.str();
    const fs::path target = place(in, key);
    std::string partial = target.string() + ".XXXXXX";
    const int descriptor = mkstemp(partial.data());  // readable by us alone
    if (descriptor < 0) return;
    close(descriptor);
    std::ofstream file(partial, std::ios::binary);
    file << kMagic << hexadecimal(hash_of(body.data(), body.size())) << body;
    file.close();
    if (file) fs::rename(partial, target, error);
    if (!file || error) fs::remove(partial, error);
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace vllm_ops::xpu
