// Which form of a tensor is packed: its file's own where that is how the device keeps it.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "engine/backend/backend.h"
#include "engine/core/dtype.h"
#include "engine/core/storage.h"
#include "engine/families/weight_loader.h"

namespace tessera::weight_loader_test {
namespace {

constexpr std::int64_t kRows = 32, kInputs = 64;

// One matrix in blocks, of any bits: few of them are what writing their numbers anew would give.
class BlockSource : public TensorSource {
 public:
  explicit BlockSource(DType type) : type_(type), bytes_(storage_of(type).bytes(kRows, kInputs)) {
    std::mt19937 random(1);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
    const std::uint16_t scale = float_to_f16(0.01f);
    for (std::size_t at = 0; at < bytes_.size(); at += storage_of(type).block_bytes) {
      std::memcpy(bytes_.data() + at, &scale, sizeof scale);
    }
    numbers_ = widened(get_stored(""));
  }
  ConstTensorView get(const std::string&) override { return numbers_.view(); }
  ConstTensorView get_stored(const std::string&) override {
    return {type_, {kRows, kInputs}, bytes_.data(), {}};
  }
  DType stored_type(const std::string&) override { return type_; }
  void done(const std::string&) override {}
  std::string file_of(const std::string&) const override { return "made-up"; }

 private:
  DType type_;
  std::vector<std::byte> bytes_;
  Tensor numbers_;
};

std::vector<std::byte> packed(Backend& backend, ConstTensorView view, DType storage) {
  const LinearWeight weight = backend.pack_linear({&view, 1}, storage);
  const auto* from = weight.packed.view().raw();
  return {from, from + weight.packed.view().bytes()};
}

TEST(WeightLoader, BlocksOfTheStorageTypeArePackedAsTheirFileHasThem) {
  const auto device = make_backend("cpu", {.threads = 1});
  Backend& backend = *device;
  for (const DType type : {DType::kQ8, DType::kQ4}) {
    BlockSource source(type);
    const std::vector<std::byte> own = packed(backend, source.get_stored("w"), type);
    EXPECT_NE(own, packed(backend, source.get("w"), type)) << "the blocks tell them apart";
    WeightLoader loader(source, backend, type);
    const LinearWeight loaded = loader.pack({"w"});
    const auto* from = loaded.packed.view().raw();
    EXPECT_EQ(std::vector(from, from + loaded.packed.view().bytes()), own) << dtype_name(type);
  }
}

TEST(WeightLoader, BlocksOfAnotherTypeArePackedFromTheirNumbers) {
  const auto device = make_backend("cpu", {.threads = 1});
  Backend& backend = *device;
  BlockSource source(DType::kQ8);
  WeightLoader loader(source, backend, DType::kQ4);
  const LinearWeight loaded = loader.pack({"w"});
  const auto* from = loaded.packed.view().raw();
  EXPECT_EQ(std::vector(from, from + loaded.packed.view().bytes()),
            packed(backend, source.get("w"), DType::kQ4));
}

}  // namespace
}  // namespace tessera::weight_loader_test
