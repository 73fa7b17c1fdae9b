// The devices that tests of ops and models run on: the CPU, the simulated device, and a GPU where
// there is one. Rows of a device that is missing skip, visibly.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "tests/support/simt/simulated_device.h"

namespace tessera::testing {

// "cpu", "simt", "cuda"; null where this machine has no such device.
inline std::unique_ptr<Backend> open_device(const std::string& name, const CpuOptions& cpu,
                                            const CudaOptions& cuda) {
  if (name == "cpu") return make_backend("cpu", cpu);
#ifdef TESSERA_SIMULATED_DEVICE
  if (name == "simt") return simt::make_device(cpu, cuda);
#endif
  if (name != "cuda") return nullptr;
  for (const DeviceInfo& info : list_devices()) {
    if (info.name == "cuda:0" && info.usable) return make_backend("cuda:0", cpu, cuda);
  }
  return nullptr;
}

struct TestDevice {
  std::string name;
  bool deterministic = true;

  std::unique_ptr<Backend> open(int threads = 2) const {
    return open_device(name, {.threads = threads}, {.deterministic = deterministic});
  }
  friend std::ostream& operator<<(std::ostream& out, const TestDevice& device) {
    return out << device.name << (device.deterministic ? "" : "-fast");
  }
};

inline std::vector<TestDevice> test_devices() { return {{"cpu"}, {"simt"}, {"cuda"}}; }
// Those with memory and kernels of their own.
inline std::vector<TestDevice> cuda_devices() { return {{"simt"}, {"cuda"}}; }
// With the fast mode as well, which may use the vendor's libraries.
inline std::vector<TestDevice> all_cuda_devices() {
  return {{"simt"}, {"simt", false}, {"cuda"}, {"cuda", false}};
}

inline std::string device_name(const ::testing::TestParamInfo<TestDevice>& info) {
  return info.param.name + (info.param.deterministic ? "" : "_fast");
}

// A fixture with `backend`, which skips where there is none.
class OnDevice : public ::testing::TestWithParam<TestDevice> {
 protected:
  void SetUp() override {
    backend = GetParam().open();
    if (backend == nullptr) GTEST_SKIP() << "no usable " << GetParam() << " device here";
  }

  // A copy on the device of numbers of the host.
  Tensor upload(const std::vector<float>& values, Shape shape) {
    Tensor out = backend->allocate(DType::kF32, shape);
    backend->upload({DType::kF32, shape, values.data(), Device{}}, out.view());
    return out;
  }
  Tensor upload(const std::vector<std::uint16_t>& bits, Shape shape) {
    Tensor out = backend->allocate(DType::kBF16, shape);
    backend->upload({DType::kBF16, shape, bits.data(), Device{}}, out.view());
    return out;
  }
  // Full of NaNs, so that what an op leaves out is seen.
  Tensor poisoned(Shape shape) {
    return upload(std::vector<float>(static_cast<std::size_t>(shape.elements()), std::numeric_limits<float>::quiet_NaN()),
                  shape);
  }
  std::vector<float> download(ConstTensorView view) {
    std::vector<float> out(static_cast<std::size_t>(view.shape.elements()));
    backend->download(view, {DType::kF32, view.shape, out.data(), Device{}});
    backend->synchronize();
    return out;
  }

  std::unique_ptr<Backend> backend;
};

}  // namespace tessera::testing
