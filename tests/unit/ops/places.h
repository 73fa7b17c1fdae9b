// Where the ops run in these tests: the CPU with every instruction set it has, the simulated
// device, and a GPU where there is one. What an op is given is sent there, and its result brought
// back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/core/storage.h"
#include "tests/support/devices.h"
#include "tests/unit/ops/ops_testing.h"

namespace tessera::testing {

struct Place {
  Isa isa = Isa::kAuto;      // of the CPU
  TestDevice device{"cpu"};  // anything else takes `isa` for nothing

  bool is_cpu() const { return device.name == "cpu"; }
  // Small shapes only: every multiplication costs a hundred times what it does elsewhere.
  bool slow() const { return is_cpu() ? isa == Isa::kReference : device.name == "simt"; }
  // Devices multiply all but bf16 as f32: q8 stands for blocks, and linear_blocks_test.cpp has the
  // numbers that kernels read of each type.
  bool is_another(DType storage) const {
    return !is_cpu() && (storage == DType::kQ4 || storage == DType::kF16);
  }
  std::string name() const {
    if (is_cpu()) return isa_name(isa);
    return device.name + (device.deterministic ? "" : "_fast");
  }
  std::unique_ptr<Backend> open(int threads = 2) const {
    return is_cpu() ? backend_of(isa, threads) : device.open(threads);
  }
  // What a product with weights of this type makes of its activations, rows of k.
  std::vector<float> read(DType storage, std::vector<float> activations, std::int64_t k) const {
    if (storage_of(storage).integers) {
      return is_cpu() ? rounded_to_8_bits(std::move(activations), k) : activations;
    }
    return is_cpu() || storage != DType::kBF16 ? activations : rounded_to(storage, activations);
  }
  friend std::ostream& operator<<(std::ostream& out, const Place& place) {
    return out << place.name();
  }
};

inline std::vector<Place> cpu_places() {
  std::vector<Place> out;
  for (const Isa isa : isas_here()) out.push_back({.isa = isa});
  return out;
}
inline std::vector<Place> every_place() {
  std::vector<Place> out = cpu_places();
  for (const TestDevice& device : all_cuda_devices()) out.push_back({.device = device});
  return out;
}

// A copy on the backend's device.
inline Tensor send(Backend& backend, const std::vector<float>& values, Shape shape) {
  Tensor out = backend.allocate(DType::kF32, shape);
  backend.upload(view_of(values, shape), out.view());
  return out;
}
inline std::vector<float> fetch(Backend& backend, ConstTensorView view) {
  std::vector<float> out(static_cast<std::size_t>(view.shape.elements()));
  backend.download(view, view_of(out, view.shape));
  backend.synchronize();
  return out;
}

// Tests of an op at a place, for weights of a type; they skip where there is no such device.
class AtPlace : public ::testing::TestWithParam<std::tuple<Place, DType>> {
 protected:
  void SetUp() override {
    backend = place().open();
    if (backend == nullptr) GTEST_SKIP() << "no usable " << place() << " device here";
    if (!backend->keeps(storage())) GTEST_SKIP() << place() << " does not keep it";
    if (place().is_another(storage())) GTEST_SKIP() << "f32 or q8 in other bits";
  }
  const Place& place() const { return std::get<0>(GetParam()); }
  DType storage() const { return std::get<1>(GetParam()); }

  std::unique_ptr<Backend> backend;
};

inline std::string place_name(const ::testing::TestParamInfo<std::tuple<Place, DType>>& info) {
  return std::get<0>(info.param).name() + "_" + std::string(dtype_name(std::get<1>(info.param)));
}
// Every storage type of the table that any numbers can be kept as: one that is added is tested with
// the others. Those that only files make are in linear_blocks_test.cpp.
inline std::vector<DType> every_storage() {
  std::vector<DType> out;
  for (const StorageType& type : storage_types()) {
    if (type.write != nullptr) out.push_back(type.dtype);
  }
  return out;
}
inline auto with_storage(std::vector<Place> places) {
  return ::testing::Combine(::testing::ValuesIn(std::move(places)),
                            ::testing::ValuesIn(every_storage()));
}
// Those of caches.
inline auto with_cached_types(std::vector<Place> places) {
  std::vector<DType> types;
  for (const CachedType& row : cached_types()) types.push_back(row.type);
  return ::testing::Combine(::testing::ValuesIn(std::move(places)), ::testing::ValuesIn(types));
}
// Those of tables and convolutions.
inline auto with_number_storage(std::vector<Place> places) {
  std::vector<DType> types = every_storage();
  std::erase_if(types, [](DType type) { return beside(type) != type; });
  return ::testing::Combine(::testing::ValuesIn(std::move(places)), ::testing::ValuesIn(types));
}

}  // namespace tessera::testing
