// Streams of several grids: every outcome on table models, and the real loop on the seeded video
// models. Drafts from the grid before change no image and no distribution; a stream that begins with
// given tokens goes on as if they had been drawn.
#include <gtest/gtest.h>

#include "tests/support/table_decoding.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::videos_test {
namespace {

// --- every outcome ------------------------------------------------------------------------------

// Two grids of two codes, or three of one, with every choice of control ids.
template <typename Real>
TableModel<Real> video_table(unsigned number) {
  TableModel<Real> model = table<Real>(number);
  VocabularyGrammar video{.codes = model.vocabulary};
  video.row_end = number % 2 == 1;
  video.grid_end = number % 3 != 0;
  video.image_end = number % 4 == 2;
  video.stream_end = number % 5 != 1;
  video.grids = model.vocabulary == 2 ? 2 : 3;
  (number % 4 < 2 ? video.rows : video.columns) = model.vocabulary == 2 ? 2 : 1;
  model.rows = video;
  return model;
}

// Product of conditionals; where control ids stand is written in long-hand.
template <typename Real>
std::map<TokenRow, double> truth_of(const TableModel<Real>& model) {
  const VocabularyGrammar& video = *model.rows;
  std::int32_t next = static_cast<std::int32_t>(video.codes);
  const std::int32_t row_end = next, image_end = next + (video.row_end ? 1 : 0);
  const std::int32_t grid_end = image_end + (video.image_end ? 1 : 0);
  const std::int32_t stream_end = grid_end + (video.grid_end ? 1 : 0);
  std::vector<std::int32_t> ids;
  for (std::size_t grid = 0; grid < video.grids; ++grid) {
    for (std::size_t row = 0; row < video.rows; ++row) {
      for (std::size_t column = 0; column < video.columns; ++column) ids.push_back(-1);
      if (video.row_end) ids.push_back(row_end);
    }
    if (video.grid_end) ids.push_back(grid_end);
  }
  if (video.image_end) ids.push_back(image_end);
  if (video.stream_end) ids.push_back(stream_end);
  return dist_with_ends(model, ids.size(), [=](std::size_t position) { return ids[position]; });
}

TEST(VideosUnderEveryOutcome, AllDraftersKeepTheDistribution) {
  std::size_t dists = 0;
  for (unsigned number = 0; number < 12; ++number) {
    const TableModel<double> model = video_table<double>(number);
    const auto truth = truth_of(model);
    for (const std::string_view drafter : drafter_names()) {
      for (const std::string_view redraft_policy : redraft_names()) {
        if (drafter == "none" && redraft_policy != "drop") continue;
        for (const std::string_view rule : {"exact", "gumbel"}) {
          const DecodeMethod method = combine(drafter, redraft_policy, rule, 2 + number % 4);
          ASSERT_LT(total_variation(output_dist(model, method, aids_for(*model.rows)), truth), 1e-12)
              << "table " << number << ' ' << drafter << ' ' << redraft_policy << ' ' << rule;
          ++dists;
        }
      }
    }
  }
  EXPECT_GT(dists, 600u);
}

// The comparison must be able to fail: a drafter that says its points were drawn uniformly.
template <typename Real, typename Random>
class LyingDrafter final : public SlotDrafter<Real, Random> {
 public:
  using SlotDrafter<Real, Random>::SlotDrafter;
  std::string_view name() const override { return "lying"; }

 private:
  bool fill(DraftJob<Real, Random>& job) override {
    const auto earlier = this->grammar().earlier(job.next_position());
    job.window->append_uniform(earlier ? job.token(*earlier) : 0);
    return true;
  }
};

TEST(VideosUnderEveryOutcome, AWrongRecordIsSeen) {
  const TableModel<double> model = video_table<double>(3);
  const DecodeMethod method = combine("uniform", "drop", "exact", 3);
  const auto made = dist_of_paths(model, 3, [&] {
    OwnedParts<double, WalkingRandom> owned(method, aids_for(*model.rows));
    owned.set_drafter(std::make_unique<LyingDrafter<double, WalkingRandom>>(*model.rows));
    return owned;
  });
  EXPECT_GT(total_variation(made, truth_of(model)), 0.01);
}

// --- the drafter --------------------------------------------------------------------------------

TEST(PreviousFrame, DraftsTheCodeOneGridEarlier) {
  const VocabularyGrammar grammar{
      .codes = 9, .rows = 2, .columns = 2, .row_end = true, .grids = 3, .grid_end = true};
  const DecodeAids aids = aids_for(grammar);
  const OwnedParts<float, KeyedRandom> owned(combine("previous-frame", "drop", "gumbel", 32), aids);
  const std::vector<std::int32_t> first = grammar.stream_of(std::vector<std::int32_t>{3, 1, 4, 5});
  DraftWindow<float> window(31, grammar, DraftDistributions::kForgotten);
  KeyedRandom random(1, 0);
  DraftJob<float, KeyedRandom> job{0, first, grammar.length() - first.size(), &window, &random};
  LoopDrafter* drafter = owned.parts().drafter;
  drafter->start(1);
  drafter->extend({&job, 1});
  ASSERT_EQ(window.size(), grammar.length() - first.size());
  for (std::size_t i = 0; i < window.size(); ++i) {
    EXPECT_EQ(window.token(i), first[i % first.size()]) << i;
  }
}

TEST(PreviousFrame, IsTheBestOneForVideosAlone) {
  DecodeAids aids = aids_for(VocabularyGrammar{.codes = 4, .rows = 2, .columns = 2, .grids = 2});
  EXPECT_EQ(settle_method(decode_method("gumbel"), aids, 8).drafter, "previous-frame");
  EXPECT_THROW(check_method(decode_method("rows"), aids, 8), Error);
  aids.grammar.grids = 1;
  EXPECT_EQ(settle_method(decode_method("gumbel"), aids, 4).drafter, "context");
}

// --- the loop -----------------------------------------------------------------------------------

class LoopVideoModels : public ::testing::TestWithParam<const char*> {
 protected:
  TinyRun tiny{2, GetParam()};

  Stream item(int number) const {
    Stream out;
    for (int i = 0; i < 3 + number % 4; ++i)
      out.prompt.ids.push_back(20 + (number * 7 + i * 3) % 200);
    out.unconditional.ids.assign(2, 40);
    out.dist.guidance = number % 3 == 0 ? 1.0 : 3.0;
    out.dist.top_k = number % 2 == 0 ? 0 : 20;
    out.seed = static_cast<std::uint64_t>(100 + number);
    return out;
  }
  DecodeMethod settled(std::string_view name) const {
    return settle_method(decode_method(name), tiny.aids(), tiny.model.config().image_tokens());
  }
  Tokens run(const Stream& item, const DecodeMethod& method) const {
    const OwnedParts<float, KeyedRandom> owned(method, tiny.aids());
    StreamLoop loop(
        tiny.model,
        image_limits(tiny.model, {.prompt_rows = 8,
                                  .window = method.window,
                                  .dists = keeps_dists(method),
                                  .shape = method.shape(),
                                  .given_tokens = tiny.model.config().image_tokens() - 1}),
        owned.parts());
    const auto results = run_streams(loop, {&item, 1});
    EXPECT_EQ(results[0].status, StreamStatus::kDone);
    return results[0].tokens;
  }
};

TEST_P(LoopVideoModels, EqualityGivesPlainDecodingsVideo) {
  for (int number = 0; number < 3; ++number) {
    const Tokens plain = run(item(number), settled("plain"));
    const VocabularyGrammar grammar = tiny.model.config().grammar();
    ASSERT_EQ(plain.size(), grammar.length());
    for (std::size_t i = 0; i < plain.size(); ++i) {
      if (const auto forced = grammar.forced(i)) {
        ASSERT_EQ(plain[i], *forced);
      }
    }
    for (const char* name : {"frames", "gumbel", "auto", "gumbel-tree"}) {
      EXPECT_EQ(run(item(number), settled(name)), plain) << name;
    }
    for (const std::string_view drafter : drafter_names()) {
      if (drafter == "none") continue;
      EXPECT_EQ(run(item(number), combine(drafter, "gumbel", "gumbel", 9)), plain) << drafter;
    }
  }
}

// What is drawn depends on position and what stands before it alone.
TEST_P(LoopVideoModels, GivenTokensGoOnAsIfTheyHadBeenDrawn) {
  const VocabularyGrammar grammar = tiny.model.config().grammar();
  for (int number = 0; number < 2; ++number) {
    const Tokens whole = run(item(number), settled("plain"));
    for (const std::size_t count :
         {std::size_t{1}, grammar.columns, grammar.stride(), grammar.grid_stride() - 1,
          grammar.tokens_of(1), grammar.tokens_of(2) + 3, grammar.length() - 1}) {
      Stream later = item(number);
      later.given.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(count));
      for (const char* name : {"plain", "frames", "gumbel-tree"}) {
        EXPECT_EQ(run(later, settled(name)), whole) << name << " after " << count;
      }
      for (const char* name : {"sjd", "frames-coupled", "lookup", "recycle", "tree"}) {
        const Tokens other = run(later, settled(name));
        EXPECT_TRUE(std::equal(later.given.begin(), later.given.end(), other.begin())) << name;
      }
      EXPECT_EQ(run(later, combine("neighbour-law", "gumbel", "gumbel", 7)), whole);
    }
  }
}

// Other first tokens, another video: the given ones are read.
TEST_P(LoopVideoModels, GivenTokensAreRead) {
  const VocabularyGrammar grammar = tiny.model.config().grammar();
  const Tokens whole = run(item(0), settled("plain"));
  Stream other = item(0);
  other.given.assign(whole.begin(),
                     whole.begin() + static_cast<std::ptrdiff_t>(grammar.tokens_of(1)));
  other.given[0] = (other.given[0] + 1) % 64;
  EXPECT_NE(run(other, settled("plain")), whole);
}

INSTANTIATE_TEST_SUITE_P(All, LoopVideoModels, ::testing::Values("test:clip", "test:clip-rows"),
                         [](const auto& one) {
                           return std::string(one.param) == "test:clip" ? "Plain" : "Rows";
                         });

}  // namespace
}  // namespace tessera::videos_test
