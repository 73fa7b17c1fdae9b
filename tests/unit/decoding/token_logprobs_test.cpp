// Log probabilities of tokens: those of a plain pass over the text, whatever drafts, shapes and
// neighbours brought the rows, and on a device as on the host.
#include "engine/decoding/token_logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "engine/decoding/method_parts.h"
#include "tests/support/devices.h"
#include "tests/support/made_up_methods.h"
#include "tests/unit/decoding/text_run.h"

namespace tessera::testing::token_logprobs_test {
namespace {

double total_of(const std::vector<float>& row) {
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit));
  return std::log(sum);
}

TEST(TokenLogprobs, AreThoseOfTheWholeVocabulary) {
  const std::vector<float> row = {1.5F, -2, 3, 3, 0.25F, -40, 2};
  double sum = 0;
  for (std::int32_t id = 0; id < 7; ++id) {
    const TokenLogprobs one = token_logprobs(row, {}, 1, id, 0);
    EXPECT_NEAR(one.token.logprob, row[static_cast<std::size_t>(id)] - total_of(row), 1e-12);
    EXPECT_TRUE(one.top.empty());
    sum += std::exp(one.token.logprob);
  }
  EXPECT_NEAR(sum, 1, 1e-12);
  std::vector<std::int32_t> ids;
  for (const IdLogprob& one : token_logprobs(row, {}, 1, 0, 4).top) ids.push_back(one.id);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{2, 3, 6, 0}));
  EXPECT_EQ(token_logprobs(row, {}, 1, 0, 20).top.size(), 7u);
}

TEST(TokenLogprobs, UnderGuidanceAreThoseOfTheCombinedRow) {
  const std::vector<float> cond = {1, 2, 3}, uncond = {2, 0, 3}, both = {-1, 6, 3};
  for (const std::int32_t id : {0, 1, 2}) {
    EXPECT_EQ(token_logprobs(cond, uncond, 3, id, 3), token_logprobs(both, {}, 1, id, 3));
  }
}

struct Way {
  DecodeMethod method;
  std::int64_t items = 1;
  bool guided = false;
  std::int64_t top = 3;
};

struct Heard final : StreamListener {
  std::map<std::size_t, std::vector<TokenLogprobs>> grown;  // by slot
  std::map<std::size_t, std::uint64_t> item_of_slot;
  std::map<std::uint64_t, StreamResult> done;
  std::size_t logged = 0;
  void on_logprobs(std::size_t slot, std::span<const TokenLogprobs> tokens) override {
    grown[slot].insert(grown[slot].end(), tokens.begin(), tokens.end());
    logged = tokens.size();
  }
  void on_tokens(std::size_t slot, std::span<const std::int32_t> tokens) override {
    if (!grown[slot].empty()) {
      EXPECT_EQ(tokens.size(), logged);
    }
  }
  void on_done(std::size_t slot, StreamResult&& result) override {
    EXPECT_EQ(grown[slot], result.logprobs.tokens);
    grown[slot].clear();
    done[item_of_slot.at(slot)] = std::move(result);
  }
};

std::vector<Stream> streams_of(const StreamModel& model, const Way& way) {
  std::vector<Stream> out = items_of(model, questions(model, 6));
  for (Stream& stream : out) {
    stream.logprobs = way.top;
    if (!way.guided) continue;
    stream.dist.guidance = 2.5;
    stream.unconditional = item_of(model, {.prompt = small_prompt(model, 4, 99)}).prompt;
  }
  return out;
}

std::map<std::uint64_t, StreamResult> write(const StreamModel& model, const Way& way) {
  DecodeAids aids;
  aids.grammar = VocabularyGrammar::line(static_cast<std::size_t>(model.config().vocab), 64);
  const OwnedParts<float, KeyedRandom> owned(way.method, aids);
  const LoopParts parts = owned.parts();
  std::vector<Stream> items = streams_of(model, way);
  std::int64_t longest = 1;
  for (const Stream& item : items) longest = std::max(longest, item.prompt.length());
  StreamLoop loop(model,
                  text_limits(model, 64,
                              {.items = way.items,
                               .prompt_rows = longest,
                               .window = way.method.window,
                               .guided = way.guided,
                               .budget = 16,
                               .dists = parts.needs_dists(),
                               .shape = parts.shape()}),
                  parts);
  Heard heard;
  std::size_t next = 0;
  while (next < items.size() || !loop.idle()) {
    while (next < items.size() && !loop.full()) {
      const std::uint64_t number = items[next].item;
      heard.item_of_slot[loop.add(std::move(items[next++]))] = number;
    }
    loop.step(heard);
  }
  return std::move(heard.done);
}

std::vector<Way> ways() {
  DecodeMethod tree = combine("neighbour-law", "drop", "exact", 6);
  tree.tree = "k-seq";
  return {{combine("lookup", "drop", "exact", 5), 3},
          {combine("neighbour-law", "maximal", "exact", 4), 2},
          {tree, 2},
          {combine("lookup", "drop", "gumbel", 8), 3}};
}

// What a plain pass over prompt and text says of each token.
TEST(TokenLogprobs, EqualAPlainPassAndEachOther) {
  const SmallText small = small_text();
  const std::vector<Question> asked = questions(small.model, 6);
  const auto plain = write(small.model, {combine("none", "drop", "exact", 1)});
  for (const Question& q : asked) {
    const StreamResult& result = plain.at(q.item);
    ASSERT_EQ(result.logprobs.tokens.size(), result.tokens.size());
    Tokens text = q.prompt;
    for (std::size_t i = 0; i < result.tokens.size(); ++i) {
      const std::vector<float> row = logits_after(small.model, text);
      const TokenLogprobs& own = result.logprobs.tokens[i];
      ASSERT_EQ(own.token.id, result.tokens[i]);
      EXPECT_NEAR(own.token.logprob, nth(row, own.token.id) - total_of(row), 1e-5);
      ASSERT_EQ(own.top.size(), 3u);
      if (q.dist.temperature == 0) {
        EXPECT_EQ(own.top.front(), own.token);
      }
      EXPECT_GE(own.top.front().logprob, own.token.logprob);
      text.push_back(result.tokens[i]);
    }
  }
  int accepted = 0;
  for (const Way& way : ways()) {
    const auto drafted = write(small.model, way);
    for (const auto& [number, result] : drafted) {
      accepted += result.passes < std::ssize(result.tokens) ? 1 : 0;
      // Another text of the same distribution has values of its own; the last way has the same one.
      if (asked[number].dist.temperature != 0 && result.tokens != plain.at(number).tokens) continue;
      EXPECT_EQ(result.tokens, plain.at(number).tokens);
      EXPECT_EQ(result.logprobs.tokens, plain.at(number).logprobs.tokens)
          << way.method.drafter << " " << way.method.tree << " " << number;
    }
  }
  EXPECT_GT(accepted, 4) << "drafts that are all refused would prove nothing";
}

TEST(TokenLogprobs, UnderGuidanceEqualEachOther) {
  const SmallText small = small_text();
  Way way{combine("none", "drop", "exact", 1), 1, true};
  const auto plain = write(small.model, way);
  way = {combine("lookup", "drop", "gumbel", 5), 3, true};
  for (const auto& [number, result] : write(small.model, way)) {
    EXPECT_EQ(result.logprobs.tokens, plain.at(number).logprobs.tokens) << number;
    EXPECT_EQ(result.logprobs.tokens.size(), result.tokens.size());
  }
  const auto without = write(small.model, {way.method});
  EXPECT_NE(without.at(0).logprobs.tokens, plain.at(0).logprobs.tokens);
}

TEST(TokenLogprobs, AreNotThereWhereNobodyAsks) {
  const SmallText small = small_text();
  for (const auto& [number, result] :
       write(small.model, {.method = combine("lookup", "drop", "exact", 5), .top = kNoLogprobs})) {
    EXPECT_EQ(result.logprobs.tokens.capacity(), 0u);
    EXPECT_FALSE(result.tokens.empty());
  }
}

class LogprobsOn : public OnDevice {};

// Rows come to the host for those who ask.
TEST_P(LogprobsOn, EqualThoseOfTheHost) {
  const SmallText small = small_text_on(std::move(backend), small_text_spec(), DType::kBF16);
  for (const bool guided : {false, true}) {
    const auto plain = write(small.model, {combine("none", "drop", "exact", 1), 2, guided});
    for (const auto& [number, result] :
         write(small.model, {combine("lookup", "drop", "gumbel", 5), 2, guided})) {
      EXPECT_EQ(result.logprobs.tokens.size(), result.tokens.size());
      EXPECT_EQ(result.logprobs.tokens, plain.at(number).logprobs.tokens) << number;
      for (const TokenLogprobs& one : result.logprobs.tokens) EXPECT_LT(one.token.logprob, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LogprobsOn, ::testing::ValuesIn(cuda_devices()), device_name);

}  // namespace
}  // namespace tessera::testing::token_logprobs_test
