#include "apps/runtime/cuda_driver.h"

#include <dlfcn.h>

#include <charconv>
#include <fstream>

namespace tessera {

namespace {

// The first word that looks like "580.65.06". Kernel interface files are no regular storage.
std::string module_version(const std::filesystem::path& file) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    const bool digit = word.front() >= '0' && word.front() <= '9';
    if (digit && word.find('.') != std::string::npos) return word;
  }
  return "";
}

// The library stays open: it is not made to be closed.
int served_cuda(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return 0;
  const auto get_version = reinterpret_cast<int (*)(int*)>(dlsym(handle, "cuDriverGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0) return 0;
  return version;
}

}  // namespace

CudaDriver find_cuda_driver(const std::string& library, const std::filesystem::path& module_file) {
  return {module_version(module_file), served_cuda(library)};
}

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int cuda_version_of(const std::string& text) {
  int major = 0, minor = 0;
  const char* end = text.data() + text.size();
  const auto [dot, bad] = std::from_chars(text.data(), end, major);
  if (bad != std::errc{} || dot == end || *dot != '.') return 0;
  if (std::from_chars(dot + 1, end, minor).ec != std::errc{}) return 0;
  return major * 1000 + minor * 10;
}

}  // namespace tessera
