// Streams on their way into slots and out of them, and from one part to the next.
#include <algorithm>
#include <utility>

#include "engine/core/index.h"
#include "engine/decoding/stream_loop_state.h"

namespace tessera {

namespace {

bool is_line(const VocabularyGrammar& grammar) {
  return grammar.rows == 1 && grammar.controls() == 0 && grammar.grids == 1;
}

// The grammar of a stream that has one.
VocabularyGrammar grammar_of(const Stream& stream, const StreamLimits& limits) {
  VocabularyGrammar grammar = stream.grammar.value_or(limits.grammar);
  if (stream.max_tokens > 0) {
    expects(is_line(grammar), "a line may end before its grammar does");
    grammar.columns = std::min(grammar.columns, to_size(stream.max_tokens));
  }
  expects(grammar.codes == limits.grammar.codes && grammar.length() <= limits.grammar.length(),
          "the grammar fits the limits");
  return grammar;
}

}  // namespace

void StreamLoop::State::check(const Stream& stream) const {
  expects(stream.prompt.length() > 0 || !stream.given.empty() || limits.blocks.begins,
          "a stream begins with something");
  expects(!stream.guided() || (limits.guided && stream.unconditional.length() > 0),
          "guidance needs an unconditional prompt");
  expects(stream.branches() <= limits.branches(), "there is room for all branches");
  for (int branch = 0; branch < stream.branches(); ++branch) {
    const StreamPrompt& prompt = stream.branch(branch);
    expects(prompt.length() <= limits.prompt_rows, "prompts fit the limits");
    expects(prompt.rows == nullptr || std::ssize(prompt.positions) == prompt.length(),
            "a position a row");
    expects(prompt.cuts == nullptr || (prompt.rows != nullptr && limits.shape == PassShape::kLine),
            "prompts of rows are cut, and drafts after them stand in a line");
  }
  expects(std::ssize(stream.given) <= limits.given_tokens &&
              (stream.given.empty() || limits.shape != PassShape::kRows),
          "given tokens fit the limits");
  if (limits.shape == PassShape::kBlock) check_blocks(stream);
  if (!stream.grammars.empty()) check_grammars(stream);
  expects(stream.logprobs == kNoLogprobs || (stream.grammars.empty() && stream.given.empty()),
          "log probabilities are of streams with one grammar that begin by themselves");
  expects(stream.max_tokens >= 0 && stream.max_tokens <= limits.tokens(), "the tokens fit");
}

void StreamLoop::State::check_blocks(const Stream& stream) const {
  const VocabularyGrammar grammar = grammar_of(stream, limits);
  const auto block = to_size(limits.blocks.block);
  expects(limits.window == limits.blocks.block && !stream.dist.guided(), "a window is a block");
  expects(grammar.controls() == 0 && grammar.cells() % block == 0, "blocks divide a grid");
  expects(stream.given.size() % block == 0 && stream.given.size() < grammar.length() &&
              (limits.blocks.begins || !stream.given.empty()),
          "whole blocks are given, and some are left");
}

void StreamLoop::State::check_grammars(const Stream& stream) const {
  expects(stream.given.empty() && !stream.traced && !stream.held,
          "a stream that switches its grammar is whole and its own");
  expects(limits.shape == PassShape::kLine || limits.shape == PassShape::kTree,
          "grammars are switched where tokens are committed in order");
  for (const StreamGrammar& part : stream.grammars) {
    expects(part.space < spaces.size() &&
                part.grammar.codes == spaces[part.space].grammar().codes &&
                part.grammar.length() <= spaces[part.space].grammar().length(),
            "a grammar fits its space");
    expects(!part.then || *part.then < stream.grammars.size(), "a grammar of the stream follows");
    for (const StreamGrammar::Switch& other : part.switches) {
      expects(other.to < stream.grammars.size(), "a grammar of the stream follows");
    }
  }
}

// Whatever goes wrong, the slot is free then.
void StreamLoop::State::begin(std::size_t number, Stream stream, bool slid) {
  try {
    check(stream);
    StreamSlot& slot = slots[number];
    slot = {};
    slot.stream = std::move(stream);
    slot.slid = slid;
    if (!slot.stream.grammars.empty() && slot.stream.max_tokens == 0) {
      slot.stream.max_tokens = limits.tokens();
    }
    fill(slot, number);
    waiting.push_back(number);
  } catch (...) {
    free(number);
    throw;
  }
}

// All that a slot has besides its stream.
void StreamLoop::State::fill(StreamSlot& slot, std::size_t number) {
  const Stream& own = slot.stream;
  const std::optional<VocabularyGrammar> grammar = part_grammar(slot, slot.grammar);
  expects(grammar.has_value(), "the first part has room");
  begin_part(slot, number, *grammar);
  slot.sequence->stand_after(own.before);
  slot.sequence->process_after(own.processed);
  slot.sequence->begin_with(own.given);
  const std::size_t most =
      own.grammars.empty() ? slot.sequence->grammar().length() : to_size(own.max_tokens);
  slot.result.tokens.reserve(most);
  slot.result.tokens = own.given;
  slot.emitted = own.given.size();
  if (own.traced) {
    slot.result.trace.start(most);
    slot.sequence->trace_to(&slot.result.trace);
  }
  if (own.logprobs != kNoLogprobs) {
    slot.result.logprobs.top = own.logprobs;
    slot.result.logprobs.tokens.reserve(most);
    slot.sequence->record_to(&slot.result.logprobs);
  }
  for (int branch = 0; branch < own.branches(); ++branch) {
    const auto b = to_size(branch);
    slot.prompt_rows[b] = own.branch(branch).length();
    slot.first_position[b] = own.branch(branch).first_position();
  }
  std::array<std::int64_t, kMaxBranches> cached = {};
  for (int branch = 0; branch < narrow<int>(limits.branches()); ++branch) {
    const std::int32_t sequence = sequence_of(number, branch);
    if (!slot.slid && branch < own.branches() && shares_prompts(own)) {
      nth(cached, branch) = prefixes.begin(sequence, own.branch(branch));
      slot.result.reused += nth(cached, branch);
    } else if (!slot.slid) {
      prefixes.forget(sequence);
    }
    pass.set_context(sequence, own.context);
  }
  slot.feed = PromptFeed(own, sequence_of(number, 0), slot.slid, model.reading(), cached);
  for (int branch = 0; slot.slid && branch < own.branches(); ++branch) {
    expects(pass.cache().length(sequence_of(number, branch)) + 1 ==
                own.branch(branch).length() + std::ssize(own.given),
            "slide() cached all given tokens but the last");
  }
}

// Under which the next part of a stream is written; empty if it has no room for that.
std::optional<VocabularyGrammar> StreamLoop::State::part_grammar(const StreamSlot& slot,
                                                                 std::size_t number) const {
  const Stream& own = slot.stream;
  if (own.grammars.empty()) return grammar_of(own, limits);
  const std::size_t left = to_size(own.max_tokens) - slot.result.tokens.size();
  VocabularyGrammar grammar = own.grammars[number].grammar;
  if (is_line(grammar)) grammar.columns = std::min(grammar.columns, left);
  if (grammar.length() > left) return std::nullopt;
  return grammar;
}

// The sequence of the part that comes.
void StreamLoop::State::begin_part(StreamSlot& slot, std::size_t number,
                                   const VocabularyGrammar& grammar) {
  const Stream& own = slot.stream;
  const std::size_t part = slot.grammar_parts();
  slot.ends = own.stops;
  if (!own.grammars.empty()) {
    const StreamGrammar& next = own.grammars[slot.grammar];
    slot.space = next.space;
    slot.ends = next.stops;
    for (const StreamGrammar::Switch& other : next.switches) slot.ends.push_back(other.id);
    slot.result.parts.push_back({slot.grammar, slot.result.tokens.size()});
  }
  LoopSpace& space = spaces[slot.space];
  slot.sequence =
      space.verifier().make_sequence(slot.dist(), grammar, part_random(own, part), number);
  slot.sequence->stop_after(slot.ends);
  space.renew(number);
}

// All that is written becomes the prompt of the next part. Its last token is fed again, if it was a
// draft that was right: what follows is read by another head.
void StreamLoop::State::switch_part(std::size_t number) {
  StreamSlot& slot = slots[number];
  const std::size_t space = slot.space, next = *std::exchange(slot.next, std::nullopt);
  const std::optional<VocabularyGrammar> grammar = part_grammar(slot, next);
  if (!grammar) {
    slot.result.status = StreamStatus::kDone;
    return;
  }
  const auto written_tokens = std::ssize(slot.sequence->tokens());
  slot.grammar = next;
  slot.earlier.add(slot.sequence->meters());
  slot.earlier_passes = slot.result.passes;
  slot.part_begin = slot.result.tokens.size();
  begin_part(slot, number, *grammar);
  PromptFeed::LastToken last{slot.result.tokens.back(), space, {}};
  for (int branch = 0; branch < slot.stream.branches(); ++branch) {
    const auto b = to_size(branch);
    slot.prompt_rows[b] += written_tokens;
    slot.first_position[b] += written_tokens;
    last.position[b] = slot.first_position[b] - 1;
    pass.cache().truncate(sequence_of(number, branch), slot.prompt_rows[b] - 1);
  }
  slot.feed = PromptFeed(sequence_of(number, 0), last);
  waiting.push_back(number);
}

void StreamLoop::State::switch_parts() {
  for (std::size_t number = 0; number < slots.size(); ++number) {
    if (slots[number].next) switch_part(number);
  }
}

// The prompt's rows stay for streams that begin alike.
void StreamLoop::State::free(std::size_t number) {
  std::erase(waiting, number);
  const bool sound =
      slots[number].taken() && slots[number].result.status != StreamStatus::kFailed;
  for (int branch = 0; branch < narrow<int>(limits.branches()); ++branch) {
    const std::int32_t sequence = sequence_of(number, branch);
    if (sound && prefixes.kept(sequence) > 0) {
      prefixes.end(sequence);
    } else {
      prefixes.forget(sequence);
    }
    pass.set_context(sequence, nullptr);
  }
  slots[number] = {};
  slots[number].freed_at = ++frees;
}

// Whether rows of its prompts may be those of another prompt. What else a row depends on would have
// to be the same; drafters that read hidden states see each row.
bool StreamLoop::State::shares_prompts(const Stream& stream) const {
  return stream.context == nullptr && model.reading().block == 0 &&
         model.transformer_body() != nullptr && !hidden.wanted();
}

// The free slot whose prompt goes on in the stream's, for at least half of what it keeps; else the
// one that was free longest.
std::size_t StreamLoop::State::slot_for(const Stream& stream) const {
  std::optional<std::size_t> best;
  std::int64_t most = 0;
  for (std::size_t number = 0; number < slots.size(); ++number) {
    if (slots[number].taken()) continue;
    std::int64_t shared = 0, all = 0;
    for (int branch = 0; branch < stream.branches() && shares_prompts(stream); ++branch) {
      shared += prefixes.shared(sequence_of(number, branch), stream.branch(branch));
      all += prefixes.kept(sequence_of(number, branch));
    }
    if (2 * shared < all) shared = 0;
    const bool better = !best || shared > most ||
                        (shared == most && slots[number].freed_at < slots[*best].freed_at);
    if (!better) continue;
    best = number;
    most = shared;
  }
  expects(best.has_value(), "there is a free slot");
  return *best;
}

}  // namespace tessera
