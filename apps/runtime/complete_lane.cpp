#include "apps/runtime/complete_lane.h"

#include "apps/runtime/caption_memory.h"
#include "apps/runtime/caption_method.h"
#include "apps/runtime/generation_parts.h"
#include "apps/runtime/model_catalog.h"
#include "engine/core/index.h"
#include "engine/decoding/loop_settings.h"
#include "engine/families/describe.h"
#include "engine/sampling/processors.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

DraftLimits draft_limits(const StreamLimits& limits, const LoopNeeds& needs) {
  return text_draft_limits(limits, needs.draft_prompt_rows, needs.draft_guided);
}

}  // namespace

TextDraft::TextDraft(const std::string& name, const CompletionModel& target,
                     const std::string& target_name, std::int64_t max_tokens)
    : DraftModel(name) {
  const ModelReference reference = resolve_model(name);
  name_ = reference.shown_name;
  model_ = CompletionModel::open(reference.open_name);
  check_one_vocabulary({target.spec().model.vocab, target.tokenizer(), target_name},
                       {model_->spec().model.vocab, model_->tokenizer(), name_});
  check_draft_positions(name_, text_places(model_->spec().model), max_tokens);
}

void TextDraft::load(Backend& backend, std::optional<DType> storage) {
  storage_ = storage.value_or(kept_on(backend, model_->stored()));
  loaded_.emplace(model_->load(backend, storage_));
}

bool TextDraft::fits(std::int64_t rows, std::int64_t tokens) const {
  return rows + tokens <= text_places(model_->spec().model);
}

std::unique_ptr<ModelDrafter> TextDraft::make_drafter(const StreamLimits& limits,
                                                      const LoopNeeds& needs) {
  drafter_ = nullptr;
  auto made = DraftModel::make_drafter(draft_limits(limits, needs));
  drafter_ = made.get();
  return made;
}

std::size_t TextDraft::bytes(const Backend& backend, const StreamLimits& limits,
                             const LoopNeeds& needs) const {
  return drafter_bytes(backend, draft_limits(limits, needs));
}

void TextDraft::set_stream(std::size_t slot, DraftStreamItem item) {
  expects(drafter_ != nullptr, "a drafter was made");
  drafter_->set_stream(slot, std::move(item));
}

CompleteLane::CompleteLane(Runtime& runtime, const CompleteOptions& given) : options_(given) {
  const ModelReference reference = resolve_model(options_.model);
  name_ = reference.shown_name;
  notes_ = reference.notes;
  model_ = CompletionModel::open(reference.open_name, options_.chat_template);
  share_ = runtime.models().share({.folder = shared_folder(model_->spec()),
                                   .device = options_.device,
                                   .cuda = options_.cuda,
                                   .threads = options_.threads,
                                   .inputs = product_inputs(options_.method),
                                   .storage = options_.storage.value_or(model_->stored()),
                                   .fallback = !options_.storage},
                                  WrittenSpaces::kText);
  storage_ = share_->model().storage();
  expects(options_.batch_size >= 1 && options_.max_tokens >= 1, "texts at once, tokens of a text");
  const StreamModelConfig& config = model_->spec().model;
  aids_.texts = true;
  aids_.grammar = VocabularyGrammar::line(to_size(config.vocab), to_size(options_.max_tokens));
  if (!options_.draft.empty()) {
    draft_ = std::make_unique<TextDraft>(options_.draft, *model_, name_, options_.max_tokens);
    draft_->set_cache(options_.method.cache());
    aids_.draft_model = true;
  }
  options_.method = settle_text_method(options_.method, aids_, options_.max_tokens);
  check_cache(options_.method, backend());
  if (options_.method.adaptive) controller_.emplace(options_.method.window);
  const std::int64_t positions = text_places(config);
  if (options_.max_tokens >= positions) {
    refuse_request("E_TEXT_LENGTH", "--max-tokens",
                   "fewer than the " + std::to_string(positions) + " positions of the model, " +
                       text_bound(config, model_->text().limit),
                   std::to_string(options_.max_tokens));
  }
  check_processors(settle_dist({}, options_.sampling), config.vocab);
  dist_ = settle_dist({.guidance = 1, .temperature = 0}, model_->sampling());
  dist_ = settle_dist(dist_, options_.sampling);
  parts_ = std::make_unique<OwnedParts<float, KeyedRandom>>(options_.method, aids_);
}

void CompleteLane::load() {
  if (share_->has_weights()) return;
  if (!share_->loaded_by_others()) {
    check_caption_memory(model_->spec(), backend(), KeptWeights(storage_, &model_->weights()),
                         options_.method.cache(), limits({.guided = dist_.guided()}), name_);
  }
  share_->load([&] { return model_->load(backend(), storage_); });
  if (draft_) draft_->load(backend(), options_.storage);
}

StreamLimits CompleteLane::limits(const LoopNeeds& needs) const {
  return loop_limits(needs, options_.method, aids_.grammar, storage_);
}

void CompleteLane::make_drafter(const StreamLimits& limits, const LoopNeeds& needs) {
  if (!draft_) return;
  drop_drafter();  // before the new one: both together may not fit
  parts_->set_drafter(draft_->make_drafter(limits, needs));
}

void CompleteLane::drop_drafter() {
  if (draft_) parts_->set_drafter(nullptr);
}

std::size_t CompleteLane::loop_bytes(const StreamLimits& limits, const LoopNeeds& needs) const {
  return text_loop_bytes(model_->spec().model, backend(), limits) +
         (draft_ ? draft_->bytes(backend(), limits, needs) : 0);
}

ErrorInfo CompleteLane::no_room(const LoopNeeds& needs) const {
  return {.kind = ErrorKind::kMemory,
          .code = "E_TEXT_MEMORY",
          .where = "one text at a time, a prompt of " + std::to_string(needs.prompt_rows) + " rows",
          .hint = "try --dtype bf16, --kv q8 or a smaller --max-tokens"};
}

}  // namespace tessera
