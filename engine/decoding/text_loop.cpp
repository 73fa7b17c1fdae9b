// Rows of a pass: the windows of all texts that have their prompt, then parts of prompts that wait,
// in the order in which they came, up to `chunk` rows.
#include "engine/decoding/text_loop.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <string>

#include "engine/decoding/broken_logits.h"
#include "engine/decoding/device_judge.h"
#include "engine/decoding/model_pass.h"

namespace tessera {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

ModelPass::Limits pass_limits(const TextLimits& limits) {
  return {.sequences = limits.items,
          .capacity = limits.prompt_rows + limits.tokens + limits.window,
          .logit_rows = limits.items * limits.window,
          .token_rows = limits.items * limits.window,
          .prompt_rows = limits.chunk,
          .mixed = true,
          .guest_rows = limits.prompt_rows,
          .kv = limits.kv};
}

VocabularyGrammar grammar_of(const TokenModel& model, std::int64_t tokens) {
  return VocabularyGrammar::line(static_cast<std::size_t>(model.logit_ids()),
                                 static_cast<std::size_t>(tokens));
}

}  // namespace

struct TextLoop::State {
  using Sequence = PictureSequence<float, KeyedRandom>;
  struct Slot {
    TextItem item;
    std::unique_ptr<Sequence> sequence;   // null = free
    JudgedSequence* on_device = nullptr;  // the sequence, where a device judges
    std::size_t judged_number = 0;        // of the pass
    std::int64_t prompt_done = 0;         // rows of the prompt in the cache
    std::size_t window_rows = 0;
    std::int64_t first_row = 0;  // of its logits
    std::int64_t cached = 0;     // token rows when the pass began
    std::size_t told = 0;        // tokens the listener knows of
    bool judged = false;         // takes part in the judgement of this pass
    std::optional<ErrorInfo> error;
    bool writing() const { return sequence != nullptr && prompt_done == item.rows.shape()[0]; }
  };

  State(const TokenModel& text_model, const TextLimits& text_limits, const LoopParts& loop_parts,
        WindowController* window_controller);

  void draft();
  void add_windows();
  void add_prompts();
  void run();
  void make_chain(Slot& slot, std::size_t number);
  void judge_on_device();
  void judge(Slot& slot);
  void fail(Slot& slot, std::int64_t id, float logit) const;
  void finish(TextListener& listener);

  const TokenModel& model;
  TextLimits limits;
  LoopParts parts;
  WindowController* controller;
  ModelPass pass;
  std::unique_ptr<DeviceJudge> device_judge;  // null where the host judges
  Tensor last_row;                            // [1, D] of a prompt that ran in parts of the layers
  std::vector<Slot> slots;
  std::deque<std::size_t> waiting;  // slots whose prompt is not through
  std::vector<DraftJob<float, KeyedRandom>> jobs;
  std::vector<JudgedSequence*> on_device;  // of jobs
  // Slots whose prompt came to its end in this pass, and its last row there.
  struct Ended {
    std::size_t slot = 0;
    std::int64_t row = 0;
  };
  std::vector<Ended> ended;
  std::int64_t prompt_row = 0;  // first row of prompts in the pass
  PassLine line;
  TextTimes times;
};

TextLoop::State::State(const TokenModel& text_model, const TextLimits& text_limits,
                       const LoopParts& loop_parts, WindowController* window_controller)
    : model(text_model),
      limits(text_limits),
      parts(loop_parts),
      controller(window_controller),
      pass(text_model, pass_limits(text_limits)),
      device_judge(DeviceJudge::make(text_model.backend(), loop_parts,
                                     grammar_of(text_model, text_limits.tokens), text_limits.items,
                                     text_limits.window)),
      last_row(text_model.backend().allocate(DType::kF32, Shape{1, text_model.width()})) {
  expects(parts.shape() == PassShape::kLine, "texts are drafted in a line");
  expects(limits.laws || limits.window == 1 || !parts.needs_laws(), "laws fit the limits");
  slots.resize(static_cast<std::size_t>(limits.items));
  jobs.reserve(slots.size());
  if (parts.drafter != nullptr) parts.drafter->start(slots.size());
}

void TextLoop::State::make_chain(Slot& slot, std::size_t number) {
  const VocabularyGrammar grammar = grammar_of(model, slot.item.most_tokens);
  const auto window = static_cast<std::size_t>(limits.window);
  const KeyedRandom random(slot.item.seed, slot.item.item);
  if (device_judge == nullptr) {
    slot.sequence = make_sequence(slot.item.law, grammar, window, parts, random, number);
    return;
  }
  auto made = DeviceJudge::make_sequence(slot.item.law, grammar, window, parts, random, number);
  slot.on_device = made.judged;
  slot.sequence = std::move(made.sequence);
}

void TextLoop::State::draft() {
  std::int64_t writing = 0;
  for (const Slot& slot : slots) writing += slot.writing() ? 1 : 0;
  std::int64_t most = parts.drafter != nullptr ? limits.window : 1;
  if (controller != nullptr && parts.drafter != nullptr && writing > 0) {
    most = std::min(most, controller->next(writing));
  }
  jobs.clear();
  for (Slot& slot : slots) {
    if (slot.writing()) {
      jobs.push_back(slot.sequence->draft_job(static_cast<std::size_t>(most)));
    }
  }
  if (parts.drafter == nullptr || jobs.empty()) return;
  parts.drafter->extend(jobs);
  if (device_judge == nullptr) return;
  on_device.clear();
  for (const auto& job : jobs) on_device.push_back(slots[job.item].on_device);
  device_judge->grow(on_device);
}

void TextLoop::State::add_windows() {
  for (const auto& job : jobs) {
    Slot& slot = slots[job.item];
    const auto sequence = static_cast<std::int32_t>(job.item);
    slot.window_rows = slot.sequence->rows();
    slot.first_row = pass.rows();
    slot.cached = pass.cache().length(sequence);
    slot.judged = true;
    slot.sequence->line(0, line);
    pass.add_line(sequence, {slot.item.next_place + static_cast<std::int64_t>(line.position),
                             slot.cached,
                             {},
                             line.tokens});
  }
}

// Prompts that are cut between layers run by themselves, one a pass.
void TextLoop::State::add_prompts() {
  prompt_row = pass.rows();
  ended.clear();
  std::int64_t room = limits.chunk;
  bool cut_one = false;
  for (auto next = waiting.begin(); next != waiting.end() && room > 0;) {
    Slot& slot = slots[*next];
    const auto sequence = static_cast<std::int32_t>(*next);
    const std::int64_t total = slot.item.rows.shape()[0];
    if (slot.item.cuts != nullptr) {
      if (cut_one) break;
      cut_one = true;
      slot.prompt_done = total;
    } else {
      const std::int64_t count = std::min(room, total - slot.prompt_done);
      const auto first = static_cast<std::size_t>(slot.prompt_done);
      const TensorView all = slot.item.rows.view();
      pass.add_prompt_rows(
          sequence,
          {all.dtype, Shape{count, model.width()}, all.f32() + slot.prompt_done * model.width(),
           all.device},
          std::span(slot.item.places).subspan(first, static_cast<std::size_t>(count)));
      slot.prompt_done += count;
      room -= count;
    }
    if (slot.prompt_done < total) break;
    ended.push_back({*next, pass.rows() - 1});
    next = waiting.erase(next);
  }
}

void TextLoop::State::run() {
  const std::int64_t token_rows = prompt_row;
  std::int64_t logit_row = token_rows;
  if (ended.empty() && token_rows == pass.rows()) return pass.run();
  if (pass.rows() > 0) pass.run_layers();
  if (token_rows > 0) pass.run_head(0, token_rows, 0);
  for (const auto& [number, row] : ended) {
    Slot& slot = slots[number];
    slot.window_rows = 1;
    slot.first_row = logit_row;
    slot.judged = true;
    if (slot.item.cuts != nullptr) {
      run_prompt_in_parts(model.transformer(), static_cast<std::int64_t>(number),
                          slot.item.rows.view(), slot.item.places, *slot.item.cuts, pass.cache(),
                          pass.arena(), last_row.view());
      pass.run_head_of(last_row.view(), logit_row++);
    } else {
      pass.run_head(row, 1, logit_row++);
    }
    slot.cached = pass.cache().length(static_cast<std::int64_t>(number));
  }
}

// The texts that have rows in the pass, where these are; the records come to the host.
void TextLoop::State::judge_on_device() {
  device_judge->begin();
  bool any = false;
  for (Slot& slot : slots) {
    if (!slot.judged) continue;
    any = true;
    slot.judged_number = device_judge->add(*slot.on_device, slot.first_row, slot.first_row);
  }
  // A pass of prompts alone leaves the laws of the last one where they are.
  if (any) device_judge->run(pass.device_logits());
}

void TextLoop::State::fail(Slot& slot, std::int64_t id, float logit) const {
  slot.error = unsound_logit(
      "text token " + std::to_string(slot.sequence->tokens().size()) + ", id " + std::to_string(id),
      logit);
}

// A broken row fails the text if it is the first one. Further ones stand behind drafts that may be
// wrong: they and what follows are left out of the judgement.
void TextLoop::State::judge(Slot& slot) {
  if (slot.on_device != nullptr) {
    const JudgedCount& item = device_judge->item(slot.judged_number);
    const std::span<const RowRecord> rows = device_judge->rows(slot.judged_number);
    if (item.sound == 0) return fail(slot, rows[0].unsound, rows[0].unsound_logit);
    return slot.on_device->take(rows, item);
  }
  std::size_t sound = 0;
  for (; sound < slot.window_rows; ++sound) {
    const std::span<const float> row =
        pass.logits(slot.first_row + static_cast<std::int64_t>(sound));
    const std::optional<std::int64_t> id = first_unsound(row);
    if (!id) continue;
    if (sound > 0) break;
    return fail(slot, *id, row[static_cast<std::size_t>(*id)]);
  }
  slot.sequence->judge(
      [&](std::size_t row) {
        return RawRow<float>{pass.logits(slot.first_row + static_cast<std::int64_t>(row)), {}};
      },
      sound);
}

void TextLoop::State::finish(TextListener& listener) {
  for (std::size_t number = 0; number < slots.size(); ++number) {
    Slot& slot = slots[number];
    if (!slot.judged) continue;
    slot.judged = false;
    const auto sequence = static_cast<std::int64_t>(number);
    const std::vector<std::int32_t>& tokens = slot.sequence->tokens();
    if (!slot.error) {
      const auto kept = static_cast<std::int64_t>(slot.sequence->kept_rows().size());
      pass.cache().truncate(sequence, slot.cached + kept);
      if (tokens.size() > slot.told) {
        listener.on_tokens(number, std::span(tokens).subspan(slot.told));
        slot.told = tokens.size();
      }
      if (!slot.sequence->done()) continue;
    }
    TextResult result;
    result.status = slot.error ? DecodeStatus::kFailed : DecodeStatus::kDone;
    result.tokens = tokens;
    result.stopped = !tokens.empty() && std::find(slot.item.stops.begin(), slot.item.stops.end(),
                                                  tokens.back()) != slot.item.stops.end();
    result.meters = slot.sequence->meters();
    result.passes = result.meters.passes;
    if (slot.error) result.error = *slot.error;
    pass.cache().truncate(sequence, 0);
    slot = {};
    listener.on_done(number, std::move(result));
  }
}

TextLoop::TextLoop(const TokenModel& model, const TextLimits& limits, const LoopParts& parts,
                   WindowController* controller)
    : state_(std::make_unique<State>(model, limits, parts, controller)) {}
TextLoop::~TextLoop() = default;
TextLoop::TextLoop(TextLoop&&) noexcept = default;

const TextLimits& TextLoop::limits() const { return state_->limits; }
const TextTimes& TextLoop::times() const { return state_->times; }

bool TextLoop::full() const {
  return std::all_of(state_->slots.begin(), state_->slots.end(),
                     [](const State::Slot& slot) { return slot.sequence != nullptr; });
}
bool TextLoop::idle() const {
  return std::all_of(state_->slots.begin(), state_->slots.end(),
                     [](const State::Slot& slot) { return slot.sequence == nullptr; });
}

std::size_t TextLoop::add(TextItem item) {
  State& state = *state_;
  const std::int64_t rows = item.rows.shape()[0];
  expects(rows >= 1 && rows <= state.limits.prompt_rows, "the prompt fits the limits");
  expects(static_cast<std::int64_t>(item.places.size()) == rows, "a place a row");
  expects(item.most_tokens >= 1 && item.most_tokens <= state.limits.tokens, "the text fits");
  expects(!item.law.guided(), "texts are written without guidance");
  std::size_t number = 0;
  while (number < state.slots.size() && state.slots[number].sequence != nullptr) ++number;
  expects(number < state.slots.size(), "there is a free slot");
  State::Slot& slot = state.slots[number];
  slot.item = std::move(item);
  state.make_chain(slot, number);
  slot.sequence->stop_behind(slot.item.stops);
  slot.sequence->stand_behind(slot.item.before);
  state.pass.cache().truncate(static_cast<std::int64_t>(number), 0);
  if (state.parts.drafter != nullptr) state.parts.drafter->renew(number);
  state.waiting.push_back(number);
  return number;
}

void TextLoop::drop(std::size_t number) {
  State& state = *state_;
  expects(number < state.slots.size(), "a slot");
  std::erase(state.waiting, number);
  state.pass.cache().truncate(static_cast<std::int64_t>(number), 0);
  state.slots[number] = {};
}

void TextLoop::step(TextListener& listener) {
  State& state = *state_;
  const Clock::time_point start = Clock::now();
  state.draft();
  state.pass.begin();
  state.add_windows();
  state.add_prompts();
  const bool prompts = state.pass.rows() > state.prompt_row || !state.ended.empty();
  if (state.pass.rows() == 0 && state.ended.empty()) return;
  state.run();
  if (state.device_judge != nullptr) {
    state.judge_on_device();
  } else {
    state.pass.fetch_logits();
  }
  const Clock::time_point ran = Clock::now();
  std::int64_t before = 0, after = 0;
  for (State::Slot& slot : state.slots) {
    if (!slot.judged) continue;
    before += static_cast<std::int64_t>(slot.sequence->tokens().size());
    state.judge(slot);
    after += static_cast<std::int64_t>(slot.sequence->tokens().size());
  }
  const double judging = since(ran), seconds = since(start);
  state.times.judge += judging;
  (prompts ? state.times.prompts : state.times.tokens) += seconds;
  ++(prompts ? state.times.prompt_passes : state.times.token_passes);
  if (!prompts) state.times.tokens_written += after - before;
  if (state.controller != nullptr && !prompts) {
    state.controller->observe_time(state.prompt_row, seconds);
    for (const auto& job : state.jobs) {
      const auto& slot = state.slots[job.item];
      if (slot.error) continue;
      state.controller->observe_tests(slot.sequence->last_tested(), slot.sequence->last_accepted());
    }
  }
  state.finish(listener);
}

std::size_t TextLoop::bytes(const StreamModelConfig& config, const Backend& backend,
                            const TextLimits& limits) {
  const std::size_t sequence = ChainSequence<float, KeyedRandom>::buffer_bytes(
      static_cast<std::size_t>(config.vocab), static_cast<std::size_t>(limits.window), limits.laws);
  const JudgeLimits judged{config.vocab, limits.items * limits.window, limits.items};
  const bool on_device = backend.device().kind != DeviceKind::kCpu;
  return ModelPass::bytes(config.transformer, config.vocab, backend, pass_limits(limits)) +
         static_cast<std::size_t>(limits.items) * sequence +
         (on_device ? judged.bytes(limits.laws) : 0);
}

}  // namespace tessera
