#include "apps/runtime/complete_lane.h"

#include <algorithm>

#include "apps/runtime/caption_memory.h"
#include "apps/runtime/caption_method.h"
#include "apps/runtime/generation_parts.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/written_text.h"
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
  storage_ = storage.value_or(model_->stored());
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

std::size_t TextDraft::weight_bytes(const Backend& backend, std::optional<DType> storage) const {
  const DType own = storage.value_or(model_->stored());
  return text_weight_bytes(model_->spec(), backend, KeptWeights(own, &model_->weights()));
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
                                   .storage = options_.storage.value_or(model_->stored())},
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
  preset_ = settle_dist({.guidance = 1, .temperature = 0}, model_->sampling());
  parts_ = std::make_unique<OwnedParts<float, KeyedRandom>>(options_.method, aids_);
}

DistributionSettings CompleteLane::dist_of(const CompleteRequest& request) const {
  const SettingValues& given = request.sampling;
  check_processors(settle_dist({}, given), model_->spec().model.vocab);
  const DistributionSettings out = settle_dist(preset_, given);
  const std::string guidance = "--" + std::string(setting::kGuidance.name);
  if (request.negative_prompt && !out.guided()) {
    refuse_request("E_FLAG_CONFLICT", "--negative-prompt",
                   "guidance: a " + guidance + " other than 1", "none");
  }
  if (!request.negative_prompt && given.has(setting::kGuidance) && out.guided()) {
    refuse_request("E_FLAG_CONFLICT", guidance, "--negative-prompt, which guidance leads away from",
                   "none");
  }
  max_tokens_of(request);
  check_stop_texts(request.stop);
  check_logprobs(request.logprobs);
  return out;
}

std::int64_t CompleteLane::max_tokens_of(const CompleteRequest& request) const {
  return settle_max_tokens(request.max_tokens, options_.max_tokens);
}

std::vector<std::int32_t> CompleteLane::ids_of(const ChatQuestion& text, bool chat,
                                               std::int64_t max_tokens) const {
  std::vector<std::int32_t> ids = model_->prompt_ids(text, chat);
  const StreamModelConfig& config = model_->spec().model;
  const std::int64_t places = text_places(config);
  if (std::ssize(ids) + max_tokens > places) {
    refuse_request("E_TEXT_LENGTH", "prompt",
                   "at most " + std::to_string(places - max_tokens) +
                       " tokens next to --max-tokens " + std::to_string(max_tokens) + ", " +
                       text_bound(config, model_->text().limit),
                   std::to_string(ids.size()));
  }
  return ids;
}

Stream CompleteLane::stream_of(const CompleteRequest& request) const {
  Stream out;
  out.kind = StreamKind::kText;
  out.dist = dist_of(request);
  out.max_tokens = max_tokens_of(request);
  out.prompt.ids = ids_of({request.prompt, request.turns}, request.chat, out.max_tokens);
  if (out.dist.guided()) {
    out.unconditional.ids = request.negative_prompt
                                ? ids_of(*request.negative_prompt, request.chat, out.max_tokens)
                                : out.prompt.ids;
  }
  out.before = out.processed = out.prompt.ids;
  out.stops = model_->stops();
  out.seed = request.seed;
  out.logprobs = request.logprobs;
  return out;
}

bool CompleteLane::drafts(const Stream& stream) const {
  const std::int64_t rows = std::max(stream.prompt.length(), stream.unconditional.length());
  return draft_ != nullptr && draft_->fits(rows, stream.max_tokens);
}

LoopNeeds CompleteLane::needs_of(const Stream& stream) const {
  LoopNeeds out;
  out.guided = stream.branches() == 2;
  out.prompt_rows = std::max(stream.prompt.length(), stream.unconditional.length());
  if (!drafts(stream)) return out;
  out.draft_prompt_rows = out.prompt_rows;
  out.draft_guided = out.guided;
  return out;
}

CaptionMemoryPlan CompleteLane::plan(const LoopNeeds& needs) const {
  const StreamLimits limits = this->limits(needs);
  CaptionMemoryPlan out = plan_captioning(model_->spec(), backend(),
                                          KeptWeights(storage_, &model_->weights()), limits, {});
  if (draft_) {
    out.drafts =
        draft_->weight_bytes(backend(), options_.storage) + draft_->bytes(backend(), limits, needs);
  }
  return out;
}

void CompleteLane::check_memory(bool guided) const {
  if (share_->has_weights() || share_->loaded_by_others()) return;  // most of it is there
  check_caption_memory(model_->spec(), backend(), KeptWeights(storage_, &model_->weights()),
                       options_.method.cache(), limits({.guided = guided}), name_);
}

void CompleteLane::load(bool guided) {
  if (share_->has_weights()) return;
  check_memory(guided);
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
