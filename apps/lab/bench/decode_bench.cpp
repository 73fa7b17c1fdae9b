#include "apps/lab/bench/decode_bench.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/lab/eval/eval_reader.h"
#include "apps/lab/eval/eval_statistics.h"
#include "apps/lab/scene/caption.h"
#include "apps/lab/scene/render.h"
#include "apps/runtime/generate_task.h"
#include "apps/runtime/in_order.h"
#include "apps/runtime/memory.h"
#include "engine/core/index.h"
#include "engine/decoding/decode_settings.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

// What generating some prompts gave.
class Collector final : public GenerateListener {
 public:
  void on_image(GeneratedImage&& image) override {
    if (image.status == ImageStatus::kFailed) throw Error(image.error);
    const std::size_t index = image.index;
    order.add(index, std::move(image), [&](GeneratedImage&& next) { collect(std::move(next)); });
  }
  void collect(GeneratedImage&& image) {
    seconds += image.seconds;
    meters.add(image.meters);
    rates.push_back(image.facts.tokens_per_pass());
    images.push_back(std::move(image.image));
    prompts.push_back(first + image.index);
    times.draft += image.times.draft;
    times.forward += image.times.forward;
    times.verify += image.times.verify;
    tokens.push_back(std::move(image.codes));
  }

  // Reads all images back; done when no clock runs.
  void verify(SceneReader& reader, std::span<const SceneAttributes> truths) {
    const std::vector<std::optional<SceneAttributes>> seen = reader.read(images);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      marks.push_back(score_seen(seen[i], truths[prompts[i]]));
    }
    images.clear();
  }

  std::size_t first = 0;  // prompt that index 0 stands for
  double seconds = 0;
  DecodeMeters meters;
  PassTimes times;
  InOrder<GeneratedImage> order;  // of the run
  std::vector<double> rates;
  std::vector<Marks> marks;
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<Image> images;
  std::vector<std::size_t> prompts;  // of the images
};

struct Prompts {
  std::vector<std::string> captions;
  std::vector<SceneAttributes> truths;
};

Prompts held_out_prompts(const DecodeBenchOptions& options) {
  Prompts out;
  for (std::int64_t i = 0; i < options.prompts; ++i) {
    const Scene scene =
        sample_scene(options.scene_seed, SceneSplit::kVal, narrow<std::uint64_t>(i));
    out.captions.push_back(scene_caption(scene));
    out.truths.push_back(attributes_of(scene));
  }
  return out;
}

// One method, guidance and batch size next to plain decoding.
struct Duel {
  const DecodeBenchOptions& options;
  const Prompts& prompts;
  SceneReader& verifier;
  SettingValues sampling;
  std::int64_t batch = 1;

  std::vector<PreparedRequest> prepare(const GenerateTask& task, std::size_t first,
                                       std::size_t count) const {
    std::vector<PreparedRequest> out;
    for (std::size_t i = first; i < first + count; ++i) {
      GenerateRequest request;
      request.prompt = prompts.captions[i];
      request.sampling = sampling;
      request.seed = options.seed + i;
      out.push_back(task.prepare(request));
    }
    return out;
  }

  // Both generators in turn, the first of each pair alternating.
  void run(GenerateTask& plain, GenerateTask& method, Collector& by_plain, Collector& by_method,
           std::vector<double>& ratios, PassTimes& times) const {
    const std::size_t all = prompts.captions.size(), step = to_size(batch);
    for (std::size_t first = 0, turn = 0; first < all; first += step, ++turn) {
      const std::size_t count = std::min(step, all - first);
      double seconds[2] = {};
      for (int k = 0; k < 2; ++k) {
        const bool is_plain = (k == 0) == (turn % 2 == 0);
        GenerateTask& generator = is_plain ? plain : method;
        Collector& collector = is_plain ? by_plain : by_method;
        collector.first = first;
        collector.order = {};
        const double before = collector.seconds;
        const std::vector<PreparedRequest> requests = prepare(generator, first, count);
        if (first == 0) check_memory(generator.plan(requests), generator.model_name());
        generator.run(requests, collector);
        seconds[is_plain ? 0 : 1] = collector.seconds - before;
      }
      ratios.push_back(seconds[1] / seconds[0]);
    }
    times = by_method.times;
    by_plain.verify(verifier, prompts.truths);
    by_method.verify(verifier, prompts.truths);
  }
};

Json times_json(const PassTimes& times) {
  const double all = times.draft + times.forward + times.verify;
  return {
      {"draft", times.draft / all}, {"forward", times.forward / all}, {"judge", times.verify / all}};
}

void report_duel(const Duel& duel, const GenerateTask& task, const DecodeMethod& method,
                 const Collector& by_plain, const Collector& by_method,
                 const std::vector<double>& ratios, const PassTimes& times, BenchReport& report) {
  const EvalRow plain_row = summarise("plain", by_plain.marks);
  const EvalRow row = summarise(method.name, by_method.marks);
  const Interval rate = bootstrap_all(by_method.rates);
  const Interval ratio = bootstrap_median(ratios);
  std::size_t same = 0;
  for (std::size_t i = 0; i < by_plain.tokens.size(); ++i) {
    same += by_plain.tokens[i] == by_method.tokens[i] ? 1 : 0;
  }
  Json object = report.start("decode." + method.name);
  object["model"] = task.model_name();
  object["method"] = method_report(method);
  object["promise"] = guarantee_name(guarantee_of(method));
  const SettingValue* guidance = duel.sampling.find(setting::kGuidance);
  object["guidance"] = guidance != nullptr ? Json(guidance->number) : Json();
  object["batch"] = duel.batch;
  object["pictures"] = by_method.marks.size();
  object["same_tokens"] = same;
  object["tokens_per_pass"] = interval_json(rate);
  object["latency_ratio"] = interval_json(ratio);
  object["time_split"] = times_json(times);
  object["quality"] = row_json(row);
  object["quality_plain"] = row_json(plain_row);
  object["meters"] = meters_json(by_method.meters);
  if (method.adaptive) object["why"] = task.window_report();
  report.emit(object);

  const std::string tree = !method.branches() ? "" : ", tree " + method.tree;
  const std::string name = method.name + ", " + method.drafter + tree + ", window " +
                           (method.adaptive ? "auto" : std::to_string(method.window));
  report.add_row(name,
                 "batch " + std::to_string(duel.batch) + ", scene " +
                     text_of({100 * row[Mark::kScene].mean, 100 * row[Mark::kScene].low,
                              100 * row[Mark::kScene].high, 0},
                             1) +
                     " %",
                 text_of(rate, 2) + " tokens a pass", text_of(ratio, 2) + " of plain's time",
                 fixed_digits(by_method.meters.mean_entropy(), 3) + " nats, z " +
                     fixed_digits(by_method.meters.z_score(), 1) + ", PIT " +
                     fixed_digits(by_method.meters.pit_statistic(), 2) + ", TV bound " +
                     fixed_digits(by_method.meters.excess / to_double(by_method.marks.size()), 2));
}

}  // namespace

void run_decode_bench(const DecodeBenchOptions& options, BenchReport& report) {
  const auto verifier = SceneReader::open("", {.device = options.pipeline.device,
                                            .cuda = options.pipeline.cuda,
                                            .threads = options.pipeline.threads});
  const Prompts prompts = held_out_prompts(options);
  std::vector<double> scales = options.guidance;
  if (scales.empty()) scales.push_back(-1);
  for (const std::int64_t batch : options.batch_sizes) {
    GenerateOptions plain_options = options.pipeline;
    plain_options.batch_size = batch;
    plain_options.method = {};
    plain_options.draft_model.clear();
    Runtime runtime;
    GenerateTask plain(runtime, plain_options);
    for (const DecodeMethod& wanted : options.methods) {
      GenerateOptions method_options = plain_options;
      method_options.method = wanted;
      if (needs_of(wanted).draft_model) {
        method_options.draft_model = options.pipeline.draft_model;
      }
      GenerateTask task(runtime, method_options);
      for (const double scale : scales) {
        Duel duel{options, prompts, *verifier, options.sampling, batch};
        if (scale >= 0) duel.sampling.set(setting::kGuidance, scale);
        Collector by_plain, by_method;
        std::vector<double> ratios;
        PassTimes times;
        duel.run(plain, task, by_plain, by_method, ratios, times);
        report_duel(duel, task, task.method(), by_plain, by_method, ratios, times, report);
      }
    }
  }
}

}  // namespace tessera
