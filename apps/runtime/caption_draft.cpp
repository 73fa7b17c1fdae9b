#include "apps/runtime/caption_draft.h"

#include <algorithm>
#include <chrono>

#include "apps/runtime/caption_memory.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/shared_model.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

// Scores of the target are of its tokens, one for one.
void check_same_tokens(const VerifierWatch& watch, const PromptRows& rows) {
  const std::vector<std::int64_t> wanted = watch.image_sizes();
  std::vector<std::int64_t> found;
  for (const auto& image : rows.image_rows) {
    found.push_back(std::ssize(image));
  }
  if (wanted == found) return;
  const auto sum = [](const std::vector<std::int64_t>& sizes) {
    std::int64_t all = 0;
    for (const std::int64_t size : sizes) all += size;
    return std::to_string(all);
  };
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_PRUNE_PICTURE",
               .where = "--draft-prune verifier",
               .expected = sum(wanted) + " visual tokens, as the model has",
               .found = sum(found)});
}

}  // namespace

std::unique_ptr<CaptionDraft> CaptionDraft::open(const DraftChoice& choice, CaptionModel& target,
                                                 const std::string& target_name,
                                                 std::int64_t max_tokens) {
  expects(choice.on(), "a draft model");
  const ModelReference reference = resolve_model(choice.model);
  std::unique_ptr<CaptionDraft> out(new CaptionDraft(reference.shown_name));
  out->choice_ = choice;
  const std::filesystem::path path = reference.open_name;
  if (path != target.spec().folder && path != target.spec().weights) {
    out->opened_ = CaptionModel::open(reference.open_name, {}, reference.projector);
  }
  out->model_ = out->opened_ ? out->opened_.get() : &target;
  const CaptionModel& model = *out->model_;
  check_one_vocabulary({target.spec().model.vocab, target.tokenizer(), target_name},
                       {model.spec().model.vocab, model.tokenizer(), out->name_});
  check_draft_positions(out->name_, model.spec().model.max_positions, max_tokens);
  if (choice.prune.on() && !choice.blind) {
    out->pruner_ = make_pruner(choice.prune.method, choice.prune.options);
    check_pruning(model, {out->pruner_.get(), choice.prune.budget});
  }
  return out;
}

void CaptionDraft::load(Backend& backend, std::optional<DType> storage) {
  storage_ = storage.value_or(model_->stored());
  model_->load(backend, storage_);
}

std::unique_ptr<PreparedDraft> CaptionDraft::prepare(const DescribeQuestion& question,
                                                     std::span<const PreprocessedImage> images,
                                                     const Stream& text,
                                                     VerifierWatch* watch) const {
  const auto start = std::chrono::steady_clock::now();
  auto out = std::make_unique<PreparedDraft>();
  if (choice_.blind) images = {};
  const bool later = verified() && watch != nullptr && !images.empty();
  PromptPruning pruning{pruner_.get(), choice_.prune.budget, text.seed, text.item};
  if (later) pruning.pruner = nullptr;
  out->prompt = make_image_prompt(*model_, question.prompt, images, pruning, text.max_tokens, {},
                                  later ? &out->visual : nullptr);
  PromptRows& rows = out->prompt.rows;
  if (later) {
    check_same_tokens(*watch, rows);
    std::vector<PreprocessPlan> plans;
    for (const PreprocessedImage& image : images) plans.push_back(image.plan);
    out->ids = model_->prompt_ids(question.prompt, plans);
  }
  DraftStreamItem& stream = out->stream;
  stream.branches.push_back({.rows = std::make_shared<const Tensor>(std::move(rows.rows)),
                             .positions = std::move(rows.places),
                             .next_position = rows.next_place,
                             .cuts = rows.cuts.get()});
  if (text.dist.guided()) {
    expects(question.without_images.has_value(), "the second branch is asked something");
    stream.branches.push_back(
        prompt_without_images(*model_, *question.without_images, text.max_tokens));
  }
  stream.grammar = VocabularyGrammar::line(to_size(logit_ids()), to_size(text.max_tokens));
  stream.dist = text.dist;
  stream.stops = text.stops;
  stream.processed = text.processed;
  stream.in_parts = true;
  if (later) {
    stream.settle = [this, watch, prepared = out.get(), seed = text.seed,
                     item = text.item](DraftStreamItem& draft) {
      choose_by(*watch, *prepared, seed, item);
      PromptRows& chosen = prepared->prompt.rows;
      StreamPrompt& asked = draft.branches[0];
      asked.rows = std::make_shared<const Tensor>(std::move(chosen.rows));
      asked.positions = std::move(chosen.places);
      asked.next_position = chosen.next_place;
    };
  }
  out->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

bool CaptionDraft::verified() const {
  if (pruner_ == nullptr) return false;
  const Hook after{HookPoint::kAfterProjector};
  for (const SignalNeed& need : pruner_->needs(after, pruned_model_of(*model_, 1), {})) {
    if (need.kind == SignalKind::kVerifierScores) return true;
  }
  return false;
}

// The prompt again, with the tokens that the target's attention speaks for.
void CaptionDraft::choose_by(VerifierWatch& watch, PreparedDraft& prepared, std::uint64_t seed,
                             std::uint64_t item) const {
  std::vector<std::vector<float>> scores = watch.take_scores();
  std::vector<PromptImage> images;
  for (std::size_t i = 0; i < prepared.visual.size(); ++i) {
    PromptImage& one = images.emplace_back();
    prepared.prompt.sessions.push_back(std::make_unique<PruneSession>(
        *pruner_, pruned_model_of(*model_, 1), choice_.prune.budget, seed, item));
    one.session = prepared.prompt.sessions.back().get();
    one.visual = std::move(prepared.visual[i]);
    if (i < scores.size()) one.verifier = std::move(scores[i]);
  }
  prepared.visual.clear();
  prepared.prompt.rows = build_prompt(model_->text(), prepared.ids, model_->describe().image_id,
                                      std::move(images), model_->describe().video_id);
}

std::unique_ptr<ModelDrafter> CaptionDraft::make_drafter(const StreamLimits& limits,
                                                         const DraftRoom& room) {
  drafter_ = nullptr;
  auto made = DraftModel::make_drafter(text_draft_limits(limits, room.prompt_rows, room.guided));
  drafter_ = made.get();
  return made;
}

std::size_t CaptionDraft::bytes(const Backend& backend, const StreamLimits& limits,
                                const DraftRoom& room) const {
  return drafter_bytes(backend, text_draft_limits(limits, room.prompt_rows, room.guided));
}

std::size_t CaptionDraft::weight_bytes(const Backend& backend,
                                       std::optional<DType> storage) const {
  if (opened_ == nullptr) return 0;
  const DType own = storage.value_or(opened_->stored());
  const KeptWeights kept(own, &opened_->weights());
  return text_weight_bytes(opened_->spec(), backend, kept) +
         tower_weight_bytes(opened_->spec(), backend, kept);
}

void CaptionDraft::set_stream(std::size_t slot, PreparedDraft& prepared) {
  expects(drafter_ != nullptr, "a drafter was made");
  drafter_->set_stream(slot, std::move(prepared.stream));
}

}  // namespace tessera
