#include "apps/runtime/visual_encoder.h"

#include <algorithm>

#include "apps/runtime/code_encoder.h"
#include "apps/runtime/patch_encoder.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

bool works_on_patches(const Hook& hook) {
  return hook.point == HookPoint::kInEncoder || hook.point == HookPoint::kInEncoderBlock ||
         hook.point == HookPoint::kAfterEncoder;
}

}  // namespace

// Methods that look at patches need patches that become tokens as they are.
void refuse_patch_methods(const PruneSession& session, const std::string& family, bool always) {
  for (const Hook& hook : session.hooks()) {
    if (!works_on_patches(hook)) continue;
    throw Error(
        {.kind = always ? ErrorKind::kUsage : ErrorKind::kGeneral,
         .code = always ? "E_PRUNE_FAMILY" : "E_PRUNE_PICTURE",
         .where = "pruning in or after the image encoder",
         .expected = "a model whose visual tokens are the encoder's patches",
         .found = family + ", whose visual tokens are made otherwise",
         .hint = "choose a method that works after the projector or in the language model"});
  }
}

bool joins_patches(const VisionTower& tower) {
  return tower.codes || tower.projector.cell > 1 || tower.vit.class_token_feature ||
         !tower.vit.taps.empty();
}

PrunedModel pruned_model_of(const VisionTower& tower, std::int64_t views) {
  const VitSpec& vit = tower.vit;
  PrunedModel out;
  out.family = tower.family;
  out.cls = vit.class_token;
  out.substitute = vit.class_token ? RowSource::kNone : RowSource::kMeanOfRows;
  out.encoder_layers = narrow<int>(vit.layers);
  out.feature_layer = narrow<int>(vit.run_layers) - 1;
  out.tiles = views;
  out.merge_cell = tower.projector.cell * tower.projector.cell;
  return out;
}

void check_patch_method(const VisionTower& tower, const PruneSession& session) {
  if (joins_patches(tower)) refuse_patch_methods(session, tower.family, true);
}

bool VisualEncoder::watched(const PruneSession& session) {
  return std::any_of(session.hooks().begin(), session.hooks().end(), works_on_patches);
}

void place_newlines(VisualRows& out, std::span<const float> newline) {
  for (TokenIndex i = 0; i < out.block.count(); ++i) {
    if (out.block[i].kind != TokenKind::kNewline) continue;
    expects(std::ssize(newline) == out.width, "the model has a newline");
    std::copy(newline.begin(), newline.end(), out.rows.begin() + i * out.width);
  }
}

std::unique_ptr<VisualEncoder> load_visual_encoder(Backend& backend, const VisionTower& tower,
                                                   const std::string& config_file,
                                                   const Checkpoint& checkpoint,
                                                   std::vector<float> newline, DType storage,
                                                   const TokenModel& text) {
  if (tower.codes) return std::make_unique<CodeEncoder>(backend, tower, checkpoint, storage, text);
  return std::make_unique<PatchEncoder>(backend, tower, config_file, checkpoint, std::move(newline),
                                        storage);
}

}  // namespace tessera
