// Decoding methods against plain decoding. On a trained model: the same prompts painted by both in
// turn, chunk by chunk, so that each method's latency is a ratio within one run, with the judge's
// marks, entropy and meters beside it. At published dimensions with random weights, where
// acceptance means nothing: real passes whose verdicts follow a recorded trace.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "apps/bench/measure.h"
#include "apps/runtime/generate_request.h"

namespace tessera {

struct DecodeBenchOptions {
  GenerateOptions pipeline;           // model, device, threads, storage
  std::vector<DecodeMethod> methods;  // each with its window
  std::vector<double> guidance;       // empty: the model's own
  std::vector<std::int64_t> batch_sizes = {1};
  SettingValues sampling;
  std::int64_t prompts = 20;
  std::uint64_t seed = 1, scene_seed = 1000;
  std::optional<std::filesystem::path> plot;  // SVG of passes and quality
};

// Error kUsage, kModel, kMemory. Emits "decode.<method>", one object a combination.
void run_decode_bench(const DecodeBenchOptions& options, BenchReport& report);

// The share of right drafts by depth, as `generate --json` and the benchmark print it: the objects'
// "meters" with tested_by_depth and accepted_by_depth. Error kUsage naming file and key.
std::vector<double> read_accept_trace(const std::filesystem::path& path);

struct ReplayBenchOptions {
  std::string model = "random:llamagen:B";
  DType storage = DType::kF32;
  std::vector<double> trace;          // hazard by depth; the last one holds beyond it
  std::vector<std::int64_t> windows;  // fixed ones; the adaptive one is always measured
  std::vector<std::int64_t> batch_sizes = {1};
  std::int64_t tokens = 64, pairs = 15;
};

// Emits "replay.w<N>" and "replay.auto": seconds a token against plain, interleaved.
void run_replay_bench(const ReplayBenchOptions& options, Backend& backend, BenchReport& report);

}  // namespace tessera
