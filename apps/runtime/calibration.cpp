#include "apps/runtime/calibration.h"

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>

#include "apps/runtime/caption_model.h"
#include "apps/runtime/completion_model.h"
#include "apps/runtime/generate_task.h"
#include "apps/runtime/image_prompt.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/token_walk.h"
#include "engine/backend/factories.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/families/family.h"
#include "engine/ops/host_access.h"
#include "vision/image/image_reader.h"
#include "vision/image/preprocess.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxSource = std::size_t{16} << 20;
constexpr std::int64_t kPieces = 16, kPieceLength = 512;
constexpr std::size_t kMaxPrompts = 8, kMaxPictures = 16;
constexpr std::int64_t kCaptionLength = 48;
constexpr const char* kQuestion = "Describe the picture.";

[[noreturn]] void refuse_source(const fs::path& source, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_CALIBRATE",
               .file = source.string(),
               .where = "--calibrate",
               .expected = std::move(expected),
               .found = std::move(found)});
}

// Sums of squares by column.
class Columns {
 public:
  void add(ConstTensorView rows) {
    const std::int64_t count = rows.shape[0], width = rows.shape[1];
    sums_.resize(to_size(width), 0.0);
    const float* from = rows.f32();
    for (std::int64_t row = 0; row < count; ++row, from += width) {
      for (std::size_t i = 0; i < sums_.size(); ++i) {
        const double number = to_double(from[i]);
        sums_[i] += number * number;
      }
    }
    rows_ += count;
  }
  bool empty() const { return rows_ == 0; }
  std::vector<float> means() const {
    std::vector<float> out;
    for (const double sum : sums_) out.push_back(to_float(sum / to_double(rows_)));
    return out;
  }

 private:
  std::vector<double> sums_;
  std::int64_t rows_ = 0;
};

class InputObserver final : public LayerObserver {
 public:
  explicit InputObserver(std::int64_t layers) : layers_(to_size(layers)) {}

  bool wants_inputs() const override { return true; }
  void inputs(std::int64_t layer, LayerProduct of, ConstTensorView rows) override {
    nth(layers_, layer)[of].add(rows);
  }
  // Hidden states, which an output layer takes.
  void hidden(ConstTensorView rows) { head_.add(rows); }

  // By the names of the tensors.
  InputSquares squares(const ModelSpec& spec) const {
    const WeightNames& names = spec.names;
    InputSquares out;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const std::string prefix = layer_name(names.layer_prefix, to_index(i));
      const auto put = [&](LayerProduct of, const std::string& name) {
        const auto columns = layers_[i].find(of);
        if (columns != layers_[i].end()) out[prefix + name] = columns->second.means();
      };
      for (const std::string& name : names.qkv) put(LayerProduct::kQkv, name);
      put(LayerProduct::kOut, names.out);
      for (const std::string& name : names.gate_up) put(LayerProduct::kGateUp, name);
      put(LayerProduct::kDown, names.down);
    }
    if (head_.empty()) return out;
    if (spec.model.vocab > 0) {
      out[spec.model.tied_head ? names.prompt_table : names.text_head] = head_.means();
    } else if (names.head_in.empty()) {
      out[names.head_out + ".weight"] = head_.means();
    }
    return out;
  }

 private:
  std::vector<std::map<LayerProduct, Columns>> layers_;
  Columns head_;
};

// A sequence whose rows are all seen.
class SeenWalk {
 public:
  SeenWalk(const TokenModel& model, std::int64_t rows, InputObserver& observer)
      : walk_(model, rows), observer_(observer) {}

  TokenWalk& walk() { return walk_; }
  ConstTensorView pass(ConstTensorView rows, std::span<const TokenWalk::Place> places = {}) {
    const ConstTensorView hidden = walk_.pass(rows, places, {{}, &observer_});
    observer_.hidden(hidden);
    return hidden;
  }

 private:
  TokenWalk walk_;
  InputObserver& observer_;
};

std::string read_text(const fs::path& source) {
  if (is_folder(source)) refuse_source(source, "a text file", "a folder");
  return read_file(source, kMaxSource, ErrorKind::kUsage);
}

InputSquares of_texts(const fs::path& path, const fs::path& source,
                      const std::function<bool()>& keep_going) {
  const auto model = CompletionModel::open(path);
  const std::vector<std::int32_t> ids = model->prompt_ids(read_text(source), false);
  const auto backend = make_cpu_backend({});
  const StreamModel loaded = model->load(*backend, model->stored());
  const std::int64_t length =
      std::min({kPieceLength, std::ssize(ids), model->spec().model.max_positions});
  const std::int64_t count = std::clamp<std::int64_t>(std::ssize(ids) / length, 1, kPieces);
  InputObserver observer(model->spec().model.transformer.layers);
  for (std::int64_t i = 0; i < count && keep_going(); ++i) {
    const std::int64_t first = count == 1 ? 0 : (std::ssize(ids) - length) * i / (count - 1);
    SeenWalk seen(loaded, length, observer);
    seen.pass(seen.walk().prompt(std::span(ids).subspan(to_size(first), to_size(length))));
  }
  return observer.squares(model->spec());
}

// Tokens of images that were generated.
class Codes final : public GenerateListener {
 public:
  Codes(std::size_t count, const std::function<bool()>& keep_going)
      : codes(count), keep_going_(keep_going) {}
  Flow on_progress(const GenerateProgress&) override {
    return keep_going_() ? Flow::kContinue : Flow::kStop;
  }
  void on_image(GeneratedImage&& image) override {
    if (image.status == ImageStatus::kFailed) throw Error(image.error);
    if (image.status == ImageStatus::kDone) codes[image.index] = std::move(image.codes);
  }
  std::vector<std::vector<std::int32_t>> codes;

 private:
  const std::function<bool()>& keep_going_;
};

InputSquares of_images(const fs::path& path, const fs::path& source,
                       const std::function<bool()>& keep_going) {
  std::vector<std::vector<std::int32_t>> prompts;
  std::optional<Codes> listener;
  {
    Runtime runtime;
    GenerateOptions options;
    options.model = path.string();
    options.device = "cpu";
    options.batch_size = kMaxPrompts;
    GenerateTask task(runtime, options);
    std::vector<PreparedRequest> requests;
    std::istringstream lines(read_text(source));
    for (std::string line; requests.size() < kMaxPrompts && std::getline(lines, line);) {
      if (line.empty()) continue;
      GenerateRequest request;
      request.prompt = line;
      request.seed = requests.size() + 1;
      requests.push_back(task.prepare(request));
      prompts.push_back(requests.back().item.prompt.ids);
    }
    if (requests.empty()) refuse_source(source, "a prompt a line", "none");
    listener.emplace(requests.size(), keep_going);
    task.run(std::move(requests), *listener);
  }
  OpenedModel opened = open_model(path.string());
  const auto backend = make_cpu_backend({});
  const StreamModel model = load_stream_model(opened, *backend, stored_dtype(opened));
  InputObserver observer(opened.spec.model.transformer.layers);
  for (std::size_t i = 0; i < prompts.size() && keep_going(); ++i) {
    const std::vector<std::int32_t>& codes = listener->codes[i];
    if (codes.empty()) continue;
    SeenWalk seen(model, std::ssize(prompts[i]) + std::ssize(codes), observer);
    if (!prompts[i].empty()) seen.pass(seen.walk().prompt(prompts[i]));
    seen.pass(seen.walk().tokens(std::span(codes).first(codes.size() - 1)));
  }
  return observer.squares(opened.spec);
}

InputSquares of_captions(const fs::path& path, const fs::path& source,
                         const std::function<bool()>& keep_going) {
  if (!is_folder(source)) refuse_source(source, "a folder of images", "a file");
  std::vector<fs::path> files;
  for (const fs::path& file : list_folder(source)) {
    const bool hidden = file.filename().string().starts_with('.');
    if (!hidden && !is_folder(file) && files.size() < kMaxPictures) files.push_back(file);
  }
  if (files.empty()) refuse_source(source, "a folder of images", "no file in it");
  const auto model = CaptionModel::open(path);
  const auto backend = make_cpu_backend({});
  model->load(*backend, model->stored());
  const TokenModel& text = model->text();
  const std::vector<std::int32_t>& stops = model->describe().stops;
  std::vector<float> logits(to_size(text.logit_ids()));
  InputObserver observer(model->spec().model.transformer.layers);
  ImageReader reader;
  for (const fs::path& file : files) {
    if (!keep_going()) break;
    const PreprocessedImage image = preprocess(model->describe().policy_of(1), reader.read(file));
    const ImagePrompt prompt =
        make_image_prompt(*model, kQuestion, {&image, 1}, {}, kCaptionLength);
    SeenWalk seen(text, prompt.rows.rows.shape()[0] + kCaptionLength, observer);
    ConstTensorView hidden = seen.pass(prompt.rows.rows.view(), prompt.rows.places);
    for (std::int64_t step = 0; step + 1 < kCaptionLength; ++step) {
      seen.walk().last_logits(hidden, logits.data());
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      const auto token = narrow<std::int32_t>(best);
      if (std::ranges::find(stops, token) != stops.end()) break;
      const std::int64_t at = prompt.rows.next_place + step;
      const TokenWalk::Place place = {at, at, at};
      hidden = seen.pass(seen.walk().tokens({&token, 1}), {&place, 1});
    }
  }
  return observer.squares(model->spec());
}

}  // namespace

InputSquares measure_inputs(const fs::path& path, const fs::path& source,
                            const std::function<bool()>& keep_going) {
  if (is_text_model(path)) return of_texts(path, source, keep_going);
  const ModelSpec spec = open_usable(path.string()).model.spec;
  if (is_folder(source) && describes_images(path)) return of_captions(path, source, keep_going);
  const bool images = spec.model.codes > 0 && spec.model.grids == 1 && !spec.blocks &&
                      spec.model.prompt != PromptKind::kFrames && !spec.context;
  if (images) return of_images(path, source, keep_going);
  if (spec.describe) refuse_source(source, "a folder of images", "a file");
  refuse_source(source, "a model of texts, of images, or one that describes images", spec.family);
}

}  // namespace tessera
