// The plain token loop at published dimensions, timed pass by pass.
#include "apps/lab/bench/image_bench.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/runtime/memory.h"
#include "apps/runtime/visual_model.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/core/io.h"
#include "engine/decoding/method_parts.h"
#include "engine/decoding/run_streams.h"
#include "engine/families/open_model.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

struct ImageRun {
  double prefill = 0;         // seconds until the first token
  std::vector<double> steps;  // seconds of each pass after it
  double cpu = 0;             // processor seconds of those passes
  std::vector<std::int32_t> tokens;
  double step_seconds() const {
    double sum = 0;
    for (const double step : steps) sum += step;
    return sum;
  }
};

Stream make_item(const OpenedModel& opened, const StreamModel& model,
                 const ImageBenchOptions& image) {
  Stream item;
  if (model.config().prompt == PromptKind::kClass) {
    item.prompt.ids = {1};
  } else {
    const std::int64_t count = std::min(image.prompt_tokens, model.config().max_prompt);
    for (std::int64_t i = 0; i < count; ++i) {
      item.prompt.ids.push_back(narrow<std::int32_t>((7 + 31 * i) % model.config().prompt_vocab));
    }
  }
  item.unconditional.ids = model.unconditional_prompt(item.prompt.ids, 0);
  const SamplingDefaults& preset = opened.spec.sampling;
  item.dist = {.guidance = preset.guidance > 1.0 ? preset.guidance : 4.0,
              .temperature = preset.temperature,
              .top_k = preset.top_k,
              .top_p = preset.top_p};
  item.seed = 1;
  return item;
}

ImageRun decode(StreamLoop& loop, const Stream& item, std::int64_t tokens) {
  ImageRun run;
  double last = monotonic_seconds();
  double cpu_begin = 0;
  const auto results = run_streams(loop, {&item, 1}, [&](const RunPass& event) {
    const double time = monotonic_seconds();
    if (event.pass == 1) {
      run.prefill = time - last;
      cpu_begin = process_cpu_seconds();
    } else {
      run.steps.push_back(time - last);
    }
    last = time;
    return event.pass < tokens ? Flow::kContinue : Flow::kStop;
  });
  run.cpu = process_cpu_seconds() - cpu_begin;
  if (results[0].status == StreamStatus::kFailed) throw Error(results[0].error);
  run.tokens = results[0].tokens;
  return run;
}

// Keys and values that the steps of one run read, both branches: step i sees the prompt and i
// image tokens.
double live_kv_bytes(const StreamModelConfig& config, std::int64_t prompt, std::int64_t steps,
                     DType kv) {
  const double row = 2.0 * to_double(config.transformer.layers * config.transformer.kv_width()) *
                     to_double(dtype_size(kv));
  double rows = 0;
  for (std::int64_t step = 1; step <= steps; ++step) rows += to_double(prompt + step);
  return 2 * row * rows;
}

double decode_vq(const OpenedModel& opened, Backend& backend, const ImageBenchOptions& image,
                 const std::vector<std::int32_t>& tokens) {
  const ModelSpec& spec = opened.spec;
  const auto vq = make_visual_tokenizer(backend, opened, beside(image.storage), TokenizerHalves::kDecoder);
  const std::vector<std::int32_t> generated = spec.model.grammar().image_codes(tokens);
  std::vector<std::int32_t> codes(spec.model.grammar().cells());
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = generated[i % generated.size()];
  const int rows = narrow<int>(spec.model.grid_rows);
  const int cols = narrow<int>(spec.model.grid_cols);
  double best = 0;
  for (int i = 0; i < 2; ++i) {
    const double start = monotonic_seconds();
    vq->decode(codes, rows, cols);
    const double seconds = monotonic_seconds() - start;
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

}  // namespace

OpenedModel open_to_bench(const std::string& name) {
  OpenedModel opened = open_model(name);
  if (!opened.spec.context) return opened;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_BENCH_MODEL",
               .file = name,
               .expected = "a model that reads its own prompts",
               .found = "one that reads a text encoder's rows"});
}

void run_image_bench(const ImageBenchOptions& image, Backend& backend, BenchReport& report) {
  OpenedModel opened = open_to_bench(image.model);
  const MemoryRequest request{.storage = image.storage, .prompt_tokens = image.prompt_tokens};
  check_memory(plan_generation(opened, backend, request), image.model);
  ReadProbe probe(backend.threads());
  const StreamModel model = load_stream_model(opened, backend, image.storage);
  const Stream item = make_item(opened, model, image);
  const std::int64_t tokens = std::clamp<std::int64_t>(image.tokens, 2, model.image_token_count());
  const auto prompt = item.prompt.length();
  const OwnedParts<float, KeyedRandom> plain(DecodeMethod{}, {});
  StreamLoop loop(model,
                  {.prompt_rows = prompt,
                   .grammar = model.config().grammar(),
                   .guided = true,
                   .kv = beside(image.storage)},
                  plain.parts());
  const DType kv = loop.limits().kv;

  decode(loop, item, std::min<std::int64_t>(tokens, 4));
  const StorageType& kept = kept_storage(image.storage);
  const double weight_bytes = to_double(model.step_weight_bytes());
  const double kv_bytes = live_kv_bytes(model.config(), prompt, tokens - 1, kv);
  const double bytes = weight_bytes * to_double(tokens - 1) + kv_bytes;
  for (std::int64_t i = 0; i < image.runs; ++i) {
    const double before = probe.gigabytes_per_second();
    ImageRun run = decode(loop, item, tokens);
    const double after = probe.gigabytes_per_second();
    const double seconds = run.step_seconds();
    const double rate = bytes / seconds * 1e-9;
    const double eff = rate / ((before + after) / 2);
    Timing timing;
    timing.warmup = 1;
    timing.seconds = run.steps;
    timing.cpu_seconds = run.cpu / to_double(run.steps.size());
    std::sort(timing.seconds.begin(), timing.seconds.end());
    const bool last = i + 1 == image.runs;
    const double vq =
        last && image.decode_pixels ? decode_vq(opened, backend, image, run.tokens) : 0;

    Json object = report.start("image.plain");
    object["model"] = {{"family", opened.spec.family},
                       {"size", opened.spec.size},
                       {"dims", std::to_string(model.config().transformer.layers) + "x" +
                                    std::to_string(model.config().transformer.width)},
                       {"params_read", weight_bytes * to_double(kept.block) / to_double(kept.block_bytes)},
                       {"dtype", dtype_name(image.storage)},
                       {"kv_dtype", dtype_name(kv)},
                       {"weights", image.model}};
    object["shape"] = {
        {"b", 1}, {"c", 2}, {"w", 1}, {"S", prompt + tokens / 2}, {"V", model.config().codes}};
    object["impl"] = backend.name();
    BenchReport::add_timing(object, timing);
    object["tokens"] = tokens;
    object["passes"] = tokens;
    object["bytes"] = bytes;
    object["step_weight_bytes"] = weight_bytes;
    object["step_kv_bytes"] = kv_bytes / to_double(tokens - 1);
    object["probe_gbs"] = {{"before", before}, {"after", after}};
    object["gbs"] = rate;
    object["eff"] = eff;
    // With one thread, what the share is while this process has the processor: the figure of a busy
    // machine. It still suffers from memory traffic of others.
    const double eff_cpu = eff * seconds / run.cpu;
    const bool alone = backend.threads().threads() == 1;
    if (alone) object["eff_cpu"] = eff_cpu;
    object["tok_s"] = to_double(tokens - 1) / seconds;
    object["split_us"] = {{"prefill", run.prefill * 1e6}, {"steps", seconds * 1e6}};
    if (vq > 0) object["split_us"]["vq"] = vq * 1e6;
    object["seed"] = item.seed;
    object["quality"] = nullptr;
    report.emit(object);
    report.add_row(
        "image.plain",
        opened.spec.title + ", " + std::string(dtype_name(image.storage)) + ", run " +
            std::to_string(i + 1),
        fixed_digits(timing.median() * 1e3, 2) + " ms a token",
        fixed_digits(rate, 2) + " of " + fixed_digits((before + after) / 2, 2) + " GB/s",
        fixed_digits(eff * 100, 1) + " %" +
            (alone ? ", " + fixed_digits(eff_cpu * 100, 1) + " % of processor time" : ""));
    if (vq > 0) {
      report.add_row("image.vq", opened.spec.title + ", " + std::string(dtype_name(image.storage)),
                     fixed_digits(vq * 1e3, 0) + " ms", "", "");
    }
  }
}

}  // namespace tessera
