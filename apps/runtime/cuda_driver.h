// NVIDIA's driver on this machine, asked without the CUDA runtime: so that a program that was built
// without CUDA, or cannot use it, says what is there.
#pragma once

#include <filesystem>
#include <string>

namespace tessera {

struct CudaDriver {
  std::string version;  // of the kernel module, "580.65.06"; empty = not known
  int cuda = 0;         // the newest CUDA that it serves, 13000 for 13.0; 0 = no driver

  bool installed() const { return cuda > 0; }
};

// `library` is asked for cuDriverGetVersion (CUDA driver API); `module_file` is the kernel's.
CudaDriver find_cuda_driver(
    const std::string& library = "libcuda.so.1",
    const std::filesystem::path& module_file = "/proc/driver/nvidia/version");

// "13.0" of 13000.
std::string cuda_version_text(int version);
// 13000 of "13.0.88"; 0 where it is no version.
int cuda_version_of(const std::string& text);

}  // namespace tessera
