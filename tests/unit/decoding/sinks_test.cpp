// The stream loop with a window that slides: after the prompts of both branches the stream goes on
// from what is cached, whatever the method that wrote it.
#include <gtest/gtest.h>

#include "tests/support/video_model.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::sinks_test {
namespace {

constexpr int kWindows = 6;

struct Ended final : StreamListener {
  void on_done(std::size_t, StreamResult&& made) override { result = std::move(made); }
  StreamResult result;
};

struct SlidingVideo {
  explicit SlidingVideo(OpenedModel from)
      : opened(std::move(from)),
        backend(make_backend("cpu", {.threads = 2})),
        model(load_stream_model(opened, *backend, DType::kF32)) {}

  struct Made {
    Tokens tokens;  // of all windows, kept ones twice
    std::vector<std::int64_t> prefilled;
  };
  // The last half of each window's grids begins the next one.
  Made run(std::string_view name, const DistributionSettings& dist, bool slide = true) const {
    const VocabularyGrammar grammar = model.config().grammar();
    const DecodeAids aids = aids_for(grammar);
    const DecodeMethod method =
        settle_method(decode_method(name), aids, model.config().image_tokens());
    const OwnedParts<float, KeyedRandom> owned(method, aids);
    StreamLoop loop(model,
                    image_limits(model, {.prompt_rows = 8,
                                         .window = method.window,
                                         .dists = keeps_dists(method),
                                         .shape = method.shape(),
                                         .given_tokens = model.config().image_tokens() - 1}),
                    owned.parts());
    Stream item{.prompt = {{30, 44, 51, 60, 71}}, .unconditional = {{40, 41}}, .dist = dist};
    Made out;
    const std::size_t first = grammar.tokens_of(grammar.grids / 2);
    const std::size_t end = grammar.tokens_of(grammar.grids);
    item.held = slide;
    for (int window = 0; window < kWindows; ++window) {
      item.item = static_cast<std::uint64_t>(window);
      Ended ended;
      if (slide && window > 0) {
        loop.slide(0, first, end, item);
      } else {
        EXPECT_EQ(loop.add(item), 0u);
      }
      while (!loop.idle()) loop.step(ended);
      EXPECT_EQ(ended.result.status, StreamStatus::kDone);
      const Tokens& tokens = ended.result.tokens;
      EXPECT_EQ(tokens.size(), grammar.length());
      EXPECT_TRUE(std::equal(item.given.begin(), item.given.end(), tokens.begin()));
      out.tokens.insert(out.tokens.end(), tokens.begin(), tokens.end());
      out.prefilled.push_back(ended.result.prefilled + ended.result.reused);
      item.given.assign(tokens.begin() + static_cast<std::ptrdiff_t>(first),
                        tokens.begin() + static_cast<std::ptrdiff_t>(end));
    }
    return out;
  }

  OpenedModel opened;
  std::unique_ptr<Backend> backend;
  StreamModel model;
};

class SlidingWindows : public ::testing::TestWithParam<const char*> {};

TEST_P(SlidingWindows, MethodsThatKeepTheVideoKeepItThere) {
  const SlidingVideo video(video_model(2, GetParam()));
  const DistributionSettings dist{.guidance = 3.0, .top_k = 20};
  const auto plain = video.run("plain", dist);
  for (const char* name : {"frames", "gumbel", "auto", "gumbel-tree"}) {
    EXPECT_EQ(video.run(name, dist).tokens, plain.tokens) << name;
  }
  const DistributionSettings alone{.guidance = 1.0};
  EXPECT_EQ(video.run("frames", alone).tokens, video.run("plain", alone).tokens);
  EXPECT_NE(video.run("plain", alone).tokens, plain.tokens);
}

TEST_P(SlidingWindows, RunOneRowABranchBeforeTheyGoOn) {
  const SlidingVideo video(video_model(2, GetParam()));
  const DistributionSettings dist{.guidance = 3.0};
  const VocabularyGrammar grammar = video.model.config().grammar();
  const auto given = static_cast<std::int64_t>(grammar.tokens_of(grammar.grids / 2));
  const auto slid = video.run("plain", dist), anew = video.run("plain", dist, false);
  EXPECT_NE(slid.tokens, anew.tokens);
  EXPECT_EQ(slid.prefilled[0], 5 + 2);
  EXPECT_EQ(anew.prefilled[0], 5 + 2);
  for (int window = 1; window < kWindows; ++window) {
    EXPECT_EQ(slid.prefilled[static_cast<std::size_t>(window)], 2);
    EXPECT_EQ(anew.prefilled[static_cast<std::size_t>(window)], 5 + 2 + 2 * given);
  }
}

// Greedy: with one layer the kept keys and values are those computed anew, in both branches.
TEST_P(SlidingWindows, OfOneLayerAreThoseComputedAnew) {
  const SlidingVideo one(video_model(1, GetParam())), two(video_model(2, GetParam()));
  const DistributionSettings greedy{.guidance = 3.0, .temperature = 0.0};
  EXPECT_EQ(one.run("plain", greedy).tokens, one.run("plain", greedy, false).tokens);
  EXPECT_EQ(one.run("frames", greedy).tokens, one.run("plain", greedy, false).tokens);
  EXPECT_NE(two.run("plain", greedy).tokens, two.run("plain", greedy, false).tokens);
}

INSTANTIATE_TEST_SUITE_P(All, SlidingWindows, ::testing::Values("clip", "clip-rows"),
                         [](const auto& one) {
                           return std::string(one.param) == "clip" ? "Plain" : "Rows";
                         });

}  // namespace
}  // namespace tessera::sinks_test
