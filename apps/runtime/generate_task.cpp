// Joins family, text tokenizer, lane and VQ decoder.
#include "apps/runtime/generate_task.h"

#include <algorithm>

#include "apps/runtime/code_patches.h"
#include "apps/runtime/generate_submission.h"
#include "apps/runtime/generation_parts.h"
#include "apps/runtime/draft_table_file.h"
#include "apps/runtime/prompt_encoder.h"
#include "apps/runtime/visual_model.h"
#include "engine/decoding/method_parts.h"

namespace tessera {

namespace {

void check_images(const ModelSpec& spec, const std::string& name) {
  if (!spec.video) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_MODEL_CLIPS",
               .file = name,
               .expected = "a model that generates images",
               .found = "one that generates videos",
               .hint = "`tessera video` generates with it"});
}

FamilyOptions family_options(const GenerateOptions& options) {
  return {.image_size = options.width == options.height ? options.width : 0};
}

// A list of requests.
class ListedImages final : public GenerateSource {
 public:
  explicit ListedImages(std::vector<PreparedRequest> requests)
      : needs_(room_for(requests)), requests_(std::move(requests)) {}

  LoopNeeds needs() const override { return needs_; }
  std::optional<PreparedRequest> next(Wait) override { return std::move(requests_[next_++]); }
  bool more() const override { return next_ < requests_.size(); }

 private:
  LoopNeeds needs_;
  std::vector<PreparedRequest> requests_;
  std::size_t next_ = 0;
};

}  // namespace

DistributionSettings settle_sampling(const SettingValues& chosen, const SamplingDefaults& preset) {
  return settle_dist({.guidance = preset.guidance,
                     .temperature = preset.temperature,
                     .top_k = preset.top_k,
                     .top_p = preset.top_p},
                    chosen);
}

LoopNeeds room_for(const PreparedRequest& request) {
  const DraftRequest& draft = request.draft;
  const std::size_t drafts = std::max(draft.prompt.size(), draft.unconditional.size());
  return {.prompt_rows = std::max<std::int64_t>(
              {1, request.item.prompt.length(), request.item.unconditional.length()}),
          .guided = request.item.dist.guided(),
          .draft_prompt_rows = std::max<std::int64_t>(1, static_cast<std::int64_t>(drafts)),
          .draft_guided = draft.dist.guided()};
}

LoopNeeds room_for(std::span<const PreparedRequest> requests) {
  LoopNeeds out;
  for (const PreparedRequest& request : requests) out = both(out, room_for(request));
  out.slots = std::max<std::int64_t>(std::ssize(requests), 1);
  return out;
}

struct GenerateTask::State final : public LaneModel {
  State(Runtime& in, const GenerateOptions& given, OpenedModel opened_model, std::string shown)
      : runtime(in),
        options(given),
        name(std::move(shown)),
        opened(std::move(opened_model)),
        backend(make_backend(given.device, {.threads = given.threads}, given.cuda)),
        storage(given.storage.value_or(stored_dtype(opened))),
        vq_storage(stored_vq_dtype(opened)),
        prompts(opened, name),
        lane(*this, in, {.slots = given.batch_size}) {
    check_geometry(options, opened.spec, name);
    const StreamModelConfig& config = opened.spec.model;
    aids.grammar = config.grammar();
    const std::int64_t factor = opened.spec.vq.downsample();
    auto own = CodePatches::load(opened.spec.tokenizer.parent_path(), config.codes, factor);
    patches =
        std::make_unique<CodePatches>(own ? std::move(*own) : CodePatches(config.codes, factor));
    const PartNeeds needs = needs_of(options.method, aids.grammar);
    if (needs.drafts != DraftUse::kNone) {
      aids.drafts = load_draft_table(opened.spec.tokenizer.parent_path(), config.codes);
    }
    open_draft(needs);
    options.method = settle_method(options.method, aids, config.image_tokens());
    check_method(options.method, aids, config.image_tokens());
    if (draft && !needs.draft_model) {
      refuse_request("E_DECODE_CONFLICT", "--model-draft", "--drafter model or --decode draft",
                     "drafter " + options.method.drafter);
    }
    if (options.method.adaptive) window.emplace(options.method.window);
    runtime.attach(lane);
  }
  ~State() override { runtime.detach(lane); }

  // The one that the model's folder names, also where an image recorded its name.
  void open_draft(const PartNeeds& needs) {
    const std::string& own = opened.spec.draft_model;
    if (needs.draft_model && !own.empty() &&
        (options.draft_model.empty() || options.draft_model == own)) {
      const std::filesystem::path folder = opened.spec.folder / ".." / own;
      options.draft_model = std::filesystem::absolute(folder).lexically_normal().string();
    }
    if (options.draft_model.empty()) return;
    draft = ImageDraft::open(options.draft_model, opened.spec.model, name, *backend);
    aids.draft_model = true;
  }

  // --- what the lane asks

  void load() override;
  const TokenModel& tokens() const override { return *model; }
  StreamLimits limits(const LoopNeeds& needs) const override {
    return {.items = needs.slots,
            .prompt_rows = needs.prompt_rows,
            .grammar = aids.grammar,
            .window = options.method.window,
            .guided = needs.guided,
            .kv = storage,
            .dists = keeps_dists(options.method),
            .shape = options.method.shape()};
  }
  void make_drafter(const StreamLimits& limits, const LoopNeeds& needs) override {
    if (!draft) return;
    std::unique_ptr<ModelDrafter> made = draft->make_drafter(draft_limits(limits, needs));
    drafter = made.get();
    owned->set_drafter(std::move(made), drafter);
  }
  void drop_drafter() override {
    if (!draft || owned == nullptr) return;
    drafter = nullptr;
    owned->set_drafter(nullptr);
  }
  LoopParts parts() const override { return owned->parts(); }
  WindowController* controller() override { return window ? &*window : nullptr; }
  std::size_t loop_bytes(const StreamLimits& limits, const LoopNeeds& needs) const override {
    const auto scratch = [&](std::int64_t rows) {
      return StreamModel::scratch_bytes(opened.spec.model, rows, *backend);
    };
    const StreamModelShape shape{opened.spec.model.transformer, opened.spec.model.codes, scratch};
    std::size_t bytes = stream_cache_bytes(shape, *backend, limits) +
                        stream_activation_bytes(shape, *backend, limits);
    if (draft) bytes += draft->drafter_bytes(*backend, draft_limits(limits, needs));
    return bytes;
  }
  ErrorInfo no_room(const LoopNeeds&) const override {
    return {.kind = ErrorKind::kMemory,
            .code = "E_MEMORY",
            .file = name,
            .where = "one image",
            .hint = "try --dtype bf16 or another device"};
  }

  // --- what the task asks

  DraftLimits draft_limits(const StreamLimits& limits, const LoopNeeds& needs) const {
    return draft->limits_for(needs, limits.items, limits.window, limits.shape == PassShape::kTree);
  }
  LoopNeeds needs_for(std::span<const PreparedRequest> requests) const {
    LoopNeeds needs = room_for(requests);
    needs.slots = std::min(needs.slots, options.batch_size);
    return needs;
  }
  GenerateSubmission::Tools tools() {
    GenerateSubmission::Tools out{aids.grammar, *vq, *patches, pixel_backend != nullptr, {}};
    if (draft) {
      out.set_draft = [this](std::size_t slot, const DraftRequest& request) {
        drafter->set_stream(slot, draft->stream(request));
      };
    }
    return out;
  }
  Ticket submit(std::unique_ptr<GenerateSource> source, GenerateListener& listener, bool* whole);
  bool run(std::unique_ptr<GenerateSource> source, GenerateListener& listener) {
    bool whole = false;
    const Ticket ticket = submit(std::move(source), listener, &whole);
    try {
      runtime.finish(ticket);
    } catch (...) {
      end(ticket);
      throw;
    }
    return whole;
  }
  // Where an error of another submission came first: nothing may hold the caller's listener.
  void end(Ticket ticket) {
    while (lane.has(ticket)) {
      lane.cancel(ticket);
      try {
        lane.step(Wait::kNo);
      } catch (...) {  // the first error is the caller's
      }
    }
  }

  Runtime& runtime;
  GenerateOptions options;
  std::string name;
  OpenedModel opened;
  std::unique_ptr<Backend> backend;
  DType storage, vq_storage;
  PromptEncoder prompts;
  std::optional<StreamModel> model;
  // A second stream of the same device, where there is such a thing, for all that makes pixels.
  std::unique_ptr<Backend> pixel_backend;
  std::unique_ptr<VisualTokenizer> vq;
  std::unique_ptr<CodePatches> patches;
  DecodeAids aids;
  ModelDrafter* drafter = nullptr;  // of the parts, when it is a model
  std::unique_ptr<OwnedParts<float, KeyedRandom>> owned;
  std::unique_ptr<ImageDraft> draft;
  std::optional<WindowController> window;  // keeps what it learned from submission to submission
  Between between;
  StreamLane lane;  // last: its loop is of all that is above
};

void GenerateTask::State::load() {
  if (model) return;
  if (backend->memory()) {
    pixel_backend = make_backend(options.device, {.threads = options.threads}, options.cuda);
  }
  Backend& pixels = pixel_backend != nullptr ? *pixel_backend : *backend;
  vq = make_visual_tokenizer(pixels, opened, vq_storage, TokenizerHalves::kDecoder);
  if (needs_of(options.method).neighbours) {
    const Tensor codebook = vq->codebook();
    add_code_tables(aids, options.method,
                    {codebook.f32(), static_cast<std::size_t>(codebook.shape().elements())});
  }
  owned = std::make_unique<OwnedParts<float, KeyedRandom>>(options.method, aids);
  opened.vq_weights->verify_unchanged();
  opened.vq_weights.reset();  // a file of its own is done with before the next one is read
  model.emplace(load_stream_model(opened, *backend, storage));
  if (opened.weights != nullptr) opened.weights->verify_unchanged();
  opened.weights.reset();
  opened.source.reset();
}

Ticket GenerateTask::State::submit(std::unique_ptr<GenerateSource> source,
                                   GenerateListener& listener, bool* whole) {
  const Ticket ticket = runtime.next_ticket();
  auto first = between ? between(listener) : nullptr;
  lane.submit(ticket,
              std::make_unique<GenerateSubmission>([this] { return tools(); }, std::move(source),
                                                   listener, std::move(first), whole));
  return ticket;
}

GenerateTask::GenerateTask(Runtime& runtime, const GenerateOptions& options) {
  const ModelReference reference = resolve_model(options.model);
  state_ = std::make_unique<State>(runtime, options,
                                   open_model(reference.open_name, family_options(options)),
                                   reference.shown_name);
}

GenerateTask::GenerateTask(Runtime& runtime, const GenerateOptions& options, OpenedModel model,
                           std::string shown_name)
    : state_(std::make_unique<State>(runtime, options, std::move(model), std::move(shown_name))) {}

GenerateTask::~GenerateTask() = default;
GenerateTask::GenerateTask(GenerateTask&&) noexcept = default;

const ModelSpec& GenerateTask::spec() const { return state_->opened.spec; }
const DecodeMethod& GenerateTask::method() const { return state_->options.method; }
std::string GenerateTask::window_report() const {
  return state_->window ? state_->window->why() : "";
}
const std::string& GenerateTask::model_name() const { return state_->name; }
DType GenerateTask::storage() const { return state_->storage; }
const Backend& GenerateTask::backend() const { return *state_->backend; }
const CodePatches& GenerateTask::code_patches() const { return *state_->patches; }

PreparedRequest GenerateTask::prepare(const GenerateRequest& request) const {
  const ModelSpec& model = spec();
  check_generates(model, model_name());
  check_images(model, model_name());
  PreparedRequest out;
  Stream& item = out.item;
  item.dist = settle_sampling(request.sampling, model.sampling);
  item.seed = request.seed;
  EncodedPrompt encoded =
      state_->prompts.encode(request.prompt, request.negative_prompt, item.dist.guided());
  item.prompt.ids = std::move(encoded.prompt);
  item.unconditional.ids = std::move(encoded.unconditional);
  if (state_->draft) {
    out.draft = state_->draft->request(request.prompt, request.negative_prompt, item.dist);
  }
  out.facts = first_facts({model, model_name(), storage(), backend(), method()}, request.prompt,
                          request.negative_prompt, request.seed, item.dist);
  if (needs_of(method()).draft_model) out.facts.draft_model = state_->draft->name();
  return out;
}

MemoryPlan GenerateTask::plan(std::span<const PreparedRequest> requests, std::size_t others) const {
  const LoopNeeds needs = state_->needs_for(requests);
  const StreamLimits limits = state_->limits(needs);
  const MemoryRequest asked{.storage = storage(),
                            .images = limits.items,
                            .guidance = limits.guided,
                            .prompt_tokens = limits.prompt_rows,
                            .window = limits.window,
                            .dists = limits.dists};
  const auto plan_of = [&](const MemoryRequest& request) {
    MemoryPlan plan = plan_generation(spec(), state_->vq_storage, backend(), request, limits.shape);
    plan.activations += aids_bytes(state_->options.method, state_->aids, request.images);
    if (state_->draft) plan.draft = state_->draft->bytes(state_->draft_limits(limits, needs));
    (plan.on_device ? plan.captioner : plan.process) += others;
    return plan;
  };
  MemoryPlan plan = plan_of(asked);
  plan_device(plan, backend(), asked, plan_of);
  return plan;
}

void GenerateTask::load() { state_->load(); }

void GenerateTask::listen_in(Between between) { state_->between = std::move(between); }

Ticket GenerateTask::submit(std::vector<PreparedRequest> requests, GenerateListener& listener) {
  return submit(std::make_unique<ListedImages>(std::move(requests)), listener);
}

Ticket GenerateTask::submit(std::unique_ptr<GenerateSource> source, GenerateListener& listener) {
  return state_->submit(std::move(source), listener, nullptr);
}

bool GenerateTask::run(std::vector<PreparedRequest> requests, GenerateListener& listener) {
  return run(std::make_unique<ListedImages>(std::move(requests)), listener);
}

bool GenerateTask::run(std::unique_ptr<GenerateSource> source, GenerateListener& listener) {
  return state_->run(std::move(source), listener);
}

LaneStats GenerateTask::stats() const { return state_->lane.stats(); }
void GenerateTask::release() { state_->lane.release(); }

Image GenerateTask::decode_codes(std::span<const std::int32_t> codes) const {
  expects(state_->vq != nullptr, "decode_codes needs loaded weights");
  const VocabularyGrammar& grid = state_->aids.grammar;
  const Tensor pixels =
      state_->vq->decode(codes, static_cast<int>(grid.rows), static_cast<int>(grid.columns));
  return {pixels.shape()[1], pixels.shape()[0], state_->vq->to_pixels(pixels.view())};
}

}  // namespace tessera
