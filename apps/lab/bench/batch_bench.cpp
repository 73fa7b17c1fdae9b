#include "apps/lab/bench/batch_bench.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/lab/eval/eval_reader.h"
#include "apps/lab/eval/eval_statistics.h"
#include "apps/lab/scene/caption.h"
#include "apps/runtime/generate_task.h"
#include "apps/runtime/in_order.h"
#include "apps/runtime/memory.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

// Everything generated at one batch size.
class BatchGenerator final : public GenerateListener {
 public:
  BatchGenerator(GenerateOptions options, std::int64_t batch) : batch_(batch) {
    options.batch_size = batch;
    task_ = std::make_unique<GenerateTask>(*runtime_, options);
  }

  // Seconds of the passes that decode.
  double generate(const std::vector<GenerateRequest>& requests) {
    std::vector<PreparedRequest> prepared;
    for (const GenerateRequest& request : requests) prepared.push_back(task_->prepare(request));
    if (images.empty()) check_memory(task_->plan(prepared), task_->model_name());
    const double before = decode;
    order_ = {};
    task_->run(prepared, *this);
    return decode - before;
  }

  void on_image(GeneratedImage&& image) override {
    if (image.status == ImageStatus::kFailed) throw Error(image.error);
    prefill += image.phases.prefill;
    decode += image.phases.decode;
    verify += image.times.verify;
    pixels += image.phases.pixels;
    const std::size_t index = image.index;
    order_.add(index, std::move(image), [&](GeneratedImage&& next) {
      images.push_back(std::move(next.image));
      codes.push_back(std::move(next.codes));
    });
  }

  // Nothing of the first group counts: weights are read and memory is touched in it.
  void forget() {
    prefill = decode = pixels = verify = 0;
    images.clear();
    codes.clear();
  }

  GenerateTask& task() { return *task_; }
  std::int64_t batch() const { return batch_; }

  double prefill = 0, decode = 0, pixels = 0, verify = 0;
  std::vector<Image> images;
  std::vector<std::vector<std::int32_t>> codes;

 private:
  std::int64_t batch_;
  std::unique_ptr<Runtime> runtime_ = std::make_unique<Runtime>();  // generators move
  std::unique_ptr<GenerateTask> task_;
  InOrder<GeneratedImage> order_;
};

struct Work {
  std::vector<GenerateRequest> requests;
  std::vector<SceneAttributes> truths;
};

bool made_up(const BatchBenchOptions& options) {
  const std::string& model = options.pipeline.model;
  return model.starts_with("random:") || model.starts_with("test:");
}

// Held-out prompts, or classes for random weights, whose images show nothing.
Work work_of(const BatchBenchOptions& options) {
  Work work;
  if (made_up(options)) {
    for (std::int64_t i = 0; i < options.prompts; ++i) {
      GenerateRequest request;
      request.prompt = std::to_string(i);
      request.seed = options.seed + narrow<std::uint64_t>(i);
      work.requests.push_back(std::move(request));
    }
    return work;
  }
  for (std::int64_t i = 0; i < options.prompts; ++i) {
    const auto number = narrow<std::uint64_t>(i);
    const Scene scene = sample_scene(options.scene_seed, SceneSplit::kVal, number);
    GenerateRequest request;
    request.prompt = scene_caption(scene);
    request.seed = options.seed + number;
    work.requests.push_back(std::move(request));
    work.truths.push_back(attributes_of(scene));
  }
  return work;
}

// Nothing for random weights.
std::optional<EvalRow> read_back(const BatchGenerator& generator, SceneReader* reader,
                                 const Work& work) {
  if (reader == nullptr) return std::nullopt;
  const auto seen = reader->read(generator.images);
  std::vector<Marks> marks;
  for (std::size_t i = 0; i < seen.size(); ++i)
    marks.push_back(score_seen(seen[i], work.truths[i]));
  return summarise("batch " + std::to_string(generator.batch()), marks);
}

void report_generator(BatchGenerator& generator, const BatchGenerator& first,
                    const std::vector<double>& ratios, const std::optional<EvalRow>& row,
                    BenchReport& report) {
  const auto decoded_images = to_double(generator.images.size());
  const double per_minute = 60 * decoded_images / generator.decode;
  const Interval ratio = bootstrap_median(ratios);
  std::size_t same = 0;
  for (std::size_t i = 0; i < generator.codes.size(); ++i) {
    same += generator.codes[i] == first.codes[i] ? 1 : 0;
  }
  auto object = report.start("batch.b" + std::to_string(generator.batch()));
  object["model"] = generator.task().model_name();
  object["method"] = generator.task().method().name;
  object["dtype"] = dtype_name(generator.task().storage());
  object["batch"] = generator.batch();
  object["pictures"] = generator.images.size();
  object["same_tokens"] = same;
  object["decode_pictures_per_minute"] = per_minute;
  object["decode_ratio"] = interval_json(ratio);           // of groups generated one after the other
  object["prefill_seconds"] = generator.prefill / decoded_images;  // an image
  object["decode_seconds"] = generator.decode / decoded_images;
  object["judge_seconds"] = generator.verify / decoded_images;  // of decode_seconds: dist, draw, rule
  object["pixel_seconds"] = generator.pixels / decoded_images;
  object["quality"] = row ? row_json(*row) : nlohmann::ordered_json();
  report.emit(object);
  report.add_row(
      "batch " + std::to_string(generator.batch()),
      row ? "scene " + fixed_digits(100 * (*row)[Mark::kScene].mean, 1) + " %" : "random weights",
      fixed_digits(per_minute, 0) + " images a minute decoding",
      fixed_digits(ratio.mean, 2) + " (" + fixed_digits(ratio.low, 2) + "-" +
          fixed_digits(ratio.high, 2) + ") times the first",
      "an image: prefill " + fixed_digits(1000 * generator.prefill / decoded_images, 1) + ", decode " +
          fixed_digits(1000 * generator.decode / decoded_images, 0) + ", pixels " +
          fixed_digits(1000 * generator.pixels / decoded_images, 0) + " ms");
}

}  // namespace

void run_batch_bench(const BatchBenchOptions& options, BenchReport& report) {
  std::unique_ptr<SceneReader> reader;
  if (!made_up(options)) {
    reader = SceneReader::open("", {.device = options.pipeline.device,
                                    .cuda = options.pipeline.cuda,
                                    .threads = options.pipeline.threads});
  }
  const Work work = work_of(options);
  std::vector<BatchGenerator> generators;
  for (const std::int64_t batch : options.batch_sizes)
    generators.emplace_back(options.pipeline, batch);
  const std::int64_t widest = *std::ranges::max_element(options.batch_sizes);
  const auto group = to_size(std::min(widest, options.prompts));
  const auto part = [&](std::size_t from) {
    const auto at = work.requests.begin() + to_index(from);
    const std::size_t count = std::min(group, work.requests.size() - from);
    return std::vector(at, at + to_index(count));
  };
  for (BatchGenerator& generator : generators) {
    std::vector<GenerateRequest> first = part(0);
    first.resize(std::min(first.size(), to_size(generator.batch())));
    generator.generate(first);
    generator.forget();
  }
  std::vector<std::vector<double>> ratios(generators.size());
  for (std::size_t from = 0, turn = 0; from < work.requests.size(); from += group, ++turn) {
    std::vector<double> seconds(generators.size());
    for (std::size_t k = 0; k < generators.size(); ++k) {
      const std::size_t who = (k + turn) % generators.size();
      seconds[who] = generators[who].generate(part(from));
    }
    for (std::size_t k = 0; k < generators.size(); ++k) ratios[k].push_back(seconds[0] / seconds[k]);
  }
  for (std::size_t k = 0; k < generators.size(); ++k) {
    report_generator(generators[k], generators[0], ratios[k], read_back(generators[k], reader.get(), work),
                   report);
  }
}

}  // namespace tessera
