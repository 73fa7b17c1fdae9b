// Runs an image model the plain way (no sampling, no pipeline) and emits everything a reference
// recorded, for the parity and property tests of the model.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/families/open_model.h"
#include "engine/model/stream_model.h"
#include "tests/support/device_values.h"

namespace tessera {

inline std::vector<float> floats_of(ConstTensorView view) {
  const float* data = view.f32();
  return {data, data + view.shape.elements()};
}

inline std::vector<std::int32_t> ints_of(ConstTensorView view) {
  const auto* data = view.as<std::int32_t>();
  return {data, data + view.shape.elements()};
}

// max|a - b| / max|b|; infinity when sizes differ or anything is not a number.
inline double relative_difference(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size() || want.empty()) return HUGE_VAL;
  double worst = 0.0;
  double scale = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    if (!(difference <= HUGE_VAL)) return HUGE_VAL;
    worst = std::max(worst, difference);
    scale = std::max(scale, std::abs(static_cast<double>(want[i])));
  }
  return scale > 0.0 ? worst / scale : HUGE_VAL;
}

// A model with a cache and buffers for `capacity` rows of each of `sequences` sequences.
class ModelRunner {
 public:
  ModelRunner(const TokenModel& model, std::int64_t sequences, std::int64_t capacity,
              DType kv = DType::kF32)
      : model_(model),
        cache_(model.backend(), {.layers = model.transformer().config().layers,
                                 .kv_heads = model.transformer().config().kv_heads,
                                 .head_dim = model.transformer().config().head_dim,
                                 .capacity = capacity,
                                 .sequences = sequences,
                                 .dtype = kv}),
        arena_(make_arena(model.backend(), model.scratch_bytes(sequences * capacity) + 4096)) {}

  KvCache& cache() { return cache_; }
  // By sequence, where the model attends to other rows.
  std::vector<const CrossContext*> contexts = {};
  // Of the next pass alone.
  std::vector<RowPath> paths = {};

  // One sequence's rows in a batch.
  struct Part {
    std::int32_t sequence = 0;
    std::vector<float> rows;  // [n, D]
    // Positions; empty = the next ones of the sequence.
    std::vector<std::int64_t> positions = {};
  };

  // Hidden rows [sum n, D] after the final norm; taps, if given, receives the layer inputs.
  std::vector<float> forward(const std::vector<Part>& parts,
                             std::vector<std::vector<float>>* taps = nullptr) {
    std::vector<float> rows;
    std::vector<std::int32_t> sequences;
    std::vector<std::int64_t> positions;
    for (const Part& part : parts) {
      const auto n = static_cast<std::int64_t>(part.rows.size()) / model_.width();
      rows.insert(rows.end(), part.rows.begin(), part.rows.end());
      for (std::int64_t i = 0; i < n; ++i) {
        sequences.push_back(part.sequence);
        positions.push_back(part.positions.empty() ? cache_.length(part.sequence) + i
                                                   : part.positions[static_cast<std::size_t>(i)]);
      }
    }
    const auto total = static_cast<std::int64_t>(sequences.size());
    const Tensor in = on_device(rows, model_.width());
    Tensor hidden = room(total, model_.width());
    std::vector<Tensor> tapped;
    std::vector<TensorView> views;
    if (taps != nullptr) {
      for (std::int64_t i = 0; i < model_.transformer().config().layers; ++i) {
        tapped.push_back(room(total, model_.width()));
      }
      for (Tensor& tap : tapped) views.push_back(tap.view());
    }
    model_.transformer().forward({.rows = in.view(),
                                  .sequences = sequences,
                                  .positions = positions,
                                  .paths = paths,
                                  .contexts = contexts},
                                 cache_, arena_, hidden.view(), {.hidden_states = views});
    paths.clear();
    if (taps != nullptr) {
      taps->clear();
      for (const Tensor& tap : tapped) taps->push_back(on_host(tap));
    }
    return on_host(hidden);
  }

  std::vector<float> prompt_rows(const std::vector<std::int32_t>& tokens) {
    Tensor rows = room(static_cast<std::int64_t>(tokens.size()), model_.width());
    model_.embed_prompt(tokens, rows.view());
    return on_host(rows);
  }

  std::vector<float> token_rows(const std::vector<std::int32_t>& ids) {
    Tensor rows = room(static_cast<std::int64_t>(ids.size()), model_.width());
    model_.embed_tokens(ids, arena_, rows.view());
    return on_host(rows);
  }

  std::vector<float> logits(const std::vector<float>& hidden) {
    const Tensor rows = on_device(hidden, model_.width());
    Tensor out = room(rows.shape()[0], model_.logit_ids());
    model_.logits(rows.view(), arena_, out.view());
    return on_host(out);
  }

 private:
  Tensor room(std::int64_t rows, std::int64_t cols) {
    return model_.backend().allocate(DType::kF32, Shape{rows, cols});
  }
  Tensor on_device(const std::vector<float>& values, std::int64_t cols) {
    const Shape shape{static_cast<std::int64_t>(values.size()) / cols, cols};
    return tessera::on_device(model_.backend(), values, shape);
  }
  std::vector<float> on_host(const Tensor& tensor) {
    return from_device(model_.backend(), tensor.view());
  }

  const TokenModel& model_;
  KvCache cache_;
  Arena arena_;
};

inline std::vector<float> row_of(const std::vector<float>& matrix, std::int64_t row,
                                 std::int64_t cols) {
  return {matrix.begin() + row * cols, matrix.begin() + (row + 1) * cols};
}

inline std::vector<float> joined(std::vector<float> a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// What a guided greedy run gives when the recorded tokens are fed back (so that one difference does
// not cascade): if every argmax equals the recorded token, a free run would give the same tokens.
struct GuidedRun {
  std::vector<std::vector<float>> layers;  // inputs of every layer in the prefill, [2, T, D]
  std::vector<float> final_hidden;         // [2, T, D]
  std::vector<float> head_logits;          // [steps, 2, codes]
  std::vector<float> guided_logits;        // [steps, codes]
  std::vector<std::int32_t> tokens;        // argmax at every step
};

inline GuidedRun guided_run(const StreamModel& model, const std::vector<std::int32_t>& prompt,
                            const std::vector<std::int32_t>& unconditional, float scale,
                            const std::vector<std::int32_t>& fed) {
  GuidedRun run;
  const auto length = static_cast<std::int64_t>(prompt.size());
  ModelRunner runner(model, 2, length + static_cast<std::int64_t>(fed.size()));
  run.final_hidden = runner.forward(
      {{0, runner.prompt_rows(prompt)}, {1, runner.prompt_rows(unconditional)}}, &run.layers);
  const std::int64_t width = model.width();
  std::vector<float> last = joined(row_of(run.final_hidden, length - 1, width),
                                   row_of(run.final_hidden, 2 * length - 1, width));
  const auto codes = static_cast<std::size_t>(model.config().codes);
  for (std::size_t step = 0; step < fed.size(); ++step) {
    const std::vector<float> logits = runner.logits(last);
    run.head_logits.insert(run.head_logits.end(), logits.begin(), logits.end());
    std::size_t best = 0;
    std::vector<float> guided(codes);
    for (std::size_t i = 0; i < codes; ++i) {
      const float u = logits[codes + i];
      guided[i] = u + scale * (logits[i] - u);
      if (guided[i] > guided[best]) best = i;
    }
    run.guided_logits.insert(run.guided_logits.end(), guided.begin(), guided.end());
    run.tokens.push_back(static_cast<std::int32_t>(best));
    if (step + 1 == fed.size()) break;
    const std::vector<float> row = runner.token_rows({fed[step]});
    last = runner.forward({{0, row}, {1, row}});
  }
  return run;
}

// A model over a changed copy of a checkpoint's tensors.
using TensorEdit = std::function<void(std::map<std::string, Tensor>&)>;

inline std::map<std::string, Tensor> copy_tensors(const Checkpoint& checkpoint) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, view] : checkpoint.tensors()) {
    Tensor copy = Tensor::host(view.dtype, view.shape);
    std::memcpy(copy.view().data, view.data, view.bytes());
    tensors.emplace(name, std::move(copy));
  }
  return tensors;
}

inline StreamModel load_edited(const ModelSpec& spec, const Checkpoint& checkpoint,
                               Backend& backend, const TensorEdit& edit,
                               DType storage = DType::kF32) {
  std::map<std::string, Tensor> tensors = copy_tensors(checkpoint);
  edit(tensors);
  OpenedModel model;
  model.spec = spec;
  model.weights =
      std::make_shared<const Checkpoint>(Checkpoint::from_tensors("edited", std::move(tensors)));
  model.source = source_of(model.weights);
  return load_stream_model(model, backend, storage);
}

// Adds +-1e-3 of the tensor's largest magnitude to every element, the sign by a fixed hash.
inline void perturb(Tensor& tensor) {
  const TensorView view = tensor.view();
  const std::int64_t count = view.shape.elements();
  const auto read = [&](std::int64_t i) {
    return view.dtype == DType::kF32 ? view.as<float>()[i]
                                     : bf16_to_float(view.as<std::uint16_t>()[i]);
  };
  float largest = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(read(i)));
  Tensor changed = Tensor::host(DType::kF32, view.shape);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t hash = (static_cast<std::uint64_t>(i) + 1) * 0x9E3779B97F4A7C15ull;
    changed.f32()[i] = read(i) + ((hash >> 40) & 1 ? 1e-3f : -1e-3f) * largest;
  }
  tensor = std::move(changed);
}

}  // namespace tessera
