// How many images a minute come of generating several at once: the same prompts and seeds at each
// batch size in turn, group by group, with prefill and pixels apart from the passes that decode.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/lab/bench/measure.h"
#include "apps/runtime/generate_request.h"

namespace tessera {

struct BatchBenchOptions {
  GenerateOptions pipeline;                         // model, device, threads, storage, method
  std::vector<std::int64_t> batch_sizes = {1, 16};  // the first one is what others stand next to
  std::int64_t prompts = 64;                        // generated at every batch size
  std::uint64_t seed = 1, scene_seed = 1000;
};

// Emits "batch.b<N>", one object a batch size. Error kUsage, kModel, kMemory, and whatever failed a
// image.
void run_batch_bench(const BatchBenchOptions& options, BenchReport& report);

}  // namespace tessera
