// Small text models with seeded weights, and prompts for them.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/lab/models/random_weights.h"
#include "engine/backend/backend.h"
#include "engine/families/language.h"
#include "engine/families/open_model.h"

namespace tessera {

struct SmallText {
  std::unique_ptr<Backend> backend;
  StreamModel model;
};

inline ModelSpec small_text_spec(std::int64_t vocab = 40, bool three_axes = false) {
  ModelSpec spec;
  spec.layouts = {{"model.", "lm_head.weight"}};
  ModelConfig& model = spec.model.transformer;
  model.layers = 3;
  model.width = 32;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.ffn_width = 48;
  model.qkv_bias = three_axes;
  model.rope.positions = 512;
  if (three_axes) model.rope.sections = {1, 2, 1};
  spec.model.vocab = vocab;
  spec.model.max_positions = 512;
  return spec;
}

inline SmallText small_text_on(std::unique_ptr<Backend> backend, const ModelSpec& spec,
                               DType storage = DType::kF32, std::uint64_t seed = 11) {
  std::map<std::string, Tensor> tensors;
  const TextLayout& layout = spec.layouts.front();
  for (const TensorSpec& tensor : text_tensors(spec.model, layout)) {
    tensors.emplace(tensor.name,
                    random_weight(tensor.name, tensor.shape, {.seed = seed, .matrix_std = 0}));
  }
  const auto checkpoint =
      std::make_shared<const Checkpoint>(Checkpoint::from_tensors("small", std::move(tensors)));
  const auto source = source_of(checkpoint);
  StreamModel model =
      load_stream_model(spec.model, text_names(spec.model, layout), *source, *backend, storage);
  return {std::move(backend), std::move(model)};
}

inline SmallText small_text(const ModelSpec& spec = small_text_spec(), int threads = 1,
                            std::uint64_t seed = 11, DType storage = DType::kF32) {
  return small_text_on(make_backend("cpu", {.threads = threads}), spec, storage, seed);
}

inline std::vector<std::int32_t> small_prompt(const TokenModel& model, std::int64_t length,
                                              std::uint32_t seed) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < length; ++i) {
    seed = seed * 1664525u + 1013904223u;
    ids.push_back(
        static_cast<std::int32_t>((seed >> 8) % static_cast<std::uint32_t>(model.logit_ids())));
  }
  return ids;
}

inline Tensor embedded(const TokenModel& model, const std::vector<std::int32_t>& ids) {
  Tensor rows = model.backend().allocate(
      DType::kF32, Shape{static_cast<std::int64_t>(ids.size()), model.width()});
  model.embed_prompt(ids, rows.view());
  return rows;
}

inline std::vector<std::array<std::int64_t, 3>> places_in_line(std::size_t count) {
  std::vector<std::array<std::int64_t, 3>> places(count);
  for (std::size_t i = 0; i < count; ++i) places[i].fill(static_cast<std::int64_t>(i));
  return places;
}

}  // namespace tessera
