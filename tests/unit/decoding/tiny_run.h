// The seeded tiny model with prompts, for tests of the stream loop.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/decoding/rules/gumbel_rule.h"
#include "engine/decoding/tails/tails.h"
#include "engine/families/open_model.h"
#include "tests/support/made_up_methods.h"
#include "tests/support/stream_run.h"

namespace tessera {

// Plain decoding, or drafts verified by equality.
inline LoopParts equality_parts(LoopDrafter* drafter = nullptr) {
  static GumbelRule<float, KeyedRandom> rule;
  static const DropRedraft<float, KeyedRandom> redraft_policy;
  return {&rule, &redraft_policy, drafter};
}

struct TinyRun {
  explicit TinyRun(int threads = 2, const char* name = "test:tiny")
      : opened(open_model(name)),
        backend(make_backend("cpu", {.threads = threads})),
        model(load_stream_model(opened, *backend, DType::kF32)) {}

  TinyRun(std::unique_ptr<Backend> on, DType storage, const char* name = "test:tiny")
      : opened(open_model(name)),
        backend(std::move(on)),
        model(load_stream_model(opened, *backend, storage)) {}

  // Prompts of different lengths, one setting each.
  Stream item(int number) const {
    Stream out;
    for (int i = 0; i < 3 + number % 5; ++i)
      out.prompt.ids.push_back(20 + (number * 7 + i * 3) % 200);
    out.unconditional.ids = unconditional_prompt(model.config(), out.prompt.ids, 2);
    out.dist.guidance = number % 3 == 0 ? 3.0 : 5.0;
    out.dist.temperature = number % 4 == 1 ? 0.7 : 1.0;
    out.dist.top_k = number % 2 == 0 ? 0 : 20;
    out.seed = static_cast<std::uint64_t>(100 + number);
    return out;
  }

  std::vector<StreamResult> run(const std::vector<Stream>& items, LoopDrafter* drafter = nullptr,
                                std::int64_t window = 1) const {
    StreamLoop loop(model,
                    image_limits(model, {.items = static_cast<std::int64_t>(items.size()),
                                         .prompt_rows = 8,
                                         .window = window}),
                    equality_parts(drafter));
    return run_drafted(loop, items, dynamic_cast<ModelDrafter*>(drafter));
  }

  // Any method of shipped parts.
  std::vector<StreamResult> run_method(const std::vector<Stream>& items,
                                       const DecodeMethod& method) const {
    const OwnedParts<float, KeyedRandom> owned(method, aids());
    StreamLoop loop(model,
                    image_limits(model, {.items = static_cast<std::int64_t>(items.size()),
                                         .prompt_rows = 8,
                                         .window = method.window,
                                         .kv = method.cache_next_to(DType::kF32),
                                         .dists = keeps_dists(method),
                                         .shape = method.shape()}),
                    owned.parts());
    return run_streams(loop, items);
  }
  DecodeAids aids() const { return aids_for(model.config().grammar()); }

  OpenedModel opened;
  std::unique_ptr<Backend> backend;
  StreamModel model;
};

using Tokens = std::vector<std::int32_t>;

inline std::vector<Stream> first_items(const TinyRun& tiny, int count) {
  std::vector<Stream> out;
  for (int number = 0; number < count; ++number) out.push_back(tiny.item(number));
  return out;
}

// The same with logits processors.
inline std::vector<Stream> processed_items(const TinyRun& tiny, int count) {
  std::vector<Stream> out = first_items(tiny, count);
  for (std::size_t i = 0; i < out.size(); ++i) {
    DistributionSettings& dist = out[i].dist;
    if (i % 3 != 2) dist.repetition_penalty = 1.3;
    if (i % 3 != 1) dist.no_repeat_ngram = 2;
    if (i % 3 == 1) dist.frequency_penalty = 0.4;
    if (i % 3 == 2) dist.presence_penalty = 1.5;
    dist.bad_words = "5,7 8";
    dist.forced_tokens = "3";
  }
  return out;
}

inline std::vector<Tokens> tokens_of(const std::vector<StreamResult>& results) {
  std::vector<Tokens> out;
  for (const StreamResult& result : results) {
    EXPECT_EQ(result.status, StreamStatus::kDone);
    out.push_back(result.tokens);
  }
  return out;
}

// The code that check_method() refuses with; empty if it does not.
inline std::string refusal_code(const DecodeMethod& method, const DecodeAids& aids,
                                std::int64_t image_tokens) {
  try {
    check_method(method, aids, image_tokens);
  } catch (const Error& error) {
    EXPECT_EQ(error.info().kind, ErrorKind::kUsage);
    EXPECT_FALSE(error.info().where.empty());
    EXPECT_FALSE(error.info().expected.empty());
    return error.info().code;
  }
  return "";
}

}  // namespace tessera
