// Settings to and from what an image records; names of files; when previews are worth their time.
#include "apps/studio/settings.h"

#include <gtest/gtest.h>

#include <set>

#include "apps/studio/preview_budget.h"
#include "engine/decoding/decode_settings.h"
#include "engine/decoding/rules/grouped_rule.h"

namespace tessera::settings_test {
namespace {

TEST(Slug, IsShortAndPlain) {
  EXPECT_EQ(image_slug("A red ball, on a table!"), "a-red-ball-on-a-table");
  EXPECT_EQ(image_slug("207"), "207");
  EXPECT_EQ(image_slug("../../etc/passwd"), "etc-passwd");
  EXPECT_EQ(image_slug("\x1b[31m\xc3\xa4 \n"), "31m");
  EXPECT_EQ(image_slug(""), "picture");
  EXPECT_EQ(image_slug("\xe4\xb8\xad\xe6\x96\x87"), "picture");
  EXPECT_LE(image_slug(std::string(500, 'x')).size(), 48u);
}

TEST(Seeds, ByLotAreShortAndDiffer) {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 64; ++i) {
    const std::uint64_t seed = random_seed();
    EXPECT_LE(seed, 0xffffffffu);
    seen.insert(seed);
  }
  EXPECT_GE(seen.size(), 63u);
}

// Every field of the record away from its default arrives.
TEST(Recall, TakesEveryField) {
  ImageFacts facts;
  facts.prompt = "one";
  facts.negative_prompt = "two";
  facts.model = "tabletop-janus";
  facts.dtype = "bf16";
  facts.seed = 77;
  facts.width = 192;
  facts.height = 96;
  facts.dist.guidance = 2.5;
  facts.dist.temperature = 0.75;
  facts.dist.top_k = 11;
  facts.dist.top_p = 0.875;
  facts.dist.min_p = 0.125;
  facts.dist.typical = 0.5;
  facts.method = decode_method("sjd");
  facts.method.window = 9;
  facts.method.rule = "grouped";
  facts.method.set(setting::kGroupSize, 5);
  facts.method.set(setting::kTvBudget, 0.25);
  facts.draft_model = "small";
  const GenerateSettings settings = settings_of(facts);
  GenerateSettings want;
  want.model = "tabletop-janus";
  want.prompt = "one";
  want.negative_prompt = "two";
  want.sampling.set(setting::kGuidance, 2.5);
  want.sampling.set(setting::kTemperature, 0.75);
  want.sampling.set(setting::kTopP, 0.875);
  want.sampling.set(setting::kMinP, 0.125);
  want.sampling.set(setting::kTypical, 0.5);
  want.sampling.set(setting::kTopK, 11);
  want.method = facts.method;
  want.draft_model = "small";
  want.storage = DType::kBF16;
  want.seed = 77;
  want.width = 192;
  want.height = 96;
  EXPECT_EQ(settings, want);
  want.method.set(setting::kGroupSize, 6);
  EXPECT_NE(settings, want) << "the comparison sees every part of the method";
}

TEST(PreviewBudget, FirstRowThenItsShare) {
  PreviewBudget budget(0.02);
  EXPECT_FALSE(budget.allows(0, 10));
  EXPECT_TRUE(budget.allows(1, 0.001)) << "the first row is always shown";
  budget.count(1, 0.01);
  EXPECT_FALSE(budget.allows(1, 1000)) << "the same rows again";
  EXPECT_FALSE(budget.allows(2, 1.0)) << "0.01 + 0.02 of 1.0";
  EXPECT_TRUE(budget.allows(2, 1.6));
  budget.count(2, 0.02);
  EXPECT_FALSE(budget.allows(3, 2.9));
  EXPECT_TRUE(budget.allows(3, 3.1));
  // However it goes on: at every preview after the first, the sum keeps to the share.
  PreviewBudget run;
  double now = 0;
  for (std::int64_t row = 1; row <= 24; ++row) {
    now += 0.1;
    if (!run.allows(row, now)) continue;
    const bool first = run.rows() == 0;
    run.count(row, 0.0005 * static_cast<double>(row));
    if (!first) {
      EXPECT_LE(run.spent(), 0.02 * now + 1e-12);
    }
  }
  EXPECT_GT(run.rows(), 12);
}

}  // namespace
}  // namespace tessera::settings_test
