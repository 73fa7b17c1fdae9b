// Where the tests of ops run: every instruction set of the CPU, the simulated device, and a GPU
// where there is one; and the way of numbers there and back.
#pragma once

#include <deque>
#include <optional>
#include <utility>

#include "tests/support/devices.h"
#include "tests/unit/ops/ops_testing.h"

namespace tessera::testing {

struct OpsTarget {
  TestDevice device;
  std::optional<Isa> isa;  // of the CPU

  bool on_cpu() const { return isa.has_value(); }
  // Null where this machine has no such device.
  std::unique_ptr<Backend> open(int threads = 2) const {
    return on_cpu() ? backend_of(*isa, threads) : device.open(threads);
  }
  std::string name() const { return on_cpu() ? isa_name(*isa) : device.name; }
  friend std::ostream& operator<<(std::ostream& out, const OpsTarget& target) {
    return out << target.name();
  }
};

inline std::vector<OpsTarget> ops_targets() {
  std::vector<OpsTarget> out;
  for (const Isa isa : isas_here()) out.push_back({{"cpu"}, isa});
  for (const TestDevice& device : cuda_devices()) out.push_back({device, std::nullopt});
  return out;
}

// Copies of the host's tensors on a device, for ops to read and write.
class DeviceIo {
 public:
  explicit DeviceIo(Backend& backend) : backend_(backend) {}

  ConstTensorView in(ConstTensorView host) { return place(host); }
  // Comes with what the host has in it and goes back with fetch().
  TensorView out(TensorView host) {
    const TensorView there = place(host);
    back_.emplace_back(there, host);
    return there;
  }
  void fetch() {
    for (const auto& [there, host] : back_) backend_.download(there, host);
    backend_.synchronize();
    back_.clear();
  }

 private:
  TensorView place(ConstTensorView host) {
    if (host.empty()) return {};
    tensors_.push_back(backend_.allocate(host.dtype, host.shape));
    backend_.upload(host, tensors_.back().view());
    backend_.synchronize();
    return tensors_.back().view();
  }

  Backend& backend_;
  std::deque<Tensor> tensors_;
  std::vector<std::pair<TensorView, TensorView>> back_;
};

// A fixture with `backend_`, which skips where there is no such device.
class OnOpsTarget : public ::testing::TestWithParam<OpsTarget> {
 protected:
  void SetUp() override {
    backend_ = GetParam().open();
    if (backend_ == nullptr) GTEST_SKIP() << "no usable " << GetParam() << " device here";
  }
  std::unique_ptr<Backend> backend_;
};

inline std::string target_name(const ::testing::TestParamInfo<OpsTarget>& info) {
  return info.param.name();
}

class OnOpsTargetAndStorage : public ::testing::TestWithParam<std::tuple<OpsTarget, DType>> {
 protected:
  void SetUp() override {
    const OpsTarget& target = std::get<0>(GetParam());
    backend_ = target.open();
    if (backend_ == nullptr) GTEST_SKIP() << "no usable " << target << " device here";
  }
  // Threads of the host change nothing that a device computes.
  std::vector<int> thread_counts(std::vector<int> of_cpu) const {
    return std::get<0>(GetParam()).on_cpu() ? of_cpu : std::vector<int>{2};
  }
  std::unique_ptr<Backend> open(int threads) const { return std::get<0>(GetParam()).open(threads); }
  DType storage() const { return std::get<1>(GetParam()); }
  std::unique_ptr<Backend> backend_;
};

inline std::string target_and_storage(
    const ::testing::TestParamInfo<std::tuple<OpsTarget, DType>>& info) {
  return std::get<0>(info.param).name() + "_" + std::string(dtype_name(std::get<1>(info.param)));
}

}  // namespace tessera::testing
