// Hidden states that a drafter asks for: those of two layers, of every row that is committed, once,
// equal to a plain forward pass over the whole sequence, whatever is drafted, for images and texts,
// in lines and trees. A drafter that asks for none is shown none.
#include "engine/decoding/hidden_signal.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "engine/decoding/method_parts.h"
#include "tests/support/model_runner.h"
#include "tests/support/text_models.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::hidden_signal_test {
namespace {

using Row = std::vector<float>;

// Drafts tokens that are right two times of three, and keeps what it is shown.
class AskingDrafter final : public LoopDrafter {
 public:
  explicit AskingDrafter(std::vector<std::int64_t> layers) : layers_(std::move(layers)) {}

  std::string_view name() const override { return "asking"; }
  DraftSignals needs() const override { return {.hidden_layers = layers_}; }
  void extend(std::span<DraftJob<float, KeyedRandom>> jobs) override {
    for (DraftJob<float, KeyedRandom>& job : jobs) {
      const Tokens& right = known[stream_of[job.item]];
      while (job.window->size() < job.want) {
        const std::size_t at = job.next_position();
        const std::int32_t token = right[std::min(at, right.size() - 1)];
        job.window->append_point(at % 3 == 2 ? (token + 1) % 5 : token);
      }
    }
  }
  void observe(const HiddenStates& shown) override {
    ++calls;
    ASSERT_EQ(std::vector<std::int64_t>(shown.layers.begin(), shown.layers.end()), layers_);
    ASSERT_EQ(shown.states.size(), layers_.size());
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      const std::int64_t width = shown.states[layer].shape[1];
      for (std::size_t i = 0; i < shown.rows.size(); ++i) {
        const float* const row = shown.states[layer].f32() + shown.rows[i] * width;
        const auto [place, fresh] =
            seen.emplace(std::tuple(stream_of[shown.item], shown.branch, shown.positions[i], layer),
                         Row(row, row + width));
        EXPECT_TRUE(fresh) << "shown twice";
      }
    }
  }

  std::map<std::size_t, std::size_t> stream_of;  // by slot
  std::map<std::size_t, Tokens> known;           // by stream
  std::map<std::tuple<std::size_t, int, std::int64_t, std::size_t>, Row> seen;
  int calls = 0;

 private:
  std::vector<std::int64_t> layers_;
};

void run_all(StreamLoop& loop, const std::vector<Stream>& streams, AskingDrafter& drafter) {
  const auto results = run_streams(
      loop, streams, [](const RunPass&) { return Flow::kContinue; },
      [&](std::size_t slot, std::size_t number) { drafter.stream_of[slot] = number; });
  for (std::size_t i = 0; i < streams.size(); ++i) {
    EXPECT_EQ(results[i].status, StreamStatus::kDone);
    EXPECT_EQ(results[i].tokens, drafter.known[i]) << i;
  }
}

// The rows of one branch by one pass over all of it.
void expect_rows(const TokenModel& model, const std::vector<std::int32_t>& prompt,
                 const Tokens& tokens, std::size_t stream, int branch,
                 const AskingDrafter& drafter) {
  const Tokens fed(tokens.begin(), tokens.end() - 1);
  ModelRunner runner(model, 1, static_cast<std::int64_t>(prompt.size() + fed.size()));
  std::vector<float> rows = runner.prompt_rows(prompt);
  const std::vector<float> of_tokens = runner.token_rows(fed);
  rows.insert(rows.end(), of_tokens.begin(), of_tokens.end());
  std::vector<std::vector<float>> taps;
  taps.push_back({});
  const std::vector<float> hidden = runner.forward({{0, rows}}, &taps);
  const auto width = static_cast<std::size_t>(model.width());
  const std::vector<std::vector<float>> want = {taps[1], hidden};
  for (std::size_t layer = 0; layer < want.size(); ++layer) {
    for (std::size_t at = 0; at < prompt.size() + fed.size(); ++at) {
      const auto found =
          drafter.seen.find(std::tuple(stream, branch, static_cast<std::int64_t>(at), layer));
      ASSERT_NE(found, drafter.seen.end()) << stream << ", branch " << branch << ", row " << at;
      const auto from = want[layer].begin() + static_cast<std::ptrdiff_t>(at * width);
      EXPECT_EQ(found->second, Row(from, from + static_cast<std::ptrdiff_t>(width)))
          << stream << ", branch " << branch << ", row " << at << ", layer " << layer;
    }
  }
}

TEST(HiddenSignal, OfImagesIsThatOfAPlainPass) {
  for (const char* name : {"test:tiny", "test:rows"}) {
    const TinyRun tiny(2, name);
    std::vector<Stream> items;
    for (int i = 0; i < 5; ++i) items.push_back(tiny.item(i));
    AskingDrafter drafter({1, tiny.model.sizes().layers});
    for (std::size_t i = 0; i < items.size(); ++i)
      drafter.known[i] = tiny.run({items[i]})[0].tokens;
    items[3].given.assign(drafter.known[3].begin(), drafter.known[3].begin() + 9);
    StreamLoop loop(
        tiny.model,
        image_limits(tiny.model,
                     {.items = 2, .prompt_rows = 8, .window = 6, .budget = 9, .given_tokens = 9}),
        equality_parts(&drafter));
    run_all(loop, items, drafter);
    for (std::size_t i = 0; i < items.size(); ++i) {
      for (int branch = 0; branch < 2; ++branch) {
        expect_rows(tiny.model, items[i].branch(branch).ids, drafter.known[i], i, branch, drafter);
      }
    }
    std::size_t rows = 0;
    for (const Stream& item : items) {
      rows += 2 * 2 * (item.prompt.ids.size() + drafter.known[0].size() - 1);
    }
    EXPECT_EQ(drafter.seen.size(), rows) << "rows that were not committed are not shown";
  }
}

TEST(HiddenSignal, OfTreesIsThatOfAPlainPass) {
  const TinyRun tiny;
  const std::vector<Stream> items = {tiny.item(0), tiny.item(1), tiny.item(2)};
  AskingDrafter drafter({1, tiny.model.sizes().layers});
  for (std::size_t i = 0; i < items.size(); ++i) drafter.known[i] = tiny.run({items[i]})[0].tokens;
  DecodeMethod method = decode_method("gumbel-tree");
  method.drafter = "uniform";
  method.window = 9;
  const OwnedParts<float, KeyedRandom> owned(method, tiny.aids());
  LoopParts parts = owned.parts();
  parts.drafter = &drafter;
  StreamLoop loop(tiny.model,
                  image_limits(tiny.model, {.items = 2,
                                            .prompt_rows = 8,
                                            .window = method.window,
                                            .dists = true,
                                            .shape = PassShape::kTree}),
                  parts);
  run_all(loop, items, drafter);
  for (std::size_t i = 0; i < items.size(); ++i) {
    for (int branch = 0; branch < 2; ++branch) {
      expect_rows(tiny.model, items[i].branch(branch).ids, drafter.known[i], i, branch, drafter);
    }
  }
}

TEST(HiddenSignal, OfTextsIsThatOfAPlainPass) {
  const SmallText small = small_text();
  constexpr std::int64_t kTokens = 12;
  std::vector<Stream> texts;
  for (std::uint32_t i = 0; i < 5; ++i) {
    Stream text{.prompt = {small_prompt(small.model, 4 + 11 * (i % 3), i + 1)},
                .dist = {.temperature = i % 2 == 0 ? 0.0 : 0.8},
                .seed = i,
                .kind = StreamKind::kText};
    texts.push_back(std::move(text));
  }
  AskingDrafter drafter({1, small.model.sizes().layers});
  const StreamLimits limits =
      text_limits(small.model, kTokens, {.items = 2, .prompt_rows = 30, .window = 5, .budget = 7});
  StreamLoop plain(small.model, limits, equality_parts());
  const auto known = run_streams(plain, texts);
  for (std::size_t i = 0; i < texts.size(); ++i) drafter.known[i] = known[i].tokens;
  StreamLoop loop(small.model, limits, equality_parts(&drafter));
  run_all(loop, texts, drafter);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    expect_rows(small.model, texts[i].prompt.ids, drafter.known[i], i, 0, drafter);
  }
}

TEST(HiddenSignal, OfNoLayersIsNotThere) {
  const TinyRun tiny;
  AskingDrafter drafter({});
  const std::vector<Stream> items = {tiny.item(0)};
  drafter.known[0] = tiny.run({items[0]})[0].tokens;
  StreamLoop loop(tiny.model, image_limits(tiny.model, {.items = 1, .prompt_rows = 8, .window = 4}),
                  equality_parts(&drafter));
  run_all(loop, items, drafter);
  EXPECT_EQ(drafter.calls, 0);
  // Nor is it kept by passes.
  ModelPass pass(tiny.model, {.capacity = 8});
  HiddenSignal none;
  none.ask(&drafter, pass, 8);
  EXPECT_FALSE(none.wanted());
  AskingDrafter asks({0});
  none.ask(&asks, pass, 8);
  EXPECT_TRUE(none.wanted());
}

}  // namespace
}  // namespace tessera::hidden_signal_test
