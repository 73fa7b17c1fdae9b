// What a storage type of weights costs in quality: images of the model as f32, and how another
// type's distributions of their tokens differ.
#pragma once

#include <vector>

#include "apps/lab/bench/measure.h"
#include "apps/runtime/generate_request.h"

namespace tessera {

struct QualityBenchOptions {
  GenerateOptions pipeline;    // model, device, threads; painted as f32
  std::vector<DType> storage;  // types to compare with f32
  std::int64_t prompts = 20;   // held-out scenes
  std::uint64_t seed = 1, scene_seed = 1000;
};

// Error kUsage, kModel, kMemory. Emits "quality.<type>" each: bytes of the weights, KL divergence
// of its distributions from those of f32 in nats a token (mean, 99th percentile, largest), the
// share of tokens whose likeliest one is the same, perplexity of the tokens and the entropy of f32,
// at temperature 1 and without guidance.
void run_quality_bench(const QualityBenchOptions& options, Backend& backend, BenchReport& report);

}  // namespace tessera
