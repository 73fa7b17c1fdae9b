// One thread reads and prepares pictures; this one encodes, prefills and writes. Between two passes
// pictures of four views in all are encoded, or one picture, and texts at work wait for no more.
#include "apps/runtime/caption_pipeline.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <new>

#include "apps/runtime/caption_memory.h"
#include "apps/runtime/caption_method.h"
#include "apps/runtime/caption_model.h"
#include "apps/runtime/memory_attempt.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/picture_prompt.h"
#include "apps/runtime/picture_queue.h"
#include "apps/runtime/text_stream.h"
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

StreamTimes sum_of(StreamTimes sum, const StreamTimes& more) {
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

// Pictures are read behind fewer walls than meant where the kernel refuses one: once it is known,
// it is said. Whether it is known.
bool tell_of_walls(const std::string& confinement, CaptionListener& listener) {
  if (confinement.empty()) return false;
  if (confinement != kWholeConfinement) {
    listener.on_notice("pictures are read behind " + confinement + ", not behind " +
                       std::string(kWholeConfinement) +
                       ": the kernel refused; a hostile picture could do more harm");
  }
  return true;
}

}  // namespace

struct CaptionPipeline::State final : StreamListener {
  // A text at work or on its way there.
  struct Work {
    Caption caption;
    PicturePrompt prompt;  // its rows are in the item
    Stream item;
    std::unique_ptr<VerifierWatch> watch;  // over the prompt, for a draft that goes by it
    std::unique_ptr<PreparedDraft> draft;  // null = it is written without drafts of a model
    // Rows of the draft's prompt, 1 without one.
    std::int64_t draft_rows() const { return draft ? draft->rows() : 1; }
    std::optional<TextStream> stream;
    Clock::time_point start;
  };

  // Pictures that are read, on their way to the encoder.
  struct Arrival {
    PreparedPictures prepared;
    std::uint64_t number = 0;
    std::vector<EncodedPicture> seen;  // of its pictures, if they ran together with others
    double seconds = 0;                // its share of that run
  };

  State(const CaptionOptions& given, const ModelReference& reference);

  PromptPruning pruning(std::uint64_t number) const {
    return {pruner.get(), options.prune.budget, options.seed, number};
  }
  void check_settings() const;
  bool has_room(const Work& work) const;
  bool make_loop(const StreamLimits& limits, std::int64_t draft_rows);
  void fit_loop(std::int64_t rows, std::int64_t draft_rows);
  void forget_texts();
  void make_room(std::int64_t rows);
  void arrive(PictureQueue& queue, bool wait);
  void look_at_arrived();
  bool can_look(const Arrival& arrival) const;
  void admit();
  std::unique_ptr<Work> prepare(Arrival& arrival);
  void prepare_draft(const PreparedPictures& prepared, Work& work) const;
  void start(std::unique_ptr<Work> work);
  void fail(Caption caption, const ErrorInfo& error);
  void on_tokens(std::size_t slot, std::span<const std::int32_t> tokens) override;
  void on_done(std::size_t slot, StreamResult&& result) override;

  CaptionOptions options;
  std::string name;
  std::unique_ptr<CaptionModel> model;
  std::unique_ptr<Backend> backend;
  DType storage;
  DecodeAids aids;
  std::unique_ptr<Pruner> pruner;
  std::unique_ptr<CaptionDraft> draft;
  std::unique_ptr<OwnedParts<float, KeyedRandom>> parts;
  std::optional<WindowController> controller;
  LawSettings law;
  std::unique_ptr<StreamLoop> loop;
  std::int64_t batch = 1;      // texts at once: as asked for, or what memory lasts for
  StreamTimes past;            // of loops that were replaced
  std::uint64_t arrivals = 0;  // in the run so far
  bool planned = false;        // whether the device has room for the model
  std::deque<Arrival> arrived;
  std::map<std::size_t, std::unique_ptr<Work>> at_work;
  std::deque<std::unique_ptr<Work>> waiting;  // encoded, but the loop has no room for their rows
  CaptionListener* listener = nullptr;
};

CaptionPipeline::State::State(const CaptionOptions& given, const ModelReference& reference)
    : options(given),
      name(reference.shown_name),
      model(CaptionModel::open(reference.open_name)),
      backend(make_backend(given.device, {.threads = given.threads}, given.cuda)),
      storage(given.storage.value_or(model->stored())) {
  expects(options.batch_size >= 1 && options.most_tokens >= 1, "texts at once, tokens of a text");
  const auto vocab = static_cast<std::size_t>(model->spec().model.vocab);
  aids.texts = true;
  aids.grammar = VocabularyGrammar::line(vocab, static_cast<std::size_t>(options.most_tokens));
  if (options.draft.on()) {
    draft = CaptionDraft::open(options.draft, *model, name, options.most_tokens);
    aids.draft_model = true;
  }
  options.method = settle_text_method(options.method, aids, options.most_tokens);
  if (options.method.adaptive) controller.emplace(options.method.window);
  if (options.prune.on()) {
    pruner = make_pruner(options.prune.method, options.prune.options);
  }
  check_settings();
  law = settle_sampling(options.sampling, {.guidance = 1, .temperature = 0});
  if (law.guided()) {
    refuse("E_FLAG_CONFLICT", "--cfg-scale", "1: texts are written without guidance",
           std::to_string(law.guidance));
  }
  parts = std::make_unique<OwnedParts<float, KeyedRandom>>(options.method, aids);
}

// What no picture can make good, before weights are read and outputs begun.
void CaptionPipeline::State::check_settings() const {
  const std::int64_t positions = model->spec().model.max_positions;
  if (options.most_tokens >= positions) {
    refuse("E_TEXT_LENGTH", "--max-tokens",
           "fewer than the " + std::to_string(positions) + " positions of the model",
           std::to_string(options.most_tokens));
  }
  check_pruning(*model, pruning(0));
  check_text_pruning(options.method, *model, pruning(0), options.prune.method);
}

bool CaptionPipeline::State::has_room(const Work& work) const {
  return work.item.prompt.length() <= loop->limits().prompt_rows &&
         (!draft || work.draft_rows() <= draft->drafter_rows());
}

// Whether there was memory for the loop and the drafter of a draft model.
bool CaptionPipeline::State::make_loop(const StreamLimits& limits, std::int64_t draft_rows) {
  const auto make = [&] {
    if (draft) {
      parts->set_drafter(nullptr);  // before the new one: both together may not fit
      parts->set_drafter(draft->make_drafter(limits, draft_rows));
    }
    loop = std::make_unique<StreamLoop>(model->text(), limits, parts->parts(),
                                        controller ? &*controller : nullptr);
  };
  if (!memory_failure(make, "texts")) return true;
  if (draft) parts->set_drafter(nullptr);
  return false;
}

// A loop with room for prompts of so many rows, and of so many in a draft model; the old one is
// idle. Where memory does not last, one with no more rows than needed, then one of half as many
// texts at once, down to one. Fewer at once is for the rest of the run. Error kMemory when there is
// no room for one text.
void CaptionPipeline::State::fit_loop(std::int64_t rows, std::int64_t draft_rows) {
  const std::int64_t had = loop == nullptr ? 0 : loop->limits().prompt_rows;
  const std::int64_t draft_had = loop == nullptr || !draft ? 0 : draft->drafter_rows();
  if (loop != nullptr && had >= rows && (!draft || draft_had >= draft_rows)) return;
  StreamLimits limits{.items = batch,
                      .prompt_rows = std::max(rows, options.prompt_rows),
                      .grammar = aids.grammar,
                      .window = options.method.window,
                      .kv = storage,
                      .laws = keeps_laws(options.method),
                      .shape = options.method.shape()};
  std::int64_t draft_room = draft_rows;
  if (loop != nullptr) {
    expects(loop->idle(), "an idle loop is replaced");
    past = sum_of(past, loop->times());
    const auto grown = [](std::int64_t old, std::int64_t now) {
      return old >= now ? old : now + now / 4;
    };
    limits.prompt_rows = std::max(limits.prompt_rows, grown(had, rows));
    draft_room = grown(draft_had, draft_rows);
    loop.reset();  // before the new one: both together may not fit
  }
  while (!make_loop(limits, draft_room)) {
    if (limits.prompt_rows > rows || draft_room > draft_rows) {
      limits.prompt_rows = rows;
      draft_room = draft_rows;
    } else if (limits.items > 1) {
      limits.items /= 2;
    } else {
      const StreamModelConfig& config = model->spec().model;
      const std::size_t bytes = text_loop_bytes(config, *backend, limits) +
                                (draft ? draft->bytes(*backend, limits, draft_rows) : 0);
      throw Error({.kind = ErrorKind::kMemory,
                   .code = "E_TEXT_MEMORY",
                   .where = "one text at a time, a prompt of " + std::to_string(rows) + " rows",
                   .expected = std::to_string(bytes) + " bytes",
                   .found = "allocation refused",
                   .hint = "try --dtype bf16, a smaller --max-tokens or --prune"});
    }
  }
  if (limits.items == batch) return;
  listener->on_fewer(batch, limits.items);
  batch = limits.items;
}

// All that a run holds but the times of its loops.
void CaptionPipeline::State::forget_texts() {
  if (loop != nullptr) past = sum_of(past, loop->times());
  loop.reset();
  if (draft) parts->set_drafter(nullptr);
  at_work.clear();
  waiting.clear();
  arrived.clear();
}

// Room for the text that waits, or its failure.
void CaptionPipeline::State::make_room(std::int64_t rows) {
  try {
    fit_loop(rows, waiting.front()->draft_rows());
  } catch (const Error& error) {  // the boundary of one item
    if (error.info().kind != ErrorKind::kMemory) throw;
    const std::unique_ptr<Work> work = std::move(waiting.front());
    waiting.pop_front();
    fail(std::move(work->caption), error.info());
  }
}

// Takes what is ready, so much that the encoder is well filled; waits for the first if asked to.
void CaptionPipeline::State::arrive(PictureQueue& queue, bool wait) {
  constexpr std::size_t kViews = 4;
  std::size_t views = 0;
  while (views < kViews && arrived.size() < static_cast<std::size_t>(batch)) {
    auto prepared = queue.take(wait && arrived.empty());
    if (!prepared) break;
    const std::uint64_t place = arrivals++;
    const std::uint64_t number = prepared->request.number.value_or(place);
    for (const PreprocessedPicture& picture : prepared->pictures) views += picture.views.size();
    arrived.push_back({std::move(*prepared), number, {}, 0});
  }
  if (arrived.size() > 1) look_at_arrived();
}

// Whether the encoder may run for it beside others: it will be needed, and nobody watches.
bool CaptionPipeline::State::can_look(const Arrival& arrival) const {
  if (arrival.prepared.error || arrival.prepared.pictures.empty()) return false;
  try {
    std::vector<PreprocessPlan> plans;
    for (const PreprocessedPicture& picture : arrival.prepared.pictures) {
      plans.push_back(picture.plan);
    }
    model->prompt_ids(arrival.prepared.request.prompt, plans);
    const auto views = static_cast<std::int64_t>(arrival.prepared.pictures.front().views.size());
    return pruner == nullptr ||
           !VisualEncoder::watched({*pruner, pruned_model_of(*model, views), options.prune.budget,
                                    options.seed, arrival.number});
  } catch (const Error&) {  // said when it is admitted
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// One run of the encoder for the pictures that arrived together.
void CaptionPipeline::State::look_at_arrived() {
  std::vector<const PreprocessedPicture*> pictures;
  std::vector<Arrival*> those;
  for (Arrival& arrival : arrived) {
    if (!can_look(arrival)) continue;
    those.push_back(&arrival);
    for (const PreprocessedPicture& picture : arrival.prepared.pictures) {
      pictures.push_back(&picture);
    }
  }
  if (those.size() < 2) return;
  const Clock::time_point begin = Clock::now();
  std::vector<EncodedPicture> seen;
  try {
    seen = model->pictures().look(pictures);
  } catch (const Error&) {  // each alone then, so that the one at fault is known
    return;
  } catch (const std::bad_alloc&) {
    return;
  }
  auto next = std::make_move_iterator(seen.begin());
  for (Arrival* arrival : those) {
    const auto end = next + static_cast<std::ptrdiff_t>(arrival->prepared.pictures.size());
    arrival->seen.assign(next, end);
    arrival->seconds = since(begin) / static_cast<double>(those.size());
    next = end;
  }
}

std::unique_ptr<CaptionPipeline::State::Work> CaptionPipeline::State::prepare(Arrival& arrival) {
  const PreparedPictures& prepared = arrival.prepared;
  const std::uint64_t number = arrival.number;
  auto work = std::make_unique<Work>();
  Caption& caption = work->caption;
  caption.id = prepared.request.id;
  caption.sizes = prepared.sizes;
  caption.notes = prepared.notes;
  caption.seconds.read = prepared.seconds;
  work->start = Clock::now() - std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(arrival.seconds));
  if (prepared.error) throw Error(*prepared.error);
  for (const PreprocessedPicture& picture : prepared.pictures) {
    const PreprocessPlan& plan = picture.plan;
    if (plan.clip) {
      const std::vector<std::int64_t>& shown = plan.clip->numbers;
      caption.frames.insert(caption.frames.end(), shown.begin(), shown.end());
    }
    caption.seen.push_back({std::min(plan.resized_width, plan.canvas_width),
                            std::min(plan.resized_height, plan.canvas_height)});
  }
  work->prompt = make_picture_prompt(*model, prepared.request.prompt, prepared.pictures,
                                     pruning(number), options.most_tokens, arrival.seen);
  PromptRows& rows = work->prompt.rows;
  caption.visual_tokens = work->prompt.visual_tokens;
  caption.seconds.select = work->prompt.select_seconds();
  caption.prompt_tokens = rows.rows.shape()[0];
  caption.kept = rows.kept;
  caption.kept_tokens = count_tokens(caption.kept);
  work->item.kind = StreamKind::kText;
  work->item.prompt = {.ids = {},
                       .rows = std::make_shared<const Tensor>(std::move(rows.rows)),
                       .positions = std::move(rows.places),
                       .next_position = rows.next_place,
                       .cuts = rows.cuts.get()};
  work->item.before = std::move(rows.text);
  work->item.stops = model->describe().stops;
  work->item.max_tokens = options.most_tokens;
  work->item.law = law;
  work->item.seed = options.seed;
  work->item.item = number;
  const ModelConfig& language = model->spec().model.transformer;
  if (draft && draft->verified() && pruner == nullptr && language.layers > 1 &&
      !rows.picture_rows.empty()) {
    work->watch =
        std::make_unique<VerifierWatch>(language, *backend, rows.picture_rows, rows.text_rows);
    work->item.prompt.cuts = work->watch.get();
  }
  // Some methods cut the prompts of several views only, which no setting shows.
  if (work->item.prompt.cuts != nullptr && options.method.shape() != PassShape::kLine) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_DECODE_CONFLICT",
                 .where = "drafts of the text",
                 .expected = "a method whose drafts stand in a line, as --prune " +
                             options.prune.method + " cuts prompts inside the model",
                 .found = options.method.name});
  }
  work->stream.emplace(model->tokenizer());
  if (draft) prepare_draft(prepared, *work);
  caption.seconds.encode = since(work->start);
  return work;
}

// What the draft cannot take, the text does without.
void CaptionPipeline::State::prepare_draft(const PreparedPictures& prepared, Work& work) const {
  Caption& caption = work.caption;
  const bool own = !prepared.draft_pictures.empty();
  try {
    if (prepared.draft_error) throw Error(*prepared.draft_error);
    work.draft =
        draft->prepare(prepared.request.prompt, own ? prepared.draft_pictures : prepared.pictures,
                       work.item, work.watch.get());
    caption.draft = draft->name();
    caption.seconds.draft = work.draft->seconds;
  } catch (const Error& error) {
    if (error.info().kind != ErrorKind::kGeneral) throw;
    caption.notes.push_back("written without the draft model: " + format_error(error.info()));
  }
}

void CaptionPipeline::State::fail(Caption caption, const ErrorInfo& error) {
  caption.failed = true;
  caption.error = error;
  listener->on_caption(std::move(caption));
}

// The next of those that arrived, to be written or failed.
void CaptionPipeline::State::admit() {
  Arrival arrival = std::move(arrived.front());
  arrived.pop_front();
  const PreparedPictures& prepared = arrival.prepared;
  ErrorInfo why;
  try {
    waiting.push_back(prepare(arrival));
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
  if (work->draft) draft->set_stream(slot, *work->draft);
  at_work[slot] = std::move(work);
}

void CaptionPipeline::State::on_tokens(std::size_t slot, std::span<const std::int32_t> tokens) {
  Work& work = *at_work.at(slot);
  if (work.caption.seconds.first == 0) work.caption.seconds.first = since(work.start);
  const std::string more = work.stream->add(tokens, model->describe().stops);
  if (!more.empty()) listener->on_text(work.caption.id, more);
}

void CaptionPipeline::State::on_done(std::size_t slot, StreamResult&& result) {
  const std::unique_ptr<Work> work = std::move(at_work.at(slot));
  at_work.erase(slot);
  Caption& caption = work->caption;
  caption.tokens = static_cast<std::int64_t>(result.tokens.size());
  caption.passes = result.passes;
  caption.meters = std::move(result.meters);
  caption.seconds.total = since(work->start);
  caption.seconds.select = work->prompt.select_seconds();
  caption.prune_source = work->prompt.source();
  caption.kept = work->prompt.kept();
  caption.scores = work->prompt.scores();
  caption.whole = std::move(work->prompt.whole);
  caption.kept_tokens = count_tokens(caption.kept);
  if (work->draft) caption.draft_kept_tokens = work->draft->kept_tokens();
  if (result.status == StreamStatus::kFailed) {
    return fail(std::move(caption), result.error);
  }
  caption.text = trimmed(work->stream->whole());
  caption.cut_short = !result.stopped;
  listener->on_caption(std::move(caption));
}

void CaptionListener::on_fewer(std::int64_t had, std::int64_t have) {
  on_notice("not enough memory for " + std::to_string(had) +
            " texts at once: " + std::to_string(have) + " from here on");
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

StreamTimes CaptionPipeline::times() const {
  return state_->loop == nullptr ? state_->past : sum_of(state_->past, state_->loop->times());
}

std::string CaptionPipeline::window_report() const {
  return state_->controller ? state_->controller->why() : std::string();
}

void CaptionPipeline::load() {
  if (!std::exchange(state_->planned, true)) {
    check_caption_memory(model().spec(), backend(), storage(),
                         {.prompt_rows = state_->options.prompt_rows,
                          .grammar = state_->aids.grammar,
                          .window = method().window,
                          .kv = storage(),
                          .laws = keeps_laws(method()),
                          .shape = method().shape()},
                         model_name());
  }
  state_->model->load(*state_->backend, state_->storage);
  if (state_->draft) state_->draft->load(*state_->backend, state_->options.storage);
}

void CaptionPipeline::set_pruning(const PruneChoice& prune) {
  state_->options.prune = prune;
  state_->pruner = prune.on() ? make_pruner(prune.method, prune.options) : nullptr;
  state_->check_settings();
}

void CaptionPipeline::set_texts_at_once(std::int64_t texts) {
  expects(texts >= 1, "texts are written one at a time at least");
  state_->options.batch_size = texts;
}

void CaptionPipeline::give_back() { state_->forget_texts(); }

bool CaptionPipeline::run(const std::function<std::optional<CaptionRequest>()>& next,
                          CaptionListener& listener) {
  State& state = *state_;
  load();
  state.listener = &listener;
  state.forget_texts();
  state.arrivals = 0;
  state.past = {};
  state.batch = state.options.batch_size;
  PictureQueue queue(next, state.model->describe(), {.helper = state.options.helper},
                     static_cast<std::size_t>(std::max<std::int64_t>(state.options.batch_size, 2)),
                     state.draft ? state.draft->picture_spec() : nullptr);
  bool stopped = false, walls_known = false;
  while (true) {
    const bool idle = state.loop == nullptr || state.loop->idle();
    if (state.waiting.empty() && (state.loop == nullptr || !state.loop->full()) && !stopped) {
      // Waits only when there is nothing else to do.
      if (state.arrived.empty()) state.arrive(queue, idle);
      if (!state.arrived.empty()) {
        walls_known = walls_known || tell_of_walls(queue.confinement(), listener);
        state.admit();
      }
    }
    if (!state.waiting.empty()) {
      const std::int64_t rows = state.waiting.front()->item.prompt.length();
      if (idle) state.make_room(rows);
      if (state.waiting.empty()) continue;  // there was none for it
      if (!state.loop->full() && state.has_room(*state.waiting.front())) {
        state.start(std::move(state.waiting.front()));
        state.waiting.pop_front();
      }
    }
    if (state.loop != nullptr && !state.loop->idle()) {
      state.loop->step(state);
    } else if (state.waiting.empty() && (stopped || (state.arrived.empty() && queue.over()))) {
      // Whoever reads the inputs may have ended them for a stop.
      return !stopped && listener.on_pass() != Flow::kStop;
    }
    if (!stopped && listener.on_pass() == Flow::kStop) {
      stopped = true;
      state.arrived.clear();
      queue.stop();
    }
  }
}

}  // namespace tessera
