// The parts of an evaluation in order: score on true renders, tokenizer, generated prompts, floor.
#include "apps/lab/eval/eval_scenes.h"

#include <algorithm>
#include <map>

#include "apps/lab/models/random_weights.h"
#include "apps/lab/scene/caption.h"
#include "apps/lab/scene/render.h"
#include "apps/runtime/draft_model.h"
#include "apps/runtime/generate_task.h"
#include "apps/runtime/in_order.h"
#include "apps/runtime/visual_model.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::uint64_t kUntrainedSeed = 20;

// Weights drawn when the loader asks for them.
class UntrainedSource final : public TensorSource {
 public:
  UntrainedSource(std::string label, const std::vector<TensorSpec>& tensors, std::uint64_t seed)
      : label_(std::move(label)), rule_{.seed = seed, .matrix_std = 0.02f} {
    for (const TensorSpec& tensor : tensors) shapes_.emplace(tensor.name, tensor.shape);
  }
  ConstTensorView get(const std::string& name) override {
    Tensor& made = made_[name] = random_weight(name, shapes_.at(name), rule_);
    return std::as_const(made).view();
  }
  void done(const std::string& name) override { made_.erase(name); }
  std::string file_of(const std::string&) const override { return label_; }

 private:
  std::string label_;
  RandomWeightRule rule_;
  std::map<std::string, Shape> shapes_;
  std::map<std::string, Tensor> made_;
};

Image to_image(const SceneImage& image) { return {image.width, image.height, image.rgb}; }

void check_fit(const ModelSpec& spec, const std::string& model, const SceneReader& scorer) {
  const auto refuse = [&](std::string where, std::string expected, std::string found) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_EVAL_MODEL",
                 .file = model,
                 .where = std::move(where),
                 .expected = std::move(expected),
                 .found = std::move(found)});
  };
  check_generates(spec, model);
  if (spec.prompt.kind != PromptKind::kText) {
    refuse("prompt", "a model that takes text, as scenes are described in words", "class numbers");
  }
  const std::int64_t width = spec.image_width();
  const std::int64_t height = spec.image_height();
  const std::string wanted = scorer.refuses(width == height ? width : 0);
  if (!wanted.empty()) {
    refuse("image size", wanted, std::to_string(width) + "x" + std::to_string(height));
  }
}

// Everything one evaluation carries from part to part.
class Evaluation {
 public:
  Evaluation(const EvalScenesRequest& request, const EvalListener& listener)
      : request_(request),
        listener_(listener),
        backend_(make_backend(request.options.device, {.threads = request.options.threads},
                              request.options.cuda)),
        scorer_(SceneReader::open(request.scorer, {.device = request.options.device,
                                                 .cuda = request.options.cuda,
                                                 .threads = request.options.threads})) {
    report_.scorer = scorer_->name();
  }

  EvalScenesReport run();

 private:
  Scene scene(SceneSplit split, std::int64_t index) const {
    return sample_scene(request_.scene_seed, split, narrow<std::uint64_t>(index));
  }
  // Scenes that are held out, and those of the prompts: a scorer may know some less well.
  std::vector<SceneSplit> ceiling_splits() const {
    if (request_.ceiling < 2) return {};
    std::vector<SceneSplit> out = {SceneSplit::kVal};
    for (const SceneSplit split : request_.splits) {
      if (std::find(out.begin(), out.end(), split) == out.end()) out.push_back(split);
    }
    return out;
  }
  Flow progress(const std::string& what, std::int64_t done, std::int64_t of) {
    const Flow flow =
        listener_.on_progress ? listener_.on_progress(what, done, of) : Flow::kContinue;
    if (flow == Flow::kStop) report_.stopped = true;
    return flow;
  }
  void add_row(const std::string& name, std::span<const Marks> marks) {
    report_.rows.push_back(summarise(name, marks));
    if (listener_.on_part) listener_.on_part({.row = report_.rows.back()});
  }
  void add_figure(const std::string& name, const Interval& value) {
    if (listener_.on_part) listener_.on_part({.row = {}, .figure = name, .value = value});
  }

  // Reads images and marks them, some at a time; false when the caller stopped it. An image that
  // could not be generated (no pixels) has nothing right.
  bool scorer(std::span<const Image> decoded_images, const std::string& what);

  std::vector<SceneAttributes> scorer_true_renders(SceneSplit split, int side);
  void scorer_mismatches(std::span<const SceneAttributes> truths);
  void scorer_reconstructions(const OpenedModel& model);
  // Of the images scored last.
  std::vector<Marks> marks_of(std::span<const SceneAttributes> truths) const {
    std::vector<Marks> marks;
    for (std::size_t i = 0; i < truths.size(); ++i) {
      marks.push_back(score_seen(seen_[i], truths[i]));
    }
    return marks;
  }
  std::vector<Marks> generate(GenerateTask& task, SceneSplit split, std::int64_t count,
                           const std::string& what, std::vector<EvalSample>* samples);

  const EvalScenesRequest& request_;
  const EvalListener& listener_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<SceneReader> scorer_;
  std::vector<std::optional<SceneAttributes>> seen_;  // of the images scored last
  EvalScenesReport report_;
  std::vector<double> rates_;
};

bool Evaluation::scorer(std::span<const Image> decoded_images, const std::string& what) {
  constexpr std::size_t kImagesAtOnce = 64;
  seen_.clear();
  const auto total = std::ssize(decoded_images);
  while (seen_.size() < decoded_images.size()) {
    if (progress(what, std::ssize(seen_), total) == Flow::kStop) return false;
    const std::size_t first = seen_.size();
    std::vector<std::size_t> there;
    std::vector<Image> part;
    for (std::size_t i = first; i < std::min(first + kImagesAtOnce, decoded_images.size()); ++i) {
      seen_.emplace_back();
      if (decoded_images[i].rgb.empty()) continue;
      there.push_back(i);
      part.push_back(decoded_images[i]);
    }
    std::vector<std::optional<SceneAttributes>> read = scorer_->read(part);
    for (std::size_t j = 0; j < there.size(); ++j) seen_[there[j]] = std::move(read[j]);
  }
  return true;
}

std::vector<SceneAttributes> Evaluation::scorer_true_renders(SceneSplit split, int side) {
  std::vector<SceneAttributes> truths;
  std::vector<Image> decoded_images;
  for (std::int64_t i = 0; i < request_.ceiling; ++i) {
    const Scene truth = scene(split, i);
    truths.push_back(attributes_of(truth));
    decoded_images.push_back(to_image(render_scene(truth, side)));
  }
  std::string name = "true renders";
  if (split != SceneSplit::kVal) name = std::string(name_of(split)) + " " + name;
  if (scorer(decoded_images, name)) add_row(name + " (ceiling)", marks_of(truths));
  return truths;
}

// Each image scored last against the caption of the next scene that differs from its own.
void Evaluation::scorer_mismatches(std::span<const SceneAttributes> truths) {
  std::vector<double> accepted;
  for (std::size_t i = 0; i < truths.size(); ++i) {
    for (std::size_t step = 1; step < truths.size(); ++step) {
      const SceneAttributes& other = truths[(i + step) % truths.size()];
      if (other == truths[i]) continue;
      accepted.push_back(score_seen(seen_[i], other)[Mark::kScene]);
      break;
    }
  }
  report_.mismatched_accepted = bootstrap_all(accepted);
  add_figure("mismatched_accepted", report_.mismatched_accepted);
}

void Evaluation::scorer_reconstructions(const OpenedModel& model) {
  const auto made =
      make_visual_tokenizer(*backend_, model, stored_vq_dtype(model), TokenizerHalves::kBoth);
  const VisualTokenizer& tokenizer = *made;
  model.vq_weights->verify_unchanged();
  const auto side = narrow<int>(model.spec.image_width());
  const int rows = side / tokenizer.factor();
  std::vector<double> decibels;
  std::vector<SceneAttributes> truths;
  std::vector<Image> decoded_images;
  for (std::int64_t i = 0; i < request_.reconstructions; ++i) {
    if (progress("reconstructions, generated", i, request_.reconstructions) == Flow::kStop) return;
    const Scene truth = scene(SceneSplit::kVal, i);
    const SceneImage image = render_scene(truth, side);
    const Tensor pixels = image_from_bytes(image.rgb, side, side);
    const Tensor back = tokenizer.decode(tokenizer.encode(pixels.view()), rows, rows);
    decoded_images.emplace_back(side, side, tokenizer.to_pixels(back.view()));
    decibels.push_back(psnr(decoded_images.back().rgb, image.rgb));
    truths.push_back(attributes_of(truth));
  }
  if (!scorer(decoded_images, "reconstructions")) return;
  add_row("tokenizer reconstructions", marks_of(truths));
  report_.psnr_db = bootstrap_all(decibels);
  add_figure("psnr_db", report_.psnr_db);
}

// Keeps images as they are generated.
class SceneListener final : public GenerateListener {
 public:
  SceneListener(std::size_t count, std::function<Flow(std::int64_t)> progress)
      : images_(count), progress_(std::move(progress)) {}

  Flow on_progress(const GenerateProgress&) override { return progress_(done_); }
  void on_image(GeneratedImage&& image) override {
    ++done_;
    const std::size_t index = image.index;
    order_.add(index, std::move(image), [&](GeneratedImage&& next) {
      if (next.status != ImageStatus::kDone) return;
      meters_.add(next.meters);
      rates_.push_back(next.facts.tokens_per_pass());
      images_[next.index] = std::move(next.image);
    });
  }

  std::vector<Image>& images() { return images_; }
  const DecodeMeters& meters() const { return meters_; }
  const std::vector<double>& rates() const { return rates_; }

 private:
  std::vector<Image> images_;
  InOrder<GeneratedImage> order_;
  std::function<Flow(std::int64_t)> progress_;
  DecodeMeters meters_;
  std::vector<double> rates_;  // tokens a pass
  std::int64_t done_ = 0;
};

std::vector<Marks> Evaluation::generate(GenerateTask& task, SceneSplit split, std::int64_t count,
                                     const std::string& what, std::vector<EvalSample>* samples) {
  std::vector<PreparedRequest> requests;
  std::vector<SceneAttributes> truths;
  std::vector<std::string> prompts;
  for (std::int64_t i = 0; i < count; ++i) {
    const Scene truth = scene(split, i);
    prompts.push_back(scene_caption(truth));
    truths.push_back(attributes_of(truth));
    requests.push_back(task.prepare({.prompt = prompts.back(),
                                     .negative_prompt = std::nullopt,
                                     .sampling = request_.sampling,
                                     .seed = request_.seed + narrow<std::uint64_t>(i)}));
  }
  SceneListener listener(prompts.size(),
                         [&](std::int64_t done) { return progress(what, done, count); });
  if (count > 0) report_.dist = requests.front().item.dist;
  if (!task.run(requests, listener)) report_.stopped = true;
  if (task.model_name() == report_.model) {
    report_.meters.add(listener.meters());
    rates_.insert(rates_.end(), listener.rates().begin(), listener.rates().end());
  }
  if (report_.stopped || !scorer(listener.images(), what + ", scored")) return {};
  if (samples != nullptr) {
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      if (listener.images()[i].rgb.empty()) continue;
      samples->push_back({std::move(prompts[i]), std::move(listener.images()[i])});
    }
  }
  return marks_of(truths);
}

EvalScenesReport Evaluation::run() {
  const ModelReference reference = resolve_model(request_.options.model);
  {
    const OpenedModel model = open_model(reference.open_name);
    check_fit(model.spec, reference.shown_name, *scorer_);
    report_.model = reference.shown_name;
    const auto side = narrow<int>(model.spec.image_width());
    for (const SceneSplit split : ceiling_splits()) {
      const std::vector<SceneAttributes> truths = scorer_true_renders(split, side);
      if (report_.stopped) return std::move(report_);
      if (split == SceneSplit::kVal) scorer_mismatches(truths);
    }
    if (!report_.stopped && request_.reconstructions > 0) scorer_reconstructions(model);
  }
  if (report_.stopped) return std::move(report_);
  {
    Runtime runtime;
    GenerateTask task(runtime, request_.options);
    report_.method = task.method();
    for (const SceneSplit split : request_.splits) {
      const std::string name = std::string(name_of(split)) + " prompts";
      const std::vector<Marks> marks = generate(task, split, request_.prompts, name,
                                             report_.samples.empty() ? &report_.samples : nullptr);
      if (report_.stopped) return std::move(report_);
      add_row(name, marks);
    }
    report_.tokens_per_pass = bootstrap_all(rates_);
  }
  if (request_.floor > 0 && !request_.splits.empty()) {
    Runtime runtime;
    GenerateTask task(runtime, request_.options,
                      untrained(open_model(reference.open_name), kUntrainedSeed),
                      reference.shown_name + " untrained");
    const std::string name =
        std::string(name_of(request_.splits.front())) + " prompts, untrained model (floor)";
    const std::vector<Marks> marks =
        generate(task, request_.splits.front(), request_.floor, name, nullptr);
    if (!report_.stopped) add_row(name, marks);
  }
  return std::move(report_);
}

}  // namespace

OpenedModel untrained(OpenedModel model, std::uint64_t seed) {
  model.source =
      std::make_unique<UntrainedSource>("untrained " + model.spec.family, model.spec.tensors, seed);
  return model;
}

EvalScenesReport eval_scenes(const EvalScenesRequest& request, const EvalListener& listener) {
  expects(request.prompts > 0, "an evaluation has prompts");
  return Evaluation(request, listener).run();
}

}  // namespace tessera
