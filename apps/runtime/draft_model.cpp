#include "apps/runtime/draft_model.h"

#include <utility>

#include "apps/runtime/memory.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/shared_model.h"
#include "engine/core/storage.h"

namespace tessera {

namespace {

constexpr const char* kOneStream = "draft and target need one image tokenizer and one stream";

}  // namespace

void check_generates(const ModelSpec& spec, const std::string& name) {
  if (!spec.draft) return;
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_MODEL_DRAFT",
               .file = name,
               .where = "draft_config",
               .expected = "a model that generates",
               .found = "a draft model, which has no image tokenizer",
               .hint = "give it to --model-draft"});
}

void refuse_draft(const char* code, const std::string& draft, std::string expected,
                  std::string found, std::string hint) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = code,
               .file = draft,
               .where = "--model-draft",
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

void check_draft_positions(const std::string& draft, std::int64_t positions,
                           std::int64_t max_tokens) {
  if (max_tokens < positions) return;
  refuse_draft("E_TEXT_LENGTH", draft,
               "more than the " + std::to_string(max_tokens) + " positions of --max-tokens",
               std::to_string(positions), "choose a smaller --max-tokens or another draft");
}

DraftLimits text_draft_limits(const StreamLimits& limits, std::int64_t prompt_rows, bool guided) {
  return {.items = limits.items,
          .prompt_rows = prompt_rows,
          .tokens = limits.tokens(),
          .window = limits.window,
          .chunk = limits.budget,
          .guided = guided};
}

void check_one_vocabulary(const Vocabulary& target, const Vocabulary& draft) {
  const auto differs = [&](std::string expected, std::string found) {
    refuse_draft("E_DRAFT_VOCABULARY", draft.model, expected + ", as " + target.model + " has",
                 std::move(found), "draft and target need one vocabulary");
  };
  const auto same = [&](std::int64_t wanted, std::int64_t found, const char* what) {
    if (wanted != found) differs(std::to_string(wanted) + what, std::to_string(found));
  };
  same(target.ids, draft.ids, " ids of logits");
  const TextTokenizer &wanted = target.tokenizer, &found = draft.tokenizer;
  same(wanted.vocab_size(), found.vocab_size(), " tokens");
  for (std::int32_t id = 0; id < wanted.vocab_size(); ++id) {
    const std::string at = "token " + std::to_string(id) + " ";
    if (wanted.token(id) != found.token(id)) {
      differs(at + "\"" + std::string(wanted.token(id)) + "\"",
              "\"" + std::string(found.token(id)) + "\"");
    }
    const auto kind = [](bool special) { return special ? "special" : "ordinary"; };
    if (wanted.is_special(id) != found.is_special(id)) {
      differs(at + "\"" + std::string(wanted.token(id)) + "\" " + kind(wanted.is_special(id)),
              kind(found.is_special(id)));
    }
  }
}

DType DraftModel::cache() const { return cache_.value_or(beside(storage_)); }

std::unique_ptr<ModelDrafter> DraftModel::make_drafter(DraftLimits limits) {
  const TokenModel& loaded = model();
  limits.kv = cache();
  return std::make_unique<ModelDrafter>(loaded, limits);
}

std::size_t DraftModel::drafter_bytes(const Backend& backend, DraftLimits limits) const {
  limits.kv = cache();
  const std::size_t scratch = scratch_bytes(ModelDrafter::max_rows(limits), backend);
  return ModelDrafter::bytes(transformer(), logit_ids(), scratch, backend, limits);
}

std::unique_ptr<ImageDraft> ImageDraft::open(const std::string& name,
                                             const StreamModelConfig& target,
                                             const std::string& target_name, Backend& backend) {
  const ModelReference reference = resolve_model(name);
  OpenedModel opened = open_model(reference.open_name);
  const StreamModelConfig& own = opened.spec.model;
  if (opened.spec.blocks || opened.spec.context) {
    refuse_draft("E_DRAFT_STREAM", reference.shown_name,
                 "a model that writes token by token after its prompt alone",
                 opened.spec.blocks ? "one that writes blocks" : "one that reads rows of a text",
                 "choose --decode frames");
  }
  if (own.codes != target.codes) {
    refuse_draft("E_DRAFT_CODES", reference.shown_name,
                 std::to_string(target.codes) + " image codes, as " + target_name + " has",
                 std::to_string(own.codes), kOneStream);
  }
  if (own.grid_rows != target.grid_rows || own.grid_cols != target.grid_cols) {
    const auto grid = [](const StreamModelConfig& config) {
      return std::to_string(config.grid_cols) + "x" + std::to_string(config.grid_rows);
    };
    refuse_draft("E_DRAFT_GRID", reference.shown_name,
                 "a grid of " + grid(target) + " codes, as " + target_name + " has", grid(own),
                 kOneStream);
  }
  if (own.grammar() != target.grammar()) {
    const auto stream = [](const StreamModelConfig& config) {
      const std::string grids =
          config.grids == 1 ? "" : " in " + std::to_string(config.grids) + " grids";
      return std::to_string(config.image_tokens()) + " tokens" + grids + ", " +
             (config.row_end ? "row ends" : "no row ends") + ", " +
             (config.image_end ? "an image end" : "no image end");
    };
    refuse_draft("E_DRAFT_STREAM", reference.shown_name,
                 "streams of " + stream(target) + ", as " + target_name + " has", stream(own),
                 kOneStream);
  }
  return std::unique_ptr<ImageDraft>(
      new ImageDraft(reference.shown_name, std::move(opened), backend));
}

ImageDraft::ImageDraft(std::string name, OpenedModel opened, Backend& backend)
    : DraftModel(std::move(name)),
      opened_(std::move(opened)),
      backend_(backend),
      prompts_(opened_, name_) {
  storage_ = stored_dtype(opened_);
}

DistributionSettings ImageDraft::own_dist(DistributionSettings dist) const {
  if (opened_.spec.draft && opened_.spec.draft->guidance > 0) dist.guidance = 1;
  return dist;
}

DraftRequest ImageDraft::request(std::vector<std::int32_t> prompt,
                                 std::vector<std::int32_t> unconditional,
                                 const DistributionSettings& dist) const {
  const DistributionSettings own = own_dist(dist);
  if (!own.guided()) unconditional.clear();
  return {std::move(prompt), std::move(unconditional), own};
}

DraftRequest ImageDraft::request(const std::string& prompt,
                                 const std::optional<std::string>& negative,
                                 const DistributionSettings& dist) const {
  const DistributionSettings own = own_dist(dist);
  EncodedPrompt encoded = prompts_.encode(prompt, negative, own.guided());
  return {std::move(encoded.prompt), std::move(encoded.unconditional), own};
}

DraftStreamItem ImageDraft::stream(const DraftRequest& request) const {
  DraftStreamItem out{.grammar = opened_.spec.model.grammar(), .dist = request.dist};
  out.branches.push_back({.ids = request.prompt});
  if (request.dist.guided()) out.branches.push_back({.ids = request.unconditional});
  return out;
}

DraftLimits ImageDraft::limits_for(const LoopNeeds& needs, std::int64_t items, std::int64_t window,
                                   bool trees) const {
  return {.items = items,
          .prompt_rows = needs.draft_prompt_rows,
          .tokens = opened_.spec.model.image_tokens(),
          .window = window,
          .guided = needs.draft_guided,
          .trees = trees};
}

const TokenModel& ImageDraft::model() {
  if (!model_) {
    model_.emplace(load_stream_model(opened_, backend_, storage_));
    opened_.weights.reset();
    opened_.vq_weights.reset();
    opened_.source.reset();
  }
  return *model_;
}

std::size_t ImageDraft::bytes(const DraftLimits& limits) const {
  const MemoryPlan plan =
      plan_generation(opened_.spec, storage_, backend_, {.storage = storage_, .images = 1});
  return plan.weights + drafter_bytes(backend_, limits);
}

}  // namespace tessera
