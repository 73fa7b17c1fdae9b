// Batch-1 guided decoding end to end at the dimensions of a published model with seeded random
// weights: both branches in one pass, and the share of the measured read bandwidth at which weights
// and live keys and values are read.
#pragma once

#include "apps/lab/bench/measure.h"
#include "engine/families/open_model.h"

namespace tessera {

struct ImageBenchOptions {
  std::string model = "random:llamagen:B";  // as open_model() takes it
  DType storage = DType::kF32;
  std::int64_t tokens = 64;         // image tokens to decode, at least 2
  std::int64_t prompt_tokens = 32;  // of a text prompt
  std::int64_t runs = 3;            // decodings after one that warms up
  bool decode_pixels = true;
};

// open_model(); Error kUsage, E_BENCH_MODEL, for one whose prompts another model encodes.
OpenedModel open_to_bench(const std::string& name);

// Error kModel, kMemory. Emits "image.plain".
void run_image_bench(const ImageBenchOptions& image, Backend& backend, BenchReport& report);

}  // namespace tessera
