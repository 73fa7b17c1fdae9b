// Joins family, text tokenizer, stream loop and VQ decoder.
#include "apps/runtime/generate_pipeline.h"

#include <algorithm>

#include "apps/runtime/code_patches.h"
#include "apps/runtime/draft_model.h"
#include "apps/runtime/generate_run.h"
#include "apps/runtime/guess_table_file.h"
#include "apps/runtime/prompt_encoder.h"
#include "apps/runtime/visual_model.h"
#include "engine/decoding/method_parts.h"

namespace tessera {

namespace {

[[noreturn]] void refuse_request(std::string code, std::string where, std::string expected,
                                 std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = std::move(code),
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found)});
}

std::string size_text(std::int64_t width, std::int64_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

void check_geometry(const PipelineOptions& options, const ModelSpec& spec,
                    const std::string& name) {
  const std::int64_t width = options.width == 0 ? spec.image_width() : options.width;
  const std::int64_t height = options.height == 0 ? spec.image_height() : options.height;
  if (width == spec.image_width() && height == spec.image_height()) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_GEOMETRY",
               .file = name,
               .where = "--size",
               .expected = size_text(spec.image_width(), spec.image_height()) +
                           ", which is what this model paints",
               .found = size_text(width, height)});
}

void check_pictures(const ModelSpec& spec, const std::string& name) {
  if (!spec.clip) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_MODEL_CLIPS",
               .file = name,
               .expected = "a model that paints pictures",
               .found = "one that paints clips",
               .hint = "`tessera video` paints with it"});
}

FamilyOptions family_options(const PipelineOptions& options) {
  return {.image_size = options.width == options.height ? options.width : 0};
}

}  // namespace

LawSettings settle_sampling(const SettingValues& chosen, const SamplingDefaults& preset) {
  return settle_law({.guidance = preset.guidance,
                     .temperature = preset.temperature,
                     .top_k = preset.top_k,
                     .top_p = preset.top_p},
                    chosen);
}

struct GeneratePipeline::State {
  State(const PipelineOptions& given, OpenedModel opened_model, std::string shown)
      : options(given),
        name(std::move(shown)),
        opened(std::move(opened_model)),
        backend(make_backend(given.device, {.threads = given.threads}, given.cuda)),
        storage(given.storage.value_or(stored_dtype(opened))),
        vq_storage(stored_vq_dtype(opened)),
        prompts(opened, name) {
    expects(options.batch_size >= 1, "a batch has pictures");
    check_geometry(options, opened.spec, name);
    const StreamModelConfig& config = opened.spec.model;
    aids.grammar = config.grammar();
    const std::int64_t factor = opened.spec.vq.downsample();
    auto own = CodePatches::load(opened.spec.tokenizer.parent_path(), config.codes, factor);
    patches =
        std::make_unique<CodePatches>(own ? std::move(*own) : CodePatches(config.codes, factor));
    const PartNeeds needs = needs_of(options.method, aids.grammar);
    if (needs.guesses != GuessUse::kNone) {
      aids.guesses = load_guess_table(opened.spec.tokenizer.parent_path(), config.codes);
    }
    // The one that the model's folder names, also where a picture recorded its name.
    const std::string& own_draft = opened.spec.draft_model;
    if (needs.draft_model && !own_draft.empty() &&
        (options.draft_model.empty() || options.draft_model == own_draft)) {
      const std::filesystem::path beside = opened.spec.folder / ".." / own_draft;
      options.draft_model = std::filesystem::absolute(beside).lexically_normal().string();
    }
    if (!options.draft_model.empty()) {
      draft = ImageDraft::open(options.draft_model, config, name, *backend);
      aids.draft_model = true;
    }
    options.method = settle_method(options.method, aids, config.image_tokens());
    check_method(options.method, aids, config.image_tokens());
    if (draft && !needs.draft_model) {
      refuse_request("E_DECODE_CONFLICT", "--model-draft", "--drafter model or --decode draft",
                     "drafter " + options.method.drafter);
    }
    if (options.method.adaptive) controller.emplace(options.method.window);
  }

  StreamLimits limits_for(std::span<const PreparedRequest> requests) const;
  DraftLimits draft_limits(std::span<const PreparedRequest> requests) const;
  void fit_drafter(const DraftLimits& limits);
  void forget_loop();
  Image to_image(const Tensor& pixels) const;
  int rows() const { return static_cast<int>(opened.spec.model.grid_rows); }
  int cols() const { return static_cast<int>(opened.spec.model.grid_cols); }
  PipelineOptions options;
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
  ModelDrafter* drafter = nullptr;  // of parts, when it is a model
  std::unique_ptr<OwnedParts<float, KeyedRandom>> parts;
  std::unique_ptr<ImageDraft> draft;
  std::optional<WindowController> controller;  // keeps what it learned from run to run
  std::unique_ptr<StreamLoop> loop;            // of parts
  Between between;
};

StreamLimits GeneratePipeline::State::limits_for(std::span<const PreparedRequest> requests) const {
  StreamLimits limits{.items = std::min<std::int64_t>(options.batch_size,
                                                      std::max<std::size_t>(requests.size(), 1)),
                      .grammar = aids.grammar,
                      .window = options.method.window,
                      .kv = storage,
                      .laws = keeps_laws(options.method),
                      .shape = options.method.shape()};
  for (const PreparedRequest& request : requests) {
    limits.prompt_rows = std::max(
        {limits.prompt_rows, request.item.prompt.length(), request.item.unconditional.length()});
    limits.guided = limits.guided || request.item.law.guided();
  }
  return limits;
}

DraftLimits GeneratePipeline::State::draft_limits(std::span<const PreparedRequest> requests) const {
  const StreamLimits limits = limits_for(requests);
  std::vector<const DraftRequest*> drafts;
  for (const PreparedRequest& request : requests) drafts.push_back(&request.draft);
  return draft->limits_for(drafts, limits.items, limits.window, limits.shape == PassShape::kTree);
}

void GeneratePipeline::State::fit_drafter(const DraftLimits& limits) {
  if (drafter != nullptr && drafter->fits(limits)) return;
  forget_loop();  // before the new one: both together may not fit
  std::unique_ptr<ModelDrafter> made = draft->make_drafter(limits);
  drafter = made.get();
  parts->set_drafter(std::move(made), drafter);
}

void GeneratePipeline::State::forget_loop() {
  loop.reset();
  if (!draft || parts == nullptr) return;
  drafter = nullptr;
  parts->set_drafter(nullptr);
}

Image GeneratePipeline::State::to_image(const Tensor& pixels) const {
  return {pixels.shape()[1], pixels.shape()[0], vq->to_pixels(pixels.view())};
}

GeneratePipeline::GeneratePipeline(const PipelineOptions& options) {
  const ModelReference reference = resolve_model(options.model);
  state_ = std::make_unique<State>(
      options, open_model(reference.open_name, family_options(options)), reference.shown_name);
}

GeneratePipeline::GeneratePipeline(const PipelineOptions& options, OpenedModel model,
                                   std::string shown_name)
    : state_(std::make_unique<State>(options, std::move(model), std::move(shown_name))) {}

GeneratePipeline::~GeneratePipeline() = default;
GeneratePipeline::GeneratePipeline(GeneratePipeline&&) noexcept = default;

const ModelSpec& GeneratePipeline::spec() const { return state_->opened.spec; }
const DecodeMethod& GeneratePipeline::method() const { return state_->options.method; }
std::string GeneratePipeline::window_report() const {
  return state_->controller ? state_->controller->why() : "";
}
const std::string& GeneratePipeline::model_name() const { return state_->name; }
DType GeneratePipeline::storage() const { return state_->storage; }
const Backend& GeneratePipeline::backend() const { return *state_->backend; }

PreparedRequest GeneratePipeline::prepare(const GenerateRequest& request) const {
  const ModelSpec& model = spec();
  check_paints(model, model_name());
  check_pictures(model, model_name());
  PreparedRequest out;
  Stream& item = out.item;
  item.law = settle_sampling(request.sampling, model.sampling);
  item.seed = request.seed;
  EncodedPrompt encoded =
      state_->prompts.encode(request.prompt, request.negative_prompt, item.law.guided());
  item.prompt.ids = std::move(encoded.prompt);
  item.unconditional.ids = std::move(encoded.unconditional);
  if (state_->draft) {
    out.draft = state_->draft->request(request.prompt, request.negative_prompt, item.law);
  }
  PictureFacts& facts = out.facts;
  facts.program = program_version();
  facts.prompt = request.prompt;
  facts.negative_prompt = request.negative_prompt;
  facts.model = model_name();
  facts.family = model.family;
  facts.dtype = dtype_name(storage());
  facts.backend = backend().name();
  facts.seed = request.seed;
  facts.width = model.image_width();
  facts.height = model.image_height();
  facts.law = item.law;
  facts.method = state_->options.method;
  if (needs_of(facts.method).draft_model) facts.draft_model = state_->draft->name();
  facts.preserves_distribution = promise_of(facts.method) != Promise::kNone;
  return out;
}

MemoryPlan GeneratePipeline::memory_plan(std::span<const PreparedRequest> requests,
                                         std::size_t beside) const {
  const StreamLimits limits = state_->limits_for(requests);
  const MemoryRequest asked{.storage = storage(),
                            .images = limits.items,
                            .guidance = limits.guided,
                            .prompt_tokens = limits.prompt_rows,
                            .window = limits.window,
                            .laws = limits.laws};
  const auto plan_of = [&](const MemoryRequest& request) {
    MemoryPlan plan = plan_generation(spec(), state_->vq_storage, backend(), request, limits.shape);
    plan.activations += aids_bytes(state_->options.method, state_->aids, request.images);
    if (state_->draft) plan.draft = state_->draft->bytes(state_->draft_limits(requests));
    (plan.on_device ? plan.captioner : plan.process) += beside;
    return plan;
  };
  MemoryPlan plan = plan_of(asked);
  plan_device(plan, backend(), asked, plan_of);
  return plan;
}

void GeneratePipeline::load() {
  State& state = *state_;
  if (state.model) return;
  OpenedModel& opened = state.opened;
  if (state.backend->memory()) {
    state.pixel_backend =
        make_backend(state.options.device, {.threads = state.options.threads}, state.options.cuda);
  }
  Backend& pixels = state.pixel_backend != nullptr ? *state.pixel_backend : *state.backend;
  state.vq = make_visual_tokenizer(pixels, opened, state.vq_storage, TokenizerHalves::kDecoder);
  if (needs_of(state.options.method).neighbours) {
    const Tensor codebook = state.vq->codebook();
    add_code_tables(state.aids, state.options.method,
                    {codebook.f32(), static_cast<std::size_t>(codebook.shape().elements())});
  }
  state.parts = std::make_unique<OwnedParts<float, KeyedRandom>>(state.options.method, state.aids);
  opened.vq_weights->verify_unchanged();
  opened.vq_weights.reset();  // a file of its own is done with before the next one is read
  state.model.emplace(load_stream_model(opened, *state.backend, state.storage));
  if (opened.weights != nullptr) opened.weights->verify_unchanged();
  opened.weights.reset();
  opened.source.reset();
}

const CodePatches& GeneratePipeline::code_patches() const { return *state_->patches; }

void GeneratePipeline::listen_in(Between between) { state_->between = std::move(between); }

bool GeneratePipeline::run(std::span<const PreparedRequest> requests, GenerateListener& listener) {
  State& state = *state_;
  if (requests.empty()) return true;
  load();
  // What an error leaves in loop and drafter is nobody's: the next run makes them anew.
  struct Undo {
    State* state;
    ~Undo() {
      if (state == nullptr) return;
      state->forget_loop();
    }
  } undo{&state};
  const auto between = state.between ? state.between(listener, requests) : nullptr;
  GenerateListener& told = between ? *between : listener;
  const StreamLimits limits = state.limits_for(requests);
  if (state.draft) state.fit_drafter(state.draft_limits(requests));
  const auto fits = [&](const StreamLimits& have) {
    return have.items >= limits.items && have.prompt_rows >= limits.prompt_rows &&
           (have.guided || !limits.guided);
  };
  if (state.loop == nullptr || !fits(state.loop->limits())) {
    state.loop.reset();  // before the new one: both together may not fit
    state.loop = std::make_unique<StreamLoop>(*state.model, limits, state.parts->parts(),
                                              state.controller ? &*state.controller : nullptr);
  }
  GenerateRun work({*state.loop, state.drafter, state.draft.get(), state.aids.grammar, *state.vq, *state.patches,
                    state.pixel_backend != nullptr},
                   requests, told);
  const bool finished = work.run();
  undo.state = nullptr;
  return finished;
}

void GeneratePipeline::give_back() { state_->forget_loop(); }

Image GeneratePipeline::decode_codes(std::span<const std::int32_t> codes) const {
  expects(state_->vq != nullptr, "decode_codes needs a loaded pipeline");
  return state_->to_image(state_->vq->decode(codes, state_->rows(), state_->cols()));
}

}  // namespace tessera
