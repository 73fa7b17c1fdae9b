#include "apps/runtime/image_prompt.h"

#include <algorithm>
#include <limits>

#include "engine/core/index.h"
#include "engine/families/describe.h"

namespace tessera {

double ImagePrompt::select_seconds() const {
  double sum = 0;
  for (const auto& session : sessions) sum += session->seconds();
  return sum;
}

RowSource ImagePrompt::source() const {
  RowSource out = RowSource::kNone;
  for (const auto& session : sessions) {
    if (session->source() != RowSource::kNone) out = session->source();
  }
  return out;
}

std::vector<std::vector<float>> ImagePrompt::scores() const {
  std::vector<std::vector<float>> out;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    const auto& seen = sessions[i]->scores();
    if (seen.empty()) return {};
    float most = 0;
    for (const auto& [place, score] : seen) most = std::max(most, score);
    std::vector<float>& own = out.emplace_back();
    for (const VisualToken& token : whole[i].tokens) {
      const auto found = seen.find({token.tile, token.row, token.column});
      const bool known = token.kind == TokenKind::kPatch && found != seen.end() && most > 0;
      own.push_back(known ? found->second / most : std::numeric_limits<float>::quiet_NaN());
    }
  }
  return out;
}

std::int64_t count_tokens(std::span<const VisualBlock> blocks) {
  std::int64_t sum = 0;
  for (const VisualBlock& block : blocks) sum += block.count();
  return sum;
}

PrunedModel pruned_model_of(const CaptionModel& model, std::int64_t views) {
  const ModelConfig& language = model.spec().model.transformer;
  PrunedModel out = pruned_model_of(model.describe().tower, views);
  out.llm_layers = narrow<int>(language.layers);
  out.rope = {language.head_dim, language.rope.theta, language.rope.sections};
  return out;
}

void check_pruning(const CaptionModel& model, const PromptPruning& pruning) {
  if (pruning.pruner == nullptr) return;
  // An image like most: methods may work at other places of one that is cut into tiles.
  const std::int64_t views = plan_preprocess(model.describe().policy, 640, 480).views;
  const PruneSession session(*pruning.pruner, pruned_model_of(model, views), pruning.budget,
                             pruning.seed, 0);
  check_patch_method(model.describe().tower, session);
}

ImagePrompt make_image_prompt(const CaptionModel& model, const ChatQuestion& question,
                                  std::span<const PreprocessedImage> images,
                                  const PromptPruning& pruning, std::int64_t max_tokens,
                                  std::span<EncodedTiles> seen,
                                  std::vector<VisualRows>* whole_rows, EncodedImages* kept,
                                  std::span<const ImageKey> keys) {
  expects(keys.empty() || keys.size() == images.size(), "a key each, or none");
  expects(seen.empty() || seen.size() == images.size(), "all images were seen, or none");
  ImagePrompt out;
  std::vector<PreprocessPlan> plans;
  for (const PreprocessedImage& image : images) plans.push_back(image.plan);
  // First: it refuses what no prompt can hold.
  out.ids = model.prompt_ids(question, plans);
  std::vector<PromptImage> visual;
  for (const PreprocessedImage& image : images) {
    PromptImage& one = visual.emplace_back();
    if (pruning.pruner != nullptr) {
      const auto views = std::ssize(image.views);
      out.sessions.push_back(
          std::make_unique<PruneSession>(*pruning.pruner, pruned_model_of(model, views),
                                         pruning.budget, pruning.seed, pruning.item));
      one.session = out.sessions.back().get();
    }
    const bool keeps = kept != nullptr && !keys.empty() &&
                       (one.session == nullptr || !VisualEncoder::watched(*one.session));
    const VisualRows* const known = keeps ? kept->find(keys[visual.size() - 1], image.plan) : nullptr;
    if (known != nullptr) {
      one.visual = *known;
      ++out.known_images;
    } else {
      std::optional<EncodedTiles> encoded;
      if (!seen.empty()) encoded = std::move(seen[visual.size() - 1]);
      one.visual = model.images().encode(image, model.spec().three_axes(), one.session,
                                           std::move(encoded));
      if (keeps) kept->add(keys[visual.size() - 1], image.plan, one.visual);
    }
    out.visual_tokens += one.visual.total;
    out.whole.push_back(std::move(one.visual.whole));
    if (whole_rows != nullptr) whole_rows->push_back(one.visual);
  }
  out.rows = build_prompt(model.text(), out.ids, model.describe().image_id, std::move(visual),
                          model.describe().video_id);
  const std::int64_t most = model.spec().model.transformer.rope.positions;
  const std::int64_t length = std::max(out.rows.next_place, out.rows.rows.shape()[0]);
  if (length + max_tokens > most) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_PROMPT_LENGTH",
                 .where = "prompt",
                 .expected = "at most " + std::to_string(most - max_tokens) +
                             " rows of prompt next to " + std::to_string(max_tokens) +
                             " tokens of text, " +
                             text_bound(model.spec().model, model.describe().text_limit),
                 .found = std::to_string(length)});
  }
  return out;
}

StreamPrompt prompt_without_images(const CaptionModel& model, const ChatQuestion& question,
                                   std::int64_t max_tokens) {
  PromptRows rows = make_image_prompt(model, question, {}, {}, max_tokens).rows;
  return {.ids = {},
          .rows = std::make_shared<const Tensor>(std::move(rows.rows)),
          .positions = std::move(rows.places),
          .next_position = rows.next_place,
          .keys = std::move(rows.keys)};
}

}  // namespace tessera
