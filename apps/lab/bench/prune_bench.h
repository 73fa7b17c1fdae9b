// Pruners of visual tokens against the whole image. On a trained captioner: held-out scenes
// described at each ratio, with the marks of what was said next to every time. At the size of a
// published model with random weights, where words mean nothing: what a prompt of thousands of
// visual tokens costs with and without pruning.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/lab/bench/measure.h"
#include "apps/runtime/describe_options.h"

namespace tessera {

struct PruneBenchOptions {
  DescribeOptions pipeline;          // model, device, threads, storage
  std::vector<std::string> methods;  // empty: all
  std::vector<double> keep = {0.15, 0.33, 0.5};
  std::int64_t images = 200;
  int size = 96;  // pixels a side of the renders
  std::uint64_t scene_seed = 1000;
  std::optional<std::filesystem::path> overlay;  // folder: a PNG of kept patches for each method
};

// Emits "prune.none" and "prune.<method>", one object a ratio.
void run_prune_bench(const PruneBenchOptions& options, BenchReport& report);

struct PrefillBenchOptions {
  std::string size = "L";  // of LlamaGen: the language model's dimensions
  DType storage = DType::kF32;
  std::vector<std::string> methods = {"uniform", "fastv"};
  std::vector<double> keep = {0.5, 0.25, 0.1};
  std::int64_t width = 640, height = 480;  // pixels of the image that LLaVA-NeXT cuts into tiles
  std::int64_t pairs = 3;
};

// Emits "prefill.<method>": time to the first token next to that of the whole image, interleaved.
void run_prefill_bench(const PrefillBenchOptions& options, Backend& backend, BenchReport& report);

}  // namespace tessera
