#include "apps/runtime/interleave_model.h"

#include <algorithm>
#include <utility>

#include "apps/runtime/caption_method.h"
#include "apps/runtime/generation_parts.h"
#include "apps/runtime/model_catalog.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/sampling/processors.h"

namespace tessera {

namespace {

// Of each local id of an image's stream.
InterleaveModel::Ids joint_ids(const std::vector<RowRange>& rows) {
  InterleaveModel::Ids out;
  for (const RowRange& range : rows) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      out.push_back(narrow<std::int32_t>(range.first + i));
    }
  }
  return out;
}

// Passes of one loop have one shape: texts grow trees from what was written where images do. Trees
// of a draft model need its distributions: texts beside them grow those of "tree".
DecodeMethod text_method(const DecodeMethod& images, const DecodeAids& aids, std::int64_t tokens) {
  DecodeMethod out = decode_method("plain");
  if (images.shape() == PassShape::kLine) {
    out.rule = "gumbel";  // the same tokens; beside longer windows it needs no distributions
    return settle_method(out, aids, tokens);
  }
  out = images;
  if (needs_of(images).draft_model) {
    const bool same = guarantee_of(images) == Guarantee::kSameTokens;
    out = decode_method(same ? "gumbel-tree" : "tree");
    out.window = images.window;
  }
  out.drafter = "lookup";
  return settle_text_method(out, aids, tokens);
}

}  // namespace

InterleaveModel::Opened InterleaveModel::open_mixed(const GenerateOptions& options) {
  const ModelReference reference = resolve_model(options.model);
  Opened out{open_model(reference.open_name,
                        {.width = options.width, .height = options.height, .use = ModelUse::kAll}),
             reference.shown_name, reference.open_name};
  if (out.model.spec.interleave) return out;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_INTERLEAVE",
               .file = reference.shown_name,
               .where = "--interleave",
               .expected = "a model that writes texts and images in turn (Anole, Lumina-mGPT)",
               .found = out.model.spec.title});
}

InterleaveModel::InterleaveModel(Runtime& runtime, const InterleaveOptions& given)
    : InterleaveModel(runtime, given, open_mixed(given.generate)) {}

InterleaveModel::InterleaveModel(Runtime& runtime, const InterleaveOptions& given, Opened opened)
    : ImageModel(runtime, given.generate, std::move(opened.model), std::move(opened.name),
                 WrittenSpaces::kBoth),
      seen_(given.sees ? CaptionModel::open(opened.open_name) : nullptr),
      max_tokens_(given.max_tokens),
      max_images_(given.max_images),
      ends_({prompts_.id_of(spec().interleave->turn_end),
             prompts_.id_of(spec().interleave->text_end)}),
      opening_(prompts_.image_opening()),
      joint_(joint_ids(spec().names.code_rows)) {
  expects(max_tokens_ > 0 && max_images_ >= 0, "an answer has tokens");
  const std::int64_t positions = config().transformer.rope.positions;
  const std::int64_t tokens = std::max(max_tokens_, config().image_tokens());
  prompt_rows_ = positions - tokens;
  if (prompt_rows_ < 2) {
    refuse_request("E_TEXT_LENGTH", "--max-tokens",
                   "fewer than the " + std::to_string(positions) + " positions of the model",
                   std::to_string(max_tokens_));
  }
  longest_ = text_grammar(tokens);
  of_images_ = joint_;
  of_images_.insert(of_images_.end(), opening_.begin(), opening_.end());
  of_images_.push_back(prompts_.id_of(spec().prompt.forms.front().first));
  std::ranges::sort(of_images_);
  text_aids_.texts = true;
  text_aids_.grammar = longest_;
  text_method_ = text_method(options_.method, text_aids_, tokens);
  check_draft();
}

// Prompts of turns are ids: they have to mean the same to both.
void InterleaveModel::check_draft() const {
  if (draft_ == nullptr) return;
  const TextTokenizer* const own = draft_->tokenizer();
  if (own == nullptr) {
    refuse_draft("E_DRAFT_VOCABULARY", draft_->name(), "the vocabulary of " + name_, "no texts",
                 "choose --decode gumbel");
  }
  check_one_vocabulary({tokenizer().vocab_size(), tokenizer(), name_},
                       {own->vocab_size(), *own, draft_->name()});
  if (draft_->positions() >= config().transformer.rope.positions) return;
  refuse_draft("E_TEXT_LENGTH", draft_->name(),
               "as many positions as " + name_ + " has, " +
                   std::to_string(config().transformer.rope.positions),
               std::to_string(draft_->positions()), "choose --decode gumbel");
}

VocabularyGrammar InterleaveModel::text_grammar(std::int64_t tokens) const {
  return VocabularyGrammar::line(to_size(config().vocab), to_size(tokens));
}

std::int64_t InterleaveModel::answer_rows(std::int64_t rows) const {
  const std::int64_t image = config().image_tokens() + std::ssize(opening_);
  return std::min(rows + max_tokens_ + max_images_ * image, prompt_rows_);
}

InterleaveModel::Ids InterleaveModel::question(const InterleaveRequest& request) const {
  Ids ids = prompts_.encode_question(request.prompt, spec().interleave->turn_end);
  if (!request.images.empty()) {
    expects(seen_ != nullptr, "a task whose questions have images");
    std::vector<PreprocessPlan> plans;
    for (const auto& image : request.images) {
      plans.push_back(plan_preprocess(seen_->describe().policy, image->width, image->height));
    }
    ids = seen_->prompt_ids({request.prompt}, plans);
  }
  if (std::ssize(ids) <= prompt_rows_) return ids;
  refuse_request("E_PROMPT_LENGTH", "--prompt",
                 "at most " + std::to_string(prompt_rows_) + " tokens",
                 std::to_string(ids.size()) + " tokens", "shorten the text");
}

void InterleaveModel::see(const InterleaveRequest& request, Ids& question) const {
  if (request.images.empty()) return;
  auto place = question.begin();
  for (const auto& image : request.images) {
    const PreprocessedImage prepared = preprocess(seen_->describe().policy, *image);
    for (const std::int32_t id : seen_->images().ids(prepared)) {
      place = std::find(place, question.end(), seen_->describe().image_id);
      expects(place != question.end(), "a place for each token of an image");
      *place++ = id;
    }
  }
}

DistributionSettings InterleaveModel::image_dist(const SettingValues& chosen) const {
  DistributionSettings out = settle_sampling(chosen, spec().sampling);
  check_processors(out, config().codes);
  return out;
}

ImageFacts InterleaveModel::facts_of(const InterleaveRequest& request,
                                     const DistributionSettings& dist) const {
  ImageFacts facts = first_facts({spec(), name_, storage_, backend(), options_.method},
                                 request.prompt, std::nullopt, request.seed, dist);
  if (draft_ != nullptr) facts.draft_model = draft_->name();
  facts.prompt_images = std::ssize(request.images);
  return facts;
}

InterleaveModel::Ids InterleaveModel::images_of(const Ids& prompt,
                                                const Ids& unconditional) const {
  if (!spec().interleave->images_guidance) return {};
  Ids out;
  std::ranges::copy_if(prompt, std::back_inserter(out), [&](std::int32_t id) {
    return std::ranges::binary_search(of_images_, id);
  });
  return out == unconditional ? Ids{} : out;
}

double InterleaveModel::images_share(const DistributionSettings& dist) const {
  return (dist.guidance - *spec().interleave->images_guidance) / (dist.guidance - 1);
}

LoopNeeds InterleaveModel::needs_of_answer(const Ids& question,
                                           const InterleaveRequest& request) const {
  const DistributionSettings dist = image_dist(request.sampling);
  LoopNeeds out;
  out.prompt_rows = answer_rows(std::ssize(question));
  out.guided = dist.guided();
  out.images_apart = out.guided && spec().interleave->images_guidance &&
                     (max_images_ > 1 || !request.images.empty());
  const DraftRequest draft = draft_of(question, {}, dist);
  if (draft.prompt.empty()) return out;
  out.draft_prompt_rows = out.prompt_rows;
  out.draft_guided = draft.dist.guided();
  return out;
}

DraftRequest InterleaveModel::draft_of(const Ids& prompt, const Ids& unconditional,
                                       const DistributionSettings& dist) const {
  return draft_ == nullptr ? DraftRequest{} : draft_->request(prompt, unconditional, dist);
}

void InterleaveModel::load() {
  ImageModel::load();
  if (seen_ != nullptr && !seen_->loaded()) {
    seen_->load(backend(), storage_, &share_->weights().space(TokenSpace::kText));
  }
  if (text_parts_ != nullptr) return;
  text_parts_ = std::make_unique<OwnedParts<float, KeyedRandom>>(text_method_, text_aids_);
}

void InterleaveModel::add_spaces(StreamLoop& loop) {
  const std::size_t space =
      loop.add_space(share_->weights().space(TokenSpace::kImage), grammar(), parts_->parts());
  expects(space == kImage, "images are the loop's second space");
}

StreamLimits InterleaveModel::limits(const LoopNeeds& needs) const {
  StreamLimits out = loop_limits(needs, options_.method, longest_, storage_);
  out.dists = out.dists || keeps_dists(text_method_);
  return out;
}

ErrorInfo InterleaveModel::no_room(const LoopNeeds& needs) const {
  ErrorInfo out = ImageModel::no_room(needs);
  out.where = "one answer of " + std::to_string(needs.prompt_rows) + " tokens";
  out.hint = "try a smaller --max-tokens or --max-images, --kv q8 or --dtype bf16";
  return out;
}

MemoryPlan InterleaveModel::plan_answers(LoopNeeds needs) const {
  // Beside prompts there is room for an image in a plan, for the longest text in the loop.
  needs.prompt_rows += to_index(longest_.length()) - config().image_tokens();
  needs.slots = std::clamp<std::int64_t>(needs.slots, 1, options_.batch_size);
  MemoryPlan out = plan(needs, 0);
  for (const TensorSpec& tensor : seen_ == nullptr ? std::vector<TensorSpec>()
                                                   : tower_tensors(seen_->describe().tower)) {
    out.vq_weights += to_size(tensor.shape.elements()) * sizeof(float);
  }
  if (share_->loaded_by_others()) return out;
  out.weights += backend().packed_linear_bytes(config().vocab, config().transformer.width,
                                               head_storage(storage_));
  return out;
}

}  // namespace tessera
