// The cache's bookkeeping: rows, positions, copies between sequences. What the rows mean for a
// model is tested in tests/property/model.
#include <gtest/gtest.h>

#include "engine/cache/kv_cache.h"
#include "engine/core/cached_type.h"
#include "engine/ops/ops.h"

namespace tessera::kv_cache_test {
namespace {

class KvCacheTest : public ::testing::TestWithParam<DType> {
 protected:
  KvCacheTest()
      : backend_(make_backend("cpu", {.threads = 1})),
        cache_(*backend_, {.layers = 2,
                           .kv_heads = 2,
                           .head_dim = 4,
                           .capacity = 6,
                           .sequences = 3,
                           .dtype = GetParam()}) {}

  // Appends rows whose every element is `first`, `first` + 1, ... (small integers: exact in bf16).
  void append(std::int64_t sequence, std::vector<std::int64_t> positions, float first) {
    const std::int64_t row = cache_.append(sequence, positions);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const std::vector<float> values(8, first + static_cast<float>(i));
      const std::int64_t slot = cache_.slot(sequence, row + static_cast<std::int64_t>(i));
      for (std::int64_t layer = 0; layer < 2; ++layer) {
        ops::store_rows(*backend_, values.data(), 8, {&slot, 1}, cache_.key_slots(layer));
        ops::store_rows(*backend_, values.data(), 8, {&slot, 1}, cache_.value_slots(layer));
      }
    }
  }

  // First element of every cached row, checked to be the same in all layers, heads, keys, values.
  std::vector<float> rows(std::int64_t sequence) {
    std::vector<float> out;
    for (std::int64_t row = 0; row < cache_.length(sequence); ++row) {
      const float value = at(cache_.keys(0, sequence), row * 8);
      for (std::int64_t i = 0; i < 8; ++i) {
        for (std::int64_t layer = 0; layer < 2; ++layer) {
          EXPECT_EQ(at(cache_.keys(layer, sequence), row * 8 + i), value);
          EXPECT_EQ(at(cache_.values(layer, sequence), row * 8 + i), value);
        }
      }
      out.push_back(value);
    }
    return out;
  }

  std::vector<std::int64_t> positions(std::int64_t sequence) {
    const auto span = cache_.positions(sequence);
    return {span.begin(), span.end()};
  }

  static float at(ConstTensorView view, std::int64_t i) {
    float row[8];
    read_cached(view, i / 8, row);
    return row[i % 8];
  }
  // What is left of a number that was cached.
  static float cached(float value) {
    const CachedType& type = cached_type(GetParam());
    const std::vector<float> given(4, value);
    std::vector<float> out(4);
    std::vector<std::byte> bytes(type.bytes(4));
    type.write(given.data(), 4, bytes.data());
    type.read(bytes.data(), 4, out.data());
    EXPECT_NEAR(out[0], value, value * 1e-4);
    return out[0];
  }
  static std::vector<float> cached(std::vector<float> values) {
    for (float& value : values) value = cached(value);
    return values;
  }

  std::unique_ptr<Backend> backend_;
  KvCache cache_;
};

using Floats = std::vector<float>;
using Positions = std::vector<std::int64_t>;

// Layer 1 lost two of the three rows cached so far; rows after them lie two places further up
// there.
TEST_P(KvCacheTest, LayersMissRowsThatWereCutFromThem) {
  append(1, {0, 1, 2}, 10);
  cache_.cut(1, 1, 2);
  EXPECT_EQ(cache_.missing(0, 1), 0);
  EXPECT_EQ(cache_.missing(1, 1), 2);
  EXPECT_EQ(cache_.missing(1, 0), 0);
  const Positions more{3, 4, 5};
  const std::int64_t first = cache_.append(1, more);
  for (std::int64_t i = 0; i < 3; ++i) {
    const Floats values(8, 20 + static_cast<float>(i));
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      const std::int64_t slot = cache_.slot(1, first + i - cache_.missing(layer, 1));
      ops::store_rows(*backend_, values.data(), 8, {&slot, 1}, cache_.key_slots(layer));
      ops::store_rows(*backend_, values.data(), 8, {&slot, 1}, cache_.value_slots(layer));
    }
  }
  const std::int64_t kept[] = {5};
  cache_.compact(1, kept, 3);
  EXPECT_EQ(positions(1), (Positions{0, 1, 2, 5}));
  EXPECT_EQ(at(cache_.keys(0, 1), 3 * 8), cached(22));
  EXPECT_EQ(at(cache_.keys(1, 1), 1 * 8), cached(22));
  EXPECT_EQ(at(cache_.values(1, 1), 1 * 8 + 7), cached(22));
  cache_.fork(1, 2);
  EXPECT_EQ(cache_.missing(1, 2), 2);
  EXPECT_EQ(at(cache_.keys(0, 2), 2 * 8), cached(12));
  EXPECT_EQ(at(cache_.keys(1, 2), 1 * 8), cached(22));
  cache_.truncate(1, 3);
  EXPECT_EQ(cache_.missing(1, 1), 2);
  cache_.truncate(1, 0);
  EXPECT_EQ(cache_.missing(1, 1), 0);
  EXPECT_EQ(cache_.missing(1, 2), 2);
}

TEST_P(KvCacheTest, AppendAndTruncate) {
  append(1, {5, 6, 9}, 10);
  append(1, {11}, 20);
  EXPECT_EQ(cache_.length(1), 4);
  EXPECT_EQ(cache_.room(1), 2);
  EXPECT_EQ(cache_.length(0), 0);
  EXPECT_EQ(rows(1), cached(Floats{10, 11, 12, 20}));
  EXPECT_EQ(positions(1), (Positions{5, 6, 9, 11}));
  cache_.truncate(1, 2);
  append(1, {7}, 30);
  EXPECT_EQ(rows(1), cached(Floats{10, 11, 30}));
  EXPECT_EQ(positions(1), (Positions{5, 6, 7}));
}

TEST_P(KvCacheTest, ForkCopies) {
  append(0, {0, 1, 2}, 1);
  append(2, {0}, 40);
  cache_.fork(0, 2);
  append(2, {3}, 50);
  append(0, {3}, 60);
  EXPECT_EQ(rows(0), cached(Floats{1, 2, 3, 60}));
  EXPECT_EQ(rows(2), cached(Floats{1, 2, 3, 50}));
  EXPECT_EQ(positions(2), (Positions{0, 1, 2, 3}));
}

TEST_P(KvCacheTest, CompactMovesRowsWithTheirPositions) {
  append(1, {0, 1, 2, 3, 4, 5}, 1);
  append(2, {0, 1}, 70);
  cache_.compact(1, Positions{1, 3, 4});
  EXPECT_EQ(rows(1), cached(Floats{2, 4, 5}));
  EXPECT_EQ(positions(1), (Positions{1, 3, 4}));
  EXPECT_EQ(rows(2), cached(Floats{70, 71})) << "another sequence is left alone";
  append(1, {6}, 9);
  EXPECT_EQ(positions(1), (Positions{1, 3, 4, 6}));
  cache_.compact(1, Positions{});
  EXPECT_EQ(cache_.length(1), 0);
}

TEST_P(KvCacheTest, BytesCountKeysAndValues) {
  EXPECT_EQ(cache_.shape().bytes(), 2u * 2 * 3 * 6 * 2 * cached_type(GetParam()).bytes(4));
  const std::size_t eight_bits = 4 + sizeof(float);
  EXPECT_EQ(cached_type(GetParam()).bytes(4),
            GetParam() == DType::kQ8 ? eight_bits : 4 * dtype_size(GetParam()));
}

TEST_P(KvCacheTest, MisuseEndsTheProgram) {
  append(0, {0, 1, 2, 3}, 1);
  EXPECT_DEATH(cache_.append(0, Positions{4, 5, 6}), "fit");
  EXPECT_DEATH(cache_.truncate(0, 5), "truncate");
  EXPECT_DEATH(cache_.compact(0, Positions{2, 1}), "ascend");
  EXPECT_DEATH(cache_.compact(0, Positions{4}), "cached");
  EXPECT_DEATH(cache_.fork(1, 1), "child");
  EXPECT_DEATH((void)cache_.length(3), "sequence");
}

INSTANTIATE_TEST_SUITE_P(Storage, KvCacheTest, 
                         ::testing::Values(DType::kF32, DType::kBF16, DType::kQ8));

}  // namespace
}  // namespace tessera::kv_cache_test
