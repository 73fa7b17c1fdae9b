// Prompts and texts at the dimensions of a published model with random weights: seconds until
// prompts of N rows are in, then passes of one token for each of B sequences with N cached rows.
#pragma once

#include <string>
#include <vector>

#include "apps/lab/bench/measure.h"

namespace tessera {

struct TextBenchOptions {
  std::string size = "L";  // of LlamaGen: the dimensions
  DType storage = DType::kF32;
  std::vector<std::int64_t> rows = {600};       // of each prompt
  std::vector<std::int64_t> batch_sizes = {1};  // sequences at once
  std::vector<DType> caches = {};               // in turn; empty: as tables next to the weights
  std::int64_t tokens = 32;                     // passes after the prompts
  std::int64_t runs = 3;
};

// Error kUsage, kMemory. Emits "text.plain", one object a run of so many rows and sequences over
// one cache.
void run_text_bench(const TextBenchOptions& options, Backend& backend, BenchReport& report);

}  // namespace tessera
