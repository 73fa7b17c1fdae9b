// Joins family, text tokenizer, stream loop and clip tokenizer.
#include "apps/runtime/video_pipeline.h"

#include <algorithm>
#include <limits>

#include "apps/runtime/clip_run.h"
#include "apps/runtime/clip_writer.h"
#include "apps/runtime/draft_model.h"
#include "apps/runtime/guess_table_file.h"
#include "apps/runtime/prompt_encoder.h"
#include "apps/runtime/text_features.h"
#include "apps/runtime/visual_model.h"
#include "engine/core/io.h"
#include "engine/decoding/method_parts.h"
#include "engine/decoding/run_streams.h"
#include "tokenizers/visual/clip_tokenizer.h"

namespace tessera {

namespace {

[[noreturn]] void refuse(std::string code, std::string where, std::string expected,
                         std::string found, std::string hint = "") {
  throw Error({.kind = ErrorKind::kUsage,
               .code = std::move(code),
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

std::string size_text(std::int64_t width, std::int64_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

void check_clips(const PipelineOptions& options, const ModelSpec& spec, const std::string& name) {
  check_paints(spec, name);
  if (spec.blocks && !spec.movq) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_NBP_TOKENIZER",
                 .file = name,
                 .where = "clip tokenizer",
                 .expected = "a model with a clip tokenizer that is read (vq_config)",
                 .found = "NBP's own, which is not",
                 .hint = "`tessera inspect` looks at the model"});
  }
  if (!spec.clip) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_MODEL_PICTURES",
                 .file = name,
                 .expected = "a model that paints clips",
                 .found = "one that paints pictures",
                 .hint = "`tessera generate` paints with it"});
  }
  const std::int64_t width = options.width == 0 ? spec.image_width() : options.width;
  const std::int64_t height = options.height == 0 ? spec.image_height() : options.height;
  if (width != spec.image_width() || height != spec.image_height()) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_GEOMETRY",
                 .file = name,
                 .where = "--size",
                 .expected = size_text(spec.image_width(), spec.image_height()) +
                             ", which is what this model paints",
                 .found = size_text(width, height)});
  }
}

// Blocks are neither guessed nor guided.
void check_blocks(const ModelSpec& spec, const DecodeMethod& method) {
  if (!spec.blocks || (!method.speculative() && method.shape() == PassShape::kLine)) return;
  refuse("E_DECODE_CONFLICT", "--decode", "plain, as this model writes whole blocks",
         "a method that guesses");
}

void check_block_law(const ModelSpec& spec, const LawSettings& law) {
  if (!spec.blocks || !law.guided()) return;
  refuse("E_GUIDANCE", "--cfg-scale", "1, as this model has one branch",
         std::to_string(law.guidance));
}

// Keys are turned along one axis of positions.
void check_continuation(const ModelSpec& spec, Continuation continuation) {
  if (continuation == Continuation::kRecompute) return;
  const RopeSpec& rope = spec.model.transformer.rope;
  const bool axes = rope.layout != RopeLayout::kOneD || rope.three_axes();
  if (!spec.blocks && !axes) return;
  refuse("E_VIDEO_CONTINUE", "--continue",
         spec.blocks ? "recompute, as positions of this model are learned"
                     : "recompute, as positions of this model have several axes",
         "sinks");
}

}  // namespace

namespace {

const PreparedClip& clip_of(const PreparedClip& clip) { return clip; }
const PreparedClip& clip_of(const ClipTask& task) { return *task.clip; }

}  // namespace

struct VideoPipeline::State {
  State(const PipelineOptions& given, OpenedModel opened_model, std::string shown)
      : options(given),
        name(std::move(shown)),
        opened(std::move(opened_model)),
        backend(make_backend(given.device, {.threads = given.threads}, given.cuda)),
        storage(given.storage.value_or(stored_dtype(opened))),
        vq_storage(stored_vq_dtype(opened)),
        prompts(opened, name) {
    check_clips(options, opened.spec, name);
    const StreamModelConfig& config = opened.spec.model;
    aids.grammar = config.grammar();
    const PartNeeds needs = needs_of(options.method, aids.grammar);
    if (needs.guesses != GuessUse::kNone) {
      aids.guesses = load_guess_table(opened.spec.tokenizer.parent_path(), config.codes);
    }
    if (needs.draft_model || !options.draft_model.empty()) {
      refuse("E_DECODE_DRAFT", "--model-draft", "no draft model, which clips do without",
             options.draft_model.empty() ? "drafter model" : options.draft_model,
             "choose --decode frames");
    }
    check_blocks(opened.spec, options.method);
    options.method = settle_method(options.method, aids, config.image_tokens());
    check_method(options.method, aids, config.image_tokens());
    if (options.method.adaptive) controller.emplace(options.method.window);
  }

  const StreamModelConfig& config() const { return opened.spec.model; }
  int rows() const { return static_cast<int>(config().grid_rows); }
  int cols() const { return static_cast<int>(config().grid_cols); }
  const ClipSpec& clip() const { return *opened.spec.clip; }
  // Grids of a window that those before it stand for, where a clip is longer than the model's own.
  std::int64_t kept_grids() const {
    return config().grids - std::max<std::int64_t>(1, config().grids / 2);
  }
  Image to_image(const Tensor& pixels) const {
    return {pixels.shape()[1], pixels.shape()[0], tokenizer->to_pixels(pixels.view())};
  }
  template <typename Clips>
  StreamLimits limits_for(const Clips& clips) const;
  GeneratedClip write_blocks(const ClipTask& task) const;
  StreamLimits limits_of_blocks(const PreparedClip& clip) const {
    return block_limits(blocks->config(), aids.grammar,
                        {.prompt_rows = std::max<std::int64_t>(1, clip.item.prompt.length()),
                         .kv = storage});
  }
  void load_tokenizer(bool encoder);
  void load(bool encoder);
  void load_language();
  ClipRun::Parts clip_parts() const {
    return {*tokenizer, clip(), aids.grammar, static_cast<std::size_t>(kept_grids())};
  }
  std::vector<std::int32_t> encode(const std::vector<Image>& frames) const;
  CrossContext context_of(const Tensor& text) const;

  PipelineOptions options;
  std::string name;
  OpenedModel opened;
  std::unique_ptr<Backend> backend;
  DType storage, vq_storage;
  PromptEncoder prompts;
  std::optional<StreamModel> model;
  std::optional<BlockModel> blocks;  // in its stead
  std::unique_ptr<ClipTokenizer> tokenizer;
  bool both_halves = false;
  DecodeAids aids;
  std::unique_ptr<OwnedParts<float, KeyedRandom>> parts;
  std::optional<WindowController> controller;
};

// Of clips, each as clip_of() finds it.
template <typename Clips>
StreamLimits VideoPipeline::State::limits_for(const Clips& clips) const {
  // No window begins with more grids than leave one to write.
  const std::size_t given = aids.grammar.tokens_of(static_cast<std::size_t>(config().grids - 1));
  StreamLimits out{.items = std::min(options.batch_size, static_cast<std::int64_t>(clips.size())),
                   .grammar = aids.grammar,
                   .window = options.method.window,
                   .kv = storage,
                   .laws = keeps_laws(options.method),
                   .shape = options.method.shape(),
                   .given_tokens = static_cast<std::int64_t>(given)};
  for (const auto& one : clips) {
    const Stream& item = clip_of(one).item;
    out.guided = out.guided || item.law.guided();
    out.prompt_rows =
        std::max({out.prompt_rows, item.prompt.length(), item.unconditional.length()});
  }
  out.budget = out.branches() * backend->rows_at_once();
  return out;
}

void VideoPipeline::State::load_tokenizer(bool encoder) {
  if (tokenizer != nullptr && (both_halves || !encoder)) return;
  tokenizer.reset();
  tokenizer = make_clip_tokenizer(*backend, opened, vq_storage,
                                  encoder ? TokenizerHalves::kBoth : TokenizerHalves::kDecoder);
  both_halves = encoder;
  opened.vq_weights->verify_unchanged();
}

void VideoPipeline::State::load(bool encoder) {
  load_tokenizer(encoder);
  if (model || blocks) return;
  load_language();
  if (opened.weights != nullptr) opened.weights->verify_unchanged();
  opened.weights.reset();
  opened.source.reset();
}

void VideoPipeline::State::load_language() {
  if (opened.spec.blocks) {
    blocks.emplace(load_block_model(opened, *backend, storage));
    return;
  }
  if (needs_of(options.method).neighbours) {
    const Tensor codebook = tokenizer->codebook();
    add_code_tables(aids, options.method,
                    {codebook.f32(), static_cast<std::size_t>(codebook.shape().elements())});
  }
  parts = std::make_unique<OwnedParts<float, KeyedRandom>>(options.method, aids);
  model.emplace(load_stream_model(opened, *backend, storage));
}

// Codes of whole grids.
std::vector<std::int32_t> VideoPipeline::State::encode(const std::vector<Image>& frames) const {
  std::vector<std::int32_t> codes;
  if (frames.empty()) return codes;
  const auto encoder = tokenizer->clip_encoder(static_cast<int>(opened.spec.image_height()),
                                               static_cast<int>(opened.spec.image_width()));
  for (const Image& frame : frames) {
    const Tensor pixels = image_from_bytes(frame.rgb, frame.height, frame.width);
    const auto grid = encoder->push(pixels.view());
    if (grid) codes.insert(codes.end(), grid->begin(), grid->end());
  }
  return codes;
}

CrossContext VideoPipeline::State::context_of(const Tensor& text) const {
  Tensor rows = backend->allocate(DType::kF32, text.shape());
  backend->upload(text.view(), rows.view());
  return model->transformer().make_context(rows.view(), storage);
}

VideoPipeline::VideoPipeline(const PipelineOptions& options) {
  const ModelReference reference = resolve_clip_model(options.model);
  state_ = std::make_unique<State>(options, open_model(reference.open_name), reference.shown_name);
}

VideoPipeline::VideoPipeline(const PipelineOptions& options, OpenedModel model,
                             std::string shown_name)
    : state_(std::make_unique<State>(options, std::move(model), std::move(shown_name))) {}

VideoPipeline::~VideoPipeline() = default;
VideoPipeline::VideoPipeline(VideoPipeline&&) noexcept = default;

const ModelSpec& VideoPipeline::spec() const { return state_->opened.spec; }
const std::string& VideoPipeline::model_name() const { return state_->name; }
const DecodeMethod& VideoPipeline::method() const { return state_->options.method; }
std::string VideoPipeline::window_report() const {
  return state_->controller ? state_->controller->why() : "";
}
DType VideoPipeline::storage() const { return state_->storage; }
const Backend& VideoPipeline::backend() const { return *state_->backend; }
std::int64_t VideoPipeline::rate() const { return spec().clip->rate; }
std::int64_t VideoPipeline::own_frames() const {
  return spec().clip->frames_of(spec().model.grids);
}
bool VideoPipeline::takes_prompts() const { return spec().prompt.kind != PromptKind::kFrames; }
std::int64_t VideoPipeline::most_first_frames() const {
  const ClipSpec& clip = *spec().clip;
  return clip.frames_of(std::min(spec().model.grids - 1, clip.most_given));
}

namespace {

// Whole grids of the last frames.
std::vector<Image> whole_grids(std::vector<Image> frames, const ClipSpec& clip, std::int64_t most) {
  if (frames.empty()) return frames;
  while (static_cast<std::int64_t>(frames.size()) < clip.first_grid) {
    frames.push_back(frames.back());
  }
  const std::int64_t grids = clip.grids_of(static_cast<std::int64_t>(frames.size()));
  const std::int64_t keep = std::min(clip.frames_of(grids), most);
  frames.erase(frames.begin(), frames.end() - keep);
  return frames;
}

}  // namespace

PreparedClip VideoPipeline::prepare(ClipRequest request) const {
  const ModelSpec& model = spec();
  PreparedClip out;
  const std::int64_t first_count = static_cast<std::int64_t>(request.first_frames.size());
  if (first_count > 0 && most_first_frames() == 0) {
    refuse("E_VIDEO_FIRST", "--first-frames", "none, as this model writes one grid of frames",
           std::to_string(first_count) + " frames");
  }
  for (const Image& frame : request.first_frames) {
    if (frame.width == model.image_width() && frame.height == model.image_height()) continue;
    refuse("E_VIDEO_FIRST", "--first-frames",
           "frames of " + size_text(model.image_width(), model.image_height()),
           size_text(frame.width, frame.height));
  }
  out.first_frames = whole_grids(std::move(request.first_frames), *model.clip, most_first_frames());
  if (model.clip->from_frames && out.first_frames.empty()) {
    refuse("E_VIDEO_FIRST", "--first-frames", "a clip or picture, which this model goes on with",
           "none");
  }
  out.continuation = request.continuation;
  check_continuation(model, out.continuation);
  out.frames = request.endless ? 0 : request.frames > 0 ? request.frames : own_frames();
  const bool longer = request.endless || out.frames > own_frames();
  if (longer && (model.model.grids < 2 || !model.clip->goes_on)) {
    refuse("E_VIDEO_FRAMES", "--frames",
           "at most " + std::to_string(own_frames()) +
               (model.clip->goes_on ? ", as nothing leads from one grid to the next"
                                    : ", as this model writes no longer clips"),
           request.endless ? "no end" : std::to_string(out.frames));
  }
  out.text = text_features_of(request.text_features, model.context);
  if (!request.endless && out.frames <= static_cast<std::int64_t>(out.first_frames.size())) {
    refuse("E_VIDEO_FRAMES", "--frames",
           "more than the " + std::to_string(out.first_frames.size()) + " first frames",
           std::to_string(out.frames));
  }
  Stream& item = out.item;
  item.law = settle_sampling(request.sampling, model.sampling);
  check_block_law(model, item.law);
  item.seed = request.seed;
  EncodedPrompt encoded =
      state_->prompts.encode(request.prompt, request.negative_prompt, item.law.guided());
  item.prompt.ids = std::move(encoded.prompt);
  item.unconditional.ids = std::move(encoded.unconditional);
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
  facts.method = method();
  facts.preserves_distribution = promise_of(facts.method) != Promise::kNone;
  return out;
}

MemoryPlan VideoPipeline::memory_plan(std::span<const PreparedClip> clips) const {
  const StreamLimits limits = state_->limits_for(clips);
  const bool encodes = std::any_of(clips.begin(), clips.end(), [](const PreparedClip& clip) {
    return !clip.first_frames.empty();
  });
  const MemoryRequest asked{.storage = storage(),
                            .images = limits.items,
                            .guidance = limits.guided,
                            .prompt_tokens = limits.prompt_rows,
                            .window = limits.window,
                            .laws = limits.laws};
  const auto plan_of = [&](const MemoryRequest& request) {
    MemoryPlan plan = plan_generation(spec(), state_->vq_storage, backend(), request, limits.shape);
    if (!spec().blocks) {
      StreamLimits own = limits;
      own.items = request.images;
      own.window = request.window;
      own.kv = request.storage;
      plan.activations = image_activation_bytes(spec().model, backend(), own) +
                         aids_bytes(method(), state_->aids, request.images);
    }
    // A clip's decoder keeps what of its past the next grid needs.
    plan.vq_scratch *= static_cast<std::size_t>(request.images);
    if (encodes) {
      plan.vq_weights = visual_weight_bytes(spec(), backend(), state_->vq_storage, VqHalves::kBoth);
      plan.vq_scratch *= 2;
    }
    return plan;
  };
  MemoryPlan plan = plan_of(asked);
  plan_device(plan, backend(), asked, plan_of);
  return plan;
}

std::int64_t VideoPipeline::grids_of(const PreparedClip& clip) const {
  expects(clip.frames > 0, "a clip that ends");
  return spec().clip->grids_for(clip.frames);
}

std::int64_t VideoPipeline::given_grids(const PreparedClip& clip) const {
  return spec().clip->grids_of(static_cast<std::int64_t>(clip.first_frames.size()));
}

std::size_t VideoPipeline::grid_codes() const { return state_->aids.grammar.cells(); }

bool VideoPipeline::can_go_on_at(const PreparedClip& clip, std::int64_t grids) const {
  if (clip.continuation != Continuation::kRecompute) return false;
  if (promise_of(method()) == Promise::kSameTokens) return true;
  const std::int64_t window = spec().model.grids, kept = state_->kept_grids();
  return grids >= window && (grids - kept) % (window - kept) == 0;
}

std::int64_t VideoPipeline::tokens_of(std::int64_t grids) const {
  return static_cast<std::int64_t>(state_->aids.grammar.tokens_of(static_cast<std::size_t>(grids)));
}

void VideoPipeline::show(const PreparedClip& clip, std::span<const std::int32_t> codes,
                         ClipListener& listener) {
  state_->load_tokenizer(false);
  ClipRun run(state_->clip_parts(), clip.frames, listener);
  run.begin_with({codes.begin(), codes.end()}, true);
  expects(run.done(), "the codes of a whole clip");
}

GeneratedClip VideoPipeline::State::write_blocks(const ClipTask& task) const {
  const PreparedClip& clip = *task.clip;
  GeneratedClip out = begun_clip(clip);
  ClipRun run(clip_parts(), clip.frames, *task.listener, task.course.frames);
  if (task.course.standing.empty()) {
    run.begin_with(encode(clip.first_frames));
  } else {
    run.begin_with(task.course.standing, true);
  }
  LoopParts parts_of_blocks;
  parts_of_blocks.blocks = blocks->reading();
  StreamLoop loop(*blocks, limits_of_blocks(clip), parts_of_blocks);
  Stream item = clip.item;
  while (!run.done() && !run.stopped() && out.status != PictureStatus::kFailed) {
    item.item = run.window();
    item.given = aids.grammar.stream_of(run.window_begin());
    run.begin_window();
    const std::int64_t passes = out.facts.passes;
    const StreamResult result = std::move(run_streams(loop, {&item, 1}, [&](const RunPass& pass) {
      return pass.items[0].passes > 0 ? run.on_pass(pass.items[0], passes) : Flow::kContinue;
    })[0]);
    run.end_window();
    add_window(out, result, item.given.size());
  }
  end_clip(out, run);
  task.listener->on_over(out);
  return out;
}

GeneratedClip VideoPipeline::run(const PreparedClip& clip, ClipListener& listener,
                                 const ClipCourse& course) {
  const ClipTask task{&clip, &listener, course};
  return std::move(run({&task, 1})[0]);
}

std::vector<GeneratedClip> VideoPipeline::run(std::span<const ClipTask> tasks) {
  State& state = *state_;
  if (tasks.empty()) return {};
  state.load(std::any_of(tasks.begin(), tasks.end(), [](const ClipTask& task) {
    return !task.clip->first_frames.empty() && task.course.standing.empty();
  }));
  if (state.blocks) {
    std::vector<GeneratedClip> out;
    for (const ClipTask& task : tasks) out.push_back(state.write_blocks(task));
    return out;
  }
  StreamLoop loop(*state.model, state.limits_for(tasks), state.parts->parts(),
                  state.controller ? &*state.controller : nullptr);
  ClipWriter writer({loop, state.clip_parts(),
                     [&](const std::vector<Image>& frames) { return state.encode(frames); },
                     [&](const Tensor& text) { return state.context_of(text); }},
                    tasks);
  return writer.run();
}

}  // namespace tessera
