// Rows, values kept by row, and the reference tables of docs/cli.md.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/runtime/setting_groups.h"
#include "engine/decoding/decode_settings.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera::settings_test {
namespace {

TEST(Settings, RowsSayWhatTablesNeed) {
  std::set<std::string> names, records;
  for (const SettingGroup& group : setting_groups()) {
    for (const Setting* row : group.rows) {
      SCOPED_TRACE(std::string(row->name));
      EXPECT_FALSE(row->help.empty());
      EXPECT_LE(row->help.size(), 180u);
      const bool number = row->kind <= SettingKind::kInteger;
      if (number) {
        EXPECT_LT(row->low, row->high);
        if (row->fallback) {
          EXPECT_TRUE(in_range(*row, *row->fallback));
        }
      }
      const bool choice = row->kind == SettingKind::kChoice || row->kind == SettingKind::kName;
      EXPECT_EQ(choice, row->choices != nullptr);
      EXPECT_EQ(row->doors.has(Door::kRecord), !row->record.empty());
      if (row->doors.has(Door::kViewer) && group.chosen_by != nullptr && number) {
        EXPECT_GT(row->step, 0);
      }
      // A text's own rows have the flags of images once more.
      if (!row->doors.has(Door::kCaption) || row->doors.has(Door::kGenerate)) {
        EXPECT_TRUE(names.insert(std::string(row->name)).second);
      }
      if (!row->record.empty()) {
        EXPECT_TRUE(records.insert(std::string(row->record)).second);
      }
    }
  }
  EXPECT_GE(names.size(), 35u);
}

TEST(Settings, ValuesAreKeptByRow) {
  SettingValues values;
  EXPECT_TRUE(values.empty());
  EXPECT_FALSE(values.has(setting::kTvBudget));
  EXPECT_EQ(values.number(setting::kTvBudget), 0) << "the row's own";
  values.set(setting::kTvBudget, 0);
  EXPECT_TRUE(values.has(setting::kTvBudget)) << "given is given";
  values.settle(setting::kTvBudget, 0);
  EXPECT_FALSE(values.has(setting::kTvBudget));
  values.set(setting::kTopK, 7);
  values.set(setting::kDrafter, std::string("left"));
  SettingValues others;
  others.set(setting::kTopK, 9);
  others.set(setting::kTopP, 0.5);
  values.fill(others);
  EXPECT_EQ(values.integer(setting::kTopK), 7);
  EXPECT_EQ(values.number(setting::kTopP), 0.5);
  EXPECT_EQ(values.text(setting::kDrafter), "left");
  SettingValues same = values;
  EXPECT_EQ(same, values);
  same.clear(setting::kTopK);
  EXPECT_NE(same, values);
}

TEST(Settings, TextsAreReadWholeOrNotAtAll) {
  for (const char* text : {"", " 1", "1 ", "1x", "0x1", "1e999", "nan", "inf", "-1"}) {
    EXPECT_FALSE(parse_setting(setting::kTemperature, text)) << text;
  }
  for (const char* text : {"1.0", "1e3", "99999999999999999999", "-1"}) {
    EXPECT_FALSE(parse_setting(setting::kTopK, text)) << text;
  }
  EXPECT_EQ(parse_setting(setting::kTemperature, "1e-1")->number, 0.1);
  EXPECT_FALSE(parse_setting(setting::kTextDecode, "gsd")) << "a choice";
  EXPECT_TRUE(parse_setting(setting::kDecode, "gsd2")) << "a name, which its table refuses";
  EXPECT_FALSE(in_range(setting::kTemperature, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(clamped(setting::kTopP, 0), setting::kTopP.low);
}

// The page is rewritten from the tables with TESSERA_REWRITE_DOCS=1 in the environment of this
// test, or by hand with what `tessera settings --markdown` prints.
TEST(Settings, ThePageIsMadeFromTheTables) {
  const std::string path = std::string(TESSERA_SOURCE_DIR) + "/docs/cli.md";
  std::ifstream in(path, std::ios::binary);
  std::string page{std::istreambuf_iterator<char>(in), {}};
  const std::size_t begin = page.find(kSettingsBegin), end = page.find(kSettingsEnd);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const std::size_t from = begin + kSettingsBegin.size();
  if (std::getenv("TESSERA_REWRITE_DOCS") != nullptr) {
    page.replace(from, end - from, settings_markdown());
    std::ofstream(path, std::ios::binary) << page;
    return;
  }
  EXPECT_EQ(page.substr(from, end - from), settings_markdown())
      << "docs/cli.md differs from the tables of settings";
}

}  // namespace
}  // namespace tessera::settings_test
