// Attention of many rows in the fast mode against the CPU. With keys of bf16, queries are rounded
// to bf16 for both, so that what is left is the rounding of the weights and of f32 sums, which the
// tolerances count; with keys of f32, that of every factor to 16 bits.
#include <algorithm>

#include "engine/ops/ops.h"
#include "tests/unit/ops/device_io.h"

namespace tessera::testing::wide_attention_test {
namespace {

constexpr double kHalfUnit = 1.0 / 256;  // of bf16: no number is rounded by more, relatively
// What is lost of a product of factors of two bf16 parts each: what the rounding of each
// factor's last part leaves, and the product of both last parts, kHalfUnit^2 of it each.
constexpr double kOfParts = 3 * kHalfUnit * kHalfUnit;

struct Layout {
  std::int64_t heads, kv_heads, dim;
};

struct Part {  // a segment and its table
  std::int64_t rows, first;
  bool causal = true;
  std::int64_t capacity = 0;  // 0: no more than is seen
  bool biased = false;

  std::int64_t seen() const { return causal ? first + rows : first; }
};

struct Table {
  std::vector<float> k, v, bias;
  std::vector<std::uint16_t> k16, v16;
};

struct Batch {
  Layout layout;
  DType storage;
  std::vector<Part> parts;
  std::int64_t rows = 0;
  float scale;
  std::vector<float> q;
  std::vector<Table> tables;

  Batch(Layout l, DType s, std::vector<Part> of) : layout(l), storage(s), parts(std::move(of)) {
    scale = 1.0f / std::sqrt(static_cast<float>(l.dim));
    for (Part& part : parts) {
      part.capacity = std::max(part.capacity, part.seen());
      const auto size = static_cast<std::size_t>(part.capacity * l.kv_heads * l.dim);
      const std::uint64_t stream = 1000 + 10 * tables.size();
      Table table{normal(size, stream), normal(size, stream + 1), {}, {}, {}};
      table.k = rounded_to(s, table.k);
      table.v = rounded_to(s, table.v);
      if (part.biased) {
        table.bias = normal(static_cast<std::size_t>(part.capacity), stream + 2);
        for (std::size_t key = 1; key < table.bias.size(); key += 5) {
          table.bias[key] = std::numeric_limits<float>::lowest();
        }
      }
      // What nobody sees may be anything.
      std::fill(table.k.begin() + part.seen() * l.kv_heads * l.dim, table.k.end(), NAN);
      std::fill(table.v.begin() + part.seen() * l.kv_heads * l.dim, table.v.end(), NAN);
      tables.push_back(std::move(table));
      rows += part.rows;
    }
    q = rounded_to(s, normal(static_cast<std::size_t>(rows * l.heads * l.dim), 7, 2.0f));
    refresh();
  }
  void refresh() {
    for (Table& table : tables) {
      table.k16 = to_bf16(table.k);
      table.v16 = to_bf16(table.v);
    }
  }
  ConstTensorView view(std::size_t part, const std::vector<float>& f32,
                       const std::vector<std::uint16_t>& bf16) const {
    const Shape shape{parts[part].capacity, layout.kv_heads, layout.dim};
    return storage == DType::kBF16 ? view_of(bf16, shape) : view_of(f32, shape);
  }
};

struct Result {
  std::vector<float> out, log_sum;
};

Result attend(Backend& backend, const Batch& batch) {
  const Shape shape{batch.rows, batch.layout.heads, batch.layout.dim};
  Result result{std::vector<float>(batch.q.size(), NAN),
                std::vector<float>(static_cast<std::size_t>(shape[0] * shape[1]), NAN)};
  DeviceIo io(backend);
  std::vector<AttentionSegment> segments;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < batch.parts.size(); ++i) {
    const Part& part = batch.parts[i];
    const Table& table = batch.tables[i];
    segments.push_back({.keys = io.in(batch.view(i, table.k, table.k16)),
                        .values = io.in(batch.view(i, table.v, table.v16)),
                        .row_begin = begin,
                        .rows = part.rows,
                        .first_visible = part.first,
                        .causal = part.causal});
    if (part.biased) segments.back().key_bias = io.in(view_of(table.bias, {part.capacity}));
    begin += part.rows;
  }
  ops::attention(backend, {.q = io.in(view_of(batch.q, shape)),
                           .out = io.out(view_of(result.out, shape)),
                           .segments = segments,
                           .scale = batch.scale,
                           .log_sum = io.out(view_of(result.log_sum, {shape[0], shape[1]}))});
  io.fetch();
  return result;
}

struct Tolerances {
  std::vector<double> out, log_sum;
};

// A score is a sum of `dim` products in f32 and is off by eps dim sum |q k|, and where factors are
// taken in parts by the roundings of these, which have nothing to do with each other (Higham & Mary
// 2019): less than six times kOfParts sqrt(sum (q k)^2 / 3). A weight is off by twice that,
// relatively, and by two units of the last place of an approximate power; and it is rounded to bf16
// itself, by at most kHalfUnit, or to two parts. The sum of weights and values so is off by less
// than kHalfUnit sum w |v| and less than six times kHalfUnit sqrt(sum (w v)^2 / 3). Sums over the
// keys add an eps each.
Tolerances tolerances(const Batch& batch) {
  const auto [heads, kv_heads, dim] = batch.layout;
  const bool half = batch.storage == DType::kBF16;
  const double of_factor = half ? 0 : kOfParts, of_weight = half ? kHalfUnit : kOfParts;
  Tolerances out;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < batch.parts.size(); ++i) {
    const Part& part = batch.parts[i];
    const Table& table = batch.tables[i];
    for (std::int64_t row = 0; row < part.rows; ++row) {
      const std::int64_t seen = part.first + (part.causal ? row + 1 : 0);
      for (std::int64_t head = 0; head < heads; ++head) {
        const float* q = batch.q.data() + ((begin + row) * heads + head) * dim;
        const auto key_at = [&](std::int64_t key) {
          return (key * kv_heads + head / (heads / kv_heads)) * dim;
        };
        std::vector<double> weight;
        double largest = -INFINITY, off = 0, total = 0;
        for (std::int64_t key = 0; key < seen; ++key) {
          double sum = 0, size = 0, squares = 0;
          for (std::int64_t d = 0; d < dim; ++d) {
            const double product =
                static_cast<double>(q[d]) * table.k[static_cast<std::size_t>(key_at(key) + d)];
            sum += product;
            size += std::abs(product);
            squares += product * product;
          }
          const double bias = part.biased ? table.bias[static_cast<std::size_t>(key)] : 0.0;
          weight.push_back(sum * batch.scale + bias);
          const double of_sum = static_cast<double>(dim) * kEpsilon * size +
                                of_factor * std::min(size, 6 * std::sqrt(squares / 3));
          if (bias > -1e30) off = std::max(off, of_sum * batch.scale + std::abs(bias) * kEpsilon);
          largest = std::max(largest, weight.back());
        }
        for (double& w : weight) total += w = std::exp(w - largest);
        const double of_score = off + 2 * kEpsilon * (4 * std::abs(largest) + 8);
        for (std::int64_t d = 0; d < dim; ++d) {
          double size = 0, squares = 0;
          for (std::int64_t key = 0; key < seen; ++key) {
            const double term = weight[static_cast<std::size_t>(key)] / total *
                                table.v[static_cast<std::size_t>(key_at(key) + d)];
            size += std::abs(term);
            squares += term * term;
          }
          out.out.push_back(of_weight * std::min(size, 6 * std::sqrt(squares / 3)) +
                            size * (2 * of_score + kEpsilon * static_cast<double>(seen)) + 1e-30);
        }
        out.log_sum.push_back(of_score + kEpsilon * static_cast<double>(seen));
      }
    }
    begin += part.rows;
  }
  return out;
}

void expect_as_on_cpu(Backend& backend, const Batch& batch, const std::string& what) {
  const Result got = attend(backend, batch);
  const Result want = attend(*backend_of(Isa::kAuto), batch);
  const Tolerances tolerance = tolerances(batch);
  EXPECT_TRUE(close(got.out, {want.out.begin(), want.out.end()}, tolerance.out)) << what;
  EXPECT_TRUE(close(got.log_sum, {want.log_sum.begin(), want.log_sum.end()}, tolerance.log_sum))
      << what << ", sums";
}

class WideAttention : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    fast_ = open({});
    if (fast_ == nullptr) GTEST_SKIP() << "no usable " << GetParam() << " device here";
  }
  static std::unique_ptr<Backend> open(const CudaOptions& options) {
    return open_device(GetParam(), {.threads = 2}, options);
  }
  std::unique_ptr<Backend> fast_;
};

TEST_P(WideAttention, EveryWidthOfHeads) {
  for (const std::int64_t dim : {20, 64, 72, 80, 88, 96, 100, 112, 128, 200, 256}) {
    expect_as_on_cpu(*fast_, {{1, 1, dim}, DType::kBF16, {{67, 0}}}, "dim " + std::to_string(dim));
  }
}

TEST_P(WideAttention, ChunksRaggedRowsAndSharedHeads) {
  for (const Part part : {Part{64, 0}, Part{65, 1}, Part{130, 63}, Part{70, 200, true, 300}}) {
    for (const Layout layout : {Layout{2, 2, 64}, Layout{3, 1, 32}}) {
      expect_as_on_cpu(*fast_, {layout, DType::kBF16, {part}},
                       std::to_string(part.rows) + " rows after " + std::to_string(part.first));
    }
  }
}

TEST_P(WideAttention, LargeTilesOfQueries) {
  for (const std::int64_t dim : {64, 80, 96, 128}) {
    // So many tiles that no multiprocessor is idle with twice the queries in each.
    expect_as_on_cpu(*fast_, {{8, 4, dim}, DType::kBF16, {{67, 30}}}, "dim " + std::to_string(dim));
  }
}

TEST_P(WideAttention, EveryKeyOfAnEncoder) {
  expect_as_on_cpu(*fast_, {{2, 2, 72}, DType::kBF16, {{100, 129, false, 140}}}, "full");
  const auto rounding = open({.tf32 = true});
  expect_as_on_cpu(*rounding, {{2, 2, 72}, DType::kF32, {{100, 129, false, 140}}}, "f32 keys");
  for (const std::int64_t dim : {20, 64, 80, 88, 128}) {
    expect_as_on_cpu(*rounding, {{2, 1, dim}, DType::kF32, {{70, 30}}}, "f32 keys, causal");
  }
}

TEST_P(WideAttention, BiasesWeighAndHideKeys) {
  expect_as_on_cpu(*fast_, {{2, 1, 64}, DType::kBF16, {{90, 70, true, 170, true}}}, "causal");
  expect_as_on_cpu(*fast_, {{1, 1, 64}, DType::kBF16, {{64, 100, false, 110, true}}}, "full");
}

TEST_P(WideAttention, SegmentsOfAllLengthsTogether) {
  Batch batch({2, 2, 64}, DType::kBF16,
              {{5, 40}, {70, 0}, {1, 0}, {66, 90, true, 200}, {9, 20, false}});
  expect_as_on_cpu(*fast_, batch, "five segments");
  // One of them broken from end to end: the others have the bits they had.
  const Result before = attend(*fast_, batch);
  std::fill(batch.tables[1].k.begin(), batch.tables[1].k.end(), NAN);
  std::fill(batch.tables[1].v.begin(), batch.tables[1].v.end(), NAN);
  std::fill(batch.q.begin() + 5 * 128, batch.q.begin() + 75 * 128, NAN);
  batch.refresh();
  const Result after = attend(*fast_, batch);
  EXPECT_TRUE(same_bits(after.out.data(), before.out.data(), 5 * 128));
  EXPECT_TRUE(same_bits(after.out.data() + 75 * 128, before.out.data() + 75 * 128, 76 * 128));
  for (std::size_t i = 5 * 128; i < 75 * 128; ++i) ASSERT_TRUE(std::isnan(after.out[i])) << i;
}

TEST_P(WideAttention, AQueryOfNaNsStaysInItsRow) {
  Batch batch({1, 1, 64}, DType::kBF16, {{80, 10}});
  const Result before = attend(*fast_, batch);
  std::fill_n(batch.q.begin() + 33 * 64, 64, NAN);
  const Result after = attend(*fast_, batch);
  EXPECT_TRUE(same_bits(after.out.data(), before.out.data(), 33 * 64));
  EXPECT_TRUE(same_bits(after.out.data() + 34 * 64, before.out.data() + 34 * 64, 46 * 64));
  for (std::size_t i = 33 * 64; i < 34 * 64; ++i) EXPECT_TRUE(std::isnan(after.out[i])) << i;
}

// What must have the bits of the deterministic mode, and what cannot have them: queries that bf16
// cannot hold show which kernel ran.
TEST_P(WideAttention, OnlyWideRowsOfBf16AreRounded) {
  const auto exact = open({.deterministic = true});
  const auto rounding = open({.tf32 = true});
  const auto differ = [&](Backend& backend, DType storage, std::int64_t rows) {
    Batch batch({1, 1, 64}, storage, {{rows, 10}});
    batch.q = normal(batch.q.size(), 8, 2.0f);
    return !same_bits(attend(backend, batch).out, attend(*exact, batch).out);
  };
  EXPECT_FALSE(differ(*fast_, DType::kBF16, 63));
  EXPECT_TRUE(differ(*fast_, DType::kBF16, 64));
  EXPECT_FALSE(differ(*fast_, DType::kF32, 64));
  EXPECT_FALSE(differ(*rounding, DType::kF32, 63));
  EXPECT_TRUE(differ(*rounding, DType::kF32, 64));
}

TEST_P(WideAttention, ToleranceCatchesOneKeyTooFew) {
  const Batch batch({1, 1, 64}, DType::kBF16, {{64, 60}});
  Batch fewer({1, 1, 64}, DType::kBF16, {{64, 59, true, 124}});
  fewer.tables = batch.tables;  // the same keys, of which the last one is not seen
  fewer.q = batch.q;
  const std::vector<float> wrong = attend(*fast_, fewer).out;
  const std::vector<float> want = attend(*backend_of(Isa::kAuto), batch).out;
  const std::vector<double> tolerance = tolerances(batch).out;
  std::size_t caught = 0;  // rows with a number that is off
  for (std::size_t row = 0; row < 64; ++row) {
    bool off = false;
    for (std::size_t i = row * 64; i < (row + 1) * 64; ++i) {
      off = off ||
            std::abs(static_cast<double>(wrong[i]) - static_cast<double>(want[i])) > tolerance[i];
    }
    caught += off ? 1 : 0;
  }
  EXPECT_GE(caught, 32u);
}

// A recorded pass is repeated with other lengths: kernels learn them from staged memory.
TEST_P(WideAttention, RecordedPassesSeeNewLengths) {
  const Batch batch({2, 1, 64}, DType::kBF16, {{70, 180, true, 250}});
  const Shape shape{70, 2, 64};
  DeviceIo io(*fast_);
  const ConstTensorView q = io.in(view_of(batch.q, shape));
  const ConstTensorView k = io.in(batch.view(0, batch.tables[0].k, batch.tables[0].k16));
  const ConstTensorView v = io.in(batch.view(0, batch.tables[0].v, batch.tables[0].v16));
  Tensor out = fast_->allocate(DType::kF32, shape);
  const auto run = [&](std::int64_t first) {
    const AttentionSegment segment{.keys = k, .values = v, .rows = 70, .first_visible = first};
    ops::attention(*fast_,
                   {.q = q, .out = out.view(), .segments = {&segment, 1}, .scale = batch.scale});
  };
  for (const std::int64_t first : {0, 180, 63, 100}) {
    run(first);
    const std::vector<float> want = fetch(*fast_, out.view());
    run(5);  // something else
    {
      const RecordedPass pass(*fast_, 11);
      run(first);
    }
    EXPECT_TRUE(same_bits(fetch(*fast_, out.view()), want)) << first;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, WideAttention, ::testing::Values("simt", "cuda"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tessera::testing::wide_attention_test
