// The grammar of an image's stream against a stream written out token by token, and the distribution of its
// positions.
#include "engine/sampling/grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "engine/sampling/dist.h"

namespace tessera::grammar_test {
namespace {

// A place of the stream: a cell of the grid, or a control id.
struct Place {
  int row = -1, column = -1;
  std::int32_t control = -1;
};

std::vector<Place> written_out(const VocabularyGrammar& grammar) {
  std::vector<Place> out;
  const auto codes = static_cast<std::int32_t>(grammar.codes);
  for (int row = 0; row < static_cast<int>(grammar.rows); ++row) {
    for (int column = 0; column < static_cast<int>(grammar.columns); ++column) {
      out.push_back({row, column});
    }
    if (grammar.row_end) out.push_back({.control = codes});
  }
  if (grammar.image_end) out.push_back({.control = grammar.row_end ? codes + 1 : codes});
  return out;
}

std::optional<std::size_t> find(const std::vector<Place>& stream, int row, int column) {
  for (std::size_t i = 0; i < stream.size(); ++i) {
    if (stream[i].control < 0 && stream[i].row == row && stream[i].column == column) return i;
  }
  return std::nullopt;
}

// Positions where the grammar and a stream differ.
std::size_t differences(const VocabularyGrammar& grammar, const std::vector<Place>& stream) {
  std::size_t out = stream.size() == grammar.length() ? 0 : 1;
  std::size_t codes = 0, last_code = 0;
  for (std::size_t i = 0; i < stream.size(); ++i) {
    const Place& place = stream[i];
    const bool is_code = place.control < 0;
    bool right = grammar.codes_among(i) == codes;
    if (i > 0) right = right && grammar.code_before(i) == last_code;
    if (is_code) {
      right = right && !grammar.forced(i) && grammar.cell(i) == codes &&
              grammar.above(i) == find(stream, place.row - 1, place.column) &&
              grammar.left(i) == find(stream, place.row, place.column - 1);
      ++codes;
      last_code = i;
    } else {
      right = right && grammar.forced(i) == place.control && !grammar.cell(i) &&
              !grammar.above(i) && !grammar.left(i);
    }
    out += right ? 0 : 1;
  }
  out += grammar.codes_among(stream.size()) == codes && codes == grammar.cells() ? 0 : 1;
  return out;
}

std::vector<VocabularyGrammar> grammars() {
  std::vector<VocabularyGrammar> out;
  for (const std::size_t rows : {1, 2, 3, 5}) {
    for (const std::size_t columns : {1, 2, 3, 4}) {
      for (const bool row_end : {false, true}) {
        for (const bool image_end : {false, true}) {
          out.push_back({.codes = 7,
                         .rows = rows,
                         .columns = columns,
                         .row_end = row_end,
                         .image_end = image_end});
        }
      }
    }
  }
  return out;
}

TEST(Grammar, IsTheStreamWrittenOut) {
  for (const VocabularyGrammar& grammar : grammars()) {
    const std::vector<Place> stream = written_out(grammar);
    EXPECT_EQ(differences(grammar, stream), 0u)
        << grammar.rows << " rows of " << grammar.columns << grammar.row_end << grammar.image_end;
    EXPECT_EQ(grammar.vocabulary(), 7u + (grammar.row_end ? 1 : 0) + (grammar.image_end ? 1 : 0));
  }
}

// The comparison must be able to fail: a row end that trades places with a neighbour.
TEST(Grammar, ARowEndOneOffIsSeen) {
  int injected = 0;
  for (const VocabularyGrammar& grammar : grammars()) {
    const std::vector<Place> stream = written_out(grammar);
    for (std::size_t i = 0; i + 1 < stream.size(); ++i) {
      if (stream[i].control == stream[i + 1].control) continue;
      std::vector<Place> shifted = stream;
      std::swap(shifted[i], shifted[i + 1]);
      EXPECT_GT(differences(grammar, shifted), 0u);
      ++injected;
    }
  }
  EXPECT_GT(injected, 50);
}

// As published for images of 768 pixels: 2352 tokens and the image end.
TEST(Grammar, OfAPublishedModel) {
  const VocabularyGrammar grammar{
      .codes = 8192, .rows = 48, .columns = 48, .row_end = true, .image_end = true};
  ASSERT_EQ(grammar.length(), 2353u);
  EXPECT_EQ(grammar.vocabulary(), 8194u);
  for (std::size_t j = 0; j < 2352; ++j) {
    ASSERT_EQ(grammar.forced(j) == 8192, (j + 1) % 49 == 0) << j;
    ASSERT_EQ(grammar.forced(j).has_value(), (j + 1) % 49 == 0) << j;
  }
  EXPECT_EQ(grammar.forced(2352), 8193);
}

TEST(Grammar, ImageCodesDropWhatIsForced) {
  for (const VocabularyGrammar& grammar : grammars()) {
    const std::vector<Place> stream = written_out(grammar);
    std::vector<std::int32_t> tokens, codes;
    for (const Place& place : stream) {
      EXPECT_EQ(grammar.image_codes(tokens), codes);
      tokens.push_back(place.control >= 0 ? place.control : (place.row * 5 + place.column) % 7);
      if (place.control < 0) codes.push_back(tokens.back());
    }
    EXPECT_EQ(grammar.image_codes(tokens), codes);
    EXPECT_EQ(codes.size(), grammar.rows * grammar.columns);
  }
}

template <typename Real>
void expect_dist_of_positions() {
  const VocabularyGrammar grammar{
      .codes = 3, .rows = 2, .columns = 2, .row_end = true, .image_end = true};
  const std::vector<Real> cond = {Real{0.5}, Real{2}, Real{-1}},
                          uncond = {Real{1}, Real{0}, Real{3}};
  const std::vector<Real> broken(3, std::numeric_limits<Real>::quiet_NaN());
  for (const DistributionSettings& settings :
       {DistributionSettings{}, DistributionSettings{.guidance = 3, .temperature = 0.7, .top_k = 2},
        DistributionSettings{.temperature = 0}, DistributionSettings{.top_p = 0.6}, DistributionSettings{.min_p = 0.3}}) {
    DistributionPipeline<Real> along(settings, grammar), alone(settings, 3);
    alone.process(cond, uncond);
    std::vector<Real> free(alone.probabilities().begin(), alone.probabilities().end());
    free.resize(5);
    for (std::size_t position = 0; position < grammar.length(); ++position) {
      const bool row_end = position == 2 || position == 5, image_end = position == 6;
      // A row that nothing reads may hold anything.
      const bool forced = row_end || image_end;
      along.process_at(position, forced ? broken : cond, forced ? broken : uncond);
      const std::span<const Real> dist = along.probabilities();
      std::vector<Real> want = free;
      if (forced) want = {0, 0, 0, row_end ? Real{1} : Real{0}, image_end ? Real{1} : Real{0}};
      EXPECT_TRUE(std::equal(dist.begin(), dist.end(), want.begin(), want.end())) << position;
      if (forced) {
        ASSERT_EQ(along.support().size(), 1u);
        EXPECT_EQ(along.support()[0], row_end ? 3 : 4);
      }
    }
  }
}

TEST(Grammar, DistributionOfPositionsInDouble) { expect_dist_of_positions<double>(); }
TEST(Grammar, DistributionOfPositionsInFloat) { expect_dist_of_positions<float>(); }

}  // namespace
}  // namespace tessera::grammar_test
