// What types of weights and caches cost in quality: how their distributions of tokens differ from
// those of f32, along images that the model generated, or along a text.
#pragma once

#include <string>
#include <vector>

#include "apps/lab/bench/measure.h"
#include "apps/runtime/generate_request.h"

namespace tessera {

// How a model is kept.
struct KeptModel {
  DType weights = DType::kF32, cache = DType::kF32;
  bool precise = false;  // set_precise()

  // "q8"; "q8.precise"; with a cache that is not as tables next to such weights "f32.kv-q8".
  std::string name() const;
};
// Each type of weights that the device keeps, blocks with both kinds of products, then f32 with
// each other type of a cache.
std::vector<KeptModel> kept_models(Backend& backend);

struct QualityBenchOptions {
  GenerateOptions pipeline;         // model, device, threads; generated as f32
  std::vector<KeptModel> kept;      // to compare with f32
  std::vector<std::string> copies;  // other models of the same ids, each as it is stored
  std::int64_t prompts = 20;        // held-out scenes
  std::uint64_t seed = 1, scene_seed = 1000;
};

struct TextQualityOptions {
  std::string model;                // as resolve_model() takes it
  std::string text;                 // a file, UTF-8
  std::vector<KeptModel> kept;      // to compare with f32
  std::vector<std::string> copies;  // as above
  std::int64_t pieces = 20;  // of up to 128 tokens, evenly over the text; logits of all are kept
};

// Both: error kUsage, kModel, kMemory. Emit "quality.<name>" each: bytes of the weights and of a
// cached row, KL divergence of its distributions from those of f32 in nats a token (mean, 99th
// percentile, largest), the share of tokens whose likeliest one is the same, perplexity of the
// tokens and the entropy of f32, at temperature 1 and without guidance.
void run_quality_bench(const QualityBenchOptions& options, Backend& backend, BenchReport& report);
// "quality.copy.<name>" of copies; E_BENCH_COPY for one of other ids.
// The first token of a piece is given, the others are scored. A model whose file has weights in
// blocks is compared as it is, too ("quality.file").
void run_text_quality(const TextQualityOptions& options, Backend& backend, BenchReport& report);

}  // namespace tessera
