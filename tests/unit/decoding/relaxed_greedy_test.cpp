// Relaxed acceptance at temperature 0: drafts that LANTERN's own code accepts are accepted, no others,
// and a refused one is replaced by the likeliest id.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/checkpoint/checkpoint.h"
#include "engine/decoding/decode_settings.h"
#include "engine/decoding/rules/relaxed_rule.h"
#include "engine/sampling/dist.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::relaxed_greedy_test {
namespace {

std::span<const float> floats(const Checkpoint& recorded, const char* name) {
  const ConstTensorView view = *recorded.find(name);
  return {view.as<float>(), static_cast<std::size_t>(view.shape.elements())};
}

struct Tried {
  std::size_t tested = 0, accepted = 0, wrong = 0;
};

// Every code as the draft of every row.
Tried try_all(const Checkpoint& recorded, std::size_t at, double max_excess) {
  const auto codebook = floats(recorded, "codebook"), logits = floats(recorded, "logits");
  const auto bound = static_cast<double>(floats(recorded, "bounds")[at]);
  const std::size_t codes = static_cast<std::size_t>(recorded.find("logits")->shape[1]), rows = logits.size() / codes;
  const std::uint8_t* const theirs = recorded.find("accepted")->as<std::uint8_t>() + at * logits.size();
  const RelaxedSettings settings{
      .neighbours = 12, .delta = bound > 1 ? 1 : bound, .lambda = bound > 1 ? bound : 0};
  const RelaxedRule<float, KeyedRandom> rule(
      settings, std::make_shared<CodeNeighbours>(codebook, static_cast<std::int64_t>(codes), 12));
  DistributionPipeline<float> dist({.temperature = 0}, static_cast<std::int64_t>(codes));
  dist.keep_warm();
  std::vector<float> scratch(2 * codes);
  KeyedRandom random(1, 0);
  random.begin_pass(1);
  Tried out;
  for (std::size_t row = 0; row < rows; ++row) {
    dist.process(logits.subspan(row * codes, codes), {});
    const TargetRow<float> target{{dist.support(), dist.support_logits()}, dist.probabilities(), dist.warm()};
    const std::int32_t best = dist.support()[0];
    EXPECT_EQ(target.probs[static_cast<std::size_t>(best)], 1.0f);
    for (std::size_t x = 0; x < codes; ++x) {
      DraftDistribution<float> draft;
      draft.token = static_cast<std::int32_t>(x);
      const Decision<float> decision =
          rule.accept({target, draft, draft.token, 5, 0, static_cast<float>(max_excess)}, random, scratch);
      const bool strict = draft.token == best;
      EXPECT_EQ(decision.strict, strict ? 1.0f : 0.0f);
      EXPECT_EQ(decision.token, decision.accepted ? draft.token : best);
      ++out.tested;
      out.accepted += decision.accepted ? 1 : 0;
      out.wrong += decision.accepted == (theirs[row * codes + x] != 0) ? 0 : 1;
    }
  }
  return out;
}

TEST(RelaxedGreedy, AcceptsWhatTheAuthorsCodeAccepts) {
  const Checkpoint recorded = Checkpoint::open(TESSERA_SOURCE_DIR "/tests/golden/authors_lantern/greedy.safetensors");
  const std::size_t rows = static_cast<std::size_t>(recorded.find("logits")->shape[0]);
  const std::size_t bounds = floats(recorded, "bounds").size();
  ASSERT_GE(bounds, 4u);
  for (std::size_t at = 0; at < bounds; ++at) {
    const Tried tried = try_all(recorded, at, 1);
    EXPECT_EQ(tried.wrong, 0u) << at;
    EXPECT_GT(tried.accepted, 3 * rows / 2) << "more than the likeliest of each row";
    EXPECT_LT(tried.accepted, 2 * tried.tested / 3);
    // Without anything left of a budget it is the exact rule.
    EXPECT_EQ(try_all(recorded, at, 0).accepted, rows);
  }
}

// Images at temperature 0, with the passes that they took.
struct Images {
  std::vector<Tokens> tokens;
  std::int64_t passes = 0;
  double excess = 0;
};
Images images(const TinyRun& tiny, const DecodeMethod& method) {
  std::vector<Stream> items = first_items(tiny, 4);
  for (Stream& item : items) item.dist.temperature = 0;
  Images out;
  const std::vector<StreamResult> results = tiny.run_method(items, method);
  out.tokens = tokens_of(results);
  for (const StreamResult& result : results) {
    out.passes += result.meters.passes;
    out.excess += result.meters.excess;
  }
  return out;
}

TEST(RelaxedGreedy, MovesMassInWholeImages) {
  const TinyRun tiny;
  DecodeMethod method = decode_method("lantern");
  method.window = 8;
  const Images plain = images(tiny, decode_method("plain"));
  method.put(RelaxedSettings{.delta = 0});
  const Images strict = images(tiny, method);
  EXPECT_EQ(strict.tokens, plain.tokens);
  EXPECT_EQ(strict.excess, 0);
  method.put(RelaxedSettings{.delta = 0.5});
  const Images relaxed = images(tiny, method);
  EXPECT_NE(relaxed.tokens, plain.tokens);
  EXPECT_LT(relaxed.passes, strict.passes);
  EXPECT_GE(relaxed.excess, 1) << "each token that is another than the likeliest counts as one";
  method.set(setting::kTvBudget, 0.5);
  EXPECT_LE(images(tiny, method).excess, 4 * 0.5);
}

}  // namespace
}  // namespace tessera::relaxed_greedy_test
