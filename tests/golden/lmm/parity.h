// What a prompt of a tiny model must give, as the reference recorded it: rows, places, logits,
// text.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "engine/decoding/method_parts.h"
#include "tests/support/device_values.h"
#include "tests/support/stream_run.h"
#include "tests/support/tiny_lmm.h"

namespace tessera {

inline double worst_relative(const std::vector<float>& got, const float* want, std::size_t count) {
  if (got.size() != count) return HUGE_VAL;
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < count; ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
    scale = std::max(scale, std::abs(static_cast<double>(want[i])));
  }
  return scale > 0 ? worst / scale : HUGE_VAL;
}
inline double worst_relative(const std::vector<float>& got, const std::vector<float>& want) {
  return worst_relative(got, want.data(), want.size());
}

// Distance in floats between two numbers of one sign.
inline std::int64_t ulps(float a, float b) {
  std::int32_t x = 0, y = 0;
  std::memcpy(&x, &a, 4);
  std::memcpy(&y, &b, 4);
  return std::abs(static_cast<std::int64_t>(x) - y);
}

inline void expect_same_pixels(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  std::size_t off = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i] != want[i] && ulps(got[i], want[i]) > 1) ++off;
  }
  EXPECT_EQ(off, 0u) << "of " << want.size() << " numbers are off by more than one float";
}

inline std::vector<std::int32_t> greedy(const StreamModel& text, PromptRows rows, std::size_t count,
                                        const std::function<void(Stream&)>& change = {}) {
  struct Keep final : StreamListener {
    std::vector<std::int32_t> tokens;
    void on_done(std::size_t, StreamResult&& result) override { tokens = result.tokens; }
  } keep;
  const OwnedParts<float, KeyedRandom> parts(DecodeMethod{}, DecodeAids{});
  StreamLoop loop(text, text_limits(text, 64, {.items = 1, .prompt_rows = 256, .budget = 64}),
                  parts.parts());
  Stream stream = greedy_text(std::move(rows.rows), std::move(rows.places), rows.next_place, nullptr,
                              static_cast<std::int64_t>(count));
  if (change) change(stream);
  loop.add(std::move(stream));
  while (!loop.idle()) loop.step(keep);
  return keep.tokens;
}

// Hidden state of the last row and logits of the last four.
struct LastRows {
  std::vector<float> hidden, logits;
};

inline LastRows last_rows(Backend& backend, const StreamModel& text, const PromptRows& rows) {
  const ModelConfig& config = text.config().transformer;
  const auto total = static_cast<std::int64_t>(rows.places.size());
  KvCache cache(backend, {config.layers, config.kv_heads, config.head_dim, total, 1});
  Arena arena = make_arena(backend, text.scratch_bytes(total) + 4096);
  Tensor hidden = backend.allocate(DType::kF32, rows.rows.shape());
  std::vector<std::int64_t> positions;
  for (const auto& place : rows.places) positions.push_back(place[0]);
  const std::vector<std::int32_t> sequences(rows.places.size(), 0);
  text.transformer().forward({.rows = rows.rows.view(),
                              .sequences = sequences,
                              .positions = positions,
                              .places = rows.places},
                             cache, arena, hidden.view());
  const std::vector<float> all = from_device(backend, hidden.view());
  Tensor logits = backend.allocate(DType::kF32, Shape{4, text.config().vocab});
  text.logits({DType::kF32, Shape{4, config.width},
               hidden.view().f32() + (total - 4) * config.width, backend.device()},
              arena, logits.view());
  return {{all.end() - config.width, all.end()}, from_device(backend, logits.view())};
}

// `at`: in front of the recorded names.
inline void expect_rows_parity(const TinyLmm& tiny, PromptRows rows, const std::string& at) {
  if (tiny.has(at + "embeds")) {
    EXPECT_LT(
        worst_relative(from_device(*tiny.backend, rows.rows.view()), tiny.floats(at + "embeds")),
        1e-5);
  }
  const std::vector<std::int32_t> ids = tiny.ints(at + "position_ids");
  const std::size_t count = rows.places.size();
  ASSERT_EQ(ids.size(), tiny.spec.three_axes() ? 3 * count : count);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      EXPECT_EQ(rows.places[i][axis], ids[tiny.spec.three_axes() ? axis * count + i : i])
          << "row " << i << ", axis " << axis;
    }
  }
  if (tiny.has(at + "rope_delta")) {
    EXPECT_EQ(rows.next_place, static_cast<std::int64_t>(count) + tiny.ints(at + "rope_delta")[0]);
  }
  const LastRows last = last_rows(*tiny.backend, *tiny.text, rows);
  EXPECT_LT(worst_relative(last.hidden, tiny.floats(at + "hidden")), 1e-5);
  EXPECT_LT(worst_relative(last.logits, tiny.floats(at + "logits")), 1e-5);
  const std::vector<std::int32_t> want = tiny.ints(at + "greedy");
  EXPECT_EQ(greedy(*tiny.text, std::move(rows), want.size()), want);
}

}  // namespace tessera
