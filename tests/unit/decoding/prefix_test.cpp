// Prompts that begin as others did: rows that are cached are not run again, and nobody can tell.
#include <gtest/gtest.h>

#include "engine/decoding/decode_method.h"
#include "engine/decoding/method_parts.h"
#include "engine/decoding/stream_loop.h"
#include "tests/support/stream_run.h"
#include "tests/unit/decoding/text_run.h"

namespace tessera::prefix_test {
namespace {

Tokens ids_of(const StreamModel& model, std::uint32_t seed, std::int64_t count) {
  return small_prompt(model, count, seed);
}
Tokens joined(Tokens first, const Tokens& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Of all streams, by slot.
struct Ended final : StreamListener {
  std::map<std::size_t, StreamResult> results;
  void on_done(std::size_t slot, StreamResult&& result) override { results[slot] = std::move(result); }
};

class Prefixes : public ::testing::Test {
 protected:
  static constexpr std::int64_t kTokens = 12, kPromptRows = 60;

  explicit Prefixes(std::int64_t slots = 3)
      : owned_(plain(), aids()), slots_(slots), loop_(make_loop()) {}

  static DecodeMethod plain() {
    DecodeMethod out;
    out.drafter = "none";
    out.window = 1;
    return out;
  }
  DecodeAids aids() const {
    DecodeAids out;
    out.grammar = VocabularyGrammar::line(static_cast<std::size_t>(small_.model.config().vocab), kTokens);
    return out;
  }
  StreamLoop make_loop() const {
    return StreamLoop(small_.model,
                      text_limits(small_.model, kTokens,
                                  {.items = slots_, .prompt_rows = kPromptRows, .guided = true, .budget = 16}),
                      owned_.parts());
  }
  Stream text(const Tokens& prompt, bool keyed = true) const {
    Stream out = item_of(small_.model, {.prompt = prompt, .dist = {.temperature = 0.8}, .max_tokens = 9, .stops = {}});
    if (keyed) out.prompt.keys = keys_of(prompt);
    return out;
  }
  Stream with_ids(const Tokens& prompt) const {
    Stream out = text(prompt, false);
    out.prompt = {.ids = prompt};
    return out;
  }
  // Through to its end, whatever else is at work.
  StreamResult write(Stream stream) {
    Ended ended;
    slot_ = loop_.add(std::move(stream));
    while (ended.results.find(slot_) == ended.results.end()) loop_.step(ended);
    return ended.results.at(slot_);
  }
  // The same in a loop of its own.
  StreamResult alone(const Stream& stream) const {
    StreamLoop loop = make_loop();
    return run_streams(loop, {&stream, 1})[0];
  }
  // Rows that were not run, after checking that the text is what it is alone.
  std::int64_t reused(const Stream& stream) {
    const StreamResult made = write(stream), want = alone(stream);
    EXPECT_EQ(made.tokens, want.tokens);
    EXPECT_EQ(made.status, want.status);
    EXPECT_EQ(made.prefilled + made.reused, want.prefilled);
    EXPECT_EQ(want.reused, 0);
    return made.reused;
  }

  SmallText small_ = small_text();
  OwnedParts<float, KeyedRandom> owned_;
  std::int64_t slots_;
  StreamLoop loop_;
  std::size_t slot_ = 0;
};

TEST_F(Prefixes, AreReusedAsFarAsTheyAreAlike) {
  const Tokens system = ids_of(small_.model, 1, 20), more = ids_of(small_.model, 2, 15);
  EXPECT_EQ(reused(text(system)), 0);
  EXPECT_EQ(reused(text(joined(system, more))), 20);
  // The whole prompt once more: its last row is read anew.
  EXPECT_EQ(reused(text(joined(system, more))), 34);
  Tokens other = joined(system, more);
  other[24] = other[24] == 3 ? 4 : 3;
  EXPECT_EQ(reused(text(other)), 24);
  other[0] = other[0] == 3 ? 4 : 3;
  EXPECT_EQ(reused(text(other)), 0);
}

TEST_F(Prefixes, OfIdsTooAndOfBothBranches) {
  const Tokens system = ids_of(small_.model, 1, 20), more = ids_of(small_.model, 2, 15);
  Stream guided = with_ids(joined(system, more));
  guided.dist.guidance = 1.5;
  guided.unconditional = {.ids = system};
  EXPECT_EQ(reused(guided), 0);
  EXPECT_EQ(reused(guided), 34 + 19);
  EXPECT_EQ(reused(with_ids(joined(system, {1, 2}))), 20);
  // Rows and ids are not held against each other.
  EXPECT_EQ(reused(text(system)), 0);
}

TEST_F(Prefixes, OfAStreamAtWork) {
  const Tokens system = ids_of(small_.model, 1, 40);
  Stream first = text(joined(system, {5}));
  first.max_tokens = 12;
  const std::size_t slot = loop_.add(std::move(first));
  Ended ended;
  loop_.step(ended);  // 16 rows of its prompt
  EXPECT_EQ(reused(text(joined(system, {6}))), 16);
  EXPECT_NE(slot_, slot);
  EXPECT_EQ(reused(text(joined(system, {7, 8}))), 40);
}

TEST_F(Prefixes, OfAStreamThatWasDropped) {
  const Tokens system = ids_of(small_.model, 1, 40);
  const std::size_t slot = loop_.add(text(system));
  Ended ended;
  loop_.step(ended);
  loop_.drop(slot);
  EXPECT_EQ(reused(text(joined(system, {6}))), 16);
}

TEST_F(Prefixes, RowsWithoutKeysOrAtOtherPlacesAreNot) {
  const Tokens system = ids_of(small_.model, 1, 20);
  EXPECT_EQ(reused(text(system, false)), 0);
  EXPECT_EQ(reused(text(system, false)), 0);
  EXPECT_EQ(reused(text(system)), 0);
  Stream moved = text(system);
  for (std::size_t i = 8; i < moved.prompt.positions.size(); ++i) {
    for (std::int64_t& axis : moved.prompt.positions[i]) ++axis;
  }
  ++moved.prompt.next_position;
  EXPECT_EQ(reused(moved), 8);
}

// Rows of a stream that failed are nobody's.
TEST_F(Prefixes, OfAFailedStreamAreForgotten) {
  const Tokens system = ids_of(small_.model, 1, 20);
  Stream broken = text(system);
  broken.prompt.rows = text(system).prompt.rows;
  float* const row = own_rows(broken).view().f32() + 19 * small_.model.width();
  std::fill_n(row, small_.model.width(), std::nanf(""));
  EXPECT_EQ(write(broken).status, StreamStatus::kFailed);
  EXPECT_EQ(reused(text(joined(system, {5}))), 0);
}

// Keys that lie are seen: the comparison can fail.
TEST_F(Prefixes, KeysThatLieChangeTheText) {
  const Tokens system = ids_of(small_.model, 1, 20), other = ids_of(small_.model, 3, 20);
  write(text(system));
  Stream liar = text(joined(other, {5}));
  for (std::size_t i = 0; i < system.size(); ++i) liar.prompt.keys[i] = key_of_id(system[i]);
  const StreamResult made = write(liar);
  EXPECT_EQ(made.reused, 20);
  EXPECT_NE(made.tokens, alone(liar).tokens);
}

TEST_F(Prefixes, ASlotIsTakenFromThePromptThatGoesOnOrTheOldest) {
  const Tokens a = ids_of(small_.model, 1, 20), b = ids_of(small_.model, 2, 20), c = ids_of(small_.model, 3, 20);
  std::vector<std::size_t> slots;
  for (const Tokens* one : {&a, &b, &c}) {
    write(text(*one));
    slots.push_back(slot_);
  }
  EXPECT_EQ(std::set(slots.begin(), slots.end()).size(), 3u);
  EXPECT_EQ(reused(text(joined(b, {1}))), 20);
  EXPECT_EQ(slot_, slots[1]);
  EXPECT_EQ(reused(text(ids_of(small_.model, 4, 20))), 0);
  EXPECT_EQ(slot_, slots[0]) << "free for longest";
  EXPECT_EQ(reused(text(joined(c, {1}))), 20);
}

}  // namespace
}  // namespace tessera::prefix_test
