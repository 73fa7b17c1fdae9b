// What `tessera settings` says of every row.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/runtime/setting_groups.h"

namespace tessera::setting_facts_test {
namespace {

TEST(SettingFacts, EveryRowIsDescribed) {
  int rows = 0;
  for (const SettingGroup& group : setting_groups()) {
    for (const Setting* row : group.rows) {
      const Json facts = setting_facts(group, *row);
      EXPECT_EQ(facts["setting"], row->name);
      EXPECT_FALSE(facts["kind"].get<std::string>().empty()) << row->name;
      EXPECT_FALSE(facts["help"].get<std::string>().empty()) << row->name;
      ++rows;
    }
  }
  EXPECT_GT(rows, 60);
}

}  // namespace
}  // namespace tessera::setting_facts_test
