// `tessera-lab bench`: what single ops and whole images cost on this machine, next to what its
// memory and its matrix libraries reach in the same run. JSON lines on stdout, a table on stderr.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/cli/decode_flags.h"
#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/cli/setting_flags.h"
#include "apps/lab/bench/batch_bench.h"
#include "apps/lab/bench/caption_bench.h"
#include "apps/lab/bench/decode_bench.h"
#include "apps/lab/bench/image_bench.h"
#include "apps/lab/bench/ops_bench.h"
#include "apps/lab/bench/prune_bench.h"
#include "apps/lab/bench/quality_bench.h"
#include "apps/lab/bench/text_bench.h"
#include "apps/lab/bench/video_bench.h"
#include "apps/lab/cli/commands.h"
#include "engine/core/cached_type.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"

namespace tessera {

namespace {

struct BenchFlags {
  std::string what;
  std::int64_t threads = 0;
  std::string isa = "auto", inputs = "default";
  std::string device = "cpu";
  bool deterministic = false, tf32 = false;
  std::int64_t reps = 5;
  std::vector<std::string> only;
  std::string random = "llamagen:B";
  std::string dtype = "f32";
  std::int64_t tokens = 64;
  std::int64_t runs = 3;
  std::int64_t images = 0;  // of a replay; 0 = seconds a token
  bool no_pixels = false;
  std::vector<std::int64_t> rows = {600};
  std::vector<std::string> caches;  // empty: as tables next to the weights
  std::string model, text;
  std::vector<std::string> copies;
  std::vector<std::string> methods;  // empty: all that are measured by default
  std::vector<std::int64_t> windows = {16, 64, 128}, batch_sizes = {1};
  std::vector<double> guidance;
  SettingValues parts;
  std::int64_t prompts = 20;
  std::optional<double> temperature;
  std::string accept_trace, overlay;
  std::vector<double> keep;
  std::int64_t frames = 0;
  std::vector<std::int64_t> input_seconds = {10, 60, 600};
  std::string captioner;             // of videos; empty = the bundled one
  std::optional<std::int64_t> size;  // 96 for renders, the model's own for generated images

  CudaOptions cuda() const { return {.deterministic = deterministic, .tf32 = tf32}; }
};

// Each method with each window; adaptive ones once.
std::vector<DecodeMethod> methods_of(const BenchFlags& flags) {
  std::vector<DecodeMethod> out;
  std::vector<std::string> names = flags.methods;
  if (names.empty() && flags.what == "video") names = {"auto", "frames", "gumbel"};
  if (names.empty()) {
    names = {"auto", "gumbel", "coupled", "coupled-gumbel", "sjd", "gsd", "lantern", "cool"};
  }
  for (const std::string& name : names) {
    SettingValues given = flags.parts;
    given.set(setting::kDecode, name);
    for (const std::int64_t window : flags.windows) {
      DecodeMethod method = method_of(given);
      if (!method.adaptive) method.window = window;
      out.push_back(method);
      if (method.adaptive) break;
    }
  }
  return out;
}

// Cuts would hide what a method does to a distribution.
SettingValues sampling_of(const BenchFlags& flags) {
  SettingValues out = without_cuts();
  out.set(setting::kTemperature, flags.temperature.value_or(1));
  return out;
}

void bench_decode(const BenchFlags& flags, BenchReport& report) {
  if (flags.isa != "auto") {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_FLAG_CONFLICT",
                 .where = "--isa",
                 .expected = "auto for trained models",
                 .found = flags.isa});
  }
  DecodeBenchOptions options;
  options.pipeline.model = flags.model;
  options.pipeline.device = flags.device;
  options.pipeline.cuda = flags.cuda();
  options.pipeline.threads = narrow<int>(flags.threads);
  options.pipeline.draft_model = flags.parts.text(setting::kModelDraft);
  options.methods = methods_of(flags);
  options.guidance = flags.guidance;
  options.batch_sizes = flags.batch_sizes;
  options.sampling = sampling_of(flags);
  options.prompts = flags.prompts;
  run_decode_bench(options, report);
}

void bench_prune(const BenchFlags& flags, Backend& backend, BenchReport& report) {
  constexpr std::string_view kRandom = "llava-next:";
  if (flags.random.starts_with(kRandom)) {
    PrefillBenchOptions options;
    options.size = flags.random.substr(kRandom.size());
    options.storage = *storage_named(flags.dtype);
    if (!flags.methods.empty()) options.methods = flags.methods;
    if (!flags.keep.empty()) options.keep = flags.keep;
    options.pairs = flags.runs;
    return run_prefill_bench(options, backend, report);
  }
  PruneBenchOptions options;
  options.pipeline.model = flags.model;
  options.pipeline.device = flags.device;
  options.pipeline.cuda = flags.cuda();
  options.pipeline.threads = narrow<int>(flags.threads);
  options.methods = flags.methods;
  if (!flags.keep.empty()) options.keep = flags.keep;
  options.images = flags.prompts;
  options.size = narrow<int>(flags.size.value_or(96));
  if (!flags.overlay.empty()) options.overlay = flags.overlay;
  run_prune_bench(options, report);
}

void bench_replay(const BenchFlags& flags, Backend& backend, BenchReport& report) {
  ReplayBenchOptions options;
  options.model = "random:" + flags.random;
  options.storage = *storage_named(flags.dtype);
  options.trace = read_accept_trace(flags.accept_trace);
  options.windows = flags.windows;
  options.batch_sizes = flags.batch_sizes;
  options.tokens = flags.tokens;
  options.pairs = flags.runs;
  run_replay_bench(options, backend, report);
}

void bench_refill(const BenchFlags& flags, Backend& backend, BenchReport& report) {
  RefillBenchOptions options;
  options.model = "random:" + flags.random;
  options.storage = *storage_named(flags.dtype);
  options.traces = read_accept_traces(flags.accept_trace);
  options.windows = flags.windows;
  options.batch_sizes = flags.batch_sizes;
  options.images = flags.images;
  options.pairs = flags.runs;
  run_refill_bench(options, backend, report);
}

void bench_caption(const BenchFlags& flags, BenchReport& report) {
  CaptionBenchOptions options;
  options.pipeline.model = flags.model;
  options.pipeline.device = flags.device;
  options.pipeline.cuda = flags.cuda();
  options.pipeline.threads = narrow<int>(flags.threads);
  options.pipeline.storage = *storage_named(flags.dtype);
  options.pipeline.max_tokens = flags.tokens;
  if (flags.batch_sizes.size() > 1) options.batch_sizes = flags.batch_sizes;
  options.images = flags.prompts;
  options.size = narrow<int>(flags.size.value_or(96));
  run_caption_bench(options, report);
}

// Videos in and out: the captioner is the bundled one.
void bench_video(const BenchFlags& flags, BenchReport& report) {
  VideoBenchOptions options;
  options.pipeline.model = flags.model;
  options.pipeline.device = flags.device;
  options.pipeline.cuda = flags.cuda();
  options.pipeline.threads = narrow<int>(flags.threads);
  options.methods = methods_of(flags);
  options.sampling = sampling_of(flags);
  if (!flags.guidance.empty()) options.sampling.set(setting::kGuidance, flags.guidance.front());
  options.prompts = flags.prompts;
  options.frames = flags.frames;
  if (flags.dtype != "f32") options.pipeline.storage = storage_named(flags.dtype);
  options.pipeline.draft_model = flags.parts.text(setting::kModelDraft);
  if (flags.batch_sizes.size() > 1) {
    run_video_batch_bench({.pipeline = options.pipeline,
                           .methods = options.methods,
                           .batch_sizes = flags.batch_sizes,
                           .sampling = options.sampling,
                           .prompts = options.prompts,
                           .frames = options.frames},
                          report);
    return;
  }
  run_video_bench(options, report);
  VideoInputBenchOptions input;
  input.captioner.model = flags.captioner;
  input.captioner.device = flags.device;
  input.captioner.cuda = flags.cuda();
  input.captioner.threads = options.pipeline.threads;
  input.captioner.max_tokens = flags.tokens;
  for (const std::int64_t seconds : flags.input_seconds) {
    if (seconds > 0) input.seconds.push_back(seconds);
  }
  std::ranges::sort(input.seconds);
  run_video_input_bench(input, report);
}

void bench_batch(const BenchFlags& flags, BenchReport& report) {
  BatchBenchOptions options;
  options.pipeline.model = flags.model;
  options.pipeline.device = flags.device;
  options.pipeline.cuda = flags.cuda();
  options.pipeline.threads = narrow<int>(flags.threads);
  options.pipeline.storage = *storage_named(flags.dtype);
  if (flags.methods.size() == 1) options.pipeline.method = decode_method(flags.methods.front());
  if (flags.batch_sizes.size() > 1) options.batch_sizes = flags.batch_sizes;
  options.prompts = flags.prompts;
  options.pipeline.width = options.pipeline.height = flags.size.value_or(0);
  run_batch_bench(options, report);
}

// Types of weights and caches against f32.
void bench_quality(const BenchFlags& flags, Backend& backend, BenchReport& report) {
  std::vector<KeptModel> kept = kept_models(backend);
  if (!flags.text.empty()) {
    return run_text_quality(
        {.model = flags.model,
         .text = flags.text,
         .kept = flags.copies.empty() ? std::move(kept) : std::vector<KeptModel>{},
         .copies = flags.copies,
         .pieces = flags.prompts},
        backend, report);
  }
  QualityBenchOptions options;
  options.pipeline.model = flags.model;
  options.pipeline.device = flags.device;
  options.pipeline.threads = narrow<int>(flags.threads);
  if (flags.copies.empty()) options.kept = std::move(kept);
  options.copies = flags.copies;
  options.prompts = flags.prompts;
  run_quality_bench(options, backend, report);
}

// Prompts and texts at the dimensions of --random.
void bench_text(const BenchFlags& flags, Backend& backend, BenchReport& report) {
  constexpr std::string_view kFamily = "llamagen:";
  if (!flags.random.starts_with(kFamily)) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_FLAG_VALUE",
                 .where = "--random",
                 .expected = "llamagen:SIZE for text",
                 .found = flags.random});
  }
  std::vector<DType> caches;
  for (const std::string& name : flags.caches) caches.push_back(*cached_named(name));
  run_text_bench({.size = flags.random.substr(kFamily.size()),
                  .storage = *storage_named(flags.dtype),
                  .rows = flags.rows,
                  .batch_sizes = flags.batch_sizes,
                  .caches = std::move(caches),
                  .tokens = flags.tokens,
                  .runs = flags.runs},
                 backend, report);
}

std::vector<std::string> cache_names() {
  std::vector<std::string> out;
  for (const CachedType& row : cached_types()) out.emplace_back(dtype_name(row.type));
  return out;
}

CpuOptions::Isa isa_of(const std::string& name) {
  if (name == "reference") return CpuOptions::Isa::kReference;
  if (name == "avx2") return CpuOptions::Isa::kAvx2;
  if (name == "avx512") return CpuOptions::Isa::kAvx512;
  return CpuOptions::Isa::kAuto;
}

CpuOptions cpu_options(const BenchFlags& flags) {
  return {.threads = narrow<int>(flags.threads),
          .isa = isa_of(flags.isa),
          .inputs = flags.inputs == "bf16" ? CpuOptions::Inputs::kBF16
                                           : CpuOptions::Inputs::kByWeights};
}

// Shares of a rate that the host's memory reaches say nothing of another device.
void check_device(const BenchFlags& flags) {
  const bool ceilings = flags.what == "ops" || flags.what == "image" || flags.what == "text";
  if (!ceilings || flags.device == "cpu" || flags.device == "auto") return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_FLAG_CONFLICT",
               .where = "--device",
               .expected = "cpu for " + flags.what,
               .found = flags.device,
               .hint = "tessera-lab gpu-check measures a CUDA device next to its own ceilings"});
}

int run_bench(const BenchFlags& flags) {
  BenchOptions options;
  options.threads = narrow<int>(flags.threads);
  options.isa = isa_of(flags.isa);
  options.min_reps = narrow<int>(flags.reps);
  options.only = flags.only;
  check_device(flags);
  const auto backend = make_backend(flags.device, cpu_options(flags), flags.cuda());
  BenchReport report(options, *backend,
                     [](const nlohmann::ordered_json& object) { print_json_line(object); });
  if (flags.what == "ops") {
    run_ops_bench(options, *backend, report);
  } else if (flags.what == "decode" && !flags.accept_trace.empty()) {
    (flags.images > 0 ? bench_refill : bench_replay)(flags, *backend, report);
  } else if (flags.what == "decode") {
    bench_decode(flags, report);
  } else if (flags.what == "prune") {
    bench_prune(flags, *backend, report);
  } else if (flags.what == "caption") {
    bench_caption(flags, report);
  } else if (flags.what == "quality") {
    bench_quality(flags, *backend, report);
  } else if (flags.what == "text") {
    bench_text(flags, *backend, report);
  } else if (flags.what == "batch") {
    bench_batch(flags, report);
  } else if (flags.what == "video") {
    bench_video(flags, report);
  } else {
    ImageBenchOptions image;
    image.model = "random:" + flags.random;
    image.storage = *storage_named(flags.dtype);
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
  CLI::App* app = root.add_subcommand("bench",
                                      "measure ops, images, texts, decoding methods, batches, "
                                      "pruners, captions, videos, types of weights");
  add_common_flags(*app, session);
  choice_flag(*app, "what", flags.what,
              {"ops", "image", "decode", "batch", "prune", "caption", "video", "quality", "text"},
              "what to measure")
      ->required();
  integer_flag(*app, "-t,--threads", flags.threads, 0, 1024, "threads; 0 = one per core");
  text_flag(*app, "--device", flags.device, "cpu, cuda[:i] or auto; ops, image, text: cpu alone");
  app->add_flag("--deterministic", flags.deterministic, "cuda: one order of sums");
  app->add_flag("--tf32", flags.tf32,
                "cuda: products, convolutions and attention of f32 may round to tf32");
  choice_flag(*app, "--isa", flags.isa, {"auto", "reference", "avx2", "avx512"},
              "instruction set of the kernels");
  choice_flag(*app, "--inputs", flags.inputs, {"default", "bf16"},
              "ops, text, quality of a text: inputs of products with bf16 weights on the CPU");
  integer_flag(*app, "--reps", flags.reps, 1, 100000, "ops: repetitions at least")->group("Ops");
  app->add_option("--only", flags.only, "ops: these measurements, by name")
      ->delimiter(',')
      ->check(CLI::IsMember(ops_bench_names()))
      ->group("Ops");
  text_flag(*app, "--random", flags.random, "image: FAMILY:SIZE with random weights")
      ->group("Image");
  choice_flag(*app, "--dtype", flags.dtype, {kKeptNames.begin(), kKeptNames.end()},
              "image: how weights are kept")
      ->group("Image");
  integer_flag(*app, "--tokens", flags.tokens, 2, 1 << 20, "image: image tokens to decode")
      ->group("Image");
  integer_flag(*app, "--runs", flags.runs, 1, 1000, "image: times to decode them")->group("Image");
  app->add_option("--rows", flags.rows, "text: rows of each prompt")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->group("Image");
  app->add_option("--caches", flags.caches, "text: types of caches, in turn")
      ->delimiter(',')
      ->check(CLI::IsMember(cache_names()))
      ->group("Image");
  app->add_flag("--no-pixels", flags.no_pixels, "image: leave the VQ decoder out")->group("Image");
  const std::string group = "Decode";
  text_flag(*app, "-m,--model", flags.model, "decode: trained model; default the bundled one")
      ->group(group);
  app->add_option("--methods", flags.methods, "decode: methods, each next to plain")
      ->delimiter(',')
      ->group(group);
  app->add_option("--windows", flags.windows, "decode: windows of each")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
  app->add_option("--batch-sizes", flags.batch_sizes, "decode: images at once")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->group(group);
  setting_list_flag(*app, "--cfg-scales", setting::kGuidance, flags.guidance,
                    {.group = group, .help = "decode: guidance scales; default the model's"});
  app->add_option("--copy", flags.copies,
                  "quality: compare these copies of the model, not types of weights")
      ->allow_extra_args(false)
      ->group(group);
  text_flag(*app, "--text", flags.text, "quality: along this file, by a text model (-m)")
      ->group(group);
  integer_flag(*app, "--prompts", flags.prompts, 1, 100000,
               "decode: held-out prompts; quality of text: pieces of 128 tokens")
      ->group(group);
  setting_flag(*app, setting::kTemperature, flags.temperature,
               {.group = group, .help = "decode: temperature"});
  text_flag(*app, "--accept-trace", flags.accept_trace,
            "decode: JSON with meters; verdicts follow it at the dimensions of --random")
      ->group(group);
  integer_flag(*app, "--images", flags.images, 0, 4096,
               "decode: with --accept-trace, a line an image: slots refilled against batches")
      ->group(group);
  add_decode_flags(*app, Door::kBench, flags.parts);
  app->add_option("--keep", flags.keep, "prune: fractions of visual tokens that stay")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0))
      ->group("Prune");
  integer_flag(*app, "--size", flags.size, 32, 1024, "batch, caption, prune: pixels a side")
      ->group("Prune");
  text_flag(*app, "--overlay", flags.overlay, "prune: folder for images of kept patches")
      ->group("Prune");
  integer_flag(*app, "--frames", flags.frames, 0, 1 << 20,
               "video: frames of a video; 0 = the model's own length")
      ->group("Video");
  app->add_option("--input-seconds", flags.input_seconds,
                  "video: lengths of videos to caption; 0 = none")
      ->delimiter(',')
      ->check(CLI::Range(0, 36000))
      ->group("Video");
  text_flag(*app, "--captioner", flags.captioner, "video: model that captions those videos")
      ->group("Video");
  app->callback([&session] { session.run = [] { return run_bench(flags); }; });
}

}  // namespace tessera
