#include "apps/runtime/generator_model.h"

#include <filesystem>
#include <utility>

#include "apps/runtime/draft_table_file.h"
#include "apps/runtime/generation_parts.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/tokenizer_account.h"
#include "engine/core/index.h"
#include "engine/decoding/loop_settings.h"
#include "engine/sampling/processors.h"

namespace tessera {

GeneratorModel::GeneratorModel(Runtime& runtime, const GenerateOptions& options, OpenedModel model,
                               std::string shown_name, WrittenSpaces spaces)
    : options_(options),
      name_(std::move(shown_name)),
      opened_(std::move(model)),
      storage_(options_.storage.value_or(stored_dtype(opened_))),
      vq_storage_(stored_vq_dtype(opened_)),
      share_(runtime.models().share({.folder = shared_folder(opened_.spec),
                                     .device = options_.device,
                                     .cuda = options_.cuda,
                                     .threads = options_.threads,
                                     .inputs = product_inputs(options_.method),
                                     .storage = storage_},
                                    spaces)),
      prompts_(opened_, name_),
      text_(TextRows::open(opened_.spec, options_.text_encoder, share_->backend(),
                           options_.storage)) {
  expects(options_.batch_size >= 1, "a lane has slots");
  if (const TextTokenizer* tokenizer = prompts_.tokenizer()) {
    opened_.spec.account = with_notes(std::move(opened_.spec.account), *tokenizer);
  }
  if (text_ != nullptr) opened_.spec.account = text_->with_account(std::move(opened_.spec.account));
  aids_.grammar = config().grammar();
}

void GeneratorModel::settle() {
  const PartNeeds needs = needs_of(options_.method, aids_.grammar);
  if (needs.drafts != DraftUse::kNone) {
    aids_.drafts = load_draft_table(spec().tokenizer.parent_path(), config().codes);
  }
  open_draft(needs.draft_model);
  options_.method = settle_method(options_.method, aids_, config().image_tokens());
  check_method(options_.method, aids_, config().image_tokens());
  check_cache(options_.method, backend());
  if (draft_ && !needs.draft_model) {
    refuse_request("E_DECODE_CONFLICT", "--model-draft", "--drafter model or --decode draft",
                   "drafter " + options_.method.drafter);
  }
  if (options_.method.adaptive) controller_.emplace(options_.method.window);
}

// The one that is asked for, else, where the method drafts with a model, the one that the model's
// folder names, also where a record has its name.
void GeneratorModel::open_draft(bool wanted) {
  const std::string& own = spec().draft_model;
  if (wanted && !own.empty() && (options_.draft_model.empty() || options_.draft_model == own)) {
    const std::filesystem::path folder = spec().folder / ".." / own;
    options_.draft_model = std::filesystem::absolute(folder).lexically_normal().string();
  }
  if (options_.draft_model.empty()) return;
  draft_ = ImageDraft::open(options_.draft_model, config(), name_, backend());
  draft_->set_cache(options_.method.cache());
  aids_.draft_model = true;
}

std::vector<std::int32_t> GeneratorModel::encode_text(const std::string& text,
                                                      const char* where) const {
  if (text_ != nullptr) return text_->encode(text, where);
  const ContextSpec& wanted = *spec().context;
  refuse_request("E_TEXT_ENCODER", "--text-encoder",
                 "a folder with the encoder that " + name_ + " reads, " +
                     std::to_string(wanted.width) + " numbers wide (" + wanted.encoder_list() + ")",
                 "none, nor one of these names inside or next to the model's folder",
                 "download one of them and name its folder");
}

// Ids for the text encoder. The other branch's prompt has as many rows, which no text stands for.
EncodedPrompt GeneratorModel::encode_caption(const std::string& prompt,
                                             const std::optional<std::string>& negative,
                                             bool guided) const {
  if (negative) {
    refuse_request("E_NEGATIVE_PROMPT", "--negative-prompt",
                   "none, as this model has learned rows in its place", "a text");
  }
  EncodedPrompt out;
  out.prompt = encode_text(prompt, "--prompt");
  if (guided) out.unconditional = out.prompt;
  return out;
}

PreparedRequest GeneratorModel::prepare(const std::string& prompt,
                                        const std::optional<std::string>& negative,
                                        const DistributionSettings& dist,
                                        std::uint64_t seed) const {
  check_processors(dist, to_index(config().grammar().codes));
  PreparedRequest out;
  out.item.dist = dist;
  out.item.seed = seed;
  const bool captioned = spec().context && spec().context->caption;
  EncodedPrompt encoded = captioned ? encode_caption(prompt, negative, dist.guided())
                                    : prompts_.encode(prompt, negative, dist.guided());
  out.item.prompt.ids = std::move(encoded.prompt);
  out.item.unconditional.ids = std::move(encoded.unconditional);
  out.facts = first_facts({spec(), name_, storage_, backend(), options_.method}, prompt, negative,
                          seed, dist);
  if (captioned) out.facts.text_encoder = text_->name();
  if (draft_ == nullptr) return out;
  out.draft = draft_->request(prompt, negative, dist);
  out.facts.draft_model = draft_->name();
  return out;
}

void GeneratorModel::announce(std::size_t slot, const DraftRequest& request) const {
  if (drafter_ != nullptr) drafter_->set_stream(slot, draft_->stream(request));
}

StreamLimits GeneratorModel::limits(const LoopNeeds& needs) const {
  return loop_limits(needs, options_.method, aids_.grammar, storage_);
}

DraftLimits GeneratorModel::draft_limits(const StreamLimits& limits, const LoopNeeds& needs) const {
  return draft_->limits_for(needs, limits.items, limits.window, limits.shape == PassShape::kTree);
}

void GeneratorModel::make_drafter(const StreamLimits& limits, const LoopNeeds& needs) {
  if (draft_ == nullptr) return;
  std::unique_ptr<ModelDrafter> made = draft_->make_drafter(draft_limits(limits, needs));
  drafter_ = made.get();
  parts_->set_drafter(std::move(made), drafter_);
}

void GeneratorModel::drop_drafter() {
  if (draft_ == nullptr || parts_ == nullptr) return;
  drafter_ = nullptr;
  parts_->set_drafter(nullptr);
}

MemoryPlan GeneratorModel::plan_with(const LoopNeeds& needs, Adjust adjust) const {
  const StreamLimits limits = this->limits(needs);
  const MemoryRequest asked{.storage = storage_,
                            .kv = options_.method.cache(),
                            .images = limits.items,
                            .guidance = limits.guided,
                            .images_apart = limits.images_apart,
                            .prompt_tokens = limits.prompt_rows,
                            .window = limits.window,
                            .dists = limits.dists};
  const auto plan_of = [&](const MemoryRequest& request) {
    StreamLimits own = limits;
    own.items = request.images;
    own.window = request.window;
    own.kv = request.cache();
    MemoryPlan plan = plan_generation(spec(), vq_storage_, backend(), request, limits.shape);
    if (share_->loaded_by_others()) plan.weights = 0;
    if (draft_ != nullptr) plan.draft = draft_->bytes(draft_limits(own, needs));
    if (text_ != nullptr) plan.weights += text_->bytes();
    adjust(plan, own);
    return plan;
  };
  MemoryPlan plan = plan_of(asked);
  plan_device(plan, backend(), asked, plan_of);
  return plan;
}

void GeneratorModel::load_tokens(FunctionRef<Tensor()> codebook) {
  if (needs_of(options_.method).neighbours) {
    const Tensor codes = codebook();
    add_code_tables(aids_, options_.method, {codes.f32(), to_size(codes.shape().elements())});
  }
  parts_ = std::make_unique<OwnedParts<float, KeyedRandom>>(options_.method, aids_);
  share_->load([&] { return load_stream_model(opened_, backend(), storage_); });
}

void GeneratorModel::forget_files() {
  if (opened_.weights != nullptr) opened_.weights->verify_unchanged();
  opened_.weights.reset();
  opened_.source.reset();
}

}  // namespace tessera
