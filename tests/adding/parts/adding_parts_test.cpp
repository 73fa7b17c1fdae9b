// What docs/adding-a-rule.md, adding-a-drafter.md and adding-a-setting.md add: in so few files, and
// with all that comes of a row. That the rule keeps its guarantee is shown by the page's own tests.
#include <nlohmann/json.hpp>

#include "engine/core/json.h"
#include "engine/decoding/decode_settings.h"
#include "tests/adding/page.h"
#include "tests/support/devices.h"
#include "tests/support/verified_rows.h"

namespace tessera::testing {
namespace {

TEST(AddingARule, TakesItsFileADeviceFunctionARowAndItsTest) {
  EXPECT_EQ(files_of("adding-a-rule"),
            (std::set<std::string>{
                "engine/decoding/rules/share_rule.h", "engine/backend/cuda/verify_rules.cuh",
                "engine/decoding/method_parts.h", "tests/unit/decoding/enumeration_test.cpp"}));
  EXPECT_TRUE(lines_of("adding-a-rule", '-').empty()) << "only adds";
  EXPECT_EQ(lines_of("adding-a-rule", '+', "method_parts.h").size(), 2u) << "include and row";
}

TEST(AddingADrafter, TakesItsFileARowAndItsTest) {
  EXPECT_EQ(files_of("adding-a-drafter"),
            (std::set<std::string>{"engine/decoding/drafters/last_drafter.h",
                                   "engine/decoding/method_parts.h",
                                   "tests/unit/decoding/enumeration_test.cpp"}));
  EXPECT_TRUE(lines_of("adding-a-drafter", '-').empty()) << "only adds";
  EXPECT_EQ(lines_of("adding-a-drafter", '+', "method_parts.h").size(), 2u) << "include and row";
}

TEST(AddingASetting, TakesTheFileOfItsRowAndItsTest) {
  EXPECT_EQ(files_of("adding-a-setting"),
            (std::set<std::string>{"engine/decoding/drafters/table_drafters.h",
                                   "tests/unit/decoding/enumeration_test.cpp"}));
}

// The group of a part's rows.
const SettingGroup* group_of(std::string_view part) {
  for (const SettingGroup& group : decode_groups()) {
    if (group.of == part) return &group;
  }
  return nullptr;
}

// A record of a method with the value, and the method that is read from it.
void expect_recorded(DecodeMethod method, const Setting& row, double value, const char* place) {
  method.name = decode_method("sjd").name;
  method.set(row, value);
  Json record = Json::object();
  write_method_names(record, method);
  write_method(record, method, "");
  EXPECT_EQ(record[Json::json_pointer(place)], value);
  EXPECT_EQ(read_method(JsonReader(record, "record")), method);
  record[Json::json_pointer(place)] = row.high + 1;
  EXPECT_THROW(read_method(JsonReader(record, "record")), Error);
}

TEST(AddingARule, NamesSettingsAndRecordsKnowIt) {
  EXPECT_EQ(rule_names().back(), "share");
  const SettingGroup* group = group_of("share");
  ASSERT_NE(group, nullptr);
  ASSERT_EQ(group->rows.size(), 1u);
  expect_recorded(combine("uniform", "drop", "share", 4), *group->rows[0], 0.25, "/share");
}

TEST(AddingADrafter, NamesKnowIt) {
  const auto known = [](std::span<const std::string_view> names) {
    return std::ranges::count(names, std::string_view("last-but-one"));
  };
  EXPECT_EQ(known(drafter_names()), 1);
  EXPECT_EQ(known(drafter_choices()), 1) << "of --drafter";
}

TEST(AddingASetting, FlagsRecordsAndRangesKnowIt) {
  const SettingGroup* group = group_of("lookup");
  ASSERT_NE(group, nullptr);
  const Setting& row = *group->rows[0];
  EXPECT_EQ(row.name, "lookup-length");
  DecodeMethod method = combine("lookup", "drop", "exact", 4);
  expect_recorded(method, row, 7, "/lookup/length");
  method.set(row, row.high);
  EXPECT_NO_THROW(check_method(method, aids_for(8), 64));
  method.set(row, row.high + 1);
  EXPECT_THROW(check_method(method, aids_for(8), 64), Error);
}

// The device's function against the host's rule, row by row and bit by bit.
class AddingARuleOnADevice : public OnDevice {};

TEST_P(AddingARuleOnADevice, DecidesAsTheHostDoes) {
  Dice dice(7);
  for (const std::int64_t codes : {1, 3, 8, 40, 600}) {
    for (const char* redraft_policy : {"drop", "maximal"}) {
      const VerifiedCase drawn{.rule = "share", .redraft_policy = redraft_policy, .codes = codes};
      HostRowVerifier host(drawn);
      ASSERT_TRUE(host.described());
      const auto verifier =
          backend->row_verifiers()->make(host.method(), {.codes = codes, .rows = 60, .items = 10});
      ASSERT_NE(verifier, nullptr);
      for (int number = 0; number < 6; ++number) {
        const DrawnPass pass = draw_pass(dice, codes, 10, 6, host.dist_rows(), drawn.budget);
        const auto rows = static_cast<std::int64_t>(pass.logits.size()) / codes;
        const Tensor logits = upload(pass.logits, Shape{rows, codes});
        verifier->verify({logits.view(), pass.items, pass.rows});
        const HostRowVerifier::Records want = host.verify(pass);
        ASSERT_EQ(difference(want, verifier->rows(), verifier->items(), pass, drawn.redraft_policy != "drop"), "");
      }
    }
  }
}

// A rule whose function a device lacks is the host's.
TEST_P(AddingARuleOnADevice, LeavesRulesThatItDoesNotKnow) {
  VerifyMethod method;
  method.rule.name = "nobody's";
  EXPECT_EQ(backend->row_verifiers()->make(method, {.codes = 8}), nullptr);
}

// A GPU's functions are those of the library.
INSTANTIATE_TEST_SUITE_P(Devices, AddingARuleOnADevice, ::testing::Values(TestDevice{"simt"}),
                         device_name);

}  // namespace
}  // namespace tessera::testing
