// Texts for tests of loops and drafters: what is asked, and what came of it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <vector>

#include "engine/decoding/prompt_cuts.h"
#include "tests/support/device_values.h"
#include "tests/support/stream_run.h"
#include "tests/support/text_models.h"

namespace tessera {

using Tokens = std::vector<std::int32_t>;

struct Question {
  Tokens prompt;
  DistributionSettings dist;
  std::int64_t max_tokens = 24;
  Tokens stops;
  std::uint64_t item = 0;
};

// Short and long prompts, greedy and drawn, with stops and without.
inline std::vector<Question> questions(const StreamModel& model, int count) {
  std::vector<Question> out;
  for (int i = 0; i < count; ++i) {
    Question q;
    q.prompt = small_prompt(model, 3 + 13 * (i % 5), static_cast<std::uint32_t>(i + 1));
    q.dist.temperature = i % 3 == 0 ? 0.0 : 0.7;
    q.dist.top_k = i % 4 == 1 ? 12 : 0;
    q.max_tokens = 8 + 7 * (i % 4);
    if (i % 2 == 1) q.stops = {3, 17, 25};
    q.item = static_cast<std::uint64_t>(i);
    out.push_back(q);
  }
  return out;
}

inline std::vector<RowKey> keys_of(const Tokens& ids) {
  std::vector<RowKey> out;
  for (const std::int32_t id : ids) out.push_back(key_of_id(id));
  return out;
}

inline Stream item_of(const StreamModel& model, const Question& q) {
  Stream item{.prompt = {.ids = {},
                         .rows = std::make_shared<Tensor>(embedded(model, q.prompt)),
                         .positions = places_in_line(q.prompt.size()),
                         .next_position = static_cast<std::int64_t>(q.prompt.size())},
              .kind = StreamKind::kText,
              .before = q.prompt};
  item.stops = q.stops;
  item.max_tokens = q.max_tokens;
  item.dist = q.dist;
  item.seed = 5;
  item.item = q.item;
  return item;
}

// The rows of a prompt that nothing else shares.
inline Tensor& own_rows(Stream& item) { return *std::const_pointer_cast<Tensor>(item.prompt.rows); }

// The row after ids, by one pass over all of them.
inline std::vector<float> logits_after(const StreamModel& model, const Tokens& ids) {
  const auto count = static_cast<std::int64_t>(ids.size());
  const ModelConfig& config = model.transformer().config();
  KvCache cache(model.backend(), {config.layers, config.kv_heads, config.head_dim, count, 1});
  Backend& backend = model.backend();
  Arena arena = make_arena(backend, model.scratch_bytes(count) + 4096);
  const Tensor rows = embedded(model, ids);
  Tensor hidden = backend.allocate(DType::kF32, rows.shape());
  std::vector<std::int64_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<std::int32_t> sequences(ids.size(), 0);
  const auto places = places_in_line(ids.size());
  model.transformer().forward(
      {.rows = rows.view(), .sequences = sequences, .positions = positions, .places = places},
      cache, arena, hidden.view());
  Tensor logits = backend.allocate(DType::kF32, Shape{1, model.config().vocab});
  model.logits({DType::kF32, Shape{1, model.width()},
                hidden.view().f32() + (count - 1) * model.width(), backend.device()},
               arena, logits.view());
  return from_device(backend, logits.view());
}

inline std::vector<Stream> items_of(const StreamModel& model, const std::vector<Question>& list) {
  std::vector<Stream> items;
  for (const Question& q : list) items.push_back(item_of(model, q));
  return items;
}

// Keeps the rows it is notified to, before the layers it is notified.
struct PlannedCuts final : PromptCuts {
  std::map<std::int64_t, std::vector<std::int64_t>> keeps;  // by layer: rows of the prompt
  std::vector<std::int64_t> layers() const override {
    std::vector<std::int64_t> out;
    for (const auto& [layer, unused] : keeps) out.push_back(layer);
    return out;
  }
  std::vector<std::int64_t> keep(const PromptPause& pause) override {
    std::vector<std::int64_t> out;
    const auto& wanted = keeps.at(pause.layer);
    for (std::size_t i = 0; i < pause.rows.size(); ++i) {
      if (std::find(wanted.begin(), wanted.end(), pause.rows[i]) != wanted.end()) {
        out.push_back(static_cast<std::int64_t>(i));
      }
    }
    return out;
  }
};

struct Gatherer final : StreamListener {
  std::map<std::size_t, Tokens> streamed;  // by slot
  std::map<std::uint64_t, StreamResult> done;
  std::map<std::size_t, std::uint64_t> item_of_slot;
  void on_tokens(std::size_t slot, std::span<const std::int32_t> tokens) override {
    streamed[slot].insert(streamed[slot].end(), tokens.begin(), tokens.end());
  }
  void on_done(std::size_t slot, StreamResult&& result) override {
    if (result.status == StreamStatus::kDone) {
      EXPECT_EQ(streamed[slot], result.tokens);
    }
    streamed[slot].clear();
    done[item_of_slot.at(slot)] = std::move(result);
  }
};

}  // namespace tessera
