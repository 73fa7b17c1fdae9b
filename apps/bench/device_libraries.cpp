// The numbers are those of the CUDA driver API and of cuBLAS, which keep them from version to
// version.
#include "apps/bench/device_libraries.h"

#include <dlfcn.h>

#include "engine/core/error.h"

namespace tessera {

namespace {

constexpr int kClockKilohertz = 13, kMultiprocessors = 16, kMemoryClockKilohertz = 36;
constexpr int kMajor = 75, kMinor = 76;
constexpr int kTranspose = 1, kAsIs = 0, kBf16 = 14, kF32 = 0, kComputeF32 = 68, kAnyWay = -1;

template <typename Function>
bool find(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  return out != nullptr;
}

void succeed(int status, const char* what) {
  if (status == 0) return;
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_CUDA",
               .where = what,
               .expected = "success",
               .found = "status " + std::to_string(status)});
}

}  // namespace

std::unique_ptr<DeviceLibraries> DeviceLibraries::open(int index) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return nullptr;
  int (*init)(unsigned) = nullptr, (*version)(int*) = nullptr, (*device_of)(int*, int) = nullptr;
  int (*name_of)(char*, int, int) = nullptr, (*attribute)(int*, int, int) = nullptr;
  std::unique_ptr<DeviceLibraries> out(new DeviceLibraries);
  if (!find(driver, "cuInit", init) || !find(driver, "cuDriverGetVersion", version) ||
      !find(driver, "cuDeviceGet", device_of) || !find(driver, "cuDeviceGetName", name_of) ||
      !find(driver, "cuDeviceGetAttribute", attribute) ||
      !find(driver, "cuCtxSynchronize", out->synchronize_)) {
    return nullptr;
  }
  int device = 0;
  if (init(0) != 0 || device_of(&device, index) != 0) return nullptr;
  DeviceFacts& facts = out->facts_;
  char name[256] = {};
  if (name_of(name, sizeof name - 1, device) == 0) facts.name = name;
  version(&facts.cuda);
  const auto ask = [&](int what, int& value) {
    if (attribute(&value, what, device) != 0) value = 0;
  };
  ask(kMajor, facts.major);
  ask(kMinor, facts.minor);
  ask(kMultiprocessors, facts.multiprocessors);
  ask(kClockKilohertz, facts.clock_mhz);
  ask(kMemoryClockKilohertz, facts.memory_clock_mhz);
  facts.clock_mhz /= 1000;
  facts.memory_clock_mhz /= 1000;
  out->open_cublas();
  return out;
}

void DeviceLibraries::open_cublas() {
  for (const char* file : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
    void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    int (*create)(void**) = nullptr, (*version)(void*, int*) = nullptr;
    if (!find(library, "cublasCreate_v2", create) || !find(library, "cublasDestroy_v2", destroy_) ||
        !find(library, "cublasGetVersion_v2", version) || !find(library, "cublasGemmEx", gemm_) ||
        create(&handle_) != 0) {
      handle_ = nullptr;
      continue;
    }
    int number = 0;
    version(handle_, &number);
    version_ = "cublas " + std::to_string(number);
    return;
  }
}

DeviceLibraries::~DeviceLibraries() {
  if (handle_ != nullptr) destroy_(handle_);
}

// cuBLAS counts by columns: a row-major out is its transpose there.
void DeviceLibraries::product(std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
                              const void* w, float* out) const {
  const float one = 1, zero = 0;
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  succeed(gemm_(handle_, kTranspose, kAsIs, number(n), number(m), number(k), &one, w, kBf16,
                number(k), x, kBf16, number(k), &zero, out, kF32, number(n), kComputeF32, kAnyWay),
          "a product by cuBLAS");
}

void DeviceLibraries::wait() const { succeed(synchronize_(), "waiting for the device"); }

}  // namespace tessera
