// One thread reads and prepares pictures; this one encodes, prefills and writes. Between two passes
// at most one picture is encoded, so that texts at work wait for no more than that.
#include "apps/pipeline/caption_pipeline.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <new>

#include "apps/pipeline/caption_model.h"
#include "apps/pipeline/caption_prompt.h"
#include "apps/pipeline/model_catalog.h"
#include "apps/pipeline/picture_queue.h"
#include "apps/pipeline/text_stream.h"
#include "engine/decoding/method_parts.h"

namespace tessera {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void refuse(std::string code, std::string where, std::string expected,
                         std::string found, std::string hint = "") {
  throw Error({ErrorKind::kUsage, std::move(code), "", std::move(where), std::move(expected),
               std::move(found), std::move(hint)});
}

// What can draft a text: it has no rows above and no code table.
DecodeMethod settle_text_method(DecodeMethod method, const DecodeAids& aids, std::int64_t tokens) {
  if (method.drafter == kBestDrafter) method.drafter = "lookup";
  constexpr std::string_view kDrafters[] = {"none", "left", "uniform", "lookup", "recycling"};
  if (std::find(std::begin(kDrafters), std::end(kDrafters), method.drafter) ==
      std::end(kDrafters)) {
    refuse("E_DECODE_CAPTION", "--drafter", "none, lookup or recycling for texts", method.drafter);
  }
  if (method.shape() != PassShape::kLine) {
    refuse("E_DECODE_CAPTION", "--decode", "a method whose guesses stand in a line", method.name);
  }
  method = settle_method(method, aids, tokens);
  check_method(method, aids, tokens);
  if (promise_of(method) == Promise::kNone) {
    refuse("E_DECODE_CAPTION", "--accept", "a rule that keeps the law of the text", method.rule);
  }
  return method;
}

TextTimes sum_of(TextTimes sum, const TextTimes& more) {
  sum.tokens += more.tokens;
  sum.prompts += more.prompts;
  sum.judge += more.judge;
  sum.token_passes += more.token_passes;
  sum.prompt_passes += more.prompt_passes;
  sum.tokens_written += more.tokens_written;
  return sum;
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace

struct CaptionPipeline::State final : TextListener {
  // A text at work or on its way there.
  struct Work {
    Caption caption;
    std::vector<std::unique_ptr<PruneSession>> sessions;
    std::unique_ptr<LlmPruning> cuts;
    std::vector<VisualBlock> blocks;
    TextItem item;
    std::optional<TextStream> stream;
    Clock::time_point start;
  };

  State(const CaptionOptions& given, const ModelReference& reference);

  PrunedModel pruned_model(std::int64_t views) const;
  void check_settings() const;
  bool make_loop(const TextLimits& limits);
  void fit_loop(std::int64_t rows);
  void make_room(std::int64_t rows);
  void admit(PreparedPictures prepared, std::uint64_t number);
  std::unique_ptr<Work> prepare(PreparedPictures& prepared, std::uint64_t number);
  void start(std::unique_ptr<Work> work);
  void fail(Caption caption, const ErrorInfo& error);
  void on_tokens(std::size_t slot, std::span<const std::int32_t> tokens) override;
  void on_done(std::size_t slot, TextResult&& result) override;

  CaptionOptions options;
  std::string name;
  std::unique_ptr<CaptionModel> model;
  std::unique_ptr<Backend> backend;
  DType storage;
  DecodeAids aids;
  std::unique_ptr<Pruner> pruner;
  std::unique_ptr<OwnedParts<float, KeyedRandom>> parts;
  std::optional<WindowController> controller;
  LawSettings law;
  std::unique_ptr<TextLoop> loop;
  std::int64_t batch = 1;  // texts at once: as asked for, or what memory lasts for
  TextTimes past;          // of loops that were replaced
  std::map<std::size_t, std::unique_ptr<Work>> at_work;
  std::deque<std::unique_ptr<Work>> waiting;  // encoded, but the loop has no room for their rows
  CaptionListener* listener = nullptr;
};

CaptionPipeline::State::State(const CaptionOptions& given, const ModelReference& reference)
    : options(given),
      name(reference.shown_name),
      model(CaptionModel::open(reference.open_name)),
      backend(make_backend(given.device, {.threads = given.threads})),
      storage(given.storage.value_or(model->stored())) {
  expects(options.batch_size >= 1 && options.most_tokens >= 1, "texts at once, tokens of a text");
  const auto vocab = static_cast<std::size_t>(model->spec().text.model.vocab);
  aids.grammar = VocabularyGrammar::line(vocab, static_cast<std::size_t>(options.most_tokens));
  options.method = settle_text_method(options.method, aids, options.most_tokens);
  if (options.method.adaptive) controller.emplace(options.method.window);
  if (options.prune.on()) {
    pruner = make_pruner(options.prune.method, options.prune.options);
  }
  check_settings();
  SamplingChoice sampling = options.sampling;
  if (sampling.guidance && *sampling.guidance != 1.0) {
    refuse("E_FLAG_CONFLICT", "--cfg-scale", "1: texts are written without guidance",
           std::to_string(*sampling.guidance));
  }
  sampling.guidance = 1.0;
  if (!sampling.temperature) sampling.temperature = 0.0;
  law = settle_sampling(sampling, {});
  parts = std::make_unique<OwnedParts<float, KeyedRandom>>(options.method, aids);
}

PrunedModel CaptionPipeline::State::pruned_model(std::int64_t views) const {
  const ModelConfig& language = model->spec().text.model.transformer;
  PrunedModel out = pruned_model_of(model->spec().tower, views);
  out.llm_layers = static_cast<int>(language.layers);
  out.rope = {language.head_dim, language.rope.theta, language.rope.sections};
  return out;
}

// What no picture can make good, before weights are read and outputs begun.
void CaptionPipeline::State::check_settings() const {
  const std::int64_t positions = model->spec().text.model.max_positions;
  if (options.most_tokens >= positions) {
    refuse("E_TEXT_LENGTH", "--max-tokens",
           "fewer than the " + std::to_string(positions) + " positions of the model",
           std::to_string(options.most_tokens));
  }
  if (pruner == nullptr) return;
  const PruneSession session(*pruner, pruned_model(1), options.prune.budget, options.seed, 0);
  check_patch_method(model->spec().tower, session);
}

// Whether there was memory for the loop.
bool CaptionPipeline::State::make_loop(const TextLimits& limits) {
  try {
    loop = std::make_unique<TextLoop>(model->text(), limits, parts->parts(),
                                      controller ? &*controller : nullptr);
    return true;
  } catch (const Error& error) {  // the boundary of one attempt
    if (error.info().kind != ErrorKind::kMemory) throw;
  } catch (const std::bad_alloc&) {
  }
  return false;
}

// A loop with room for prompts of so many rows; the old one is idle. Where memory does not last,
// one with no more rows than needed, then one of half as many texts at once, down to one. Fewer at
// once is for the rest of the run. Error kMemory when there is no room for one text.
void CaptionPipeline::State::fit_loop(std::int64_t rows) {
  if (loop != nullptr && loop->limits().prompt_rows >= rows) return;
  TextLimits limits{.items = batch,
                    .prompt_rows = std::max(rows, options.prompt_rows),
                    .tokens = options.most_tokens,
                    .window = options.method.window,
                    .kv = storage,
                    .laws = keeps_laws(options.method)};
  if (loop != nullptr) {
    expects(loop->idle(), "an idle loop is replaced");
    past = sum_of(past, loop->times());
    limits.prompt_rows = std::max(limits.prompt_rows, rows + rows / 4);
    loop.reset();  // before the new one: both together may not fit
  }
  while (!make_loop(limits)) {
    if (limits.prompt_rows > rows) {
      limits.prompt_rows = rows;
    } else if (limits.items > 1) {
      limits.items /= 2;
    } else {
      const TextModelConfig& config = model->spec().text.model;
      throw Error({.kind = ErrorKind::kMemory,
                   .code = "E_TEXT_MEMORY",
                   .where = "one text at a time, a prompt of " + std::to_string(rows) + " rows",
                   .expected = std::to_string(TextLoop::bytes(config, *backend, limits)) + " bytes",
                   .found = "allocation refused",
                   .hint = "try --dtype bf16, a smaller --max-tokens or --prune"});
    }
  }
  if (limits.items == batch) return;
  listener->on_notice("not enough memory for " + std::to_string(batch) +
                      " texts at once: " + std::to_string(limits.items) + " from here on");
  batch = limits.items;
}

// Room for the text that waits, or its failure.
void CaptionPipeline::State::make_room(std::int64_t rows) {
  try {
    fit_loop(rows);
  } catch (const Error& error) {  // the boundary of one item
    if (error.info().kind != ErrorKind::kMemory) throw;
    const std::unique_ptr<Work> work = std::move(waiting.front());
    waiting.pop_front();
    fail(std::move(work->caption), error.info());
  }
}

std::unique_ptr<CaptionPipeline::State::Work> CaptionPipeline::State::prepare(
    PreparedPictures& prepared, std::uint64_t number) {
  auto work = std::make_unique<Work>();
  Caption& caption = work->caption;
  caption.id = prepared.request.id;
  caption.sizes = prepared.sizes;
  caption.notes = prepared.notes;
  caption.seconds.read = prepared.seconds;
  work->start = Clock::now();
  if (prepared.error) throw Error(*prepared.error);
  const VisualEncoder& encoder = model->pictures();
  const TextModel& text = model->text();
  const ModelConfig& language = text.config().transformer;
  std::vector<PromptPicture> pictures;
  std::vector<PreprocessPlan> plans;
  for (const PreprocessedPicture& picture : prepared.pictures) {
    const PreprocessPlan& plan = plans.emplace_back(picture.plan);
    caption.seen.push_back({std::min(plan.resized_width, plan.canvas_width),
                            std::min(plan.resized_height, plan.canvas_height)});
  }
  // First: it refuses what no prompt can hold.
  const std::vector<std::int32_t> ids = model->prompt_ids(prepared.request.prompt, plans);
  for (const PreprocessedPicture& picture : prepared.pictures) {
    PromptPicture& out = pictures.emplace_back();
    if (pruner != nullptr) {
      const PrunedModel facts = pruned_model(static_cast<std::int64_t>(picture.views.size()));
      work->sessions.push_back(std::make_unique<PruneSession>(*pruner, facts, options.prune.budget,
                                                              options.seed, number));
      out.session = work->sessions.back().get();
    }
    out.visual = encoder.encode(picture, model->spec().three_axes(), out.session);
    caption.visual_tokens += out.visual.total;
  }
  PromptRows rows = build_prompt(text, ids, model->spec().image_id, std::move(pictures));
  caption.seconds.encode = since(work->start);
  for (const auto& session : work->sessions) caption.seconds.select += session->seconds();
  caption.prompt_tokens = rows.rows.shape()[0];
  const std::int64_t most = language.rope.positions;
  const std::int64_t length = std::max(rows.next_place, caption.prompt_tokens);
  if (length + options.most_tokens > most) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_PROMPT_LENGTH",
                 .where = "prompt",
                 .expected = "at most " + std::to_string(most - options.most_tokens) +
                             " rows of prompt beside " + std::to_string(options.most_tokens) +
                             " tokens of text",
                 .found = std::to_string(length)});
  }
  caption.kept = std::move(rows.kept);
  for (const VisualBlock& block : caption.kept) caption.kept_tokens += block.count();
  work->cuts = std::move(rows.cuts);
  work->item.rows = std::move(rows.rows);
  work->item.places = std::move(rows.places);
  work->item.next_place = rows.next_place;
  work->item.before = std::move(rows.text);
  work->item.stops = model->spec().stops;
  work->item.most_tokens = options.most_tokens;
  work->item.law = law;
  work->item.seed = options.seed;
  work->item.item = number;
  work->item.cuts = work->cuts.get();
  work->stream.emplace(model->tokenizer());
  return work;
}

void CaptionPipeline::State::fail(Caption caption, const ErrorInfo& error) {
  caption.failed = true;
  caption.error = error;
  listener->on_caption(std::move(caption));
}

void CaptionPipeline::State::admit(PreparedPictures prepared, std::uint64_t number) {
  ErrorInfo why;
  try {
    waiting.push_back(prepare(prepared, number));
    return;
  } catch (const Error& error) {  // the boundary of one item
    why = error.info();
  } catch (const std::bad_alloc&) {
    why = {.kind = ErrorKind::kMemory,
           .code = "E_PICTURE_MEMORY",
           .where = "encoding",
           .expected = "memory for the picture's rows",
           .found = "none left"};
  }
  Caption caption;
  caption.id = prepared.request.id;
  caption.sizes = prepared.sizes;
  caption.notes = prepared.notes;
  caption.seconds.read = prepared.seconds;
  fail(std::move(caption), why);
}

void CaptionPipeline::State::start(std::unique_ptr<Work> work) {
  const std::size_t slot = loop->add(std::move(work->item));
  at_work[slot] = std::move(work);
}

void CaptionPipeline::State::on_tokens(std::size_t slot, std::span<const std::int32_t> tokens) {
  Work& work = *at_work.at(slot);
  if (work.caption.seconds.first == 0) work.caption.seconds.first = since(work.start);
  const std::string more = work.stream->add(tokens, model->spec().stops);
  if (!more.empty()) listener->on_text(work.caption.id, more);
}

void CaptionPipeline::State::on_done(std::size_t slot, TextResult&& result) {
  const std::unique_ptr<Work> work = std::move(at_work.at(slot));
  at_work.erase(slot);
  Caption& caption = work->caption;
  caption.tokens = static_cast<std::int64_t>(result.tokens.size());
  caption.passes = result.passes;
  caption.meters = std::move(result.meters);
  caption.seconds.total = since(work->start);
  caption.seconds.select = 0;
  for (const auto& session : work->sessions) {
    caption.seconds.select += session->seconds();
    if (session->source() != RowSource::kNone) caption.prune_source = session->source();
  }
  if (work->cuts != nullptr) {
    caption.kept = work->cuts->blocks();
    caption.kept_tokens = 0;
    for (const VisualBlock& block : caption.kept) caption.kept_tokens += block.count();
  }
  if (result.status == DecodeStatus::kFailed) {
    return fail(std::move(caption), result.error);
  }
  caption.text = trimmed(work->stream->whole());
  caption.cut_short = !result.stopped;
  listener->on_caption(std::move(caption));
}

CaptionPipeline::CaptionPipeline(const CaptionOptions& options)
    : state_(std::make_unique<State>(
          options,
          resolve_model(options.model.empty() ? std::string(kDefaultCaptioner) : options.model))) {}
CaptionPipeline::~CaptionPipeline() = default;
CaptionPipeline::CaptionPipeline(CaptionPipeline&&) noexcept = default;

const CaptionModel& CaptionPipeline::model() const { return *state_->model; }
const std::string& CaptionPipeline::model_name() const { return state_->name; }
const DecodeMethod& CaptionPipeline::method() const { return state_->options.method; }
DType CaptionPipeline::storage() const { return state_->storage; }
const Backend& CaptionPipeline::backend() const { return *state_->backend; }

TextTimes CaptionPipeline::times() const {
  return state_->loop == nullptr ? state_->past : sum_of(state_->past, state_->loop->times());
}

std::string CaptionPipeline::window_report() const {
  return state_->controller ? state_->controller->why() : std::string();
}

void CaptionPipeline::load() { state_->model->load(*state_->backend, state_->storage); }

bool CaptionPipeline::run(const std::function<std::optional<CaptionRequest>()>& next,
                          CaptionListener& listener) {
  State& state = *state_;
  load();
  state.listener = &listener;
  state.loop.reset();
  state.at_work.clear();
  state.waiting.clear();
  state.past = {};
  state.batch = state.options.batch_size;
  PictureQueue queue(next, state.model->spec(), {.helper = state.options.helper},
                     static_cast<std::size_t>(std::max<std::int64_t>(state.options.batch_size, 2)));
  std::uint64_t number = 0;
  bool stopped = false;
  while (true) {
    const bool idle = state.loop == nullptr || state.loop->idle();
    if (state.waiting.empty() && (state.loop == nullptr || !state.loop->full()) && !stopped) {
      // Waits only when there is nothing else to do.
      if (auto prepared = queue.take(idle)) {
        const std::uint64_t place = number++;
        const std::uint64_t key = prepared->request.number.value_or(place);
        state.admit(std::move(*prepared), key);
      }
    }
    if (!state.waiting.empty()) {
      const std::int64_t rows = state.waiting.front()->item.rows.shape()[0];
      if (idle) state.make_room(rows);
      if (state.waiting.empty()) continue;  // there was none for it
      if (!state.loop->full() && rows <= state.loop->limits().prompt_rows) {
        state.start(std::move(state.waiting.front()));
        state.waiting.pop_front();
      }
    }
    if (state.loop != nullptr && !state.loop->idle()) {
      state.loop->step(state);
    } else if (state.waiting.empty() && (stopped || queue.over())) {
      // Whoever reads the inputs may have ended them for a stop.
      return !stopped && listener.on_pass() != Flow::kStop;
    }
    if (!stopped && listener.on_pass() == Flow::kStop) {
      stopped = true;
      queue.stop();
    }
  }
}

}  // namespace tessera
