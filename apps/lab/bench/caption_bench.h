// How many texts a second come of writing several at once: the same images described at each
// batch size, the passes that only write apart from encoder and prompts.
#pragma once

#include <vector>

#include "apps/lab/bench/measure.h"
#include "apps/runtime/describe_options.h"

namespace tessera {

struct CaptionBenchOptions {
  DescribeOptions pipeline;                        // model, device, threads, storage, method
  std::vector<std::int64_t> batch_sizes = {1, 8};  // the first one is what others stand next to
  std::int64_t images = 500;
  int size = 96;  // pixels a side of the renders
  std::uint64_t scene_seed = 1000;
};

// Emits "caption.b<N>", one object a batch size.
void run_caption_bench(const CaptionBenchOptions& options, BenchReport& report);

}  // namespace tessera
