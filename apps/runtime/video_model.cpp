// Opens, checks and loads a model of videos.
#include "apps/runtime/video_model.h"

#include <algorithm>
#include <utility>

#include "apps/runtime/draft_model.h"
#include "apps/runtime/generation_parts.h"
#include "apps/runtime/draft_table_file.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/visual_model.h"
#include "engine/decoding/stream_loop.h"

namespace tessera {

namespace {

void check_videos(const GenerateOptions& options, const ModelSpec& spec, const std::string& name) {
  check_generates(spec, name);
  if (spec.blocks && !spec.movq) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_NBP_TOKENIZER",
                 .file = name,
                 .where = "video tokenizer",
                 .expected = "a model with a video tokenizer that is read (vq_config)",
                 .found = "NBP's own, which is not",
                 .hint = "`tessera inspect` looks at the model"});
  }
  if (!spec.video) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_MODEL_PICTURES",
                 .file = name,
                 .expected = "a model that generates videos",
                 .found = "one that generates images",
                 .hint = "`tessera generate` generates with it"});
  }
  check_geometry(options, spec, name);
}

// Blocks are neither drafted nor guided.
void check_blocks(const ModelSpec& spec, const DecodeMethod& method) {
  if (!spec.blocks || (!method.speculative() && method.shape() == PassShape::kLine)) return;
  refuse_request("E_DECODE_CONFLICT", "--decode", "plain, as this model writes whole blocks",
                 "a method that drafts");
}

}  // namespace

VideoModel::VideoModel(const GenerateOptions& options, OpenedModel model, std::string shown_name)
    : options_(options),
      name_(std::move(shown_name)),
      opened_(std::move(model)),
      backend_(make_backend(options_.device, {.threads = options_.threads}, options_.cuda)),
      storage_(options_.storage.value_or(stored_dtype(opened_))),
      vq_storage_(stored_vq_dtype(opened_)),
      prompts_(opened_, name_) {
  expects(options_.batch_size >= 1, "a slot for a video");
  check_videos(options_, spec(), name_);
  aids_.grammar = config().grammar();
  const PartNeeds needs = tessera::needs_of(options_.method, aids_.grammar);
  if (needs.drafts != DraftUse::kNone) {
    aids_.drafts = load_draft_table(spec().tokenizer.parent_path(), config().codes);
  }
  check_blocks(spec(), options_.method);
  open_draft();
  options_.method = settle_method(options_.method, aids_, config().image_tokens());
  check_method(options_.method, aids_, config().image_tokens());
  if (draft_ && !needs.draft_model) {
    refuse_request("E_DECODE_CONFLICT", "--model-draft", "--drafter model or --decode draft",
                   "drafter " + options_.method.drafter);
  }
  if (options_.method.adaptive) controller_.emplace(options_.method.window);
}

// The one that is asked for, else, where the method drafts with a model, the one that the model's
// folder names, also where a record has its name.
void VideoModel::open_draft() {
  const std::string& own = spec().draft_model;
  if (!own.empty() && tessera::needs_of(options_.method).draft_model &&
      (options_.draft_model.empty() || options_.draft_model == own)) {
    const std::filesystem::path next_to = spec().folder / ".." / own;
    options_.draft_model = std::filesystem::absolute(next_to).lexically_normal().string();
  }
  if (options_.draft_model.empty()) return;
  draft_ = ImageDraft::open(options_.draft_model, config(), name_, *backend_);
  aids_.draft_model = true;
}

LoopNeeds VideoModel::needs_of(const PreparedVideo& video) const {
  const Stream& item = video.item;
  LoopNeeds out{
      .prompt_rows = std::max<std::int64_t>({1, item.prompt.length(), item.unconditional.length()}),
      .guided = item.dist.guided()};
  if (draft_ == nullptr) return out;
  const std::size_t longest = std::max(video.draft.prompt.size(), video.draft.unconditional.size());
  out.draft_prompt_rows = std::max<std::int64_t>(static_cast<std::int64_t>(longest), 1);
  out.draft_guided = video.draft.dist.guided();
  return out;
}

void VideoModel::announce(std::size_t slot, const PreparedVideo& video) const {
  if (drafter_ != nullptr) drafter_->set_stream(slot, draft_->stream(video.draft));
}

DraftLimits VideoModel::draft_limits(const StreamLimits& limits, const LoopNeeds& needs) const {
  DraftLimits out =
      draft_->limits_for({}, limits.items, limits.window, limits.shape == PassShape::kTree);
  out.prompt_rows = needs.draft_prompt_rows;
  out.guided = needs.draft_guided;
  return out;
}

void VideoModel::make_drafter(const StreamLimits& limits, const LoopNeeds& needs) {
  if (draft_ == nullptr) return;
  std::unique_ptr<ModelDrafter> made = draft_->make_drafter(draft_limits(limits, needs));
  drafter_ = made.get();
  parts_->set_drafter(std::move(made), drafter_);
}

void VideoModel::drop_drafter() {
  if (draft_ == nullptr || parts_ == nullptr) return;
  drafter_ = nullptr;
  parts_->set_drafter(nullptr);
}

const PassModel& VideoModel::tokens() const {
  if (blocks_) return *blocks_;
  return *model_;
}

LoopParts VideoModel::parts() const {
  if (!blocks_) return parts_->parts();
  LoopParts out;
  out.blocks = blocks_->reading();
  return out;
}

StreamLimits VideoModel::limits(const LoopNeeds& needs) const {
  if (writes_blocks()) {
    return block_limits(*spec().blocks, grammar(),
                        {.items = needs.slots, .prompt_rows = needs.prompt_rows, .kv = storage_});
  }
  // No window begins with more grids than leave one to write.
  const std::size_t given = grammar().tokens_of(static_cast<std::size_t>(config().grids - 1));
  StreamLimits out{.items = needs.slots,
                   .prompt_rows = needs.prompt_rows,
                   .grammar = grammar(),
                   .window = options_.method.window,
                   .guided = needs.guided,
                   .kv = storage_,
                   .dists = keeps_dists(options_.method),
                   .shape = options_.method.shape(),
                   .given_tokens = static_cast<std::int64_t>(given)};
  out.budget = out.branches() * backend_->rows_at_once();
  return out;
}

MemoryPlan VideoModel::plan(const LoopNeeds& needs, bool encodes) const {
  const StreamLimits limits = this->limits(needs);
  const MemoryRequest asked{.storage = storage_,
                            .images = limits.items,
                            .guidance = limits.guided,
                            .prompt_tokens = limits.prompt_rows,
                            .window = limits.window,
                            .dists = limits.dists};
  const auto plan_of = [&](const MemoryRequest& request) {
    MemoryPlan plan = plan_generation(spec(), vq_storage_, backend(), request, limits.shape);
    if (!writes_blocks()) {
      StreamLimits own = limits;
      own.items = request.images;
      own.window = request.window;
      own.kv = request.storage;
      plan.activations = image_activation_bytes(config(), backend(), own) +
                         aids_bytes(options_.method, aids_, request.images);
    }
    if (draft_ != nullptr) {
      StreamLimits own = limits;
      own.items = request.images;
      own.window = request.window;
      plan.draft = draft_->bytes(draft_limits(own, needs));
    }
    // A video's decoder keeps what of its past the next grid needs.
    plan.vq_scratch *= static_cast<std::size_t>(request.images);
    if (encodes) {
      plan.vq_weights = visual_weight_bytes(spec(), backend(), vq_storage_, VqHalves::kBoth);
      plan.vq_scratch *= 2;
    }
    return plan;
  };
  MemoryPlan plan = plan_of(asked);
  plan_device(plan, backend(), asked, plan_of);
  return plan;
}

std::size_t VideoModel::loop_bytes(const StreamLimits& limits, const LoopNeeds& needs) const {
  LoopNeeds held = needs;
  held.slots = limits.items;
  const MemoryPlan made = plan(held, /*encodes=*/false);
  return made.kv + made.activations;
}

ErrorInfo VideoModel::no_room(const LoopNeeds& needs) const {
  return {.kind = ErrorKind::kMemory,
          .code = "E_MEMORY",
          .file = name_,
          .where = "a video with a prompt of " + std::to_string(needs.prompt_rows) + " tokens",
          .hint = "try --dtype bf16"};
}

void VideoModel::load_tokenizer(bool encoder) {
  if (tokenizer_ != nullptr && (both_halves_ || !encoder)) return;
  tokenizer_.reset();  // before the new one: both together may not fit
  tokenizer_ = make_video_tokenizer(*backend_, opened_, vq_storage_,
                                   encoder ? TokenizerHalves::kBoth : TokenizerHalves::kDecoder);
  both_halves_ = encoder;
  opened_.vq_weights->verify_unchanged();
}

void VideoModel::load() {
  load_tokenizer(/*encoder=*/false);
  if (model_ || blocks_) return;
  load_language();
  if (opened_.weights != nullptr) opened_.weights->verify_unchanged();
  opened_.weights.reset();
  opened_.source.reset();
}

void VideoModel::load_language() {
  if (writes_blocks()) {
    blocks_.emplace(load_block_model(opened_, *backend_, storage_));
    return;
  }
  if (tessera::needs_of(options_.method).neighbours) {
    const Tensor codebook = tokenizer_->codebook();
    add_code_tables(aids_, options_.method,
                    {codebook.f32(), static_cast<std::size_t>(codebook.shape().elements())});
  }
  parts_ = std::make_unique<OwnedParts<float, KeyedRandom>>(options_.method, aids_);
  model_.emplace(load_stream_model(opened_, *backend_, storage_));
}

VideoWindows::Parts VideoModel::window_parts() const {
  expects(tokenizer_ != nullptr, "the tokenizer is loaded");
  return {tokenizer_, video_spec(), grammar(), static_cast<std::size_t>(kept_grids())};
}

std::vector<std::int32_t> VideoModel::encode(const std::vector<Image>& frames) const {
  std::vector<std::int32_t> codes;
  if (frames.empty()) return codes;
  const auto encoder = tokenizer_->video_encoder(static_cast<int>(spec().image_height()),
                                                static_cast<int>(spec().image_width()));
  for (const Image& frame : frames) {
    const Tensor pixels = image_from_bytes(frame.rgb, frame.height, frame.width);
    const auto grid = encoder->push(pixels.view());
    if (grid) codes.insert(codes.end(), grid->begin(), grid->end());
  }
  return codes;
}

CrossContext VideoModel::context_of(const Tensor& text) const {
  Tensor rows = backend_->allocate(DType::kF32, text.shape());
  backend_->upload(text.view(), rows.view());
  return model_->transformer().make_context(rows.view(), storage_);
}

}  // namespace tessera
