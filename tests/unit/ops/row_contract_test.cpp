// The row contract on every device: what a row becomes depends neither on the rows next to it nor on
// rows cached later; and passes that are recorded and repeated with other lengths give what plain
// ones give.
#include <algorithm>
#include <optional>

#include "engine/ops/ops.h"
#include "tests/unit/ops/device_io.h"

namespace tessera::testing::row_contract_test {
namespace {

constexpr std::int64_t kRows = 130;  // more than two blocks of keys and one split

class RowContract : public AtPlaceAlone {};

TEST_P(RowContract, NormsOfABatchEqualEachRowAlone) {
  for (const std::int64_t width : {8, 100, 513, 1500}) {
    const std::vector<float> x = normal(static_cast<std::size_t>(kRows * width), 1, 2.0f);
    const std::vector<float> weight = normal(static_cast<std::size_t>(width), 2);
    DeviceIo io(*backend_);
    const ConstTensorView weights = io.in(view_of(weight, {width}));
    std::vector<float> rms(x.size()), layer(x.size());
    const ConstTensorView rows = io.in(view_of(x, {kRows, width}));
    ops::rms_norm(*backend_, rows, weights, 1e-6f, io.out(view_of(rms, {kRows, width})));
    ops::layer_norm(*backend_, rows, weights, weights, 1e-6f,
                    io.out(view_of(layer, {kRows, width})));
    io.fetch();
    for (std::int64_t row = 0; row < kRows; row += width == 100 ? 1 : 5) {
      const ConstTensorView one{DType::kF32, {1, width}, rows.f32() + row * width, rows.device};
      std::vector<float> alone(static_cast<std::size_t>(width)), other = alone;
      ops::rms_norm(*backend_, one, weights, 1e-6f, io.out(view_of(alone, {1, width})));
      ops::layer_norm(*backend_, one, weights, weights, 1e-6f, io.out(view_of(other, {1, width})));
      io.fetch();
      ASSERT_TRUE(same_bits(alone.data(), rms.data() + row * width, alone.size())) << row;
      ASSERT_TRUE(same_bits(other.data(), layer.data() + row * width, other.size())) << row;
    }
  }
}

struct Layout {
  std::int64_t heads, kv_heads, dim;
};

// Queries, keys and values of `capacity` positions on the device.
struct Cached {
  Layout layout;
  std::int64_t capacity;
  Backend& backend;
  DeviceIo io;
  std::vector<float> k, v;
  ConstTensorView q;
  DType storage;

  Cached(Backend& b, const Layout& l, std::int64_t positions, DType s)
      : layout(l), capacity(positions), backend(b), io(b), storage(s) {
    const auto size = static_cast<std::size_t>(positions * l.kv_heads * l.dim);
    k = normal(size, 2);
    v = normal(size, 3);
    const Shape shape{positions, l.heads, l.dim};
    q = io.in(view_of(normal(static_cast<std::size_t>(shape.elements()), 1), shape));
  }
  // With numbers in the first `filled` rows and NaN after them.
  ConstTensorView table(std::vector<float> values, std::int64_t filled) {
    const std::int64_t width = layout.kv_heads * layout.dim;
    std::fill(values.begin() + filled * width, values.end(), NAN);
    const Shape shape{capacity, layout.kv_heads, layout.dim};
    return io.in(cache_table(storage, values, shape).view());
  }
  // Rows [first, first + rows), keys and values of no more positions than these being there.
  std::vector<float> attend(std::int64_t first, std::int64_t rows) {
    const std::int64_t width = layout.heads * layout.dim;
    const AttentionSegment segment{table(k, first + rows), table(v, first + rows), 0, rows, first};
    const Shape shape{rows, layout.heads, layout.dim};
    std::vector<float> out(static_cast<std::size_t>(shape.elements()), NAN);
    ops::attention(backend, {.q = {DType::kF32, shape, q.f32() + first * width, q.device},
                             .out = io.out(view_of(out, shape)),
                             .segments = {&segment, 1},
                             .scale = 1.0f / std::sqrt(static_cast<float>(layout.dim))});
    io.fetch();
    return out;
  }
};

TEST_P(RowContract, AttentionOfABatchEqualsEachRowAlone) {
  for (const DType storage : {DType::kF32, DType::kBF16, DType::kQ8}) {
    if (!backend_->caches(storage)) continue;
    for (const Layout layout : {Layout{4, 2, 48}, Layout{2, 1, 72}, Layout{1, 1, 80}}) {
      Cached cached(*backend_, layout, kRows + 7, storage);
      const std::vector<float> whole = cached.attend(0, kRows);
      const auto width = static_cast<std::size_t>(layout.heads * layout.dim);
      for (std::int64_t row = 0; row < kRows;
           row += layout.dim == 48 && storage == DType::kF32 ? 1 : 9) {
        const std::vector<float> alone = cached.attend(row, 1);
        ASSERT_TRUE(
            same_bits(alone.data(), whole.data() + static_cast<std::size_t>(row) * width, width))
            << "row " << row << ", head size " << layout.dim;
      }
    }
  }
}

// So many heads that a wide device has no split of its own for a block, and few rows that it has.
TEST_P(RowContract, HowWorkIsSharedOutChangesNothing) {
  const Layout layout{96, 96, 8};
  Cached cached(*backend_, layout, 2 * kRows, DType::kF32);
  const std::vector<float> whole = cached.attend(2 * kRows - 128, 128);
  const auto width = static_cast<std::size_t>(layout.heads * layout.dim);
  for (const std::int64_t row : {0, 63, 64, 127}) {
    const std::vector<float> alone = cached.attend(2 * kRows - 128 + row, 1);
    ASSERT_TRUE(
        same_bits(alone.data(), whole.data() + static_cast<std::size_t>(row) * width, width))
        << row;
  }
}

// Splits of tables this large are longer. The scores of random vectors are alike, so the result is
// a mean of thousands of values: about 0.01.
TEST_P(RowContract, LongCaches) {
  const Layout layout{2, 1, 8};
  const std::int64_t capacity = 9000, first = capacity - 20;
  Cached cached(*backend_, layout, capacity, DType::kF32);
  const std::vector<float> whole = cached.attend(first, 20);
  std::vector<float> q = normal(static_cast<std::size_t>(capacity * 16), 1);
  for (const std::int64_t row : {0, 11, 19}) {
    const std::vector<float> alone = cached.attend(first + row, 1);
    ASSERT_TRUE(same_bits(alone.data(), whole.data() + row * 16, 16)) << row;
    for (std::int64_t head = 0; head < 2; ++head) {
      std::vector<double> sum(8);
      double total = 0;
      for (std::int64_t key = 0; key <= first + row; ++key) {
        double score = 0;
        for (std::int64_t d = 0; d < 8; ++d) {
          score +=
              static_cast<double>(q[static_cast<std::size_t>(((first + row) * 2 + head) * 8 + d)]) *
              cached.k[static_cast<std::size_t>(key * 8 + d)];
        }
        const double weight = std::exp(score / std::sqrt(8.0));
        total += weight;
        for (std::int64_t d = 0; d < 8; ++d) {
          sum[static_cast<std::size_t>(d)] +=
              weight * cached.v[static_cast<std::size_t>(key * 8 + d)];
        }
      }
      for (std::int64_t d = 0; d < 8; ++d) {
        EXPECT_NEAR(alone[static_cast<std::size_t>(head * 8 + d)],
                    sum[static_cast<std::size_t>(d)] / total, 1e-6);
      }
    }
  }
}

// A decode step as models run it: rows into the cache, attention over it; lengths grow from step to
// step, and with `branches` the last keys are found through a list whose entries change.
struct Steps {
  static constexpr std::int64_t kCapacity = 200, kWindow = 3, kWidth = 2 * 16;
  Backend& backend;
  DeviceIo io;
  TensorView keys, values, q, out, new_rows;
  std::vector<float> result;

  Steps(Backend& b, DType storage)
      : backend(b), io(b), result(static_cast<std::size_t>(kWindow * 4 * 16)) {
    const std::vector<float> nothing(kCapacity * kWidth, NAN);
    keys = cache(nothing, storage);
    values = cache(nothing, storage);
    q = with(normal(result.size(), 5), {kWindow, 4, 16});
    out = with(std::vector<float>(result.size(), NAN), {kWindow, 4, 16});
    new_rows = with(normal((kWindow + 1) * kWidth, 9), {kWindow + 1, kWidth});
  }
  TensorView with(const std::vector<float>& numbers, const Shape& shape) {
    return writable(io.in(view_of(numbers, shape)));
  }
  TensorView cache(const std::vector<float>& numbers, DType storage) {
    return writable(io.in(cache_table(storage, numbers, {kCapacity, 2, 16}).view()));
  }
  static TensorView writable(const ConstTensorView& there) {
    return {there.dtype, there.shape, const_cast<void*>(there.data), there.device};
  }

  // Fills rows [0, length), then runs `window` rows after them.
  std::vector<float> run(std::int64_t length, bool branches,
                         std::optional<std::uint64_t> key = {}) {
    const ConstTensorView all = io.in(view_of(
        normal(kCapacity * kWidth, static_cast<std::uint64_t>(length)), {kCapacity, kWidth}));
    std::vector<std::int64_t> slots(static_cast<std::size_t>(length));
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<std::int64_t>(i);
    ops::store_rows(backend, all.f32(), kWidth, slots, keys);
    ops::store_rows(backend, all.f32() + kWidth, kWidth, slots, values);
    if (key.has_value()) {
      const RecordedPass pass(backend, *key);
      step(length, branches);
    } else {
      step(length, branches);
    }
    backend.download(out, view_of(result, {kWindow, 4, 16}));
    backend.synchronize();
    return result;
  }

  void step(std::int64_t length, bool branches) {
    const std::int64_t new_slots[kWindow] = {length, length + 1, length + 2};
    ops::store_rows(backend, new_rows.f32(), kWidth, new_slots, keys);
    ops::store_rows(backend, new_rows.f32() + kWidth, kWidth, new_slots, values);
    // Two rows of the past are left out, the others and the window follow each other.
    const auto at = static_cast<std::int32_t>(length);
    const std::int32_t listed[kWindow + 1] = {at - 3, at, at + 1, at + 2};
    AttentionSegment segment{keys, values, 0, kWindow, length};
    if (branches) {
      segment.first_visible = length - 2;
      segment.listed_from = length - 3;
      segment.listed = listed;
    }
    ops::attention(backend, {.q = q, .out = out, .segments = {&segment, 1}, .scale = 0.25f});
  }
};

TEST_P(RowContract, RepeatedPassesEqualPlainOnes) {
  for (const auto& [storage, branches] : {std::pair{DType::kF32, false},
                                          {DType::kF32, true},
                                          {DType::kBF16, false},
                                          {DType::kBF16, true},
                                          {DType::kQ8, true}}) {
    if (!backend_->caches(storage)) continue;
    const std::uint64_t key = 2 * static_cast<std::uint64_t>(storage) + (branches ? 1 : 0);
    Steps plain(*backend_, storage), recorded(*backend_, storage);
    // One after the other: what a plain pass leaves in scratch helps no repeated one.
    constexpr std::int64_t kLengths[] = {5, 6, 64, 127, 128, 150, 20, 197};
    std::vector<std::vector<float>> got;
    for (const std::int64_t length : kLengths) got.push_back(recorded.run(length, branches, key));
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::vector<float> want = plain.run(kLengths[i], branches);
      for (const float value : want) ASSERT_TRUE(std::isfinite(value)) << kLengths[i];
      ASSERT_TRUE(same_bits(got[i], want)) << "length " << kLengths[i] << ", " << branches;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RowContract, ::testing::ValuesIn(places_of_kernels()),
                         name_of_place);

}  // namespace
}  // namespace tessera::testing::row_contract_test
