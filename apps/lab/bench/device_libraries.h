// NVIDIA's driver and matrix library as yardsticks of a CUDA device, found at run time: facts of
// the device, products by cuBLASLt as CUDA graphs, under the same conditions as the project's own
// kernels are timed. Nothing of the CUDA toolkit is needed to compile this.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/lab/bench/device_abi.h"

namespace tessera {

struct DeviceFacts {
  std::string name;          // as the driver calls it
  int cuda = 0;              // the newest CUDA that the driver serves, 13000 for 13.0
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int clock_mhz = 0, memory_clock_mhz = 0;  // the highest ones, not those of the moment
};

// Where the libraries are looked for; the first that opens is taken.
struct LibraryFiles {
  std::string driver = "libcuda.so.1";
  std::vector<std::string> products = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
};

// out [m, n] f32 = x [m, k] w [n, k]^T, x and w bf16, all on the device, row-major. `copies` of w
// stand one after the other and are taken in turn.
struct LibraryCase {
  std::int64_t m = 0, n = 0, k = 0;
  const void* x = nullptr;
  const void* w = nullptr;
  std::int64_t copies = 1;
  float* out = nullptr;
  void* workspace = nullptr;  // kWorkspace bytes
};

// One product in the ways that the library's heuristic names for it, best first.
class LibraryProduct {
 public:
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;
  virtual ~LibraryProduct() = default;
  virtual int ways() const = 0;
  // Captures so many calls as one graph, in place of the last one. False where the library refuses
  // this way.
  virtual bool record(int way, int calls) = 0;
  // Runs what was recorded last, and waits for it. Error kGeneral.
  virtual void run() = 0;
};

class DeviceLibraries {
 public:
  // Null where there is no driver or no such device. A backend of that device must have been made.
  static std::unique_ptr<DeviceLibraries> open(int index, const LibraryFiles& files = {});
  ~DeviceLibraries();
  DeviceLibraries(const DeviceLibraries&) = delete;
  DeviceLibraries& operator=(const DeviceLibraries&) = delete;

  const DeviceFacts& facts() const { return facts_; }
  bool has_products() const { return handle_ != nullptr; }
  const std::string& products_version() const { return version_; }
  // At most `ways` ways. This must outlive it. Error kGeneral.
  std::unique_ptr<LibraryProduct> product(const LibraryCase& what, int ways) const;

 private:
  class Product;

  DeviceLibraries() = default;
  void open_products(const LibraryFiles& files);

  DeviceFacts facts_;
  std::string version_;
  abi::Driver driver_;
  abi::Products products_;
  abi::Made handle_ = nullptr;  // cuBLASLt; null = not found
  abi::Made stream_ = nullptr;
};

}  // namespace tessera
