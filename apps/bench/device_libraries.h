// NVIDIA's driver and matrix library as yardsticks of a CUDA device, found at run time: facts of
// the device, products by cuBLAS. Nothing of the CUDA toolkit is needed to
// compile this.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tessera {

struct DeviceFacts {
  std::string name;          // as the driver calls it
  int cuda = 0;              // the newest CUDA that the driver serves, 13000 for 13.0
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int clock_mhz = 0, memory_clock_mhz = 0;  // the highest ones, not those of the moment
};

class DeviceLibraries {
 public:
  // Null where there is no driver or no such device. A backend of that device must have been made.
  static std::unique_ptr<DeviceLibraries> open(int index);
  ~DeviceLibraries();

  const DeviceFacts& facts() const { return facts_; }
  bool has_products() const { return handle_ != nullptr; }
  const std::string& products_version() const { return version_; }
  // out [m, n] f32 = x [m, k] w [n, k]^T, both bf16, all on the device, row-major. Not waited for.
  void product(std::int64_t m, std::int64_t n, std::int64_t k, const void* x, const void* w,
               float* out) const;
  // For everything on the device.
  void wait() const;

 private:
  DeviceLibraries() = default;
  void open_cublas();

  DeviceFacts facts_;
  std::string version_;
  void* handle_ = nullptr;  // cuBLAS; null = not found
  int (*synchronize_)() = nullptr;
  int (*gemm_)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int,
               int, const void*, void*, int, int, int, int) = nullptr;
  int (*destroy_)(void*) = nullptr;
};

}  // namespace tessera
