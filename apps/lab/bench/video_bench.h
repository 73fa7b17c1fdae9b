// Videos: decoding methods against plain decoding on held-out sentences, each pair in turn so that a
// method's latency is a ratio within one run; and what reading videos of growing length for a
// captioner holds in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/lab/bench/measure.h"
#include "apps/runtime/describe_task.h"
#include "apps/runtime/video_task.h"

namespace tessera {

struct VideoBenchOptions {
  GenerateOptions pipeline;           // model, device, threads, storage
  std::vector<DecodeMethod> methods;  // each with its window
  SettingValues sampling;
  std::int64_t prompts = 20;
  std::int64_t frames = 0;  // of each video; 0 = the model's own length
  std::uint64_t seed = 1, scene_seed = 1000;
};

// Emits "video.<method>", one object a method and window: tokens a pass, latency next to plain,
// frames a second, entropy and both tests of the distribution. Error kUsage, kModel, kMemory.
void run_video_bench(const VideoBenchOptions& options, BenchReport& report);

struct VideoBatchBenchOptions {
  GenerateOptions pipeline;               // model, device, threads, storage
  std::vector<DecodeMethod> methods;      // each with its window
  std::vector<std::int64_t> batch_sizes;  // videos at once
  SettingValues sampling;
  std::int64_t prompts = 20;
  std::int64_t frames = 0;  // of each video; 0 = the model's own length
  std::uint64_t seed = 1, scene_seed = 1000;
};

// Emits "video.batch.<size>", one object a method and size: videos and frames a second over all
// prompts through one submission, the share of slots at work, and how many videos are those of the
// first size. Sizes in turn, weights read before. Error kUsage, kModel, kMemory.
void run_video_batch_bench(const VideoBatchBenchOptions& options, BenchReport& report);

struct VideoInputBenchOptions {
  DescribeOptions captioner;
  std::vector<std::int64_t> seconds;  // lengths of the videos, ascending
  std::int64_t frames = 4;            // shown of each
  std::uint64_t scene_seed = 1000;
};

// Emits "video.input.<seconds>s": the peak resident set of this process while it captions the video
// as one scene, the largest of the reading processes so far, and frames read a second.
void run_video_input_bench(const VideoInputBenchOptions& options, BenchReport& report);

}  // namespace tessera
