// Benchmarks of single ops at the dimensions of published models: mem.read, gemm.peak,
// linear.skinny, linear.prefill, attn.window, conv.vq.
#pragma once

#include "apps/lab/bench/measure.h"

namespace tessera {

// Names that BenchOptions::only may hold here.
std::vector<std::string> ops_bench_names();

void run_ops_bench(const BenchOptions& options, Backend& backend, BenchReport& report);

}  // namespace tessera
