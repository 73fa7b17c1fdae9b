// Streams that go from text to image codes and back, over a model with both: what they write is
// what a loop in long-hand writes, plain or with drafts, alone or next to others, and a broken
// number fails the stream that it is of.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "engine/decoding/method_parts.h"
#include "engine/decoding/run_streams.h"
#include "tests/support/both_spaces.h"
#include "tests/support/made_up_methods.h"

namespace tessera::mixed_streams_test {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::size_t kText = 0, kImage = 1, kIds = 96, kCodes = 64, kMax = 60;
constexpr std::int64_t kPromptRows = 12;

VocabularyGrammar text_grammar() { return VocabularyGrammar::line(kIds, kMax); }
VocabularyGrammar image_grammar(std::size_t rows = 3, std::size_t columns = 4) {
  return {.codes = kCodes, .rows = rows, .columns = columns};
}

Tokens prompt_of(int number) {
  Tokens out;
  for (int i = 0; i < 2 + number * 5 % (kPromptRows - 2); ++i) {
    out.push_back((7 * number + 11 * i) % 96);
  }
  return out;
}

// Text until one of some ids, then an image, then text again; stops at others.
Stream mixed(int number) {
  Stream out{.prompt = {prompt_of(number)}, .seed = static_cast<std::uint64_t>(number / 2)};
  out.item = static_cast<std::uint64_t>(number);
  const double guidance = number % 3 == 1 ? 2.0 : 1.0;
  StreamGrammar text{.space = kText, .grammar = text_grammar(), .dist = {.temperature = 0.9}};
  for (std::int32_t id = number % 7; id < 96; id += 9) text.switches.push_back({id, 1});
  text.stops = {(number + 1) % 9 + 30, (number + 3) % 9 + 50};
  StreamGrammar image{.space = kImage,
                      .grammar = number % 4 == 0 ? image_grammar(2, 5) : image_grammar(),
                      .dist = {.guidance = guidance, .top_k = number % 2 == 0 ? 0 : 20},
                      .then = std::size_t{0}};
  out.grammars = {text, image};
  if (guidance != 1) out.unconditional.ids = prompt_of(number + 100);
  if (number % 5 == 2) out.max_tokens = 23;
  return out;
}
Stream text_alone(int number) {
  Stream out{.prompt = {prompt_of(number)}, .kind = StreamKind::kText};
  out.stops = {5, 44};
  out.max_tokens = 10 + number % 20;
  out.item = static_cast<std::uint64_t>(number);
  return out;
}
Stream image_alone(int number) {
  Stream out = mixed(number);
  out.grammars = {out.grammars[1]};
  out.grammars[0].then.reset();
  return out;
}

// What a stream writes, one token a pass, by both heads over one cache.
struct ByHand {
  Tokens tokens;
  std::vector<StreamPart> parts;
  bool stopped = false;
};
ByHand write_by_hand(const StreamModel& model, const Stream& stream) {
  const TokenModel* const spaces[2] = {&model.space(TokenSpace::kText),
                                       &model.space(TokenSpace::kImage)};
  ModelRunner cache(*spaces[0], 2, 100);
  ModelRunner by_space[2] = {{*spaces[0], 1, 4}, {*spaces[1], 1, 4}};
  const auto most = static_cast<std::size_t>(stream.max_tokens > 0 ? stream.max_tokens : kMax);
  const auto width = static_cast<std::size_t>(model.width());
  std::vector<float> hidden[2];
  const auto feed = [&](int branch, const std::vector<float>& rows) {
    hidden[branch] = cache.forward({{branch, rows}});
    hidden[branch].erase(hidden[branch].begin(), hidden[branch].end() - static_cast<long>(width));
  };
  for (int branch = 0; branch < stream.branches(); ++branch) {
    feed(branch, by_space[0].prompt_rows(stream.branch(branch).ids));
  }
  ByHand out;
  std::size_t number = 0;
  while (true) {
    const StreamGrammar& part = stream.grammars[number];
    VocabularyGrammar grammar = part.grammar;
    const std::size_t left = most - out.tokens.size();
    if (grammar.rows == 1) grammar.columns = std::min(grammar.columns, left);
    if (grammar.length() > left) return out;
    KeyedRandom random = part_random(stream, out.parts.size());
    out.parts.push_back({number, out.tokens.size()});
    DistributionPipeline<float> dist(part.dist, grammar);
    std::optional<std::size_t> next;
    for (std::size_t position = 0; position < grammar.length() && !next; ++position) {
      std::vector<float> logits[2];
      for (int branch = 0; branch < stream.branches(); ++branch) {
        logits[branch] = by_space[part.space].logits(hidden[branch]);
      }
      dist.process_at(position, logits[0], part.dist.guided() ? logits[1] : std::vector<float>());
      const std::int32_t token = random.race(static_cast<std::uint32_t>(position),
                                             LogitRow<float>{dist.support(), dist.support_logits()});
      out.tokens.push_back(token);
      if (std::count(part.stops.begin(), part.stops.end(), token) > 0) {
        out.stopped = true;
        return out;
      }
      if (out.tokens.size() == most) return out;
      for (const auto& other : part.switches) {
        if (other.id == token && !next) next = other.to;
      }
      for (int branch = 0; branch < stream.branches(); ++branch) {
        feed(branch, by_space[part.space].token_rows({token}));
      }
    }
    if (!next) next = part.then;
    if (!next) return out;
    number = *next;
  }
}

// A method for each space.
struct Methods {
  DecodeMethod text, image;
  std::int64_t window = 1;
  PassShape shape = PassShape::kLine;
};
Methods plain() {
  return {combine("none", "drop", "gumbel", 1), combine("none", "drop", "gumbel", 1)};
}
std::vector<Methods> speculative() {
  std::vector<Methods> out;
  for (const char* drafter : {"uniform", "left", "above", "lookup"}) {
    const DecodeMethod image = combine(drafter, "gumbel", "gumbel", 5);
    out.push_back({combine("lookup", "gumbel", "gumbel", 5), image, 5});
  }
  DecodeMethod tree = decode_method("gumbel-tree");
  tree.drafter = "uniform";
  tree.window = 8;
  out.push_back({tree, tree, 8, PassShape::kTree});
  return out;
}

// A loop over both spaces.
class MixedLoop {
 public:
  MixedLoop(const StreamModel& model, const Methods& methods, std::int64_t items,
            std::int64_t budget = 64)
      : text_(methods.text, DecodeAids{.grammar = text_grammar()}),
        image_(methods.image, DecodeAids{.grammar = image_grammar()}),
        loop_(model.space(TokenSpace::kText),
              {.items = items,
               .prompt_rows = kPromptRows,
               .grammar = text_grammar(),
               .window = methods.window,
               .guided = true,
               .budget = budget,
               .dists = methods.shape == PassShape::kTree,
               .shape = methods.shape},
              text_.parts()) {
    EXPECT_EQ(loop_.add_space(model.space(TokenSpace::kImage), image_grammar(), image_.parts()),
              kImage);
  }
  StreamLoop& loop() { return loop_; }

 private:
  OwnedParts<float, KeyedRandom> text_, image_;
  StreamLoop loop_;
};

class MixedStreams : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = make_backend("cpu", {.threads = 2});
  BothSpaces spaces_;
  StreamModel model_ = spaces_.load(*backend_);
};

TEST_F(MixedStreams, AreThoseOfALoopByHand) {
  std::size_t switches = 0, stops = 0, longest = 0;
  for (int number = 0; number < 16; ++number) {
    const Stream stream = mixed(number);
    const ByHand want = write_by_hand(model_, stream);
    switches += want.parts.size() - 1;
    stops += want.stopped ? 1 : 0;
    longest = std::max(longest, want.parts.size());
    MixedLoop alone(model_, plain(), 1);
    const StreamResult got = run_streams(alone.loop(), {&stream, 1})[0];
    EXPECT_EQ(got.status, StreamStatus::kDone);
    EXPECT_EQ(got.tokens, want.tokens) << number;
    EXPECT_EQ(got.parts, want.parts) << number;
    EXPECT_EQ(got.stopped, want.stopped) << number;
    EXPECT_EQ(got.passes, static_cast<std::int64_t>(want.tokens.size())) << "one token a pass";
    EXPECT_EQ(got.meters.tokens, static_cast<std::int64_t>(want.tokens.size()));
  }
  EXPECT_GE(switches, 12u);
  EXPECT_GE(stops, 3u);
  EXPECT_GE(longest, 3u) << "text, image and text again";
}

TEST_F(MixedStreams, AreTheSameWhateverIsDrafted) {
  for (const Methods& methods : speculative()) {
    std::int64_t passes = 0, tokens = 0;
    for (int number = 0; number < 8; ++number) {
      const Stream stream = mixed(number);
      const ByHand want = write_by_hand(model_, stream);
      MixedLoop alone(model_, methods, 1);
      const StreamResult got = run_streams(alone.loop(), {&stream, 1})[0];
      EXPECT_EQ(got.tokens, want.tokens) << methods.image.drafter << ", " << number;
      EXPECT_EQ(got.parts, want.parts);
      passes += got.passes;
      tokens += static_cast<std::int64_t>(got.tokens.size());
    }
    EXPECT_LE(passes, tokens);
  }
}

struct Done final : StreamListener {
  void on_tokens(std::size_t slot, std::span<const std::int32_t> tokens) override {
    streamed[slot].insert(streamed[slot].end(), tokens.begin(), tokens.end());
  }
  void on_done(std::size_t slot, StreamResult&& result) override {
    EXPECT_EQ(streamed[slot], result.tokens);
    streamed.erase(slot);
    done[stream_of.at(slot)] = std::move(result);
    stream_of.erase(slot);
  }
  std::map<std::size_t, Tokens> streamed;        // by slot
  std::map<std::size_t, std::size_t> stream_of;  // by slot
  std::map<std::size_t, StreamResult> done;      // by stream
};

// Streams of all three kinds arrive and end in one loop, and some are dropped.
TEST_F(MixedStreams, WriteNextToOthersWhatTheyWriteAlone) {
  std::vector<Stream> pool;
  for (int number = 0; number < 18; ++number) {
    pool.push_back(number % 3 == 0   ? mixed(number)
                   : number % 3 == 1 ? text_alone(number)
                                     : image_alone(number));
  }
  std::vector<Methods> methods = speculative();
  methods.push_back(plain());
  std::map<std::size_t, std::vector<StreamResult>> alone;  // by method
  for (std::size_t m = 0; m < methods.size(); ++m) {
    for (const Stream& stream : pool) {
      MixedLoop one(model_, methods[m], 1);
      alone[m].push_back(run_streams(one.loop(), {&stream, 1})[0]);
      ASSERT_EQ(alone[m].back().status, StreamStatus::kDone);
    }
  }
  std::size_t both_at_once = 0, dropped = 0;
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 chance(seed);
    const std::size_t m = seed % methods.size();
    MixedLoop many(model_, methods[m], static_cast<std::int64_t>(1 + chance() % 6),
                   static_cast<std::int64_t>(2 + chance() % 64));
    StreamLoop& loop = many.loop();
    Done listener;
    std::vector<std::size_t> order(pool.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), chance);
    for (std::size_t added = 0; added < order.size() || !loop.idle();) {
      while (added < order.size() && !loop.full() && chance() % 3 != 0) {
        const std::size_t number = order[added++];
        listener.stream_of[loop.add(pool[number])] = number;
      }
      both_at_once += listener.stream_of.size() > 2 ? 1 : 0;
      loop.step(listener);
      if (chance() % 60 != 0 || listener.stream_of.empty()) continue;
      const auto [slot, number] = *listener.stream_of.begin();
      const Tokens part = loop.drop(slot).tokens, &whole = alone[m][number].tokens;
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin()));
      listener.stream_of.erase(slot);
      listener.streamed.erase(slot);
      ++dropped;
    }
    for (const auto& [number, result] : listener.done) {
      const StreamResult& want = alone[m][number];
      ASSERT_EQ(result.status, StreamStatus::kDone);
      ASSERT_EQ(result.tokens, want.tokens) << "schedule " << seed << ", stream " << number;
      ASSERT_EQ(result.parts, want.parts);
      ASSERT_EQ(result.passes, want.passes) << "schedule " << seed << ", stream " << number;
      ASSERT_EQ(result.prefilled, want.prefilled);
      ASSERT_EQ(result.meters.surprise, want.meters.surprise);
    }
  }
  EXPECT_GT(both_at_once, 500u);
  EXPECT_GT(dropped, 20u);
}

// Whoever feeds a code whose row leads to numbers that are none fails, and nobody else.
TEST_F(MixedStreams, ABrokenNumberFailsItsStream) {
  constexpr std::int32_t kBroken = 9;
  const BothSpaces broken([](std::map<std::string, Tensor>& tensors) {
    const TensorView table = tensors.at("model.generation_embeddings.weight").view();
    ASSERT_EQ(table.dtype, DType::kBF16);
    constexpr std::uint16_t kHuge = 0x7f7f;  // 3.4e38: sums of it overflow in the aligner
    const std::int64_t width = table.shape[1];
    std::fill_n(static_cast<std::uint16_t*>(table.data) + kBroken * width, width, kHuge);
  });
  const StreamModel model = broken.load(*backend_);
  std::vector<Stream> streams;
  for (int number = 0; number < 24; ++number) streams.push_back(mixed(number));
  for (const Methods& methods : {plain(), speculative()[0]}) {
    MixedLoop many(model, methods, 4);
    const std::vector<StreamResult> got = run_streams(many.loop(), streams);
    std::size_t failed = 0;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const ByHand want = write_by_hand(model_, streams[i]);
      // The first time that it is fed, and something follows.
      std::size_t at = want.tokens.size();
      for (std::size_t part = 0; part < want.parts.size(); ++part) {
        const std::size_t end =
            part + 1 < want.parts.size() ? want.parts[part + 1].begin : want.tokens.size();
        if (streams[i].grammars[want.parts[part].grammar].space != kImage) continue;
        for (std::size_t t = want.parts[part].begin; t < end; ++t) {
          if (want.tokens[t] == kBroken && t + 1 < want.tokens.size()) at = std::min(at, t + 1);
        }
      }
      const Tokens first(want.tokens.begin(), want.tokens.begin() + static_cast<long>(at));
      EXPECT_EQ(got[i].tokens, first) << i;
      const bool fails = at < want.tokens.size();
      EXPECT_EQ(got[i].status, fails ? StreamStatus::kFailed : StreamStatus::kDone) << i;
      if (!fails) continue;
      ++failed;
      EXPECT_NE(got[i].error.where.find("image token " + std::to_string(at)), std::string::npos)
          << got[i].error.where;
    }
    EXPECT_GE(failed, 1u);
    EXPECT_LT(failed, streams.size());
  }
}

}  // namespace
}  // namespace tessera::mixed_streams_test
