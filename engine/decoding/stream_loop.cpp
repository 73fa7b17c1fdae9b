// Rows of a pass: of each running stream the window of its conditional sequence, then that of its
// unconditional one, in order of slots; then parts of what streams begin with, in the order in
// which they came. A window is the last committed token followed by the drafts, so row j of a
// window gives the distribution of the token after draft j.
#include "engine/decoding/stream_loop.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/decoding/broken_layer.h"
#include "engine/decoding/stream_loop_state.h"
#include "engine/model/cache_slide.h"
#include "engine/ops/ops.h"

namespace tessera {

namespace {

constexpr int kDraftedBranches = 2;  // that drafters read

}  // namespace

StreamLoop::State::State(const PassModel& pass_model, const StreamLimits& stream_limits)
    : model(pass_model), limits(stream_limits), pass(pass_model, stream_limits.pass_limits()), prefixes(pass.cache()) {
  expects(limits.items >= 1 && limits.prompt_rows >= 1 && limits.window >= 1 && limits.budget >= 1,
          "limits of streams are positive");
  slots.resize(to_size(limits.items));
  make_room_to_mix(pass_model);
  for (auto* list : {&waiting, &ended}) list->reserve(slots.size());
  spaces.emplace_back(0, limits.grammar, limits);
  views.reserve(slots.size());
  line.tokens.reserve(to_size(limits.window));
  line.seen.reserve(limits.grammar.length());
  kept.reserve(to_size(limits.window));
}

void StreamLoop::State::use(const LoopParts& parts, WindowController* window_controller) {
  expects((limits.shape == PassShape::kBlock) == (model.reading().block > 0),
          "a model of blocks writes blocks");
  expects(
      std::none_of(slots.begin(), slots.end(), [](const StreamSlot& slot) { return slot.taken(); }),
      "an empty loop takes another method");
  controller = window_controller;
  spaces[0].use(backend(), parts, limits);
  hidden.ask(parts.drafter, pass, limits.pass_rows());
}

// Fills the window of every stream that writes, or grows its tree.
void StreamLoop::State::draft() {
  const bool drafts = std::any_of(spaces.begin(), spaces.end(),
                                  [](const LoopSpace& space) { return space.drafts(); });
  std::int64_t most = drafts ? limits.window : 1, branches = 0;
  for (StreamSlot& slot : slots) {
    slot.in_pass = false;
    slot.decodes = slot.writing();
    branches += slot.decodes ? slot.stream.branches() : 0;
  }
  if (controller != nullptr && drafts && branches > 0) {
    most = std::min(most, controller->next(branches));
  }
  for (LoopSpace& space : spaces) space.draft(slots, to_size(most));
}

// The rows of one branch of a stream, line by line, the first `most` of them.
void StreamLoop::State::add_rows(std::size_t number, int branch, std::size_t most) {
  const StreamSlot& slot = slots[number];
  const auto b = to_size(branch);
  const std::int64_t rows = slot.prompt_rows[b], position = slot.first_position[b];
  for (std::size_t row = 0; row < most;) {
    const std::size_t count = std::min(slot.sequence->line(row, line), most - row);
    for (std::int32_t& seen : line.seen) seen += narrow<std::int32_t>(rows);
    pass.add_line(sequence_of(number, branch),
                  {position + to_index(line.position), rows + to_index(line.shared), line.seen,
                   std::span<const std::int32_t>(line.tokens).first(count), slot.space});
    row += count;
  }
}

void StreamLoop::State::add_windows() {
  for (LoopSpace& space : spaces) space.begin();
  for (std::size_t number = 0; number < slots.size(); ++number) {
    StreamSlot& slot = slots[number];
    if (!slot.decodes) continue;
    slot.in_pass = true;
    slot.window_rows = slot.sequence->rows();
    slot.pass_row = pass.rows();
    slot.cached = pass.cache().length(sequence_of(number, 0)) - slot.prompt_rows[0];
    for (int branch = 0; branch < slot.stream.branches(); ++branch) {
      add_rows(number, branch, slot.window_rows);
    }
    slot.first_row = spaces[slot.space].take_rows(pass.rows() - slot.pass_row);
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
  if (slot.grammar_parts() <= 1) slot.result.prefilled += added;
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
      std::min(std::max(limits.budget - decode_rows, limits.min_prompt_rows()), most);
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

// Of streams in a row that are of one space.
void StreamLoop::State::run_window_heads() {
  for (std::size_t at = 0; at < slots.size();) {
    if (!slots[at].decodes) {
      ++at;
      continue;
    }
    const StreamSlot& first = slots[at];
    std::int64_t rows = 0;
    for (; at < slots.size() && (!slots[at].decodes || slots[at].space == first.space); ++at) {
      if (!slots[at].decodes) continue;
      rows += to_index(slots[at].window_rows) * slots[at].stream.branches();
    }
    pass.run_head(first.pass_row, rows, first.first_row, first.space);
  }
}

void StreamLoop::State::run() {
  const bool one_space = std::none_of(slots.begin(), slots.end(), [](const StreamSlot& slot) {
    return slot.decodes && slot.space != 0;
  });
  if (!prompts_in_pass() && one_space) return pass.run();
  if (pass.rows() > 0) pass.run_layers();
  run_window_heads();
  for (const std::size_t number : ended) {
    StreamSlot& slot = slots[number];
    slot.in_pass = true;
    slot.window_rows = slot.sequence->rows();
    const auto wanted = to_index(slot.window_rows);
    slot.first_row = spaces[slot.space].take_rows(wanted * slot.stream.branches());
    slot.cached = slot.feed.given_rows();
    std::int64_t logit_row = slot.first_row;
    for (int branch = 0; branch < slot.stream.branches(); ++branch) {
      const std::int64_t row = slot.feed.last_row(branch);
      if (slot.stream.branch(branch).cuts != nullptr && slot.grammar_parts() <= 1) {
        read_cut_prompt(number, branch, logit_row++);
      } else {
        pass.run_head(row - wanted + 1, wanted, logit_row, slot.space);
        logit_row += wanted;
      }
    }
  }
}

void StreamLoop::State::make_room_to_mix(const PassModel& space) {
  if (limits.branches() < 3) return;
  const std::int64_t numbers = limits.window * space.logit_ids();
  if (mixed.empty() || mixed.shape()[0] < numbers) {
    mixed = backend().allocate(DType::kF32, Shape{numbers});
  }
  mix_rows.reserve(to_size(2 * limits.window));
  mix_weights.reserve(to_size(2 * limits.window));
}

// The third branch goes into the second: what verifies and drafts knows two.
void StreamLoop::State::mix_branches() {
  for (const StreamSlot& slot : slots) {
    if (!slot.in_pass || slot.stream.branches() != 3) continue;
    const auto rows = to_index(slot.window_rows);
    const ConstTensorView logits = pass.device_logits(slot.space);
    const std::int64_t ids = logits.shape[1];
    const auto from = [&](std::int64_t row) { return logits.f32() + row * ids; };
    const std::int64_t second = slot.first_row + rows;
    mix_rows.clear();
    mix_weights.clear();
    for (const double share : {1 - slot.stream.images_share, slot.stream.images_share}) {
      for (std::int64_t i = 0; i < rows; ++i) {
        mix_rows.push_back(narrow<std::int32_t>(i));
        mix_weights.push_back(to_float(share));
      }
    }
    const TensorView out{DType::kF32, Shape{rows, ids}, mixed.view().data, logits.device};
    ops::combine_rows(backend(), {DType::kF32, Shape{2 * rows, ids}, from(second), logits.device}, mix_rows,
                      mix_weights, out);
    backend().copy(out, pass.logits_to_edit(second, rows, slot.space));
  }
}

void StreamLoop::State::verify() {
  written = -committed();
  backend().threads().parallel_for(
      std::ssize(slots), 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (auto i = to_size(begin); i < to_size(end); ++i) {
          StreamSlot& slot = slots[i];
          if (!slot.in_pass) continue;
          take_verdict(slot, spaces[slot.space].verifier().settle(slot.verified));
        }
      });
  written += committed();
}

// Of the rows that a pass cached, those that verification keeps.
void StreamLoop::State::keep_rows(std::size_t number) {
  const StreamSlot& slot = slots[number];
  for (int branch = 0; branch < slot.stream.branches(); ++branch) {
    const std::int64_t before = nth(slot.prompt_rows, branch) + slot.cached;
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
  for (std::size_t number = 0; number < slots.size(); ++number) {
    const StreamSlot& slot = slots[number];
    if (!slot.decodes || slot.result.status == StreamStatus::kFailed) continue;
    const auto rows = to_index(slot.window_rows);
    for (int branch = 0; branch < std::min(slot.stream.branches(), kDraftedBranches); ++branch) {
      hidden.show(pass, number, branch, slot.pass_row + branch * rows, slot.sequence->kept_rows());
    }
  }
  // Prompts and given tokens, all of whose rows stay.
  const auto branches = narrow<std::int32_t>(limits.branches());
  for (std::int64_t row = decode_rows, first = row; row < pass.rows(); first = row) {
    const std::int32_t sequence = pass.sequence(row);
    while (row < pass.rows() && pass.sequence(row) == sequence) ++row;
    const auto number = to_size(sequence / branches);
    if (slots[number].result.status == StreamStatus::kFailed ||
        sequence % branches >= kDraftedBranches) {
      continue;
    }
    hidden.show(pass, number, sequence % branches, first, row - first);
  }
}

// Runs the first row of a failed stream once more and looks where its first broken number comes
// from.
std::string StreamLoop::State::broken_place(std::size_t number) {
  const StreamSlot& slot = slots[number];
  const bool first_pass = slot.first_pass();
  for (int branch = 0; branch < slot.stream.branches(); ++branch) {
    const std::int64_t rows = nth(slot.prompt_rows, branch) + slot.cached;
    const std::int64_t began = slot.slid || slot.grammar_parts() > 1 ? rows - 1 : 0;
    pass.cache().truncate(sequence_of(number, branch), first_pass ? began : rows);
  }
  PromptFeed feed(slot.stream, sequence_of(number, 0), slot.slid, model.reading());
  if (slot.grammar_parts() > 1) feed = slot.feed.again();
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
  times.verify += verifying;
  (prompts ? times.prompts : times.tokens) += seconds;
  ++(prompts ? times.prompt_passes : times.token_passes);
  if (!prompts) times.tokens_written += written;
  if (controller == nullptr || prompts) return;
  controller->observe_time(decode_rows, seconds);
  for (const StreamSlot& slot : slots) {
    if (!slot.decodes || slot.result.status == StreamStatus::kFailed) continue;
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
      if (slot.stream.logprobs != kNoLogprobs) {
        listener.on_logprobs(number,
                             std::span(slot.result.logprobs.tokens).subspan(slot.emitted));
      }
      if (!slot.taken()) continue;
      listener.on_tokens(number, tokens.subspan(std::exchange(slot.emitted, tokens.size())));
    }
    if (!slot.taken() || slot.running()) continue;  // dropped by the listener, or goes on
    slot.result.meters = slot.take_meters();
    StreamResult result = std::move(slot.result);
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

std::size_t StreamLoop::add_space(const PassModel& model, const VocabularyGrammar& grammar,
                                  const LoopParts& parts) {
  State& state = *state_;
  expects(std::none_of(state.slots.begin(), state.slots.end(),
                       [](const StreamSlot& slot) { return slot.taken(); }),
          "an empty loop takes another space");
  state.make_room_to_mix(model);
  const std::size_t number = state.pass.add_space(model);
  LoopSpace space(number, grammar, state.limits);
  space.use(state.backend(), parts, state.limits);
  state.spaces.push_back(std::move(space));
  return number;
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
  const std::size_t number = state.slot_for(stream);
  state.begin(number, std::move(stream), /*slid=*/false);
  return number;
}

StreamResult StreamLoop::drop(std::size_t number) {
  State& state = *state_;
  expects(number < state.slots.size() && state.slots[number].taken(), "a slot with a stream");
  StreamSlot& slot = state.slots[number];
  slot.result.meters = slot.take_meters();
  StreamResult result = std::move(slot.result);
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
      const std::int64_t prompt = nth(slot.prompt_rows, branch);
      const std::int32_t sequence = state.sequence_of(number, branch);
      state.pass.cache().truncate(sequence, prompt + to_index(end) - 1);
      slide_cache(*state.model.transformer_body(), state.pass.cache(), sequence, prompt,
                  to_index(first));
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
  try {
    state.run();
  } catch (...) {
    state.prefixes.forget_all();  // what is cached may be half written
    throw;
  }
  state.mix_branches();
  for (LoopSpace& space : state.spaces) space.read_logits(state.slots, state.pass);
  const double scored = monotonic_seconds();
  state.verify();
  state.settle_caches();
  state.show_hidden();
  const double verified = monotonic_seconds();
  state.name_layers();
  state.switch_parts();
  state.count_time(verified - began, verified - scored);
  state.emit({drafted - began, scored - drafted, verified - scored}, listener);
}

}  // namespace tessera
