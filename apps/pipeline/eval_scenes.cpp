// The parts of an evaluation in order: judge on true renders, tokenizer, painted prompts, floor.
#include "apps/pipeline/eval_scenes.h"

#include <algorithm>
#include <map>

#include "apps/pipeline/draft_model.h"
#include "engine/core/io.h"
#include "engine/families/random_weights.h"
#include "tokenizers/visual/vq_tokenizer.h"
#include "vision/judge/judge.h"
#include "vision/scene/caption.h"
#include "vision/scene/render.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

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

Image to_image(const ScenePicture& picture) { return {picture.width, picture.height, picture.rgb}; }

void check_fit(const FamilySpec& spec, const std::string& model, std::int64_t judge_side) {
  const auto refuse = [&](std::string where, std::string expected, std::string found) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_EVAL_MODEL",
                 .file = model,
                 .where = std::move(where),
                 .expected = std::move(expected),
                 .found = std::move(found)});
  };
  check_paints(spec, model);
  if (spec.prompt.kind != PromptKind::kText) {
    refuse("prompt", "a model that takes text, as scenes are described in words", "class numbers");
  }
  const std::int64_t width = spec.image_width();
  const std::int64_t height = spec.image_height();
  if (width != height || width < judge_side || width % judge_side != 0) {
    refuse("picture size",
           "square pictures of a multiple of " + std::to_string(judge_side) + " pixels",
           std::to_string(width) + "x" + std::to_string(height));
  }
}

// Everything one evaluation carries from part to part.
class Evaluation {
 public:
  Evaluation(const EvalScenesRequest& request, const EvalListener& listener)
      : request_(request),
        listener_(listener),
        backend_(make_backend(request.options.device, {.threads = request.options.threads})),
        judge_(Judge::open(*backend_, request.judge.empty() ? bundled_judge() : request.judge)) {}

  EvalScenesReport run();

 private:
  Scene scene(SceneSplit split, std::int64_t index) const {
    return sample_scene(request_.scene_seed, split, static_cast<std::uint64_t>(index));
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

  void judge_true_renders();
  void judge_reconstructions(const OpenedModel& model);
  std::vector<Marks> paint(GeneratePipeline& pipeline, SceneSplit split, std::int64_t count,
                           const std::string& what, std::vector<EvalSample>* samples);

  const EvalScenesRequest& request_;
  const EvalListener& listener_;
  std::unique_ptr<Backend> backend_;
  Judge judge_;
  EvalScenesReport report_;
  std::vector<double> rates_;
};

void Evaluation::judge_true_renders() {
  std::vector<SceneAttributes> truths;
  std::vector<SceneAttributes> seen;
  std::vector<Marks> marks;
  const auto side = static_cast<int>(judge_.config().image_size);
  for (std::int64_t i = 0; i < request_.ceiling; ++i) {
    if (progress("true renders", i, request_.ceiling) == Flow::kStop) return;
    const Scene truth = scene(SceneSplit::kVal, i);
    truths.push_back(attributes_of(truth));
    seen.push_back(judge_.read(to_image(render_scene(truth, side))));
    marks.push_back(score_scene(seen.back(), truths.back()));
  }
  add_row("true renders (ceiling)", marks);

  // Each picture against the caption of the next scene that differs from its own.
  std::vector<double> accepted;
  for (std::size_t i = 0; i < truths.size(); ++i) {
    for (std::size_t step = 1; step < truths.size(); ++step) {
      const SceneAttributes& other = truths[(i + step) % truths.size()];
      if (other == truths[i]) continue;
      accepted.push_back(score_scene(seen[i], other)[Mark::kScene]);
      break;
    }
  }
  report_.mismatched_accepted = bootstrap_all(accepted);
  add_figure("mismatched_accepted", report_.mismatched_accepted);
}

void Evaluation::judge_reconstructions(const OpenedModel& model) {
  const VqTokenizer tokenizer(*backend_, model.spec.vq, *model.vq_weights, stored_vq_dtype(model),
                              TokenizerHalves::kBoth);
  model.vq_weights->verify_unchanged();
  const auto side = static_cast<int>(model.spec.image_width());
  const int rows = side / tokenizer.factor();
  std::vector<double> decibels;
  std::vector<Marks> marks;
  for (std::int64_t i = 0; i < request_.reconstructions; ++i) {
    if (progress("reconstructions", i, request_.reconstructions) == Flow::kStop) return;
    const Scene truth = scene(SceneSplit::kVal, i);
    const ScenePicture picture = render_scene(truth, side);
    const Tensor pixels = image_from_bytes(picture.rgb, side, side);
    const Tensor back = tokenizer.decode(tokenizer.encode(pixels.view()), rows, rows);
    const Image image(side, side, tokenizer.to_pixels(back.view()));
    decibels.push_back(psnr(image.rgb, picture.rgb));
    marks.push_back(score_scene(judge_.read(image), attributes_of(truth)));
  }
  add_row("tokenizer reconstructions", marks);
  report_.psnr_db = bootstrap_all(decibels);
  add_figure("psnr_db", report_.psnr_db);
}

// Judges pictures as they are painted.
class JudgingListener final : public GenerateListener {
 public:
  JudgingListener(const Judge& judge, std::vector<SceneAttributes> truths,
                  std::function<Flow(std::int64_t)> progress)
      : judge_(judge), truths_(std::move(truths)), progress_(std::move(progress)) {
    marks_.resize(truths_.size());
    for (Marks& marks : marks_) {
      marks.value.fill(0.0);  // a picture that could not be painted has nothing right
      marks.value[static_cast<std::size_t>(Mark::kOrder)] = kNotAsked;
    }
    images_.resize(truths_.size());
  }

  Flow on_progress(const GenerateProgress&) override { return progress_(done_); }
  void on_picture(GeneratedPicture&& picture) override {
    ++done_;
    if (picture.status != PictureStatus::kDone) return;
    meters_.add(picture.meters);
    rates_.push_back(picture.facts.tokens_per_pass());
    marks_[picture.index] = score_scene(judge_.read(picture.image), truths_[picture.index]);
    images_[picture.index] = std::move(picture.image);
  }

  std::vector<Marks>& marks() { return marks_; }
  std::vector<Image>& images() { return images_; }
  const DecodeMeters& meters() const { return meters_; }
  const std::vector<double>& rates() const { return rates_; }

 private:
  const Judge& judge_;
  std::vector<SceneAttributes> truths_;
  std::function<Flow(std::int64_t)> progress_;
  std::vector<Marks> marks_;
  std::vector<Image> images_;
  DecodeMeters meters_;
  std::vector<double> rates_;  // tokens a pass
  std::int64_t done_ = 0;
};

std::vector<Marks> Evaluation::paint(GeneratePipeline& pipeline, SceneSplit split,
                                     std::int64_t count, const std::string& what,
                                     std::vector<EvalSample>* samples) {
  std::vector<PreparedRequest> requests;
  std::vector<SceneAttributes> truths;
  std::vector<std::string> prompts;
  for (std::int64_t i = 0; i < count; ++i) {
    const Scene truth = scene(split, i);
    prompts.push_back(scene_caption(truth));
    truths.push_back(attributes_of(truth));
    requests.push_back(pipeline.prepare({.prompt = prompts.back(),
                                         .negative_prompt = std::nullopt,
                                         .sampling = request_.sampling,
                                         .seed = request_.seed + static_cast<std::uint64_t>(i)}));
  }
  JudgingListener listener(judge_, std::move(truths),
                           [&](std::int64_t done) { return progress(what, done, count); });
  if (count > 0) report_.law = requests.front().item.law;
  if (!pipeline.run(requests, listener)) report_.stopped = true;
  if (pipeline.model_name() == report_.model) {
    report_.meters.add(listener.meters());
    rates_.insert(rates_.end(), listener.rates().begin(), listener.rates().end());
  }
  if (samples != nullptr) {
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      if (listener.images()[i].rgb.empty()) continue;
      samples->push_back({std::move(prompts[i]), std::move(listener.images()[i])});
    }
  }
  return std::move(listener.marks());
}

EvalScenesReport Evaluation::run() {
  const ModelReference reference = resolve_model(request_.options.model);
  {
    const OpenedModel model = open_model(reference.open_name);
    check_fit(model.spec, reference.shown_name, judge_.config().image_size);
    report_.model = reference.shown_name;
    if (request_.ceiling > 1) judge_true_renders();
    if (!report_.stopped && request_.reconstructions > 0) judge_reconstructions(model);
  }
  if (report_.stopped) return std::move(report_);
  {
    GeneratePipeline pipeline(request_.options);
    report_.method = pipeline.method();
    for (const SceneSplit split : request_.splits) {
      const std::string name = std::string(name_of(split)) + " prompts";
      const std::vector<Marks> marks = paint(pipeline, split, request_.prompts, name,
                                             report_.samples.empty() ? &report_.samples : nullptr);
      if (report_.stopped) return std::move(report_);
      add_row(name, marks);
    }
    report_.tokens_per_pass = bootstrap_all(rates_);
  }
  if (request_.floor > 0 && !request_.splits.empty()) {
    GeneratePipeline pipeline(request_.options,
                              untrained(open_model(reference.open_name), kUntrainedSeed),
                              reference.shown_name + " untrained");
    const std::string name =
        std::string(name_of(request_.splits.front())) + " prompts, untrained model (floor)";
    const std::vector<Marks> marks =
        paint(pipeline, request_.splits.front(), request_.floor, name, nullptr);
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

fs::path bundled_judge() {
  std::string searched;
  for (const fs::path& assets : asset_folders()) {
    const fs::path folder = assets / "models" / "tabletop-judge";
    if (file_exists(folder / "config.json")) return folder;
    searched += (searched.empty() ? "" : ", ") + folder.string();
  }
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_JUDGE_MISSING",
               .where = "--judge",
               .expected = "a folder with config.json and model.safetensors",
               .found = searched.empty() ? "no assets folder" : "none at " + searched,
               .hint = "set TESSERA_ASSETS"});
}

EvalScenesReport eval_scenes(const EvalScenesRequest& request, const EvalListener& listener) {
  expects(request.prompts > 0, "an evaluation has prompts");
  return Evaluation(request, listener).run();
}

}  // namespace tessera
