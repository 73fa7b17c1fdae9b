// Rows of a pass: of each running stream the window of its conditional sequence, then that of its
// unconditional one, in order of slots; then parts of what streams begin with, in the order in
// which they came. A window is the last committed token followed by the drafts, so row j of a
// window gives the distribution of the token behind draft j.
#include "engine/decoding/stream_loop.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/core/io.h"
#include "engine/decoding/broken_layer.h"
#include "engine/decoding/hidden_signal.h"
#include "engine/decoding/model_pass.h"
#include "engine/decoding/stream_slot.h"
#include "engine/model/cache_slide.h"

namespace tessera {

namespace {

// The grammar of a stream.
VocabularyGrammar grammar_of(const Stream& stream, const StreamLimits& limits) {
  VocabularyGrammar grammar = stream.grammar.value_or(limits.grammar);
  if (stream.max_tokens > 0) {
    expects(grammar.rows == 1 && grammar.controls() == 0 && grammar.grids == 1,
            "a line may end before its grammar does");
    grammar.columns = std::min(grammar.columns, static_cast<std::size_t>(stream.max_tokens));
  }
  expects(grammar.codes == limits.grammar.codes && grammar.length() <= limits.grammar.length(),
          "the grammar fits the limits");
  return grammar;
}

}  // namespace

struct StreamLoop::State {
  State(const PassModel& pass_model, const StreamLimits& stream_limits);

  void use(const LoopParts& loop_parts, WindowController* window_controller);
  void check(const Stream& stream) const;
  void check_blocks(const Stream& stream) const;
  void begin(std::size_t number, Stream stream, bool slid);
  void fill(StreamSlot& slot, std::size_t number);
  void free(std::size_t number);
  void draft();
  void grow_trees();
  void add_rows(std::size_t number, int branch, std::size_t most);
  void add_windows();
  void add_prompts();
  void add_part(std::size_t number, std::int64_t& room);
  void run();
  void read_cut_prompt(std::size_t number, int branch, std::int64_t logit_row);
  void read_logits();
  void verify();
  void keep_rows(std::size_t number);
  void settle_caches();
  void show_hidden();
  std::string broken_place(std::size_t number);
  void name_layers();
  void count_time(double seconds, double verifying);
  void emit(const PassTimes& times, StreamListener& listener);

  Backend& backend() const { return model.backend(); }
  std::int32_t sequence_of(std::size_t number, int branch) const {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(number) * limits.branches()) +
           branch;
  }
  // Tokens of all streams.
  std::int64_t committed() const {
    std::int64_t tokens = 0;
    for (const StreamSlot& slot : slots) {
      tokens += static_cast<std::int64_t>(slot.result.tokens.size());
    }
    return tokens;
  }
  bool prompts_in_pass() const { return prompt_rows > 0 || !ended.empty(); }

  const PassModel& model;
  StreamLimits limits;
  LoopParts parts;
  WindowController* controller = nullptr;
  ModelPass pass;
  std::unique_ptr<Verifier> verifier;  // never null after use()
  Tensor last_row;                     // [1, D] of a prompt with cuts; empty until there is one
  std::vector<StreamSlot> slots;
  std::vector<std::size_t> waiting;  // slots that still read what they begin with, oldest first
  std::vector<DraftJob<float, KeyedRandom>> jobs;
  std::vector<TreeJob<float>> tree_jobs;
  std::vector<LoopSequence*> drafted;  // of the jobs
  std::vector<std::size_t> ended;      // slots whose first token is drawn in this pass
  std::vector<StreamView> views;
  PassLine line;
  std::vector<std::int64_t> kept;
  HiddenSignal hidden;
  std::int64_t passes = 0;
  std::int64_t decode_rows = 0, prompt_rows = 0;  // of the pass at hand
  std::int64_t written = 0;                       // tokens that it committed
  bool cut_one = false;                           // a prompt with cuts goes through in it
  StreamTimes times;
};

StreamLoop::State::State(const PassModel& pass_model, const StreamLimits& stream_limits)
    : model(pass_model), limits(stream_limits), pass(pass_model, stream_limits.pass_limits()) {
  expects(limits.items >= 1 && limits.prompt_rows >= 1 && limits.window >= 1 && limits.budget >= 1,
          "limits of streams are positive");
  slots.resize(static_cast<std::size_t>(limits.items));
  for (auto* list : {&waiting, &ended}) list->reserve(slots.size());
  jobs.reserve(slots.size());
  tree_jobs.reserve(slots.size());
  drafted.reserve(slots.size());
  views.reserve(slots.size());
  line.tokens.reserve(static_cast<std::size_t>(limits.window));
  line.seen.reserve(limits.grammar.length());
  kept.reserve(static_cast<std::size_t>(limits.window));
}

void StreamLoop::State::use(const LoopParts& loop_parts, WindowController* window_controller) {
  expects(limits.laws || limits.window == 1 || !loop_parts.needs_laws(), "laws fit the limits");
  expects(limits.shape == loop_parts.shape(), "the shape of passes fits the limits");
  expects((limits.shape == PassShape::kBlock) == (model.reading().block > 0),
          "a model of blocks writes blocks");
  expects(
      std::none_of(slots.begin(), slots.end(), [](const StreamSlot& slot) { return slot.taken(); }),
      "an empty loop takes another method");
  parts = loop_parts;
  controller = window_controller;
  verifier.reset();  // before the new one: both together may not fit
  verifier = make_verifier(backend(), parts, limits.grammar, limits.items, limits.window);
  hidden.ask(parts.drafter, pass, limits.pass_rows());
  if (parts.drafter != nullptr) parts.drafter->start(slots.size());
  if (parts.tree.source != nullptr) parts.tree.source->start(slots.size());
}

void StreamLoop::State::check(const Stream& stream) const {
  expects(stream.prompt.length() > 0 || !stream.given.empty() || limits.blocks.begins,
          "a stream begins with something");
  expects(!stream.law.guided() || (limits.guided && stream.unconditional.length() > 0),
          "guidance needs an unconditional prompt");
  for (int branch = 0; branch < stream.branches(); ++branch) {
    const StreamPrompt& prompt = stream.branch(branch);
    expects(prompt.length() <= limits.prompt_rows, "prompts fit the limits");
    expects(prompt.rows == nullptr ||
                static_cast<std::int64_t>(prompt.positions.size()) == prompt.length(),
            "a position a row");
    expects(prompt.cuts == nullptr || (prompt.rows != nullptr && limits.shape == PassShape::kLine),
            "prompts of rows are cut, and drafts behind them stand in a line");
  }
  expects(static_cast<std::int64_t>(stream.given.size()) <= limits.given_tokens &&
              (stream.given.empty() || limits.shape != PassShape::kRows),
          "given tokens fit the limits");
  if (limits.shape == PassShape::kBlock) check_blocks(stream);
  expects(stream.max_tokens >= 0 && stream.max_tokens <= limits.tokens(), "the tokens fit");
}

void StreamLoop::State::check_blocks(const Stream& stream) const {
  const VocabularyGrammar grammar = grammar_of(stream, limits);
  const auto block = static_cast<std::size_t>(limits.blocks.block);
  expects(limits.window == limits.blocks.block && !stream.law.guided(), "a window is a block");
  expects(grammar.controls() == 0 && grammar.cells() % block == 0, "blocks divide a grid");
  expects(stream.given.size() % block == 0 && stream.given.size() < grammar.length() &&
              (limits.blocks.begins || !stream.given.empty()),
          "whole blocks are given, and some are left");
}

// Whatever goes wrong, the slot is free then.
void StreamLoop::State::begin(std::size_t number, Stream stream, bool slid) {
  try {
    check(stream);
    StreamSlot& slot = slots[number];
    slot = {};
    slot.stream = std::move(stream);
    slot.slid = slid;
    fill(slot, number);
    if (parts.drafter != nullptr) parts.drafter->renew(number);
    if (parts.tree.source != nullptr) parts.tree.source->renew(number);
    waiting.push_back(number);
  } catch (...) {
    free(number);
    throw;
  }
}

// All that a slot has besides its stream.
void StreamLoop::State::fill(StreamSlot& slot, std::size_t number) {
  const Stream& own = slot.stream;
  const VocabularyGrammar grammar = grammar_of(own, limits);
  slot.sequence =
      verifier->make_sequence(own.law, grammar, KeyedRandom(own.seed, own.item), number);
  slot.sequence->stop_behind(own.stops);
  slot.sequence->stand_behind(own.before);
  slot.sequence->begin_with(own.given);
  slot.result.tokens.reserve(grammar.length());
  slot.result.tokens = own.given;
  slot.emitted = own.given.size();
  if (own.traced) {
    slot.result.trace.start(grammar.length());
    slot.sequence->trace_to(&slot.result.trace);
  }
  for (int branch = 0; branch < own.branches(); ++branch) {
    const auto b = static_cast<std::size_t>(branch);
    slot.prompt_rows[b] = own.branch(branch).length();
    slot.first_position[b] = own.branch(branch).first_position();
  }
  slot.feed = PromptFeed(own, sequence_of(number, 0), slot.slid, model.reading());
  for (int branch = 0; branch < static_cast<int>(limits.branches()); ++branch) {
    const std::int32_t sequence = sequence_of(number, branch);
    if (!slot.slid) pass.cache().truncate(sequence, 0);
    pass.set_context(sequence, own.context);
  }
  for (int branch = 0; slot.slid && branch < own.branches(); ++branch) {
    expects(pass.cache().length(sequence_of(number, branch)) + 1 ==
                own.branch(branch).length() + static_cast<std::int64_t>(own.given.size()),
            "slide() cached all given tokens but the last");
  }
}

void StreamLoop::State::free(std::size_t number) {
  std::erase(waiting, number);
  for (int branch = 0; branch < static_cast<int>(limits.branches()); ++branch) {
    pass.cache().truncate(sequence_of(number, branch), 0);
    pass.set_context(sequence_of(number, branch), nullptr);
  }
  slots[number] = {};
}

// Fills the window of every stream that writes, or grows its tree.
void StreamLoop::State::draft() {
  const bool drafts = parts.drafter != nullptr || parts.tree.source != nullptr;
  std::int64_t most = drafts ? limits.window : 1, branches = 0;
  for (const StreamSlot& slot : slots) branches += slot.writing() ? slot.stream.branches() : 0;
  if (controller != nullptr && drafts && branches > 0) {
    most = std::min(most, controller->next(branches));
  }
  jobs.clear();
  for (StreamSlot& slot : slots) {
    if (slot.writing()) jobs.push_back(slot.sequence->draft_job(static_cast<std::size_t>(most)));
  }
  if (jobs.empty()) return;
  if (parts.drafter != nullptr) parts.drafter->extend(jobs);
  grow_trees();
}

void StreamLoop::State::grow_trees() {
  drafted.clear();
  for (const auto& job : jobs) drafted.push_back(slots[job.item].sequence.get());
  while (true) {
    verifier->complete(drafted);
    tree_jobs.clear();
    for (LoopSequence* const sequence : drafted) {
      const TreeJob<float> wanted = sequence->grow();
      if (!wanted.wanted.empty()) tree_jobs.push_back(wanted);
    }
    if (tree_jobs.empty()) return;
    parts.tree.source->answer(tree_jobs);
  }
}

// The rows of one branch of a stream, line by line, the first `most` of them.
void StreamLoop::State::add_rows(std::size_t number, int branch, std::size_t most) {
  const StreamSlot& slot = slots[number];
  const auto b = static_cast<std::size_t>(branch);
  const std::int64_t rows = slot.prompt_rows[b], position = slot.first_position[b];
  for (std::size_t row = 0; row < most;) {
    const std::size_t count = std::min(slot.sequence->line(row, line), most - row);
    for (std::int32_t& seen : line.seen) seen += static_cast<std::int32_t>(rows);
    pass.add_line(sequence_of(number, branch),
                  {position + static_cast<std::int64_t>(line.position),
                   rows + static_cast<std::int64_t>(line.shared), line.seen,
                   std::span<const std::int32_t>(line.tokens).first(count)});
    row += count;
  }
}

void StreamLoop::State::add_windows() {
  for (const auto& job : jobs) {
    StreamSlot& slot = slots[job.item];
    slot.in_pass = true;
    slot.window_rows = slot.sequence->rows();
    slot.first_row = pass.rows();
    slot.cached = pass.cache().length(sequence_of(job.item, 0)) - slot.prompt_rows[0];
    for (int branch = 0; branch < slot.stream.branches(); ++branch) {
      add_rows(job.item, branch, slot.window_rows);
    }
  }
  decode_rows = pass.rows();
}

// A part of what a stream begins with.
void StreamLoop::State::add_part(std::size_t number, std::int64_t& room) {
  StreamSlot& slot = slots[number];
  const Stream& stream = slot.stream;
  const bool prompts = !slot.feed.gives();
  const std::int64_t added = slot.feed.add(stream, pass, room, !cut_one);
  room -= added;
  slot.result.prefilled += added;
  const bool through = prompts && (slot.feed.done() || slot.feed.gives());
  for (int branch = 0; through && branch < stream.branches(); ++branch) {
    if (stream.branch(branch).cuts == nullptr) continue;
    cut_one = true;
    slot.result.prefilled += stream.branch(branch).length();
  }
  if (slot.feed.done()) ended.push_back(number);
}

void StreamLoop::State::add_prompts() {
  ended.clear();
  cut_one = false;
  const std::int64_t most = limits.pass_rows() - decode_rows;
  std::int64_t room =
      std::min(std::max(limits.budget - decode_rows, limits.least_prompt_rows()), most);
  // Tokens stand before prompts.
  for (const bool tokens : {true, false}) {
    for (const std::size_t number : waiting) {
      const bool ends = std::find(ended.begin(), ended.end(), number) != ended.end();
      if (!ends && slots[number].feed.gives() == tokens && room > 0) add_part(number, room);
    }
  }
  std::erase_if(waiting, [&](std::size_t number) { return slots[number].feed.done(); });
  prompt_rows = pass.rows() - decode_rows;
}

void StreamLoop::State::read_cut_prompt(std::size_t number, int branch, std::int64_t logit_row) {
  if (last_row.empty()) last_row = backend().allocate(DType::kF32, Shape{1, model.width()});
  const StreamPrompt& prompt = slots[number].stream.branch(branch);
  run_prompt_in_parts(*model.transformer_body(), sequence_of(number, branch), prompt.rows->view(),
                      prompt.positions, *prompt.cuts, pass.cache(), pass.arena(), last_row.view());
  pass.run_head_of(last_row.view(), logit_row);
}

void StreamLoop::State::run() {
  if (!prompts_in_pass()) return pass.run();
  if (pass.rows() > 0) pass.run_layers();
  if (decode_rows > 0) pass.run_head(0, decode_rows, 0);
  std::int64_t logit_row = decode_rows;
  for (const std::size_t number : ended) {
    StreamSlot& slot = slots[number];
    slot.in_pass = true;
    slot.window_rows = slot.sequence->rows();
    slot.first_row = logit_row;
    slot.cached = slot.feed.given_rows();
    const auto wanted = static_cast<std::int64_t>(slot.window_rows);
    for (int branch = 0; branch < slot.stream.branches(); ++branch) {
      const std::int64_t row = slot.feed.last_row(branch);
      if (slot.stream.branch(branch).cuts != nullptr) {
        read_cut_prompt(number, branch, logit_row++);
      } else {
        pass.run_head(row - wanted + 1, wanted, logit_row);
        logit_row += wanted;
      }
    }
  }
}

// Those of the streams that have some in the pass.
void StreamLoop::State::read_logits() {
  verifier->begin();
  std::size_t count = 0;
  for (StreamSlot& slot : slots) {
    if (!slot.in_pass) continue;
    slot.verified = count++;
    verifier->add({slot.sequence.get(), slot.first_row, slot.window_rows});
  }
  verifier->read(pass);
}

void StreamLoop::State::verify() {
  written = -committed();
  backend().threads().parallel_for(
      static_cast<std::int64_t>(slots.size()), 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
          StreamSlot& slot = slots[i];
          if (slot.in_pass) take_verdict(slot, verifier->settle(slot.verified));
        }
      });
  written += committed();
}

// Of the rows that a pass cached, those that verification keeps.
void StreamLoop::State::keep_rows(std::size_t number) {
  const StreamSlot& slot = slots[number];
  for (int branch = 0; branch < slot.stream.branches(); ++branch) {
    const std::int64_t before = slot.prompt_rows[static_cast<std::size_t>(branch)] + slot.cached;
    kept.clear();
    for (const std::int32_t row : slot.sequence->kept_rows()) kept.push_back(before + row);
    pass.cache().compact(sequence_of(number, branch), kept, before);
  }
}

void StreamLoop::State::settle_caches() {
  for (std::size_t number = 0; number < slots.size(); ++number) {
    StreamSlot& slot = slots[number];
    if (!slot.in_pass || slot.result.status == StreamStatus::kFailed) continue;
    if (slot.running() || slot.stream.held) keep_rows(number);
    // Nobody reads the rows of a prompt again.
    slot.stream.prompt.rows.reset();
    slot.stream.unconditional.rows.reset();
  }
}

// What the pass leaves in the cache, to the drafter that asked for it.
void StreamLoop::State::show_hidden() {
  if (!hidden.wanted()) return;
  hidden.begin(pass);
  for (const auto& job : jobs) {
    const StreamSlot& slot = slots[job.item];
    if (slot.result.status == StreamStatus::kFailed) continue;
    const auto rows = static_cast<std::int64_t>(slot.window_rows);
    for (int branch = 0; branch < slot.stream.branches(); ++branch) {
      hidden.show(pass, job.item, branch, slot.first_row + branch * rows,
                  slot.sequence->kept_rows());
    }
  }
  // Prompts and given tokens, all of whose rows stay.
  const auto branches = static_cast<std::int32_t>(limits.branches());
  for (std::int64_t row = decode_rows, first = row; row < pass.rows(); first = row) {
    const std::int32_t sequence = pass.sequence(row);
    while (row < pass.rows() && pass.sequence(row) == sequence) ++row;
    const auto number = static_cast<std::size_t>(sequence / branches);
    if (slots[number].result.status == StreamStatus::kFailed) continue;
    hidden.show(pass, number, sequence % branches, first, row - first);
  }
}

// Runs the first row of a failed stream once more and looks where its first broken number comes
// from.
std::string StreamLoop::State::broken_place(std::size_t number) {
  const StreamSlot& slot = slots[number];
  const bool first_pass = slot.first_pass();
  for (int branch = 0; branch < slot.stream.branches(); ++branch) {
    const std::int64_t rows = slot.prompt_rows[static_cast<std::size_t>(branch)] + slot.cached;
    const std::int64_t began = slot.slid ? rows - 1 : 0;
    pass.cache().truncate(sequence_of(number, branch), first_pass ? began : rows);
  }
  PromptFeed feed(slot.stream, sequence_of(number, 0), slot.slid, model.reading());
  bool more = true;
  return broken_layer(pass, [&] {
    if (first_pass) {
      if (!feed.done()) feed.add(slot.stream, pass, limits.pass_rows(), false);
    } else if (std::exchange(more, false)) {
      const std::size_t rows = slot.sequence->bears_broken_rows() ? 1 : slot.window_rows;
      for (int branch = 0; branch < slot.stream.branches(); ++branch) {
        add_rows(number, branch, rows);
      }
    }
  });
}

// Says in new failures which layer broke.
void StreamLoop::State::name_layers() {
  for (std::size_t number = 0; number < slots.size(); ++number) {
    StreamSlot& slot = slots[number];
    if (!slot.in_pass || slot.result.status != StreamStatus::kFailed ||
        slot.stream.kind != StreamKind::kImage) {
      continue;
    }
    slot.result.error.where = broken_place(number) + ", " + slot.result.error.where;
  }
}

void StreamLoop::State::count_time(double seconds, double verifying) {
  const bool prompts = prompts_in_pass();
  times.judge += verifying;
  (prompts ? times.prompts : times.tokens) += seconds;
  ++(prompts ? times.prompt_passes : times.token_passes);
  if (!prompts) times.tokens_written += written;
  if (controller == nullptr || prompts) return;
  controller->observe_time(decode_rows, seconds);
  for (const auto& job : jobs) {
    const StreamSlot& slot = slots[job.item];
    if (slot.result.status == StreamStatus::kFailed) continue;
    controller->observe_tests(slot.sequence->last_tested(), slot.sequence->last_accepted());
  }
}

// Tells the listener, which may add and drop streams meanwhile.
void StreamLoop::State::emit(const PassTimes& pass_times, StreamListener& listener) {
  views.clear();
  for (std::size_t number = 0; number < slots.size(); ++number) {
    if (slots[number].taken()) views.push_back({number, &slots[number].result});
  }
  listener.on_pass({passes, decode_rows, prompt_rows, views, pass_times});
  for (std::size_t number = 0; number < slots.size(); ++number) {
    StreamSlot& slot = slots[number];
    if (!std::exchange(slot.in_pass, false)) continue;
    if (slot.result.tokens.size() > slot.emitted) {
      const std::span<const std::int32_t> tokens = slot.result.tokens;
      listener.on_tokens(number, tokens.subspan(std::exchange(slot.emitted, tokens.size())));
    }
    if (!slot.taken() || slot.running()) continue;  // dropped by the listener, or goes on
    StreamResult result = std::move(slot.result);
    result.meters = slot.sequence->take_meters();
    if (slot.stream.held && result.status == StreamStatus::kDone) {
      slot.result.status = StreamStatus::kDone;
    } else {
      free(number);
    }
    listener.on_done(number, std::move(result));
  }
}

StreamLoop::StreamLoop(const PassModel& model, const StreamLimits& limits, const LoopParts& parts,
                       WindowController* controller)
    : state_(std::make_unique<State>(model, limits)) {
  use(parts, controller);
}
StreamLoop::~StreamLoop() = default;
StreamLoop::StreamLoop(StreamLoop&&) noexcept = default;

void StreamLoop::use(const LoopParts& parts, WindowController* controller) {
  state_->use(parts, controller);
}

const StreamLimits& StreamLoop::limits() const { return state_->limits; }
const StreamTimes& StreamLoop::times() const { return state_->times; }

bool StreamLoop::full() const {
  return std::all_of(state_->slots.begin(), state_->slots.end(),
                     [](const StreamSlot& slot) { return slot.taken(); });
}
bool StreamLoop::idle() const {
  return std::none_of(state_->slots.begin(), state_->slots.end(),
                      [](const StreamSlot& slot) { return slot.running(); });
}

bool StreamLoop::taken(std::size_t slot) const { return state_->slots[slot].taken(); }

std::size_t StreamLoop::add(Stream stream) {
  State& state = *state_;
  std::size_t number = 0;
  while (number < state.slots.size() && state.slots[number].taken()) ++number;
  expects(number < state.slots.size(), "there is a free slot");
  state.begin(number, std::move(stream), /*slid=*/false);
  return number;
}

StreamResult StreamLoop::drop(std::size_t number) {
  State& state = *state_;
  expects(number < state.slots.size() && state.slots[number].taken(), "a slot with a stream");
  StreamSlot& slot = state.slots[number];
  StreamResult result = std::move(slot.result);
  result.meters = slot.sequence->take_meters();
  if (result.status == StreamStatus::kRunning) result.status = StreamStatus::kStopped;
  state.free(number);
  return result;
}

void StreamLoop::slide(std::size_t number, std::size_t first, std::size_t end, Stream next) {
  State& state = *state_;
  expects(number < state.slots.size(), "a slot");
  const StreamSlot& slot = state.slots[number];
  expects(slot.taken() && !slot.running() && slot.sequence->done() && first < end &&
              end <= slot.sequence->tokens().size() && end - first == next.given.size(),
          "a stream that is whole slides");
  try {
    for (int branch = 0; branch < slot.stream.branches(); ++branch) {
      const std::int64_t prompt = slot.prompt_rows[static_cast<std::size_t>(branch)];
      const std::int32_t sequence = state.sequence_of(number, branch);
      state.pass.cache().truncate(sequence, prompt + static_cast<std::int64_t>(end) - 1);
      slide_cache(*state.model.transformer_body(), state.pass.cache(), sequence, prompt,
                  static_cast<std::int64_t>(first));
    }
  } catch (...) {
    state.free(number);
    throw;
  }
  state.begin(number, std::move(next), /*slid=*/true);
}

void StreamLoop::step(StreamListener& listener) {
  State& state = *state_;
  const double began = monotonic_seconds();
  state.draft();
  const double drafted = monotonic_seconds();
  state.pass.begin();
  state.add_windows();
  state.add_prompts();
  if (state.decode_rows == 0 && !state.prompts_in_pass()) return;
  ++state.passes;
  state.run();
  state.read_logits();
  const double scored = monotonic_seconds();
  state.verify();
  state.settle_caches();
  state.show_hidden();
  const double verified = monotonic_seconds();
  state.name_layers();
  state.count_time(verified - began, verified - scored);
  state.emit({drafted - began, scored - drafted, verified - scored}, listener);
}

}  // namespace tessera
