// Rows of a pass: for each running item, the window of its conditional sequence, then that of its
// unconditional one. A window is the last committed token followed by the guesses, so row j of a
// window gives the law of the token behind guess j.
#include "engine/decoding/decode_loop.h"

#include <algorithm>
#include <string>

#include "engine/core/io.h"
#include "engine/decoding/broken_logits.h"
#include "engine/decoding/device_judge.h"
#include "engine/decoding/model_pass.h"
#include "engine/model/cache_slide.h"

namespace tessera {

namespace {

std::int64_t branches_of(const DecodeLimits& limits) { return limits.guided ? 2 : 1; }

ModelPass::Limits pass_limits(const StreamModelConfig& config, const DecodeLimits& limits,
                              const Backend& backend) {
  const std::int64_t branches = branches_of(limits);
  const bool rows = limits.shape == PassShape::kRows;
  return {.sequences = limits.items * branches,
          .capacity = config.cache_rows(limits.prompt_tokens),
          .logit_rows = limits.items * branches * limits.window,
          .token_rows = branches * std::max(limits.items * limits.window,
                                            std::min(limits.given_tokens, backend.rows_at_once())),
          .prompt_rows = branches * limits.prompt_tokens,
          .branch_rows = DecodeLoop::spare_cache_rows(limits),
          .branch_seen = rows ? config.image_tokens() : limits.window,
          .kv = limits.kv};
}

}  // namespace

struct DecodeLoop::State {
  using Sequence = PictureSequence<float, KeyedRandom>;
  // One item while it runs.
  struct Slot {
    std::unique_ptr<Sequence> sequence;
    JudgedSequence* judged = nullptr;  // the sequence, where a device judges
    std::size_t judged_number = 0;     // of the pass
    std::size_t window_rows = 0;
    std::int64_t first_row = 0;  // of this item in the pass
    std::int64_t cached = 0;     // picture rows when the pass began
    bool guided = false;
    bool diagnosed = false;  // a failure whose layer was looked for
  };

  State(const StreamModel& image_model, const DecodeLimits& decode_limits);

  void start(std::span<const DecodeItem> items, const LoopParts& parts,
             std::vector<DecodeResult>& results);
  void prefill(std::span<const DecodeItem> items, std::vector<DecodeResult>& results);
  std::int64_t feed_given(const DecodeItem& item, std::size_t number, std::int64_t& next_logit_row);
  void draft(const std::vector<DecodeResult>& results, const LoopParts& parts,
             WindowController* controller);
  void stack_rows(std::span<const DecodeItem> items);
  void add_rows(const DecodeItem& item, std::size_t number, int branch, std::size_t most);
  void report(const std::vector<DecodeResult>& results, std::int64_t rows, double seconds,
              WindowController& controller) const;
  void judge_all(std::vector<DecodeResult>& results);
  void judge(Slot& slot, DecodeResult& result);
  void judge_on_device(const std::vector<DecodeResult>& results);
  void take_records(Slot& slot, DecodeResult& result);
  static void fail(DecodeResult& result, std::int64_t id, float logit);
  static void take_tokens(const Slot& slot, DecodeResult& result);
  void keep_rows(std::span<const DecodeItem> items, const std::vector<DecodeResult>& results);
  void keep_rows_of(const DecodeItem& item, std::size_t number);
  void stack_prompts(const DecodeItem& item, std::size_t number);
  void name_layers(std::span<const DecodeItem> items, std::vector<DecodeResult>& results);
  std::string broken_place(const DecodeItem& item, std::size_t number);

  Backend& backend() const { return model.backend(); }
  std::int32_t sequence_of(std::size_t item, int branch) const {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(item) * branches) + branch;
  }
  int branches_of_slot(std::size_t item) const { return slots[item].guided ? 2 : 1; }
  static std::int64_t prompt_rows(const DecodeItem& item, int branch) {
    return static_cast<std::int64_t>(branch == 0 ? item.prompt.size() : item.unconditional.size());
  }

  const StreamModel& model;
  DecodeLimits limits;
  std::int64_t branches = 1;
  ModelPass pass;
  std::unique_ptr<DeviceJudge> device_judge;  // of this run; null where the host judges
  std::vector<Slot> slots;
  std::vector<DraftJob<float, KeyedRandom>> jobs;
  std::vector<TreeJob<float>> tree_jobs;
  std::vector<JudgedSequence*> judged;  // of the jobs
  PassLine line;
  std::vector<std::int64_t> kept;
};

DecodeLoop::State::State(const StreamModel& image_model, const DecodeLimits& decode_limits)
    : model(image_model),
      limits(decode_limits),
      branches(branches_of(decode_limits)),
      pass(image_model, pass_limits(image_model.config(), decode_limits, image_model.backend())) {
  expects(limits.items >= 1 && limits.prompt_tokens >= 1 && limits.window >= 1,
          "decode limits are positive");
  slots.resize(static_cast<std::size_t>(limits.items));
  jobs.reserve(slots.size());
  tree_jobs.reserve(slots.size());
  judged.reserve(slots.size());
  line.tokens.reserve(static_cast<std::size_t>(limits.window));
  line.seen.reserve(static_cast<std::size_t>(model.image_token_count()));
  kept.reserve(static_cast<std::size_t>(limits.window));
}

void DecodeLoop::State::start(std::span<const DecodeItem> items, const LoopParts& parts,
                              std::vector<DecodeResult>& results) {
  expects(static_cast<std::int64_t>(items.size()) <= limits.items, "items fit the limits");
  expects(limits.laws || limits.window == 1 || !parts.needs_laws(), "laws fit the limits");
  expects(limits.shape == parts.shape(), "the shape of passes fits the limits");
  device_judge.reset();  // before the new one: both together may not fit
  device_judge =
      DeviceJudge::make(backend(), parts, model.config().grammar(), limits.items, limits.window);
  if (parts.drafter != nullptr) parts.drafter->start(items.size());
  if (parts.tree.source != nullptr) parts.tree.source->start(items.size());
  results.resize(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const DecodeItem& item = items[i];
    const std::int64_t longest = std::max(prompt_rows(item, 0), prompt_rows(item, 1));
    expects(longest <= limits.prompt_tokens && (!item.prompt.empty() || !item.given.empty()),
            "prompts fit the limits");
    expects(!item.law.guided() || (limits.guided && !item.unconditional.empty()),
            "guidance needs an unconditional prompt");
    slots[i].guided = item.law.guided();
    slots[i].diagnosed = false;
    const KeyedRandom random(item.seed, item.item);
    const auto window = static_cast<std::size_t>(limits.window);
    const VocabularyGrammar& grammar = model.config().grammar();
    slots[i].judged = nullptr;
    if (device_judge != nullptr) {
      auto made = DeviceJudge::make_sequence(item.law, grammar, window, parts, random, i);
      slots[i].judged = made.judged;
      slots[i].sequence = std::move(made.sequence);
    } else {
      slots[i].sequence = make_sequence(item.law, grammar, window, parts, random, i);
    }
    expects(static_cast<std::int64_t>(item.given.size()) <= limits.given_tokens &&
                (item.given.empty() || limits.shape != PassShape::kRows),
            "given tokens fit the limits");
    slots[i].sequence->begin_with(item.given);
    if (item.traced) {
      results[i].trace.start(static_cast<std::size_t>(model.image_token_count()));
      slots[i].sequence->trace_to(&results[i].trace);
    }
    results[i].tokens.reserve(static_cast<std::size_t>(model.image_token_count()));
    for (int branch = 0; branch < static_cast<int>(branches); ++branch) {
      if (!item.slid) pass.cache().truncate(sequence_of(i, branch), 0);
      pass.set_context(sequence_of(i, branch), item.context);
    }
    if (!item.slid) continue;
    for (int branch = 0; branch < branches_of_slot(i); ++branch) {
      expects(pass.cache().length(sequence_of(i, branch)) + 1 ==
                  prompt_rows(item, branch) + static_cast<std::int64_t>(item.given.size()),
              "slide() cached all given tokens but the last");
    }
  }
}

void DecodeLoop::State::stack_prompts(const DecodeItem& item, std::size_t number) {
  pass.begin();
  pass.add_prompt(sequence_of(number, 0), item.prompt);
  if (slots[number].guided) pass.add_prompt(sequence_of(number, 1), item.unconditional);
}

// Both prompts of one item at a time; the last row of each gives the law of the first token.
void DecodeLoop::State::prefill(std::span<const DecodeItem> items,
                                std::vector<DecodeResult>& results) {
  std::int64_t next_logit_row = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    slots[i].window_rows = 1;
    slots[i].cached = static_cast<std::int64_t>(items[i].given.size());
    slots[i].first_row = next_logit_row;
    if (!items[i].slid && !items[i].prompt.empty()) {
      stack_prompts(items[i], i);
      pass.run_layers();
      results[i].prefilled += pass.rows();
    }
    if (!items[i].given.empty()) {
      results[i].prefilled += feed_given(items[i], i, next_logit_row);
      continue;
    }
    std::int64_t end = 0;
    for (int branch = 0; branch < branches_of_slot(i); ++branch) {
      end += prompt_rows(items[i], branch);
      pass.run_head(end - 1, 1, next_logit_row++);
    }
  }
}

// The tokens that stand already, behind both prompts; the last row of each branch gives the law of
// the first token that is drawn. Returns how many rows ran.
std::int64_t DecodeLoop::State::feed_given(const DecodeItem& item, std::size_t number,
                                           std::int64_t& next_logit_row) {
  const std::span<const std::int32_t> given =
      std::span(item.given).last(item.slid ? 1 : item.given.size());
  const auto most = static_cast<std::size_t>(backend().rows_at_once());
  std::int64_t ran = 0;
  for (std::size_t first = 0; first < given.size(); first += most) {
    const auto part = given.subspan(first, std::min(given.size() - first, most));
    pass.begin();
    for (int branch = 0; branch < branches_of_slot(number); ++branch) {
      pass.add_tokens(sequence_of(number, branch), part);
    }
    pass.run_layers();
    ran += pass.rows();
    if (first + part.size() < given.size()) continue;
    const auto rows = static_cast<std::int64_t>(part.size());
    for (int branch = 0; branch < branches_of_slot(number); ++branch) {
      pass.run_head((branch + 1) * rows - 1, 1, next_logit_row++);
    }
  }
  return ran;
}

// Fills every running item's window, or grows its tree.
void DecodeLoop::State::draft(const std::vector<DecodeResult>& results, const LoopParts& parts,
                              WindowController* controller) {
  const bool guesses = parts.drafter != nullptr || parts.tree.source != nullptr;
  std::int64_t most = guesses ? limits.window : 1;
  if (controller != nullptr && guesses) {
    std::int64_t branches_running = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i].status == DecodeStatus::kRunning) branches_running += branches_of_slot(i);
    }
    most = std::min(most, controller->next(branches_running));
  }
  jobs.clear();
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].status != DecodeStatus::kRunning) continue;
    jobs.push_back(slots[i].sequence->draft_job(static_cast<std::size_t>(most)));
  }
  if (parts.drafter != nullptr) parts.drafter->extend(jobs);
  if (device_judge != nullptr) {
    judged.clear();
    for (const auto& job : jobs) judged.push_back(slots[job.item].judged);
    device_judge->grow(judged);
  }
  while (true) {
    tree_jobs.clear();
    for (const auto& job : jobs) {
      const TreeJob<float> wanted = slots[job.item].sequence->grow();
      if (!wanted.wanted.empty()) tree_jobs.push_back(wanted);
    }
    if (tree_jobs.empty()) return;
    parts.tree.source->answer(tree_jobs);
    if (device_judge != nullptr) device_judge->grow(judged);
  }
}

// The rows of one branch of an item, line by line, the first `most` of them.
void DecodeLoop::State::add_rows(const DecodeItem& item, std::size_t number, int branch,
                                 std::size_t most) {
  const Sequence& sequence = *slots[number].sequence;
  const std::int64_t prompt = prompt_rows(item, branch);
  for (std::size_t row = 0; row < most;) {
    const std::size_t count = std::min(sequence.line(row, line), most - row);
    for (std::int32_t& seen : line.seen) seen += static_cast<std::int32_t>(prompt);
    pass.add_line(sequence_of(number, branch),
                  {prompt + static_cast<std::int64_t>(line.position),
                   prompt + static_cast<std::int64_t>(line.shared), line.seen,
                   std::span<const std::int32_t>(line.tokens).first(count)});
    row += count;
  }
}

void DecodeLoop::State::stack_rows(std::span<const DecodeItem> items) {
  pass.begin();
  for (const auto& job : jobs) {
    Slot& slot = slots[job.item];
    slot.window_rows = slot.sequence->rows();
    slot.first_row = pass.rows();
    slot.cached = pass.cache().length(sequence_of(job.item, 0)) - prompt_rows(items[job.item], 0);
    for (int branch = 0; branch < branches_of_slot(job.item); ++branch) {
      add_rows(items[job.item], job.item, branch, slot.window_rows);
    }
  }
}

// A broken row fails the item if it is the first one. Further ones stand behind drafts that may be
// wrong: they and what follows are left out of the judgement.
void DecodeLoop::State::judge(Slot& slot, DecodeResult& result) {
  if (slot.judged != nullptr) return take_records(slot, result);
  const auto raw = [&](std::size_t row) {
    const auto cond = slot.first_row + static_cast<std::int64_t>(row);
    const auto uncond = cond + static_cast<std::int64_t>(slot.window_rows);
    return RawRow<float>{pass.logits(cond),
                         slot.guided ? pass.logits(uncond) : std::span<const float>()};
  };
  std::size_t sound = 0;
  for (; sound < slot.window_rows; ++sound) {
    const RawRow<float> row = raw(sound);
    const bool bad_cond = first_unsound(row.cond).has_value();
    if (!bad_cond && !first_unsound(row.uncond)) continue;
    if (sound > 0) break;
    const std::span<const float> branch = bad_cond ? row.cond : row.uncond;
    const std::int64_t id = *first_unsound(branch);
    return fail(result, id, branch[static_cast<std::size_t>(id)]);
  }
  slot.sequence->judge(raw, sound);
  take_tokens(slot, result);
}

void DecodeLoop::State::fail(DecodeResult& result, std::int64_t id, float logit) {
  ++result.passes;
  result.status = DecodeStatus::kFailed;
  result.error = unsound_logit(
      "image token " + std::to_string(result.tokens.size()) + ", code " + std::to_string(id),
      logit);
}

// What came to stand in a pass.
void DecodeLoop::State::take_tokens(const Slot& slot, DecodeResult& result) {
  const std::vector<std::int32_t>& tokens = slot.sequence->tokens();
  result.tokens.insert(result.tokens.end(),
                       tokens.begin() + static_cast<std::ptrdiff_t>(result.tokens.size()),
                       tokens.end());
  result.passes = slot.sequence->meters().passes;
  if (slot.sequence->done()) result.status = DecodeStatus::kDone;
}

// Judges the pass where its rows are; the records come to the host.
void DecodeLoop::State::judge_on_device(const std::vector<DecodeResult>& results) {
  device_judge->begin();
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].status != DecodeStatus::kRunning) continue;
    Slot& slot = slots[i];
    slot.judged_number = device_judge->add(
        *slot.judged, slot.first_row, slot.first_row + static_cast<std::int64_t>(slot.window_rows));
  }
  device_judge->run(pass.device_logits());
}

void DecodeLoop::State::take_records(Slot& slot, DecodeResult& result) {
  const JudgedCount& item = device_judge->item(slot.judged_number);
  const std::span<const RowRecord> rows = device_judge->rows(slot.judged_number);
  if (item.sound == 0) return fail(result, rows[0].unsound, rows[0].unsound_logit);
  slot.judged->take(rows, item);
  take_tokens(slot, result);
}

void DecodeLoop::State::judge_all(std::vector<DecodeResult>& results) {
  backend().threads().parallel_for(
      static_cast<std::int64_t>(results.size()), 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
          if (results[i].status == DecodeStatus::kRunning) judge(slots[i], results[i]);
        }
      });
}

// Of the rows that a pass cached, those that its judgement keeps.
void DecodeLoop::State::keep_rows(std::span<const DecodeItem> items,
                                  const std::vector<DecodeResult>& results) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (results[i].status == DecodeStatus::kRunning) keep_rows_of(items[i], i);
  }
}

void DecodeLoop::State::keep_rows_of(const DecodeItem& item, std::size_t number) {
  for (int branch = 0; branch < branches_of_slot(number); ++branch) {
    const std::int64_t before = prompt_rows(item, branch) + slots[number].cached;
    kept.clear();
    for (const std::int32_t row : slots[number].sequence->kept_rows()) kept.push_back(before + row);
    pass.cache().compact(sequence_of(number, branch), kept, before);
  }
}

// Runs the first row of a failed item once more and looks where the first broken number comes from.
// Only failures pay for it, also with memory.
std::string DecodeLoop::State::broken_place(const DecodeItem& item, std::size_t number) {
  const Slot& slot = slots[number];
  const bool first_pass = slot.sequence->tokens().size() == item.given.size();
  for (int branch = 0; branch < branches_of_slot(number); ++branch) {
    const std::int64_t stands = prompt_rows(item, branch) + slot.cached;
    const std::int64_t began = item.slid ? stands - 1 : 0;
    pass.cache().truncate(sequence_of(number, branch), first_pass ? began : stands);
  }
  if (first_pass && (item.slid || item.prompt.empty())) {
    const std::span<const std::int32_t> given = item.given;
    const auto most = static_cast<std::size_t>(backend().rows_at_once());
    const auto rows = item.slid ? given.last(1) : given.first(std::min(given.size(), most));
    pass.begin();
    for (int branch = 0; branch < branches_of_slot(number); ++branch) {
      pass.add_tokens(sequence_of(number, branch), rows);
    }
  } else if (first_pass) {
    stack_prompts(item, number);
  } else {
    pass.begin();
    for (int branch = 0; branch < branches_of_slot(number); ++branch) {
      add_rows(item, number, branch, 1);
    }
  }
  const auto layers = static_cast<std::size_t>(model.config().transformer.layers);
  std::vector<Tensor> entering;
  std::vector<TensorView> taps;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    entering.push_back(backend().allocate(DType::kF32, Shape{pass.rows(), model.width()}));
    taps.push_back(entering.back().view());
  }
  pass.run_layers({taps});
  taps.push_back(pass.hidden());
  for (std::size_t layer = 0; layer <= layers; ++layer) {
    Tensor host = Tensor::host(DType::kF32, taps[layer].shape);
    backend().download(taps[layer], host.view());
    backend().synchronize();
    const auto size = static_cast<std::size_t>(host.shape().elements());
    if (!first_unsound({host.f32(), size})) continue;
    return layer == 0 ? "token embedding" : "layer " + std::to_string(layer - 1);
  }
  return "picture head";
}

// After a pass: says in new failures which layer broke.
void DecodeLoop::State::name_layers(std::span<const DecodeItem> items,
                                    std::vector<DecodeResult>& results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    Slot& slot = slots[i];
    if (results[i].status != DecodeStatus::kFailed || slot.diagnosed) continue;
    slot.diagnosed = true;
    results[i].error.where = broken_place(items[i], i) + ", " + results[i].error.where;
  }
}

void DecodeLoop::State::report(const std::vector<DecodeResult>& results, std::int64_t rows,
                               double seconds, WindowController& controller) const {
  controller.observe_time(rows, seconds);
  for (const auto& job : jobs) {
    if (results[job.item].status == DecodeStatus::kFailed) continue;
    const Sequence& sequence = *slots[job.item].sequence;
    controller.observe_tests(sequence.last_tested(), sequence.last_accepted());
  }
}

DecodeLoop::DecodeLoop(const StreamModel& model, const DecodeLimits& limits)
    : state_(std::make_unique<State>(model, limits)) {}
DecodeLoop::~DecodeLoop() = default;
DecodeLoop::DecodeLoop(DecodeLoop&&) noexcept = default;

std::int64_t DecodeLoop::spare_cache_rows(const DecodeLimits& limits) {
  return limits.shape == PassShape::kLine ? 0 : limits.window;
}

std::size_t DecodeLoop::activation_bytes(const StreamModelConfig& config, const Backend& backend,
                                         const DecodeLimits& limits) {
  const auto vocabulary = static_cast<std::size_t>(config.image_vocabulary());
  const auto window = static_cast<std::size_t>(limits.window);
  const std::size_t sequence =
      limits.shape == PassShape::kTree
          ? TreeSequence<float, KeyedRandom>::buffer_bytes(vocabulary, window)
          : ChainSequence<float, KeyedRandom>::buffer_bytes(vocabulary, window, limits.laws);
  const ModelPass::Limits pass = pass_limits(config, limits, backend);
  const std::size_t scratch =
      StreamModel::scratch_bytes(config, ModelPass::most_rows(pass), backend);
  return ModelPass::buffer_bytes(config.transformer, config.codes, scratch, backend, pass) +
         static_cast<std::size_t>(limits.items) * sequence;
}

const DecodeLimits& DecodeLoop::limits() const { return state_->limits; }

void DecodeLoop::slide(const DecodeItem& item, std::size_t number, std::size_t first,
                       std::size_t end) {
  State& state = *state_;
  expects(state.slots[number].sequence != nullptr && state.slots[number].sequence->done() &&
              first < end && end <= state.slots[number].sequence->tokens().size(),
          "a stream that is whole slides");
  state.keep_rows_of(item, number);
  for (int branch = 0; branch < state.branches_of_slot(number); ++branch) {
    const std::int64_t prompt = State::prompt_rows(item, branch);
    const std::int32_t sequence = state.sequence_of(number, branch);
    state.pass.cache().truncate(sequence, prompt + static_cast<std::int64_t>(end) - 1);
    slide_cache(state.model.transformer(), state.pass.cache(), sequence, prompt,
                static_cast<std::int64_t>(first));
  }
}

std::vector<DecodeResult> DecodeLoop::run(std::span<const DecodeItem> items, const LoopParts& parts,
                                          FunctionRef<Flow(const PassEvent&)> on_pass,
                                          WindowController* controller) {
  State& state = *state_;
  std::vector<DecodeResult> results;
  state.start(items, parts, results);
  const auto running = [&] {
    return std::any_of(results.begin(), results.end(), [](const DecodeResult& result) {
      return result.status == DecodeStatus::kRunning;
    });
  };
  for (std::int64_t number = 1; running(); ++number) {
    const double began = monotonic_seconds();
    if (number > 1) state.draft(results, parts, controller);
    const double drafted = monotonic_seconds();
    if (number > 1) {
      state.stack_rows(items);
      state.pass.run();
    } else {
      state.prefill(items, results);
    }
    const std::int64_t rows = state.pass.rows();
    if (state.device_judge != nullptr) {
      state.judge_on_device(results);
    } else {
      state.pass.fetch_logits();
    }
    const double scored = monotonic_seconds();
    state.judge_all(results);
    state.keep_rows(items, results);
    const double judged = monotonic_seconds();
    state.name_layers(items, results);
    if (number > 1 && controller != nullptr) {
      state.report(results, rows, judged - began, *controller);
    }
    if (on_pass({number, results, {drafted - began, scored - drafted, judged - scored}}) ==
        Flow::kStop) {
      break;
    }
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i].meters = state.slots[i].sequence->meters();
    if (results[i].status == DecodeStatus::kRunning) results[i].status = DecodeStatus::kStopped;
  }
  return results;
}

}  // namespace tessera
