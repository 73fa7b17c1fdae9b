// What pruning asks of attention: the log-sum-exp of every row, weights of chosen rows recovered
// from it, and a bias a key, which makes one key count as several. Against dense softmax in double.
#include <algorithm>
#include <numeric>

#include "engine/ops/ops.h"
#include "tests/unit/ops/device_io.h"

namespace tessera::testing::row_attention_test {
namespace {

constexpr std::int64_t kRows = 150, kHeads = 4, kDim = 20;  // more than two blocks of 64 keys

struct Dense {
  std::int64_t kv_heads = kHeads;
  std::vector<float> q = normal(kRows * kHeads * kDim, 1, 1.5f);
  std::vector<float> k, v;
  std::vector<float> bias;  // a key, or empty
  float scale = 0.3f;

  explicit Dense(std::int64_t kv = kHeads)
      : kv_heads(kv),
        k(normal(static_cast<std::size_t>(kRows * kv * kDim), 2, 1.5f)),
        v(normal(static_cast<std::size_t>(kRows * kv * kDim), 3)) {}

  Shape q_shape() const { return {kRows, kHeads, kDim}; }
  Shape kv_shape() const { return {kRows, kv_heads, kDim}; }
  ConstTensorView bias_view() const {
    return bias.empty() ? ConstTensorView{} : view_of(bias, {kRows});
  }

  // Softmax weights over keys [begin, end) of one row and head, and their log-sum.
  std::vector<double> weights(std::int64_t row, std::int64_t head, double* log_sum = nullptr,
                              std::int64_t begin = 0, std::int64_t end = kRows) const {
    std::vector<double> out;
    double total = 0;
    for (std::int64_t key = begin; key < end; ++key) {
      double sum = 0;
      for (std::int64_t d = 0; d < kDim; ++d) {
        sum +=
            static_cast<double>(q[static_cast<std::size_t>((row * kHeads + head) * kDim + d)]) *
            k[static_cast<std::size_t>((key * kv_heads + head / (kHeads / kv_heads)) * kDim + d)];
      }
      sum *= static_cast<double>(scale);
      if (!bias.empty()) sum += bias[static_cast<std::size_t>(key)];
      out.push_back(std::exp(sum));
      total += out.back();
    }
    for (double& weight : out) weight /= total;
    if (log_sum != nullptr) *log_sum = std::log(total);
    return out;
  }
};

// Full attention in blocks of rows that see each other only; empty = one block.
struct Attended {
  std::vector<float> out = std::vector<float>(kRows * kHeads * kDim, NAN);
  std::vector<float> log_sum = std::vector<float>(kRows * kHeads, NAN);

  Attended(Backend& backend, const Dense& dense, std::vector<std::int64_t> ends = {kRows}) {
    DeviceIo io(backend);
    std::vector<AttentionSegment> segments;
    std::int64_t begin = 0;
    for (const std::int64_t end : ends) {
      const std::int64_t rows = end - begin;
      const std::int64_t at = begin * dense.kv_heads * kDim;
      const Shape shape{rows, dense.kv_heads, kDim};
      AttentionSegment segment;
      segment.keys = io.in({DType::kF32, shape, dense.k.data() + at, {}});
      segment.values = io.in({DType::kF32, shape, dense.v.data() + at, {}});
      segment.row_begin = begin;
      segment.rows = rows;
      segment.first_visible = rows;
      segment.causal = false;
      if (!dense.bias.empty()) {
        segment.key_bias = io.in({DType::kF32, {rows}, dense.bias.data() + begin, {}});
      }
      segments.push_back(segment);
      begin = end;
    }
    ops::attention(backend, {.q = io.in(view_of(dense.q, dense.q_shape())),
                             .out = io.out(view_of(out, dense.q_shape())),
                             .segments = segments,
                             .scale = dense.scale,
                             .log_sum = io.out(view_of(log_sum, {kRows, kHeads}))});
    io.fetch();
  }
};

class RowAttention : public AtPlaceAlone {};

void expect_attention(const Dense& dense, const Attended& run, std::vector<std::int64_t> ends) {
  std::int64_t begin = 0;
  double worst = 0;
  for (const std::int64_t end : ends) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t head = 0; head < kHeads; ++head) {
        double log_sum = 0;
        const std::vector<double> weight = dense.weights(row, head, &log_sum, begin, end);
        worst = std::max(
            worst, std::abs(run.log_sum[static_cast<std::size_t>(row * kHeads + head)] - log_sum));
        for (std::int64_t d = 0; d < kDim; ++d) {
          double sum = 0;
          for (std::int64_t key = begin; key < end; ++key) {
            sum += weight[static_cast<std::size_t>(key - begin)] *
                   dense.v[static_cast<std::size_t>(
                       (key * dense.kv_heads + head / (kHeads / dense.kv_heads)) * kDim + d)];
          }
          const auto at = static_cast<std::size_t>((row * kHeads + head) * kDim + d);
          worst = std::max(worst, std::abs(run.out[at] - sum));
        }
      }
    }
    begin = end;
  }
  EXPECT_LT(worst, 1e-5);
}

TEST_P(RowAttention, BlocksAndLogSumsEqualDenseSoftmax) {
  for (const std::int64_t kv_heads : {4, 2}) {
    Dense dense(kv_heads);
    for (const bool biased : {false, true}) {
      if (biased) dense.bias = normal(kRows, 9, 2.0f);
      for (const std::vector<std::int64_t>& ends :
           {std::vector<std::int64_t>{kRows}, std::vector<std::int64_t>{1, 17, 100, kRows}}) {
        expect_attention(dense, Attended(*backend_, dense, ends), ends);
      }
    }
  }
}

TEST_P(RowAttention, WeightsOfRowsEqualDenseSoftmax) {
  for (const std::int64_t kv_heads : {4, 2}) {
    Dense dense(kv_heads);
    dense.bias = normal(kRows, 9);
    const Attended run(*backend_, dense);
    for (const bool recovered : {true, false}) {
      const std::int64_t first = 31, count = 3;
      std::vector<float> out(static_cast<std::size_t>(count * kHeads * kRows));
      DeviceIo io(*backend_);
      RowAttentionArgs args{
          .q = io.in(
              {DType::kF32, {count, kHeads, kDim}, dense.q.data() + first * kHeads * kDim, {}}),
          .keys = io.in(view_of(dense.k, dense.kv_shape())),
          .key_bias = io.in(dense.bias_view()),
          .log_sum = io.in({DType::kF32, {count, kHeads}, run.log_sum.data() + first * kHeads, {}}),
          .scale = dense.scale,
          .mean = AttentionMean::kNone,
          .out = io.out(view_of(out, {count, kHeads, kRows}))};
      if (!recovered) args.log_sum = {};
      ops::row_attention(*backend_, args);
      io.fetch();
      std::vector<double> heads(static_cast<std::size_t>(count * kRows));
      std::vector<double> rows(static_cast<std::size_t>(kHeads * kRows));
      std::vector<double> both(kRows);
      double worst = 0;
      for (std::int64_t row = 0; row < count; ++row) {
        for (std::int64_t head = 0; head < kHeads; ++head) {
          const std::vector<double> want = dense.weights(first + row, head);
          for (std::int64_t key = 0; key < kRows; ++key) {
            const double weight = want[static_cast<std::size_t>(key)];
            worst = std::max(
                worst, std::abs(out[static_cast<std::size_t>((row * kHeads + head) * kRows + key)] -
                                weight));
            heads[static_cast<std::size_t>(row * kRows + key)] += weight / kHeads;
            rows[static_cast<std::size_t>(head * kRows + key)] += weight / count;
            both[static_cast<std::size_t>(key)] += weight / (kHeads * count);
          }
        }
      }
      const auto compare = [&](AttentionMean mean, Shape shape, const std::vector<double>& want) {
        std::vector<float> got(want.size());
        args.mean = mean;
        args.out = io.out(view_of(got, shape));
        ops::row_attention(*backend_, args);
        io.fetch();
        for (std::size_t i = 0; i < want.size(); ++i)
          worst = std::max(worst, std::abs(got[i] - want[i]));
      };
      compare(AttentionMean::kHeads, {count, kRows}, heads);
      compare(AttentionMean::kRows, {kHeads, kRows}, rows);
      compare(AttentionMean::kBoth, {kRows}, both);
      EXPECT_LT(worst, 1e-5) << "recovered " << recovered;
    }
  }
}

// ln(n) on a key is that key n times: the same outputs and n times the weight. Scores go up to
// about 15, so adding ln(n) rounds them by 5e-7 and weights by as much of themselves; values go up
// to 4.
TEST_P(RowAttention, SizesEqualRepeatedKeys) {
  Dense dense;
  std::vector<std::int64_t> copies(kRows);
  for (std::int64_t i = 0; i < kRows; ++i) copies[static_cast<std::size_t>(i)] = 1 + i % 3;
  Dense plain = dense;
  for (const std::int64_t n : copies) dense.bias.push_back(std::log(static_cast<float>(n)));
  const Attended sized(*backend_, dense);

  std::vector<float> k, v;
  for (std::int64_t key = 0; key < kRows; ++key) {
    for (std::int64_t i = 0; i < copies[static_cast<std::size_t>(key)]; ++i) {
      const auto at = key * kHeads * kDim;
      k.insert(k.end(), plain.k.begin() + at, plain.k.begin() + at + kHeads * kDim);
      v.insert(v.end(), plain.v.begin() + at, plain.v.begin() + at + kHeads * kDim);
    }
  }
  const std::int64_t total = std::accumulate(copies.begin(), copies.end(), std::int64_t{0});
  const Shape shape{total, kHeads, kDim};
  DeviceIo io(*backend_);
  AttentionSegment segment{
      io.in(view_of(k, shape)), io.in(view_of(v, shape)), 0, kRows, total, false};
  std::vector<float> out(plain.q.size()), log_sum(kRows * kHeads);
  ops::attention(*backend_, {.q = io.in(view_of(plain.q, plain.q_shape())),
                             .out = io.out(view_of(out, plain.q_shape())),
                             .segments = {&segment, 1},
                             .scale = plain.scale,
                             .log_sum = io.out(view_of(log_sum, {kRows, kHeads}))});
  io.fetch();
  for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], sized.out[i], 1e-5) << i;
  for (std::size_t i = 0; i < log_sum.size(); ++i) ASSERT_NEAR(log_sum[i], sized.log_sum[i], 4e-6);
}

// The lowest float hides a key: the rest gets what it gets without it.
TEST_P(RowAttention, HiddenKeysCountForNothing) {
  Dense dense;
  const std::int64_t seen = 90;
  dense.bias.assign(kRows, 0.0f);
  std::fill(dense.bias.begin() + seen, dense.bias.end(), std::numeric_limits<float>::lowest());
  const Attended hidden(*backend_, dense);
  const Shape shape{seen, kHeads, kDim};
  DeviceIo io(*backend_);
  AttentionSegment segment{io.in({DType::kF32, shape, dense.k.data(), {}}),
                           io.in({DType::kF32, shape, dense.v.data(), {}}),
                           0,
                           kRows,
                           seen,
                           false};
  std::vector<float> out(dense.q.size());
  ops::attention(*backend_, {.q = io.in(view_of(dense.q, dense.q_shape())),
                             .out = io.out(view_of(out, dense.q_shape())),
                             .segments = {&segment, 1},
                             .scale = dense.scale});
  io.fetch();
  for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], hidden.out[i], 2e-6) << i;
}

INSTANTIATE_TEST_SUITE_P(Devices, RowAttention, ::testing::ValuesIn(places_of_kernels()),
                         name_of_place);

// One row, one result: neither threads, nor instruction set, nor how rows were blocked together.
// Each row and head with a line of its own, as T5's distances have them: that of segments of one row
// and calls of one bias, head by head.
TEST_P(RowAttention, BiasesOfRowsAndHeadsAreThoseOfSegmentsOfTheirOwn) {
  for (const std::int64_t kv_heads : {kHeads, kHeads / 2}) {
    const Dense dense(kv_heads);
    constexpr std::int64_t kLine = 2 * kRows - 1;
    const std::vector<float> lines = normal(kHeads * kLine, 9);
    DeviceIo io(*backend_);
    const ConstTensorView bias = io.in(view_of(lines, {kHeads * kLine}));
    AttentionSegment segment{.keys = io.in(view_of(dense.k, dense.kv_shape())),
                             .values = io.in(view_of(dense.v, dense.kv_shape())),
                             .rows = kRows,
                             .first_visible = kRows,
                             .causal = false,
                             .key_bias = bias,
                             .bias_first = kRows - 1,
                             .bias_row_step = -1,
                             .bias_head_step = kLine};
    const ConstTensorView q = io.in(view_of(dense.q, dense.q_shape()));
    std::vector<float> together(dense.q.size(), NAN);
    ops::attention(*backend_, {.q = q,
                               .out = io.out(view_of(together, dense.q_shape())),
                               .segments = {&segment, 1},
                               .scale = dense.scale});
    io.fetch();
    for (std::int64_t head = 0; head < kHeads; ++head) {
      std::vector<AttentionSegment> rows;
      for (std::int64_t row = 0; row < kRows; ++row) {
        AttentionSegment one{.keys = segment.keys,
                             .values = segment.values,
                             .row_begin = row,
                             .rows = 1,
                             .first_visible = kRows,
                             .causal = false,
                             .key_bias = bias};
        one.bias_first = head * kLine + kRows - 1 - row;
        rows.push_back(one);
      }
      std::vector<float> alone(dense.q.size(), NAN);
      ops::attention(*backend_, {.q = q,
                                 .out = io.out(view_of(alone, dense.q_shape())),
                                 .segments = rows,
                                 .scale = dense.scale});
      io.fetch();
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t d = 0; d < kDim; ++d) {
          const auto at = static_cast<std::size_t>((row * kHeads + head) * kDim + d);
          ASSERT_NEAR(together[at], alone[at], 1e-6f) << row << " " << head;
        }
      }
    }
  }
}

TEST(RowAttentionBits, ThreadsAndIsasAgree) {
  Dense dense;
  dense.bias = normal(kRows, 9);
  std::vector<float> first_out, first_sum, first_mean;
  for (const Isa isa : isas_here()) {
    for (const int threads : {1, 2, 7}) {
      const auto backend = backend_of(isa, threads);
      const Attended run(*backend, dense);
      std::vector<float> mean(kRows);
      ops::row_attention(*backend, {.q = view_of(dense.q, dense.q_shape()),
                                    .keys = view_of(dense.k, dense.kv_shape()),
                                    .key_bias = dense.bias_view(),
                                    .log_sum = view_of(run.log_sum, {kRows, kHeads}),
                                    .scale = dense.scale,
                                    .mean = AttentionMean::kBoth,
                                    .out = view_of(mean, {kRows})});
      if (first_out.empty()) {
        first_out = run.out;
        first_sum = run.log_sum;
        first_mean = mean;
      }
      EXPECT_TRUE(same_bits(run.out, first_out)) << isa_name(isa) << threads;
      EXPECT_TRUE(same_bits(run.log_sum, first_sum)) << isa_name(isa) << threads;
      EXPECT_TRUE(same_bits(mean, first_mean)) << isa_name(isa) << threads;
    }
  }
}

}  // namespace
}  // namespace tessera::testing::row_attention_test
