// What a loop of streams has room for, and what that takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/core/dtype.h"
#include "engine/core/function_ref.h"
#include "engine/core/index.h"
#include "engine/decoding/model_pass.h"
#include "engine/decoding/pass_shape.h"
#include "engine/model/block_model.h"
#include "engine/model/pass_model.h"
#include "engine/sampling/grammar.h"

namespace tessera {

struct StreamLimits {
  std::int64_t items = 1;        // slots: streams at once
  std::int64_t prompt_rows = 1;  // longest prompt of a branch
  VocabularyGrammar grammar;     // of a stream that brings none; no stream is longer
  std::int64_t window = 1;       // rows of one branch in one pass: 1 + the longest draft
  bool guided = false;           // room for the second branch
  bool images_apart = false;     // and for the third
  // Rows of one pass: those of running streams and parts of prompts. Running streams always run;
  // prompts get what is left, and a quarter of it at least.
  std::int64_t budget = 256;
  DType kv = DType::kF32;
  bool dists = false;  // room for the distributions of drafts, which all rules but equality need
  PassShape shape = PassShape::kLine;  // kRows takes no given tokens
  std::int64_t given_tokens = 0;       // most first tokens of a stream that are given
  BlockReading blocks = {};            // kBlock: how the model reads; the window is a block

  std::int64_t tokens() const { return to_index(grammar.length()); }
  std::int64_t branches() const {
    if (!guided) return 1;
    return images_apart ? 3 : 2;
  }
  // Cache rows of a stream besides its prompt, and those that its given tokens take.
  std::int64_t stream_rows() const;
  std::int64_t given_rows() const;
  // Rows of a pass that prompts get at least.
  std::int64_t min_prompt_rows() const;
  // Rows of a pass at most.
  std::int64_t pass_rows() const;
  // Cache rows of a sequence besides its prompt and stream: what a pass runs off its line.
  std::int64_t spare_cache_rows() const;
  ModelPass::Limits pass_limits() const;
};

// Limits of streams of a model of blocks: its shape, window and reading, and room for any whole
// blocks that are given. From `limits` come items, prompt_rows, budget and kv.
StreamLimits block_limits(const BlockModelConfig& model, const VocabularyGrammar& grammar,
                          StreamLimits limits = {});

// A model's shape, before there is one.
struct StreamModelShape {
  const ModelConfig& transformer;
  std::int64_t logit_ids;
  // TokenModel::scratch_bytes of so many rows.
  FunctionRef<std::size_t(std::int64_t rows)> scratch_bytes;
};

// What a loop holds besides the cache: rows, logits, scratch, sampling buffers.
std::size_t stream_activation_bytes(const StreamModelShape& model, const Backend& backend,
                                    const StreamLimits& limits);
// The cache.
std::size_t stream_cache_bytes(const StreamModelShape& model, const Backend& backend,
                               const StreamLimits& limits);
// What a device verifies by.
std::size_t stream_verifier_bytes(const StreamModelShape& model, const StreamLimits& limits);

}  // namespace tessera
