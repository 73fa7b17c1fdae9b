#include "apps/lab/eval/eval_captions.h"

#include <chrono>
#include <map>

#include "apps/lab/eval/eval_reader.h"
#include "apps/lab/scene/render.h"
#include "apps/runtime/caption_model.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

class Collector final : public DescribeListener {
 public:
  Collector(const std::vector<Scene>& truths, EvalCaptions& out) : truths_(truths), out_(out) {}
  void on_caption(Caption&& caption) override {
    if (caption.failed) throw Error(caption.error);
    const auto at = to_size(std::stoll(caption.id));
    const std::optional<SceneAttributes> seen = read_caption(caption.text);
    out_.marks[at] = score_seen(seen, attributes_of(truths_[at]));
    out_.unreadable += seen ? 0 : 1;
    out_.kept[at] = to_double(caption.kept_tokens);
    out_.total[at] = to_double(caption.visual_tokens);
    out_.encode[at] = caption.seconds.encode;
    out_.select[at] = caption.seconds.select;
    out_.first[at] = caption.seconds.first;
    out_.prefill[at] = caption.seconds.first - caption.seconds.encode;
    if (at == 0) out_.first_kept = std::move(caption.kept);
  }

 private:
  const std::vector<Scene>& truths_;
  EvalCaptions& out_;
};

}  // namespace

EvalCaptions eval_captions(const EvalCaptionsRequest& request) {
  EvalCaptions out;
  const auto count = to_size(request.images);
  out.marks.resize(count);
  for (std::vector<double>* values :
       {&out.kept, &out.total, &out.encode, &out.select, &out.first, &out.prefill}) {
    values->resize(count);
  }
  std::vector<Scene> truths;
  std::vector<std::shared_ptr<const Image>> renders;  // made before any clock runs
  for (std::size_t i = 0; i < count; ++i) {
    truths.push_back(sample_scene(request.scene_seed, request.split, i));
    const SceneImage render = render_scene(truths.back(), request.size);
    renders.push_back(std::make_shared<Image>(render.width, render.height, render.rgb));
  }
  Runtime runtime;
  DescribeTask task(runtime, request.options);
  task.load();
  out.model = task.model_name();
  if (count > 0) out.first_image = *renders.front();
  Collector collector(truths, out);
  std::size_t next = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto source = [&]() -> std::optional<DescribeRequest> {
    if (next == count) return std::nullopt;
    DescribeRequest one;
    one.id = std::to_string(next);
    one.prompt = request.prompt;
    one.images.emplace_back().image = renders[next++];
    return one;
  };
  runtime.finish(task.submit(source, collector));
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  out.times = task.times();
  return out;
}

Image kept_patches(const Image& image, const std::vector<VisualBlock>& kept) {
  constexpr std::int64_t kScale = 4;
  expects(kept.size() == 1 && kept[0].grid.side_rows > 0, "an image of one view");
  const VisualBlock& block = kept[0];
  std::vector<bool> clear(to_size(block.grid.side_rows) * block.grid.side_columns);
  for (const VisualToken& token : block.tokens) {
    if (token.kind != TokenKind::kPatch) continue;
    nth(clear, token.row * block.grid.side_columns + token.column) = true;
  }
  Image out(image.width * kScale, image.height * kScale);
  for (std::int64_t y = 0; y < out.height; ++y) {
    for (std::int64_t x = 0; x < out.width; ++x) {
      const std::int64_t row = y * block.grid.side_rows / out.height;
      const std::int64_t column = x * block.grid.side_columns / out.width;
      const bool lit = nth(clear, row * block.grid.side_columns + column);
      for (std::int64_t c = 0; c < 3; ++c) {
        const std::uint8_t value = image.at(x / kScale, y / kScale)[c];
        out.at(x, y)[c] = lit ? value : narrow<std::uint8_t>(value / 5);
      }
    }
  }
  return out;
}

}  // namespace tessera
