// Signals and hooks of the encoder against a transformer in plain double loops: attention weights
// of rows, rows dropped in a layer, rows merged with proportional attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/unit/encoder/encoder_bench.h"
#include "vision/encoder/tower_signals.h"

namespace tessera::testing::hooks_test {
namespace {

double run_with(const Bench& bench, const std::map<std::int64_t, RowChange>& changes,
                bool proportional = false) {
  Changer changer(changes);
  TowerObserver* const observers[] = {&changer};
  const EncodedImage image =
      bench.encode({.observers = observers, .proportional_attention = proportional});
  NaiveVit naive(bench.spec, bench.tensors);
  naive.changes = changes;
  naive.proportional = proportional;
  const Rows rows = naive.run(bench.pixels.view());
  for (std::size_t i = 0; i < image.sizes.size(); ++i) EXPECT_GE(image.sizes[i], 1.0f);
  return difference(image, naive, rows);
}

TEST(Hooks, PlainRunsEqualTheOracle) {
  EXPECT_LT(run_with(class_token_bench(), {}), 1e-5);
  EXPECT_LT(run_with(window_bench(), {}), 1e-5);
  for (const VitActivation activation : {VitActivation::kGelu, VitActivation::kGeluTanh}) {
    VitSpec spec = class_token_spec();
    spec.activation = activation;
    spec.class_token = spec.first_norm = false;
    spec.patch_bias = true;
    spec.run_layers = 3;
    spec.final_norm = VitFinalNorm::kUnused;
    EXPECT_LT(run_with({spec, {3, 21, 20}}, {}), 1e-5);
  }
}

// More rows than the MLP holds at once.
TEST(Hooks, LongImagesAreRunInParts) {
  VitSpec spec = class_token_spec();
  spec.grid = 17;
  spec.layers = spec.run_layers = 2;
  EXPECT_GT(spec.places(), VisionEncoder::kMlpRows);
  EXPECT_LT(run_with({spec, {3, 34, 34}}, {}), 1e-5);
}

std::vector<std::int32_t> every(std::int32_t begin, std::int32_t end, std::int32_t step) {
  std::vector<std::int32_t> out;
  for (std::int32_t i = begin; i < end; i += step) out.push_back(i);
  return out;
}

TEST(Hooks, DroppedRowsEqualADenseOracle) {
  std::map<std::int64_t, RowChange> changes;
  changes[0].keep = every(0, 101, 2);  // the class token and every second patch
  changes[2].keep = {0, 1, 2, 3, 7, 20, 40, 50};
  EXPECT_LT(run_with(class_token_bench(), changes), 1e-5);
  // Windows that lose some and all of their rows.
  std::map<std::int64_t, RowChange> windows;
  windows[0].keep = every(5, 180, 3);
  windows[1].keep = every(1, 50, 2);
  EXPECT_LT(run_with(window_bench(), windows), 1e-5);
  // The comparison sees one row more or less.
  changes[2].keep.pop_back();
  const Bench bench = class_token_bench();
  Changer changer(changes);
  TowerObserver* const observers[] = {&changer};
  const EncodedImage image = bench.encode({.observers = observers});
  NaiveVit other(bench.spec, bench.tensors);
  other.changes = changes;
  other.changes[2].keep.back() += 1;
  const Rows rows = other.run(bench.pixels.view());
  EXPECT_EQ(difference(image, other, rows), HUGE_VAL);
}

TEST(Hooks, MergedRowsEqualADenseOracle) {
  std::map<std::int64_t, RowChange> changes;
  RowChange& first = changes[0];
  for (std::int32_t i = 0; i < 101; ++i) {
    // Rows 1..60 in threes; the rest stays.
    const std::int32_t to = i == 0 ? 0 : i <= 60 ? (i + 2) / 3 : i - 40;
    first.merge_to.push_back(to);
    if (i == 0 || i > 60 || i % 3 == 2) first.stands_for.push_back(i);
  }
  RowChange& second = changes[2];  // rows of different sizes merge again, and some go
  for (std::int32_t i = 0; i < 61; ++i) {
    second.merge_to.push_back(i == 0 ? 0 : i <= 20 ? 1 : i - 19);
    if (i == 0 || i == 20 || i > 20) second.stands_for.push_back(i);
  }
  second.keep = every(0, 42, 3);
  for (const bool proportional : {false, true}) {
    EXPECT_LT(run_with(class_token_bench(), changes, proportional), 1e-5) << proportional;
  }
  // With and without sizes in attention is not the same.
  Changer changer(changes);
  TowerObserver* const observers[] = {&changer};
  const Bench bench = class_token_bench();
  const EncodedImage image = bench.encode({.observers = observers});
  NaiveVit naive(bench.spec, bench.tensors);
  naive.changes = changes;
  naive.proportional = true;
  EXPECT_GT(difference(image, naive, naive.run(bench.pixels.view())), 1e-3);
}

// Patches that are the same at the same place may be merged without any loss.
TEST(Hooks, MergingIdenticalPatchesChangesNothing) {
  Bench bench = class_token_bench();
  // Rows 2i + 1 and 2i + 2 (patches 2i and 2i + 1) get the same pixels and the same position.
  for (std::int64_t plane = 0; plane < 3; ++plane) {
    for (std::int64_t y = 0; y < 20; ++y) {
      float* row = bench.pixels.f32() + (plane * 20 + y) * 20;
      for (std::int64_t pair = 0; pair < 5; ++pair)
        std::copy_n(row + 4 * pair, 2, row + 4 * pair + 2);
    }
  }
  float* table = bench.tensors.at("embeddings.position_embedding.weight").f32();
  for (std::int64_t i = 1; i < 101; i += 2) std::copy_n(table + i * 24, 24, table + (i + 1) * 24);
  std::map<std::int64_t, RowChange> changes;
  for (std::int32_t i = 0; i < 101; ++i) {
    changes[0].merge_to.push_back((i + 1) / 2);
    if (i == 0 || i % 2 == 1) changes[0].stands_for.push_back(i);
  }
  Changer changer(changes);
  TowerObserver* const observers[] = {&changer};
  const EncodedImage merged =
      bench.encode({.observers = observers, .proportional_attention = true});
  const EncodedImage whole = bench.encode();
  ASSERT_EQ(merged.features.shape()[0], 50);
  EXPECT_EQ(std::accumulate(merged.sizes.begin(), merged.sizes.end(), 0.0f), 100.0f);
  double worst = 0;
  for (std::int64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(merged.places[static_cast<std::size_t>(i)].id, 2 * i);
    for (std::int64_t c = 0; c < 24; ++c) {
      worst = std::max(worst, std::abs(static_cast<double>(merged.features.f32()[i * 24 + c]) -
                                       static_cast<double>(whole.features.f32()[2 * i * 24 + c])));
    }
  }
  EXPECT_LT(worst, 2e-5);
  const EncodedImage unsized = bench.encode({.observers = observers});
  double off = 0;
  for (std::int64_t i = 0; i < 50 * 24; ++i) {
    off = std::max(off, std::abs(static_cast<double>(unsized.features.f32()[i]) -
                                 static_cast<double>(merged.features.f32()[i])));
  }
  EXPECT_GT(off, 1e-3) << "the class token counts once, patches twice: sizes must matter";
}

// Keeping every row, or merging none, is the same image, bit for bit; threads change nothing.
TEST(Hooks, IdentityAndThreadsChangeNoBit) {
  for (const bool windows : {false, true}) {
    const Bench bench = windows ? window_bench() : class_token_bench();
    const EncodedImage plain = bench.encode();
    std::map<std::int64_t, RowChange> changes;
    const auto count = static_cast<std::int32_t>(plain.features.shape()[0] + (windows ? 0 : 1));
    changes[1].keep = every(0, count, 1);
    changes[0].merge_to = changes[0].stands_for = changes[1].keep;
    Changer changer(changes);
    TowerObserver* const observers[] = {&changer};
    for (const int threads : {1, 3}) {
      Bench other = windows ? window_bench() : class_token_bench();
      other.backend = make_backend("cpu", {.threads = threads});
      const EncodedImage image =
          other.encode({.observers = observers, .proportional_attention = true});
      EXPECT_EQ(std::memcmp(image.features.f32(), plain.features.f32(), plain.features.bytes()), 0);
    }
  }
}

double worst_weight(const TowerSignal& signal, const std::vector<double>& want) {
  if (signal.values.shape().elements() != static_cast<std::int64_t>(want.size())) return HUGE_VAL;
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    worst = std::max(worst, std::abs(signal.values.f32()[i] - want[i]));
  }
  return worst;
}

// Weights of one row, or their mean over rows, per head or over heads, out of the dense map.
std::vector<double> dense(const std::vector<Rows>& map, bool class_row, bool mean) {
  const std::size_t heads = map.size(), n = map[0].size();
  std::vector<double> out((mean ? 1 : heads) * n, 0.0);
  for (std::size_t head = 0; head < heads; ++head) {
    for (std::size_t row = 0; row < (class_row ? 1 : n); ++row) {
      for (std::size_t key = 0; key < n; ++key) {
        out[(mean ? 0 : head * n) + key] += map[head][row][key] /
                                            static_cast<double>(class_row ? 1 : n) /
                                            static_cast<double>(mean ? heads : 1);
      }
    }
  }
  return out;
}

TEST(Signals, AttentionOfRowsEqualsTheDenseMap) {
  for (const bool windows : {false, true}) {
    const Bench bench = windows ? window_bench() : class_token_bench();
    std::vector<TowerRequest> requests;
    for (std::int64_t layer = 0; layer < bench.spec.run_layers; ++layer) {
      for (const HeadMean heads : {HeadMean::kPerHead, HeadMean::kMean}) {
        requests.push_back({layer, TowerSignalKind::kAttention, AttentionRows::kMeanOfRows, heads});
        if (!windows) {
          requests.push_back(
              {layer, TowerSignalKind::kAttention, AttentionRows::kClassToken, heads});
        }
      }
    }
    TowerRecorder recorder(requests);
    TowerObserver* const observers[] = {&recorder};
    bench.encode({.observers = observers});
    NaiveVit naive(bench.spec, bench.tensors);
    naive.run(bench.pixels.view());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto& map = naive.attention[static_cast<std::size_t>(requests[i].layer)];
      const std::vector<double> want = dense(map, requests[i].whose == AttentionRows::kClassToken,
                                             requests[i].heads == HeadMean::kMean);
      EXPECT_LT(worst_weight(recorder.signals()[i], want), 1e-5) << i << " windows " << windows;
    }
  }
}

// The same after rows were dropped and merged, and for the mean query, from recorded keys.
TEST(Signals, StayRightOnFewerRows) {
  const Bench bench = class_token_bench();
  std::map<std::int64_t, RowChange> changes;
  changes[0].keep = every(0, 101, 3);
  for (std::int32_t i = 0; i < 34; ++i) {
    changes[1].merge_to.push_back(i < 2 ? i : i / 2 + 1);
    if (i < 2 || i % 2 == 0) changes[1].stands_for.push_back(i);
  }
  TowerRecorder recorder(
      {{2, TowerSignalKind::kAttention, AttentionRows::kClassToken, HeadMean::kMean},
       {2, TowerSignalKind::kAttention, AttentionRows::kMeanQuery, HeadMean::kMean},
       {2, TowerSignalKind::kQueries},
       {2, TowerSignalKind::kKeys},
       {3, TowerSignalKind::kHidden}});
  Changer changer(changes);
  TowerObserver* const observers[] = {&changer, &recorder};
  bench.encode({.observers = observers, .proportional_attention = true});
  NaiveVit naive(bench.spec, bench.tensors);
  naive.changes = changes;
  naive.proportional = true;
  naive.run(bench.pixels.view());
  const std::vector<TowerSignal>& got = recorder.signals();
  EXPECT_LT(worst_weight(got[0], dense(naive.attention[2], true, true)), 1e-5);
  ASSERT_EQ(got[0].places.size(), 18u);
  EXPECT_EQ(got[4].values.shape(), Shape({18, 24}));

  const std::size_t n = 18, heads = 3, dim = 8;
  std::vector<double> want(n, 0.0);
  for (std::size_t head = 0; head < heads; ++head) {
    std::vector<double> weight(n);
    double total = 0;
    for (std::size_t key = 0; key < n; ++key) {
      double score = 0;
      for (std::size_t d = 0; d < dim; ++d) {
        double mean = 0;
        for (std::size_t row = 0; row < n; ++row) {
          mean += got[2].values.f32()[(row * heads + head) * dim + d] / static_cast<double>(n);
        }
        score += mean * got[3].values.f32()[(key * heads + head) * dim + d];
      }
      weight[key] = naive.sizes[key] * std::exp(score / std::sqrt(8.0));
      total += weight[key];
    }
    for (std::size_t key = 0; key < n; ++key) want[key] += weight[key] / total / heads;
  }
  EXPECT_LT(worst_weight(got[1], want), 1e-5);
}

class Misuser final : public TowerObserver {
 public:
  explicit Misuser(int what) : what_(what) {}
  void after_attention(LayerState& state) override {
    const std::vector<std::int32_t> two = {0, 1}, unsorted = {0, 2, 1}, patches = {1, 2};
    if (what_ == 0) state.keep(unsorted);
    if (what_ == 1) state.keep(patches);
    if (what_ == 2) {
      state.keep(two);
      state.keys();
    }
    if (what_ == 3) state.merge(two, two);
  }

 private:
  int what_;
};

TEST(HooksDeathTest, MisuseEndsTheProgram) {
  Bench bench = class_token_bench();
  bench.backend = make_backend("cpu", {.threads = 1});
  const char* messages[] = {"ascending", "class token stays", "rows that ran", "destination"};
  for (int what = 0; what < 4; ++what) {
    Misuser misuser(what);
    TowerObserver* const observers[] = {&misuser};
    EXPECT_DEATH(bench.encode({.observers = observers}), messages[what]);
  }
}

}  // namespace
}  // namespace tessera::testing::hooks_test
