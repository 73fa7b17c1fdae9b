#include "apps/runtime/caption_dump.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "apps/runtime/image_prompt.h"
#include "engine/core/index.h"
#include "engine/ops/host_access.h"
#include "vision/image/preprocess.h"

namespace tessera {

namespace {

// The rows of one sequence, pass by pass, and the logits of its last row.
class LogitsRun {
 public:
  LogitsRun(const TokenModel& model, std::int64_t rows)
      : model_(model),
        cache_(model.backend(), {.layers = model.sizes().layers,
                                 .kv_heads = model.sizes().kv_heads,
                                 .head_dim = model.sizes().head_dim,
                                 .capacity = rows,
                                 .sequences = 1}),
        arena_(make_arena(model.backend(), model.scratch_bytes(rows) + (std::size_t{1} << 16))) {}

  // `rows` [M, D] at these places. Writes logit_ids() numbers.
  void pass(ConstTensorView rows, std::span<const std::array<std::int64_t, 3>> places, float* out) {
    const std::int64_t count = rows.shape[0], width = rows.shape[1];
    Tensor hidden = model_.backend().allocate(DType::kF32, rows.shape);
    std::vector<std::int64_t> positions;
    for (const auto& place : places) positions.push_back(place[0]);
    const std::vector<std::int32_t> sequences(places.size(), 0);
    model_.forward({.rows = rows, .sequences = sequences, .positions = positions, .places = places},
                   cache_, arena_, hidden.view(), {});
    const Shape one{1, model_.logit_ids()};
    Tensor logits = model_.backend().allocate(DType::kF32, one);
    model_.logits({DType::kF32, Shape{1, width}, hidden.view().f32() + (count - 1) * width,
                   model_.backend().device()},
                  arena_, logits.view());
    model_.backend().download(logits.view(), {DType::kF32, one, out, Device{}});
    model_.backend().synchronize();
  }

  void embed(std::int32_t token, TensorView out) { model_.embed_tokens({&token, 1}, arena_, out); }

 private:
  const TokenModel& model_;
  KvCache cache_;
  Arena arena_;
};

ConstTensorView ints_view(const std::vector<std::int32_t>& values) {
  return {DType::kI32, Shape{std::ssize(values)}, values.data(), Device{}};
}

}  // namespace

void dump_caption(const CaptionModel& model, const std::string& question,
                  std::span<const DecodedImage> images, std::int64_t steps,
                  const std::filesystem::path& file) {
  expects(model.loaded() && steps > 0, "a loaded model, and something to write");
  std::vector<PreprocessedImage> prepared;
  std::vector<PreprocessPlan> plans;
  for (const DecodedImage& image : images) {
    prepared.push_back(preprocess(model.describe().policy_of(images.size()), image));
    plans.push_back(prepared.back().plan);
  }
  std::vector<VisualRows> visual;
  ImagePrompt prompt = make_image_prompt(model, question, prepared, {}, steps, {}, &visual);
  const TokenModel& text = model.text();
  const std::int64_t vocab = text.logit_ids();
  Tensor logits = Tensor::host(DType::kF32, {steps, vocab});
  std::vector<std::int32_t> tokens;
  LogitsRun run(text, prompt.rows.rows.shape()[0] + steps);
  run.pass(prompt.rows.rows.view(), prompt.rows.places, logits.f32());
  Tensor row = text.backend().allocate(DType::kF32, {1, text.width()});
  for (std::int64_t step = 0; step < steps; ++step) {
    float* own = logits.f32() + step * vocab;
    tokens.push_back(narrow<std::int32_t>(std::max_element(own, own + vocab) - own));
    if (step + 1 == steps) break;
    run.embed(tokens.back(), row.view());
    const std::int64_t at = prompt.rows.next_place + step;
    const std::array<std::int64_t, 3> place = {at, at, at};
    run.pass(row.view(), {&place, 1}, own + vocab);
  }
  const std::vector<std::int32_t> ids = model.prompt_ids(question, plans);
  std::map<std::string, ConstTensorView> out = {
      {"input_ids", ints_view(ids)}, {"tokens", ints_view(tokens)}, {"logits", logits.view()}};
  for (std::size_t i = 0; i < visual.size(); ++i) {
    const std::int64_t width = visual[i].width;
    out["features." + std::to_string(i)] = {DType::kF32,
                                            Shape{std::ssize(visual[i].rows) / width, width},
                                            visual[i].rows.data(), Device{}};
  }
  write_safetensors(file, out);
}

}  // namespace tessera
