#include "apps/runtime/caption_dump.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "apps/runtime/image_prompt.h"
#include "apps/runtime/token_walk.h"
#include "engine/core/index.h"
#include "engine/ops/host_access.h"
#include "vision/image/preprocess.h"

namespace tessera {

namespace {

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
  TokenWalk walk(text, prompt.rows.rows.shape()[0] + steps);
  // As the reference's logits are where it never writes an id.
  const auto mask = [&](float* own) {
    for (const std::int32_t id : model.describe().unwritten) {
      own[id] = std::numeric_limits<float>::lowest();
    }
  };
  walk.last_logits(walk.pass(prompt.rows.rows.view(), prompt.rows.places), logits.f32());
  for (std::int64_t step = 0; step < steps; ++step) {
    float* own = logits.f32() + step * vocab;
    mask(own);
    tokens.push_back(narrow<std::int32_t>(std::max_element(own, own + vocab) - own));
    if (step + 1 == steps) break;
    const std::int64_t at = prompt.rows.next_place + step;
    const TokenWalk::Place place = {at, at, at};
    walk.last_logits(walk.pass(walk.tokens({&tokens.back(), 1}), {&place, 1}), own + vocab);
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
