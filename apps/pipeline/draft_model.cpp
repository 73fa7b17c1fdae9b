#include "apps/pipeline/draft_model.h"

#include "apps/pipeline/memory.h"
#include "apps/pipeline/model_catalog.h"
#include "engine/decoding/drafters/draft_judge.h"

namespace tessera {

namespace {

[[noreturn]] void refuse(const char* code, const std::string& draft, std::string expected,
                         std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = code,
               .file = draft,
               .where = "--model-draft",
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = "draft and target need one picture tokenizer and one stream"});
}

}  // namespace

void check_paints(const FamilySpec& spec, const std::string& name) {
  if (!spec.draft) return;
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_MODEL_DRAFT",
               .file = name,
               .where = "draft_config",
               .expected = "a model that paints",
               .found = "a draft model, which has no picture tokenizer",
               .hint = "give it to --model-draft"});
}

std::unique_ptr<DraftModel> DraftModel::open(const std::string& name,
                                             const StreamModelConfig& target,
                                             const std::string& target_name, Backend& backend) {
  const ModelReference reference = resolve_model(name);
  OpenedModel opened = open_model(reference.open_name);
  const StreamModelConfig& own = opened.spec.model;
  if (own.codes != target.codes) {
    refuse("E_DRAFT_CODES", reference.shown_name,
           std::to_string(target.codes) + " picture codes, as " + target_name + " has",
           std::to_string(own.codes));
  }
  if (own.grid_rows != target.grid_rows || own.grid_cols != target.grid_cols) {
    const auto grid = [](const StreamModelConfig& config) {
      return std::to_string(config.grid_cols) + "x" + std::to_string(config.grid_rows);
    };
    refuse("E_DRAFT_GRID", reference.shown_name,
           "a grid of " + grid(target) + " codes, as " + target_name + " has", grid(own));
  }
  if (own.grammar() != target.grammar()) {
    const auto stream = [](const StreamModelConfig& config) {
      return std::to_string(config.image_tokens()) + " tokens, " +
             (config.row_end ? "row ends" : "no row ends") + ", " +
             (config.image_end ? "an image end" : "no image end");
    };
    refuse("E_DRAFT_STREAM", reference.shown_name,
           "pictures of " + stream(target) + ", as " + target_name + " has", stream(own));
  }
  return std::unique_ptr<DraftModel>(
      new DraftModel(reference.shown_name, std::move(opened), backend));
}

DraftModel::DraftModel(std::string name, OpenedModel opened, Backend& backend)
    : name_(std::move(name)),
      opened_(std::move(opened)),
      backend_(backend),
      prompts_(opened_, name_),
      storage_(stored_dtype(opened_)) {}

DraftItem DraftModel::item(const std::string& prompt, const std::optional<std::string>& negative,
                           const LawSettings& law) const {
  LawSettings own = law;
  if (opened_.spec.draft && opened_.spec.draft->guidance > 0) own.guidance = 1;
  EncodedPrompt encoded = prompts_.encode(prompt, negative, own.guided());
  return {std::move(encoded.prompt), std::move(encoded.unconditional), own};
}

std::unique_ptr<ModelDrafter> DraftModel::make_drafter(const DraftLimits& limits) {
  if (!model_) {
    model_.emplace(load_stream_model(opened_, backend_, storage_));
    opened_.weights.reset();
    opened_.vq_weights.reset();
    opened_.source.reset();
  }
  DraftLimits own = limits;
  own.kv = storage_;
  return std::make_unique<ModelDrafter>(*model_, own);
}

std::size_t DraftModel::bytes(const DraftLimits& limits) const {
  const MemoryPlan plan = plan_generation(opened_.spec, storage_, backend_,
                                          {.storage = storage_,
                                           .images = limits.items,
                                           .guidance = limits.guided,
                                           .prompt_tokens = limits.prompt_tokens,
                                           .window = 2 * limits.window},
                                          limits.trees ? PassShape::kTree : PassShape::kLine);
  const std::int64_t codes = opened_.spec.model.codes;
  const bool judged = backend_.row_judges() != nullptr && codes <= kMostJudgedCodes;
  const JudgeLimits judge = DraftJudge::limits(codes, limits.items, limits.window, limits.trees);
  return plan.weights + plan.kv + plan.activations + (judged ? judge.bytes(false) : 0);
}

}  // namespace tessera
