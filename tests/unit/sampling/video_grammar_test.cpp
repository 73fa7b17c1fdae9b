// The grammar of a video's stream against one written out token by token.
#include <gtest/gtest.h>

#include "engine/sampling/grammar.h"

namespace tessera::video_grammar_test {
namespace {

// A code's place, or a control id.
struct Place {
  std::size_t grid = 0, row = 0, column = 0;
  std::int32_t control = -1;
};

std::vector<VocabularyGrammar> grammars() {
  std::vector<VocabularyGrammar> out;
  for (const std::size_t grids : {1, 2, 3}) {
    for (const std::size_t rows : {1, 3}) {
      for (const std::size_t columns : {1, 2}) {
        for (unsigned parts = 0; parts < 16; ++parts) {
          out.push_back({.codes = 50,
                         .rows = rows,
                         .columns = columns,
                         .row_end = (parts & 1) != 0,
                         .image_end = (parts & 2) != 0,
                         .grids = grids,
                         .grid_end = (parts & 4) != 0,
                         .stream_end = (parts & 8) != 0});
        }
      }
    }
  }
  return out;
}

// Local ids: row end, image end, grid end, stream end, as many as there are.
std::vector<Place> written_out(const VocabularyGrammar& grammar) {
  std::int32_t next = 50;
  const std::int32_t row_end = grammar.row_end ? next++ : -1;
  const std::int32_t image_end = grammar.image_end ? next++ : -1;
  const std::int32_t grid_end = grammar.grid_end ? next++ : -1;
  const std::int32_t stream_end = grammar.stream_end ? next++ : -1;
  std::vector<Place> out;
  for (std::size_t grid = 0; grid < grammar.grids; ++grid) {
    for (std::size_t row = 0; row < grammar.rows; ++row) {
      for (std::size_t column = 0; column < grammar.columns; ++column) {
        out.push_back({grid, row, column});
      }
      if (row_end >= 0) out.push_back({.control = row_end});
    }
    if (grid_end >= 0) out.push_back({.control = grid_end});
  }
  if (image_end >= 0) out.push_back({.control = image_end});
  if (stream_end >= 0) out.push_back({.control = stream_end});
  return out;
}

TEST(VideoGrammar, IsTheStreamWrittenOut) {
  for (const VocabularyGrammar& grammar : grammars()) {
    const std::vector<Place> stream = written_out(grammar);
    ASSERT_EQ(grammar.length(), stream.size());
    const auto position_of = [&](std::size_t grid, std::size_t row, std::size_t column) {
      for (std::size_t i = 0; i < stream.size(); ++i) {
        const Place& p = stream[i];
        if (p.control < 0 && p.grid == grid && p.row == row && p.column == column) return i;
      }
      return stream.size();
    };
    std::size_t codes = 0;
    for (std::size_t i = 0; i < stream.size(); ++i) {
      const Place& place = stream[i];
      EXPECT_EQ(grammar.codes_among(i), codes);
      if (place.control >= 0) {
        ASSERT_EQ(grammar.forced(i), place.control);
        EXPECT_FALSE(grammar.cell(i) || grammar.earlier(i) || grammar.above(i) || grammar.left(i));
        continue;
      }
      ASSERT_FALSE(grammar.forced(i)) << i;
      EXPECT_EQ(grammar.cell(i), codes);
      EXPECT_EQ(grammar.column(i), place.column);
      std::optional<std::size_t> earlier, above, left;
      if (place.grid > 0) earlier = position_of(place.grid - 1, place.row, place.column);
      if (place.row > 0) above = position_of(place.grid, place.row - 1, place.column);
      if (place.column > 0) left = position_of(place.grid, place.row, place.column - 1);
      EXPECT_EQ(grammar.earlier(i), earlier);
      EXPECT_EQ(grammar.above(i), above);
      EXPECT_EQ(grammar.left(i), left);
      ++codes;
    }
    EXPECT_EQ(grammar.codes_among(stream.size()), codes);
    EXPECT_EQ(codes, grammar.grids * grammar.cells());
  }
}

TEST(VideoGrammar, StreamsOfWholeGridsAreFirstTokens) {
  for (const VocabularyGrammar& grammar : grammars()) {
    std::vector<std::int32_t> codes, stream;
    for (const Place& place : written_out(grammar)) {
      if (place.control < 0) codes.push_back(static_cast<std::int32_t>(codes.size()) % 50);
      stream.push_back(place.control >= 0 ? place.control : codes.back());
    }
    for (std::size_t whole = 0; whole <= grammar.grids; ++whole) {
      const auto some = std::span(codes).first(whole * grammar.cells());
      const std::vector<std::int32_t> tokens = grammar.stream_of(some);
      ASSERT_EQ(tokens.size(), grammar.tokens_of(whole));
      EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), stream.begin()));
      EXPECT_EQ(grammar.image_codes(tokens), std::vector<std::int32_t>(some.begin(), some.end()));
    }
  }
}

}  // namespace
}  // namespace tessera::video_grammar_test
