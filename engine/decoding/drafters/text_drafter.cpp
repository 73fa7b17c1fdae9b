// The draft model follows each text as ModelDrafter follows pictures: its cache is cut to what
// still stands, fed the rest, then one pass a draft, all texts in one batch. Prompts enter a part
// at a time beside the tokens of the first of those passes.
#include "engine/decoding/drafters/text_drafter.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/decoding/drafters/draft_judge.h"
#include "engine/decoding/drafters/draft_stream.h"
#include "engine/decoding/model_pass.h"

namespace tessera {

namespace {

// Tokens of one text that a pass feeds at most.
std::int64_t most_new_rows(const StreamLimits& limits) { return 2 * limits.window; }

ModelPass::Limits pass_limits(const StreamLimits& limits) {
  return {.sequences = limits.items,
          .capacity = limits.prompt_rows + limits.tokens() + limits.window,
          .logit_rows = limits.items,
          .token_rows = limits.items * most_new_rows(limits),
          .prompt_rows = limits.budget,
          .mixed = true,
          .guest_rows = limits.prompt_rows,
          .kv = limits.kv};
}

}  // namespace

struct TextDrafter::State {
  struct Slot {
    std::optional<DraftText> text;
    std::optional<LawPipeline<float>> law;
    std::int64_t prompt_rows = 0, prompt_done = 0;
    std::uint64_t arrival = 0;
    DraftStream stream;
    std::int64_t last_row = 0;  // of its tokens in the pass
    bool reading() const { return text.has_value() && prompt_done < prompt_rows; }
    bool ready() const { return text.has_value() && prompt_done == prompt_rows; }
  };
  using Job = DraftJob<float, KeyedRandom>;

  State(const TextModel& draft_model, const StreamLimits& draft_limits);

  void forget(std::size_t item);
  void note_prompts(std::span<Job> jobs);
  void read_prompt_in_parts();
  void add_prompts();
  void prompt_through(Slot& slot);
  void add_tokens(const Job& job);
  void run_heads(bool fetch);
  void draw(Job& job, std::int64_t row);
  void draw_on_device();
  void stop_behind(Job& job, std::int32_t token) const;

  const TextModel& model;
  StreamLimits limits;
  ModelPass pass;
  std::unique_ptr<DraftJudge> judge;  // null where the host draws
  Tensor last_hidden;                 // [1, D] of a prompt with cuts; nothing reads it
  std::vector<Slot> slots;
  std::vector<std::size_t> prompts;  // slots whose prompt is to be read, in order of arrival
  std::vector<Job*> open;            // in order of their rows in the pass
  std::vector<Job*> drawn;           // of them, those that a device draws for
  std::uint64_t arrivals = 0;
  std::int64_t passes = 0;
};

TextDrafter::State::State(const TextModel& draft_model, const StreamLimits& draft_limits)
    : model(draft_model),
      limits(draft_limits),
      pass(draft_model, pass_limits(draft_limits)),
      judge(DraftJudge::make(draft_model.backend(), draft_model.config().vocab, draft_limits.items,
                             draft_limits.window, /*trees=*/false)),
      last_hidden(draft_model.backend().allocate(DType::kF32, Shape{1, draft_model.width()})) {
  slots.resize(static_cast<std::size_t>(limits.items));
  prompts.reserve(slots.size());
  open.reserve(slots.size());
  drawn.reserve(slots.size());
  for (Slot& slot : slots) {
    slot.stream.reserve(static_cast<std::size_t>(limits.tokens() + limits.window),
                        static_cast<std::size_t>(most_new_rows(limits)));
  }
}

void TextDrafter::State::forget(std::size_t item) {
  Slot& slot = slots[item];
  slot.text.reset();
  slot.prompt_rows = slot.prompt_done = 0;
  slot.stream.clear();
  pass.cache().truncate(static_cast<std::int64_t>(item), 0);
}

void TextDrafter::State::note_prompts(std::span<Job> jobs) {
  prompts.clear();
  for (const Job& job : jobs) {
    if (job.window->size() < job.want && slots[job.item].reading()) prompts.push_back(job.item);
  }
  for (const std::size_t item : prompts) {
    Slot& slot = slots[item];
    if (!slot.text->settle) continue;
    std::exchange(slot.text->settle, nullptr)(*slot.text);
    const std::int64_t rows = slot.text->rows.shape()[0];
    expects(rows >= 1 && rows <= slot.prompt_rows &&
                static_cast<std::int64_t>(slot.text->places.size()) == rows,
            "no more rows than were told, a place a row");
    slot.prompt_rows = rows;
  }
  std::sort(prompts.begin(), prompts.end(),
            [&](std::size_t a, std::size_t b) { return slots[a].arrival < slots[b].arrival; });
}

// The first prompt that is cut between layers runs by itself, one a call.
void TextDrafter::State::read_prompt_in_parts() {
  const auto found = std::find_if(prompts.begin(), prompts.end(), [&](std::size_t item) {
    return slots[item].text->cuts != nullptr;
  });
  if (found == prompts.end()) return;
  Slot& slot = slots[*found];
  pass.begin();
  run_prompt_in_parts(model.transformer(), static_cast<std::int64_t>(*found),
                      slot.text->rows.view(), slot.text->places, *slot.text->cuts, pass.cache(),
                      pass.arena(), last_hidden.view());
  slot.prompt_done = slot.prompt_rows;
  prompt_through(slot);
  ++passes;
}

void TextDrafter::State::add_prompts() {
  std::int64_t room = limits.budget;
  for (const std::size_t item : prompts) {
    Slot& slot = slots[item];
    if (slot.text->cuts != nullptr || room == 0) continue;
    const std::int64_t first = slot.prompt_done;
    const std::int64_t count = std::min(room, slot.prompt_rows - first);
    const TensorView all = slot.text->rows.view();
    pass.add_prompt_rows(
        static_cast<std::int32_t>(item),
        {all.dtype, Shape{count, model.width()}, all.f32() + first * model.width(), all.device},
        std::span(slot.text->places)
            .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
    slot.prompt_done += count;
    room -= count;
  }
}

// Nobody reads it again, once what is under way has.
void TextDrafter::State::prompt_through(Slot& slot) {
  model.backend().synchronize();
  slot.text->rows = {};
  slot.text->places = {};
}

// What the text gained since it was last asked for; its cache forgets what was refused. Places go
// on behind the draft's own prompt.
void TextDrafter::State::add_tokens(const Job& job) {
  Slot& slot = slots[job.item];
  const auto sequence = static_cast<std::int32_t>(job.item);
  const auto same = static_cast<std::int64_t>(
      slot.stream.follow(job.next_position(), static_cast<std::size_t>(most_new_rows(limits)),
                         [&](std::size_t i) { return job.token(i); }));
  pass.cache().truncate(sequence, slot.prompt_rows + same);
  pass.add_line(sequence, {.position = slot.text->next_place + same,
                           .shared = slot.prompt_rows + same,
                           .seen = {},
                           .tokens = slot.stream.fresh()});
  slot.last_row = pass.rows() - 1;
}

// Logit row i is of open[i]; neighbours in the pass share a call.
void TextDrafter::State::run_heads(bool fetch) {
  const auto row_of = [&](std::size_t i) { return slots[open[i]->item].last_row; };
  for (std::size_t first = 0, end = 0; first < open.size(); first = end) {
    for (end = first + 1; end < open.size() && row_of(end) == row_of(end - 1) + 1; ++end) {
    }
    pass.run_head(row_of(first), static_cast<std::int64_t>(end - first),
                  static_cast<std::int64_t>(first));
  }
  if (fetch && !open.empty()) pass.fetch_logits();
}

// A broken row of the draft model fails nothing: the window stays short. So it does behind a stop.
void TextDrafter::State::draw(Job& job, std::int64_t row) {
  Slot& slot = slots[job.item];
  const std::span<const float> logits = pass.logits(row);
  if (first_unsound(logits)) {
    job.want = job.window->size();
    return;
  }
  slot.law->process(logits, {});
  stop_behind(job, append_drawn(job, *slot.law));
}

void TextDrafter::State::draw_on_device() {
  judge->begin();
  drawn.clear();
  for (std::size_t i = 0; i < open.size(); ++i) {
    const Slot& slot = slots[open[i]->item];
    if (!slot.stream.caught_up()) continue;
    judge->add(*open[i], slot.law->settings(), static_cast<std::int64_t>(i), -1);
    drawn.push_back(open[i]);
  }
  const std::span<const std::int32_t> tokens = judge->run(pass.device_logits());
  for (std::size_t i = 0; i < drawn.size(); ++i) stop_behind(*drawn[i], tokens[i]);
}

void TextDrafter::State::stop_behind(Job& job, std::int32_t token) const {
  const std::vector<std::int32_t>& stops = slots[job.item].text->stops;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) job.want = job.window->size();
}

TextDrafter::TextDrafter(const TextModel& model, const StreamLimits& limits)
    : state_(std::make_unique<State>(model, limits)) {}
TextDrafter::~TextDrafter() = default;

const StreamLimits& TextDrafter::limits() const { return state_->limits; }
std::int64_t TextDrafter::passes() const { return state_->passes; }

const RowJudge* TextDrafter::judge_on(const Backend& backend) const {
  const bool here = state_->judge != nullptr && &backend == &state_->model.backend();
  return here ? &state_->judge->rows() : nullptr;
}

void TextDrafter::start(std::size_t items) {
  expects(items <= state_->slots.size(), "texts fit the drafter's limits");
  state_->passes = 0;
  for (std::size_t item = 0; item < state_->slots.size(); ++item) state_->forget(item);
}

void TextDrafter::renew(std::size_t item) { state_->forget(item); }

void TextDrafter::set_text(std::size_t item, DraftText text) {
  State& state = *state_;
  expects(item < state.slots.size(), "a place of the loop");
  const std::int64_t rows = text.rows.shape()[0];
  expects(rows >= 1 && rows <= state.limits.prompt_rows, "the prompt fits the drafter's limits");
  expects(static_cast<std::int64_t>(text.places.size()) == rows, "a place a row");
  expects(!text.law.guided(), "texts are written without guidance");
  state.forget(item);
  State::Slot& slot = state.slots[item];
  slot.prompt_rows = rows;
  slot.arrival = state.arrivals++;
  slot.law.emplace(text.law, state.model.config().vocab);
  slot.text = std::move(text);
}

void TextDrafter::extend(std::span<DraftJob<float, KeyedRandom>> jobs) {
  State& state = *state_;
  const bool on_device = state.judge != nullptr && DraftJudge::draws(jobs);
  state.note_prompts(jobs);
  state.read_prompt_in_parts();
  for (bool first = true;; first = false) {
    state.pass.begin();
    state.open.clear();
    for (DraftJob<float, KeyedRandom>& job : jobs) {
      if (job.window->size() >= job.want || !state.slots[job.item].ready()) continue;
      state.open.push_back(&job);
      state.add_tokens(job);
    }
    if (first) state.add_prompts();
    if (state.pass.rows() == 0) return;
    state.pass.run_layers();
    state.run_heads(!on_device);
    ++state.passes;
    for (const std::size_t item : state.prompts) {
      if (first && state.slots[item].ready()) state.prompt_through(state.slots[item]);
    }
    if (on_device) {
      state.draw_on_device();
      continue;
    }
    for (std::size_t i = 0; i < state.open.size(); ++i) {
      const bool caught_up = state.slots[state.open[i]->item].stream.caught_up();
      if (caught_up) state.draw(*state.open[i], static_cast<std::int64_t>(i));
    }
  }
}

std::size_t TextDrafter::bytes(const TextModelConfig& config, const Backend& backend,
                               const StreamLimits& limits) {
  const bool on_device = backend.device().kind != DeviceKind::kCpu;
  const JudgeLimits judged =
      DraftJudge::limits(config.vocab, limits.items, limits.window, /*trees=*/false);
  return ModelPass::bytes(config.transformer, config.vocab, backend, pass_limits(limits)) +
         (on_device ? judged.bytes(/*laws=*/false) : 0) +
         static_cast<std::size_t>(limits.items) * LawPipeline<float>::buffer_bytes(config.vocab);
}

}  // namespace tessera
