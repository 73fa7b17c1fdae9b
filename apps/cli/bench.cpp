// `tessera bench`: what single ops and whole pictures cost on this machine, beside what its memory
// and its matrix libraries reach in the same run. JSON lines on stdout, a table on stderr.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/bench/image_bench.h"
#include "apps/bench/ops_bench.h"
#include "apps/cli/commands.h"
#include "apps/cli/flags.h"
#include "apps/cli/session.h"

namespace tessera {

namespace {

struct BenchFlags {
  std::string what;
  std::int64_t threads = 0;
  std::string isa = "auto";
  std::int64_t reps = 5;
  std::vector<std::string> only;
  std::string random = "llamagen:B";
  std::string dtype = "f32";
  std::int64_t tokens = 64;
  std::int64_t runs = 3;
  bool no_pixels = false;
};

CpuOptions::Isa isa_of(const std::string& name) {
  if (name == "reference") return CpuOptions::Isa::kReference;
  if (name == "avx2") return CpuOptions::Isa::kAvx2;
  if (name == "avx512") return CpuOptions::Isa::kAvx512;
  return CpuOptions::Isa::kAuto;
}

int run_bench(const BenchFlags& flags) {
  BenchOptions options;
  options.threads = static_cast<int>(flags.threads);
  options.isa = isa_of(flags.isa);
  options.min_reps = static_cast<int>(flags.reps);
  options.only = flags.only;
  const auto backend = make_backend("cpu", {.threads = options.threads, .isa = options.isa});
  BenchReport report(options, *backend,
                     [](const nlohmann::ordered_json& object) { print_json_line(object); });
  if (flags.what == "ops") {
    run_ops_bench(options, *backend, report);
  } else {
    ImageBenchOptions image;
    image.model = "random:" + flags.random;
    image.storage = flags.dtype == "bf16" ? DType::kBF16 : DType::kF32;
    image.tokens = flags.tokens;
    image.runs = flags.runs;
    image.decode_pixels = !flags.no_pixels;
    run_image_bench(image, *backend, report);
  }
  std::fputs(report.markdown().c_str(), stderr);
  return 0;
}

}  // namespace

void add_bench(CLI::App& root, Session& session) {
  static BenchFlags flags;
  CLI::App* app = root.add_subcommand("bench", "measure single ops, or whole pictures");
  add_common_flags(*app, session);
  choice_flag(*app, "what", flags.what, {"ops", "image"}, "what to measure")->required();
  integer_flag(*app, "-t,--threads", flags.threads, 0, 1024, "threads; 0 = one per core");
  choice_flag(*app, "--isa", flags.isa, {"auto", "reference", "avx2", "avx512"},
              "instruction set of the kernels");
  integer_flag(*app, "--reps", flags.reps, 1, 100000, "ops: repetitions at least")->group("Ops");
  app->add_option("--only", flags.only, "ops: these measurements, by name")
      ->delimiter(',')
      ->check(CLI::IsMember(ops_bench_names()))
      ->group("Ops");
  text_flag(*app, "--random", flags.random, "image: FAMILY:SIZE with random weights")
      ->group("Image");
  choice_flag(*app, "--dtype", flags.dtype, {"f32", "bf16"}, "image: how weights are stored")
      ->group("Image");
  integer_flag(*app, "--tokens", flags.tokens, 2, 1 << 20, "image: picture tokens to decode")
      ->group("Image");
  integer_flag(*app, "--runs", flags.runs, 1, 1000, "image: times to decode them")->group("Image");
  app->add_flag("--no-pixels", flags.no_pixels, "image: leave the VQ decoder out")->group("Image");
  app->callback([&session] { session.run = [] { return run_bench(flags); }; });
}

}  // namespace tessera
