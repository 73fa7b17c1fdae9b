// The draft table next to a model: read as it is, refused by tensor, absent without complaint.
#include <gtest/gtest.h>

#include "apps/runtime/draft_table_file.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/support/temp_folder.h"

namespace tessera::draft_table_test {
namespace {

Tensor codes_tensor(const Shape& shape, std::int16_t value) {
  Tensor out = Tensor::host(DType::kI16, shape);
  auto* at = static_cast<std::int16_t*>(out.view().data);
  std::fill_n(at, shape.elements(), value);
  return out;
}

void write_table(const TempFolder& folder, const Shape& pairs, std::int16_t value,
                 const char* second = "left") {
  const Tensor both = codes_tensor(pairs, value), one = codes_tensor(Shape{4}, 3);
  write_safetensors(folder / "guesses.safetensors",
                    {{"left_above", both.view()}, {"above", one.view()}, {second, one.view()}});
}

std::string place_of(const TempFolder& folder) {
  try {
    load_draft_table(folder.path(), 4);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_EQ(error.info().code, "E_GUESSES");
    return error.info().where;
  }
  return "accepted";
}

TEST(DraftTable, AnswersFromThePairElseFromTheLeft) {
  DraftTable table{.codes = 2, .left_above = {1, -1, -1, 0}, .left = {0, 1}, .above = {1, 1}};
  EXPECT_EQ(table.draft(0, 0), 1);
  EXPECT_EQ(table.draft(0, 1), 0) << "a pair never seen";
  EXPECT_EQ(table.draft(1, 1), 0);
  EXPECT_EQ(table.draft(1, -1), 1) << "nothing above";
  EXPECT_EQ(table.draft(-1, 0), 1) << "nothing to the left";
}

TEST(DraftTable, IsReadOrRefusedByTensor) {
  TempFolder folder;
  EXPECT_EQ(load_draft_table(folder.path(), 4), nullptr);
  EXPECT_EQ(load_draft_table("", 4), nullptr);
  write_table(folder, Shape{4, 4}, -1);
  const auto table = load_draft_table(folder.path(), 4);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->draft(2, 1), 3);
  write_table(folder, Shape{4, 4}, 4);
  EXPECT_EQ(place_of(folder), "left_above") << "a code beyond the codebook";
  write_table(folder, Shape{4, 4}, -2);
  EXPECT_EQ(place_of(folder), "left_above");
  write_table(folder, Shape{2, 8}, 0);
  EXPECT_EQ(place_of(folder), "left_above") << "another shape";
  write_table(folder, Shape{4, 4}, 0, "right");
  EXPECT_EQ(place_of(folder), "left") << "no such tensor";
}

}  // namespace
}  // namespace tessera::draft_table_test
