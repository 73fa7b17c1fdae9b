// A window that slides over the cache: a key that was turned is the key of its new place, what
// stays is what was there, and a model whose keys and values know their own token alone cannot tell
// a cache that slid from one that was filled anew.
#include "engine/model/cache_slide.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/video_model.h"
#include "tests/support/model_runner.h"

namespace tessera::cache_slide_test {
namespace {

constexpr std::int64_t kPrompt = 7, kGone = 90, kKept = 150;

struct Setting {
  int layers;
  DType storage;
};

class CacheSlide : public ::testing::TestWithParam<Setting> {
 protected:
  CacheSlide()
      : opened_(video_model(GetParam().layers)),
        backend_(make_backend("cpu", {.threads = 1})),
        model_(load_stream_model(opened_, *backend_, DType::kF32)) {
    for (std::int64_t i = 0; i < kPrompt; ++i) {
      prompt_.push_back(static_cast<std::int32_t>(40 + i * 11 % 150));
    }
    for (std::int64_t i = 0; i < kGone + kKept; ++i) {
      stream_.push_back(static_cast<std::int32_t>((i * i * 7 + i * 3) % 64));
    }
  }

  std::unique_ptr<ModelRunner> runner() const {
    return std::make_unique<ModelRunner>(model_, 2, kPrompt + kGone + kKept + 4,
                                         GetParam().storage);
  }
  // Prompt and tokens of the stream from `first` on, cached as sequence 1; another one is 0.
  std::unique_ptr<ModelRunner> filled(std::int64_t first) const {
    auto out = runner();
    out->forward({{0, out->prompt_rows(prompt_)}, {1, out->prompt_rows(prompt_)}});
    const std::vector<std::int32_t> tokens(stream_.begin() + first, stream_.end());
    out->forward({{0, out->token_rows({5, 6, 7})}, {1, out->token_rows(tokens)}});
    return out;
  }

  // Of a cached row, [kv_heads * hd].
  static std::vector<float> row(ConstTensorView table, std::int64_t at) {
    std::vector<float> out(static_cast<std::size_t>(cached_width(table)));
    read_cached(table, at, out.data());
    return out;
  }

  // Largest difference of the keys [kPrompt, kPrompt + kKept) of two caches, `after` rows apart,
  // as a part of the length of the pair that turns; where numbers of a head share a scale, of the
  // longest pair of the head.
  double worst_turn(KvCache& a, KvCache& b, std::int64_t layer, std::int64_t after = 0) const {
    const std::int64_t dim = a.shape().head_dim, half = dim / 2;
    double worst = 0;
    for (std::int64_t at = kPrompt; at < kPrompt + kKept; ++at) {
      const auto left = row(a.keys(layer, 1), at + after), right = row(b.keys(layer, 1), at);
      for (std::size_t i = 0; i < left.size(); ++i) {
        const auto in_head = static_cast<std::int64_t>(i) % dim;
        const std::size_t other = in_head < half ? i + static_cast<std::size_t>(half)
                                                 : i - static_cast<std::size_t>(half);
        double length = std::hypot(right[i], right[other]);
        if (GetParam().storage == DType::kQ8) length = longest_pair(right, i, dim);
        if (length > 0) worst = std::max(worst, std::abs(left[i] - right[i]) / length);
      }
    }
    return worst;
  }
  static double longest_pair(const std::vector<float>& row, std::size_t in, std::int64_t dim) {
    const auto head = static_cast<std::size_t>(dim), half = head / 2;
    double out = 0;
    for (std::size_t i = in / head * head; i < in / head * head + half; ++i) {
      out = std::max(out, std::hypot(double{row[i]}, double{row[i + half]}));
    }
    return out;
  }
  // A key as cached is a rotation rounded once an operation, by a row of cosines and sines rounded
  // once: 2 sqrt 2 units of f32 of the pair's length. Turning it adds as much again, 3 units for
  // lengths of the table's rows that are not 1 and sqrt 2 for the turn's own rounding; the key it
  // is compared with has 2 sqrt 2. Stored in bf16: each of three roundings is one unit of bf16. In 8
  // bits: half a part in 127, of both numbers of a pair before it turns, and of each after it.
  static double tolerance() {
    if (GetParam().storage == DType::kQ8) return (1 + std::sqrt(0.5)) / 127 * 1.02;
    return GetParam().storage == DType::kF32 ? 16 * std::ldexp(1.0, -24)
                                             : 3 * std::ldexp(1.0, -8) + 1e-5;
  }

  OpenedModel opened_;
  std::unique_ptr<Backend> backend_;
  StreamModel model_;
  std::vector<std::int32_t> prompt_, stream_;
};

TEST_P(CacheSlide, TurnedKeysAreThoseOfTheirNewPlaces) {
  const auto slid = filled(0), before = filled(0), anew = filled(kGone);
  EXPECT_GT(worst_turn(before->cache(), anew->cache(), 0, kGone), 0.5)
      << "keys that were not turned pass for turned ones";
  slide_cache(model_.transformer(), slid->cache(), 1, kPrompt, kGone);
  KvCache& cache = slid->cache();
  ASSERT_EQ(cache.length(1), kPrompt + kKept);
  for (std::int64_t at = 0; at < cache.length(1); ++at) {
    EXPECT_EQ(cache.positions(1)[static_cast<std::size_t>(at)], at);
  }
  const double found = worst_turn(cache, anew->cache(), 0);
  RecordProperty("worst", std::to_string(found / tolerance()));
  EXPECT_LE(found, tolerance());
  for (std::int64_t layer = 0; layer < GetParam().layers; ++layer) {
    for (std::int64_t at = 0; at < cache.length(1); ++at) {
      const std::int64_t old = at < kPrompt ? at : at + kGone;
      // Values are those that were cached; in layer 0 those of a cache filled anew.
      ASSERT_EQ(row(cache.values(layer, 1), at), row(before->cache().values(layer, 1), old));
      if (layer == 0) {
        ASSERT_EQ(row(cache.values(0, 1), at), row(anew->cache().values(0, 1), at));
      }
      if (at < kPrompt) {
        ASSERT_EQ(row(cache.keys(layer, 1), at), row(before->cache().keys(layer, 1), at));
      }
    }
    if (layer > 0) {
      EXPECT_GT(worst_turn(cache, anew->cache(), layer), 0.1) << "layer " << layer;
    }
    for (std::int64_t at = 0; at < cache.length(0); ++at) {
      ASSERT_EQ(row(cache.keys(layer, 0), at), row(before->cache().keys(layer, 0), at));
    }
  }
}

// Several short slides are one long one, but for rounding once a slide.
TEST_P(CacheSlide, SlidesAddUp) {
  const auto slid = filled(0), anew = filled(kGone);
  for (int i = 0; i < 3; ++i) {
    slide_cache(model_.transformer(), slid->cache(), 1, kPrompt, kGone / 3);
  }
  EXPECT_LE(worst_turn(slid->cache(), anew->cache(), 0), 3 * tolerance());
}

TEST_P(CacheSlide, LogitsDifferByWhatLayersAboveTheFirstSaw) {
  const auto slid = filled(0), anew = filled(kGone);
  slide_cache(model_.transformer(), slid->cache(), 1, kPrompt, kGone);
  const auto next = [&](ModelRunner& in) {
    return in.logits(in.forward({{1, in.token_rows({9, 33})}}));
  };
  const double difference = relative_difference(next(*slid), next(*anew));
  RecordProperty("difference", std::to_string(difference));
  if (GetParam().layers > 1) {
    EXPECT_GT(difference, 1e-3);
  } else {
    EXPECT_LE(difference, GetParam().storage == DType::kF32 ? 1e-5 : 2e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CacheSlide,
                         ::testing::Values(Setting{1, DType::kF32}, Setting{2, DType::kF32},
                                         Setting{1, DType::kBF16}, Setting{3, DType::kBF16},
                                         Setting{2, DType::kQ8}),
                         [](const auto& one) {
                           return std::to_string(one.param.layers) +
                                  std::string(dtype_name(one.param.storage));
                         });

// YaRN's tables are scaled; what turns a cached key from one place to another is not.
TEST(TurnsOfScaledTables, HaveLengthOne) {
  const auto backend = make_backend("cpu", {.threads = 1});
  RopeSpec spec{.positions = 40};
  spec.stretch = {.kind = RopeKind::kYarn, .factor = 4.0, .original = 16, .scale = 1.25};
  const RopeTable scaled = make_rope_table(*backend, spec, 8);
  spec.stretch.scale = 1.0;
  const RopeTable plain = make_rope_table(*backend, spec, 8);
  const std::vector<std::int64_t> from = {3, 39, 17}, to = {1, 2, 17};
  std::vector<float> cos(12), sin(12), plain_cos(12), plain_sin(12);
  fill_turns(*backend, scaled, from, to, cos.data(), sin.data());
  fill_turns(*backend, plain, from, to, plain_cos.data(), plain_sin.data());
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(std::hypot(cos[i], sin[i]), 1.0, 1e-6);
    EXPECT_NEAR(cos[i], plain_cos[i], 1e-6);
    EXPECT_NEAR(sin[i], plain_sin[i], 1e-6);
  }
  EXPECT_NEAR(std::hypot(scaled.cos.f32()[9], scaled.sin.f32()[9]), 1.25, 1e-6);
}

}  // namespace
}  // namespace tessera::cache_slide_test
