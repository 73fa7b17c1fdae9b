// The way of numbers to a device and back, and fixtures of tests that run at every place.
#pragma once

#include <deque>
#include <utility>

#include "tests/unit/ops/places.h"

namespace tessera::testing {

// Of ops that are the same with and without the vendor's libraries.
inline std::vector<Place> places_of_kernels() {
  std::vector<Place> out = cpu_places();
  for (const TestDevice& device : cuda_devices()) out.push_back({.device = device});
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
class AtPlaceAlone : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    backend_ = GetParam().open();
    if (backend_ == nullptr) GTEST_SKIP() << "no usable " << GetParam() << " device here";
  }
  std::unique_ptr<Backend> backend_;
};

inline std::string name_of_place(const ::testing::TestParamInfo<Place>& info) {
  return info.param.name();
}

class AtPlaceWithCache : public ::testing::TestWithParam<std::tuple<Place, DType>> {
 protected:
  void SetUp() override {
    const Place& place = std::get<0>(GetParam());
    backend_ = place.open();
    if (backend_ == nullptr) GTEST_SKIP() << "no usable " << place << " device here";
    if (!backend_->caches(storage())) GTEST_SKIP() << place << " has no such cache";
  }
  bool on_cpu() const { return std::get<0>(GetParam()).is_cpu(); }
  // Threads of the host change nothing that a device computes.
  std::vector<int> thread_counts(std::vector<int> of_cpu) const {
    return on_cpu() ? of_cpu : std::vector<int>{2};
  }
  std::unique_ptr<Backend> open(int threads) const { return std::get<0>(GetParam()).open(threads); }
  DType storage() const { return std::get<1>(GetParam()); }
  std::unique_ptr<Backend> backend_;
};

}  // namespace tessera::testing
