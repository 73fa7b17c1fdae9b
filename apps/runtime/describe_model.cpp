#include "apps/runtime/describe_model.h"

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

DraftRoom draft_room(const LoopNeeds& needs) {
  return {needs.draft_prompt_rows, needs.draft_guided};
}

ModelReference reference_of(const DescribeOptions& options) {
  return resolve_model(options.model.empty() ? std::string(kDefaultCaptioner) : options.model);
}

}  // namespace

DescribeModel::DescribeModel(Runtime& runtime, const DescribeOptions& given) : options_(given) {
  const ModelReference reference = reference_of(options_);
  name_ = reference.shown_name;
  notes_ = reference.notes;
  model_ =
      CaptionModel::open(reference.open_name, options_.chat_template,
                         options_.projector.empty() ? reference.projector : options_.projector);
  share_ = runtime.models().share({.folder = shared_folder(model_->spec()),
                                   .device = options_.device,
                                   .cuda = options_.cuda,
                                   .threads = options_.threads,
                                   .inputs = product_inputs(options_.method),
                                   .storage = options_.storage.value_or(model_->stored())},
                                  WrittenSpaces::kText);
  storage_ = share_->model().storage();
  expects(options_.batch_size >= 1 && options_.max_tokens >= 1, "texts at once, tokens of a text");
  aids_.texts = true;
  aids_.grammar =
      VocabularyGrammar::line(to_size(model_->spec().model.vocab), to_size(options_.max_tokens));
  if (options_.draft.on()) {
    draft_ = CaptionDraft::open(options_.draft, *model_, name_, options_.max_tokens);
    draft_->set_cache(options_.method.cache());
    aids_.draft_model = true;
  }
  options_.method = settle_text_method(options_.method, aids_, options_.max_tokens);
  check_cache(options_.method, backend());
  if (options_.method.adaptive) controller_.emplace(options_.method.window);
  // What no image can make good, before weights are read and outputs begun.
  const std::int64_t positions = model_->spec().model.max_positions;
  if (options_.max_tokens >= positions) {
    refuse_request("E_TEXT_LENGTH", "--max-tokens",
                   "fewer than the " + std::to_string(positions) + " positions of the model, " +
                       text_bound(model_->spec().model, model_->describe().text_limit),
                   std::to_string(options_.max_tokens));
  }
  pruning(options_.prune);
  dist_ = dist_of({});
  parts_ = std::make_unique<OwnedParts<float, KeyedRandom>>(options_.method, aids_);
}

DistributionSettings DescribeModel::dist_of(const SettingValues& sampling) const {
  SettingValues given = sampling;
  given.fill(options_.sampling);
  check_processors(settle_dist({}, given), model_->spec().model.vocab);
  DistributionSettings out =
      settle_dist({.guidance = 1, .temperature = 0}, model_->describe().sampling);
  if (given.number(setting::kTemperature) > 0) out = settle_dist(out, model_->cuts());
  out = settle_dist(out, given);
  for (const std::int32_t id : model_->describe().unwritten) {
    out.suppress_tokens += (out.suppress_tokens.empty() ? "" : ",") + std::to_string(id);
  }
  return out;
}

std::int64_t DescribeModel::max_tokens_of(std::int64_t asked) const {
  return settle_max_tokens(asked, options_.max_tokens);
}

std::shared_ptr<const DescribePruning> DescribeModel::pruning(const PruneChoice& choice) const {
  auto out = std::make_shared<DescribePruning>();
  out->choice = choice;
  if (choice.on()) out->pruner = make_pruner(choice.method, choice.options);
  const PromptPruning prompt = out->of(options_.seed, 0);
  check_pruning(*model_, prompt);
  check_text_pruning(options_.method, *model_, prompt, choice.method);
  return out;
}

void DescribeModel::load() {
  if (loaded_) return;
  check_memory();
  share_->load([&] { return model_->load_text(backend(), storage_); });
  model_->load(backend(), storage_, &share_->tokens());
  if (draft_) draft_->load(backend(), options_.storage);
  loaded_ = true;
}

KeptWeights DescribeModel::kept() const { return KeptWeights(storage_, &model_->weights()); }

CaptionMemoryPlan DescribeModel::plan(const LoopNeeds& needs, const PreprocessPlan& image) const {
  const StreamLimits limits = this->limits(needs);
  CaptionMemoryPlan out = plan_captioning(model_->spec(), backend(), kept(), limits, image);
  if (draft_) {
    out.drafts = draft_->weight_bytes(backend(), options_.storage) +
                 draft_->bytes(backend(), limits, draft_room(needs));
  }
  return out;
}

void DescribeModel::check_memory() const {
  if (loaded_ || share_->loaded_by_others()) return;  // most of it is there
  StreamLimits limits =
      this->limits({.prompt_rows = options_.prompt_rows, .guided = dist_.guided()});
  check_caption_memory(model_->spec(), backend(), kept(), options_.method.cache(),
                       std::move(limits), name_);
}

StreamLimits DescribeModel::limits(const LoopNeeds& needs) const {
  return loop_limits(needs, options_.method, aids_.grammar, storage_);
}

void DescribeModel::make_drafter(const StreamLimits& limits, const LoopNeeds& needs) {
  if (!draft_) return;
  drop_drafter();  // before the new one: both together may not fit
  parts_->set_drafter(draft_->make_drafter(limits, draft_room(needs)));
}

void DescribeModel::drop_drafter() {
  if (draft_) parts_->set_drafter(nullptr);
}

std::size_t DescribeModel::loop_bytes(const StreamLimits& limits, const LoopNeeds& needs) const {
  return text_loop_bytes(model_->spec().model, backend(), limits) +
         (draft_ ? draft_->bytes(backend(), limits, draft_room(needs)) : 0);
}

ErrorInfo DescribeModel::no_room(const LoopNeeds& needs) const {
  return {.kind = ErrorKind::kMemory,
          .code = "E_TEXT_MEMORY",
          .where = "one text at a time, a prompt of " + std::to_string(needs.prompt_rows) + " rows",
          .hint = "try --dtype bf16, --kv q8, a smaller --max-tokens or --prune"};
}

}  // namespace tessera
