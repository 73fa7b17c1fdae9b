// Joins family, text tokenizer, decode loop and VQ decoder.
#include "apps/pipeline/generate_pipeline.h"

#include <algorithm>
#include <chrono>
#include <future>

#include "apps/pipeline/code_patches.h"
#include "apps/pipeline/draft_model.h"
#include "apps/pipeline/guess_table_file.h"
#include "apps/pipeline/prompt_encoder.h"
#include "apps/pipeline/visual_model.h"
#include "engine/core/io.h"
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

void check_geometry(const PipelineOptions& options, const FamilySpec& spec,
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

void check_pictures(const FamilySpec& spec, const std::string& name) {
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

// A preview that is being made.
struct PendingPreview {
  GenerateProgress progress;
  std::future<std::vector<Image>> images;

  PendingPreview(const GenerateProgress& at, std::future<std::vector<Image>> made)
      : progress(at), images(std::move(made)) {}
  bool ready() const {
    return images.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
};

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
    const ImageModelConfig& config = opened.spec.model;
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
      draft = DraftModel::open(options.draft_model, config, name, *backend);
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

  DecodeLimits limits_for(std::span<const PreparedRequest> requests) const;
  DraftLimits draft_limits(std::span<const PreparedRequest> requests) const;
  void fit_drafter(const DraftLimits& limits);
  void forget_loop();
  bool run_batch(std::span<const PreparedRequest> batch, std::size_t first,
                 GenerateListener& listener);
  GenerateProgress progress_of(const PassEvent& event, std::size_t first, double started) const;
  void preview(const PassEvent& event, const GenerateProgress& progress,
               GenerateListener& listener);
  void show_preview(GenerateListener& listener);
  void hand_out(const PreparedRequest& request, DecodeResult& result, GeneratedPicture& picture,
                GenerateListener& listener) const;
  Image to_image(const Tensor& pixels) const;
  void tell_traces(const PassEvent& event, const GenerateProgress& progress,
                   std::vector<TokenMark>& grid, GenerateListener& listener) const;
  int rows() const { return static_cast<int>(opened.spec.model.grid_rows); }
  int cols() const { return static_cast<int>(opened.spec.model.grid_cols); }
  // Whole rows of codes among the first `tokens` tokens of a stream.
  std::int64_t rows_among(std::size_t tokens) const {
    return static_cast<std::int64_t>(aids.grammar.codes_among(tokens)) / cols();
  }

  PipelineOptions options;
  std::string name;
  OpenedModel opened;
  std::unique_ptr<Backend> backend;
  DType storage, vq_storage;
  PromptEncoder prompts;
  std::optional<ImageModel> model;
  // A second stream of the same device, where there is such a thing, for all that makes pixels.
  std::unique_ptr<Backend> pixel_backend;
  std::unique_ptr<VisualTokenizer> vq;
  std::unique_ptr<CodePatches> patches;
  std::unique_ptr<DecodeLoop> loop;
  DecodeAids aids;
  ModelDrafter* drafter = nullptr;  // of parts, when it is a model
  std::unique_ptr<OwnedParts<float, KeyedRandom>> parts;
  std::unique_ptr<DraftModel> draft;
  std::optional<WindowController> controller;  // keeps what it learned from batch to batch
  Between between;
  std::optional<PendingPreview> pending;  // last: its thread reads what stands above
};

DecodeLimits GeneratePipeline::State::limits_for(std::span<const PreparedRequest> requests) const {
  DecodeLimits limits{.items = std::min<std::int64_t>(options.batch_size,
                                                      std::max<std::size_t>(requests.size(), 1)),
                      .prompt_tokens = 1,
                      .window = options.method.window,
                      .guided = false,
                      .kv = storage,
                      .laws = keeps_laws(options.method),
                      .shape = options.method.shape()};
  for (const PreparedRequest& request : requests) {
    const std::size_t longest =
        std::max(request.item.prompt.size(), request.item.unconditional.size());
    limits.prompt_tokens = std::max(limits.prompt_tokens, static_cast<std::int64_t>(longest));
    limits.guided = limits.guided || request.item.law.guided();
  }
  return limits;
}

DraftLimits GeneratePipeline::State::draft_limits(std::span<const PreparedRequest> requests) const {
  const DecodeLimits limits = limits_for(requests);
  DraftLimits out{.items = limits.items,
                  .window = limits.window,
                  .guided = false,
                  .trees = limits.shape == PassShape::kTree};
  for (const PreparedRequest& request : requests) {
    const DraftItem& item = request.draft;
    out.guided = out.guided || item.law.guided();
    const std::size_t longest = std::max(item.prompt.size(), item.unconditional.size());
    out.prompt_tokens = std::max(out.prompt_tokens, static_cast<std::int64_t>(longest));
  }
  return out;
}

void GeneratePipeline::State::fit_drafter(const DraftLimits& limits) {
  if (drafter != nullptr && drafter->fits(limits)) return;
  drafter = nullptr;
  parts->set_drafter(nullptr);  // before the new one: both together may not fit
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

GenerateProgress GeneratePipeline::State::progress_of(const PassEvent& event, std::size_t first,
                                                      double started) const {
  GenerateProgress progress;
  progress.first = first;
  progress.pictures = event.items.size();
  progress.rows = rows();
  progress.rows_done = rows();
  for (const DecodeResult& item : event.items) {
    if (item.status == DecodeStatus::kFailed) continue;
    progress.rows_done = std::min(progress.rows_done, rows_among(item.tokens.size()));
    progress.tokens_done += static_cast<std::int64_t>(item.tokens.size());
    progress.tokens += opened.spec.model.image_tokens();
  }
  progress.passes = event.pass;
  progress.seconds = monotonic_seconds() - started;
  return progress;
}

// Marks by place in the grid; `grid` is room that is kept from pass to pass.
void GeneratePipeline::State::tell_traces(const PassEvent& event, const GenerateProgress& progress,
                                          std::vector<TokenMark>& grid,
                                          GenerateListener& listener) const {
  const std::size_t cells = aids.grammar.cells();
  grid.resize(cells * event.items.size());
  std::vector<PictureTrace> traces;
  for (std::size_t i = 0; i < event.items.size(); ++i) {
    const DecodeResult& item = event.items[i];
    const std::span<TokenMark> own = std::span(grid).subspan(i * cells, cells);
    for (std::size_t at = 0; at < item.trace.marks.size(); ++at) {
      if (const auto cell = aids.grammar.cell(at)) own[*cell] = item.trace.marks[at];
    }
    traces.push_back({progress.first + i, static_cast<std::int64_t>(item.tokens.size()),
                      item.passes, rows_among(item.tokens.size()), own, item.trace.committed});
  }
  listener.on_trace(progress, traces);
}

// On a device with memory of its own pixels have a stream and a thread of their own, so that
// decoding does not wait for them; the picture is shown by a later pass.
void GeneratePipeline::State::preview(const PassEvent& event, const GenerateProgress& progress,
                                      GenerateListener& listener) {
  struct Part {
    std::vector<std::int32_t> codes;
    int ready = 0;
  };
  std::vector<Part> parts_shown;
  for (const DecodeResult& item : event.items) {
    if (item.status == DecodeStatus::kFailed) continue;
    parts_shown.push_back({aids.grammar.picture_codes(item.tokens),
                           static_cast<int>(rows_among(item.tokens.size()))});
  }
  if (parts_shown.empty()) return;
  const bool beside = pixel_backend != nullptr;
  pending.emplace(progress, std::async(beside ? std::launch::async : std::launch::deferred,
                                       [this, shown = std::move(parts_shown)] {
                                         std::vector<Image> images;
                                         for (const Part& part : shown) {
                                           images.push_back(to_image(decode_partial(
                                               *vq, part.codes, part.ready, rows(), cols())));
                                         }
                                         return images;
                                       }));
  if (!beside) show_preview(listener);
}

// Waits for it if it is not ready.
void GeneratePipeline::State::show_preview(GenerateListener& listener) {
  PendingPreview shown = std::move(*pending);
  pending.reset();
  listener.on_preview(shown.progress, shown.images.get());
}

void GeneratePipeline::State::hand_out(const PreparedRequest& request, DecodeResult& result,
                                       GeneratedPicture& picture,
                                       GenerateListener& listener) const {
  picture.facts = request.facts;
  picture.facts.tokens = static_cast<std::int64_t>(result.tokens.size());
  picture.facts.passes = result.passes;
  picture.meters = std::move(result.meters);
  picture.rows_done = rows_among(result.tokens.size());
  picture.codes = aids.grammar.picture_codes(result.tokens);
  if (result.status == DecodeStatus::kFailed) {
    picture.status = PictureStatus::kFailed;
    picture.error = std::move(result.error);
  } else if (result.status == DecodeStatus::kStopped) {
    picture.status = PictureStatus::kStopped;
    if (listener.preview_rows() > 0 && picture.rows_done > 0) {
      picture.image = to_image(
          decode_partial(*vq, picture.codes, static_cast<int>(picture.rows_done), rows(), cols()));
    }
  } else {
    picture.image = to_image(vq->decode(picture.codes, rows(), cols()));
    if (listener.wants_trace()) patches->learn(picture.codes, rows(), cols(), picture.image);
  }
}

bool GeneratePipeline::State::run_batch(std::span<const PreparedRequest> batch, std::size_t first,
                                        GenerateListener& listener) {
  std::vector<DecodeItem> items;
  const bool traced = listener.wants_trace();
  std::vector<TokenMark> grid;
  for (const PreparedRequest& request : batch) {
    items.push_back(request.item);
    items.back().traced = traced;
  }
  const double started = monotonic_seconds();
  std::int64_t shown_rows = 0;
  Flow flow = Flow::kContinue;
  PassTimes times;
  PhaseSeconds phases;
  const auto on_pass = [&](const PassEvent& event) {
    if (event.pass == 1) phases.prefill = monotonic_seconds() - started;
    if (event.pass > 1) {
      times.draft += event.times.draft;
      times.forward += event.times.forward;
      times.judge += event.times.judge;
    }
    const GenerateProgress progress = progress_of(event, first, started);
    if (traced) tell_traces(event, progress, grid, listener);
    flow = listener.on_progress(progress);
    if (pending && pending->ready()) show_preview(listener);
    const std::int64_t interval = listener.preview_rows();
    const bool due = interval > 0 && progress.rows_done >= shown_rows + interval &&
                     progress.rows_done < progress.rows && !pending;
    if (flow == Flow::kContinue && due) {
      shown_rows = progress.rows_done;
      preview(event, progress, listener);
    }
    return flow;
  };
  if (drafter != nullptr) {
    std::vector<DraftItem> drafts;
    for (const PreparedRequest& request : batch) drafts.push_back(request.draft);
    drafter->set_items(drafts);
  }
  std::vector<DecodeResult> results =
      loop->run(items, parts->parts(), on_pass, controller ? &*controller : nullptr);
  if (pending) show_preview(listener);
  const double painted = monotonic_seconds() - started;
  phases.decode = painted - phases.prefill;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const double decode_started = monotonic_seconds();
    GeneratedPicture picture;
    picture.index = first + i;
    picture.times = times;
    hand_out(batch[i], results[i], picture, listener);
    phases.pixels = monotonic_seconds() - decode_started;
    picture.phases = phases;
    picture.seconds = painted / static_cast<double>(batch.size()) + phases.pixels;
    listener.on_picture(std::move(picture));
  }
  return flow == Flow::kContinue;
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

const FamilySpec& GeneratePipeline::spec() const { return state_->opened.spec; }
const DecodeMethod& GeneratePipeline::method() const { return state_->options.method; }
std::string GeneratePipeline::window_report() const {
  return state_->controller ? state_->controller->why() : "";
}
const std::string& GeneratePipeline::model_name() const { return state_->name; }
DType GeneratePipeline::storage() const { return state_->storage; }
const Backend& GeneratePipeline::backend() const { return *state_->backend; }

PreparedRequest GeneratePipeline::prepare(const GenerateRequest& request) const {
  const FamilySpec& model = spec();
  check_paints(model, model_name());
  check_pictures(model, model_name());
  PreparedRequest out;
  DecodeItem& item = out.item;
  item.law = settle_sampling(request.sampling, model.sampling);
  item.seed = request.seed;
  EncodedPrompt encoded =
      state_->prompts.encode(request.prompt, request.negative_prompt, item.law.guided());
  item.prompt = std::move(encoded.prompt);
  item.unconditional = std::move(encoded.unconditional);
  if (state_->draft) {
    out.draft = state_->draft->item(request.prompt, request.negative_prompt, item.law);
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
  const DecodeLimits limits = state_->limits_for(requests);
  const MemoryRequest asked{.storage = storage(),
                            .images = limits.items,
                            .guidance = limits.guided,
                            .prompt_tokens = limits.prompt_tokens,
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
  state.model.emplace(load_image_model(opened, *state.backend, state.storage));
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
      state->pending.reset();  // waits for its thread
      state->forget_loop();
    }
  } undo{&state};
  const auto between = state.between ? state.between(listener, requests) : nullptr;
  GenerateListener& told = between ? *between : listener;
  const DecodeLimits limits = state.limits_for(requests);
  const auto fits = [&](const DecodeLimits& have) {
    return have.items >= limits.items && have.prompt_tokens >= limits.prompt_tokens &&
           (have.guided || !limits.guided);
  };
  if (state.loop == nullptr || !fits(state.loop->limits())) {
    state.loop.reset();  // before the new one: both together may not fit
    state.loop = std::make_unique<DecodeLoop>(*state.model, limits);
  }
  if (state.draft) state.fit_drafter(state.draft_limits(requests));
  const auto batch = static_cast<std::size_t>(limits.items);
  bool finished = true;
  for (std::size_t first = 0; finished && first < requests.size(); first += batch) {
    const std::size_t count = std::min(batch, requests.size() - first);
    finished = state.run_batch(requests.subspan(first, count), first, told);
  }
  undo.state = nullptr;
  return finished;
}

void GeneratePipeline::give_back() { state_->forget_loop(); }

Image GeneratePipeline::decode_codes(std::span<const std::int32_t> codes) const {
  expects(state_->vq != nullptr, "decode_codes needs a loaded pipeline");
  return state_->to_image(state_->vq->decode(codes, state_->rows(), state_->cols()));
}

}  // namespace tessera
