#include "apps/serve/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tessera/error.h>
#include <tessera/settings.h>

namespace tessera::page_test {

namespace api = tessera_v0;

TEST(Page, HoldsAllThatItNeeds) {
  const std::string_view page = page_text();
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_EQ(page.find("<!-- s"), std::string_view::npos) << "a part was not put in";
  for (const char* part : {"<style>\n:root", "<script type=\"module\">\n'use strict'", "start();\n</script>"}) {
    EXPECT_NE(page.find(part), std::string_view::npos) << part;
  }
  // Nothing is fetched from elsewhere, nothing is made of markup in texts.
  for (const char* other : {"<link rel=\"stylesheet", " src=\"", "https://", "@import", "innerHTML",
                            "insertAdjacentHTML", "document.write", "eval("}) {
    EXPECT_EQ(page.find(other), std::string_view::npos) << other;
  }
}

TEST(Page, PolicyNamesWhatThePageHoldsByItsHash) {
  // Of "a{}", as openssl has it.
  const std::string hash = " 'sha256-X1RutGBrXCt9KkSaXMK7tHftWiRscFHOhxsS8tv8hBk='";
  const std::string policy = page_policy("<style>a{}</style><p>");
  EXPECT_NE(policy.find("style-src" + hash), std::string::npos) << policy;
  EXPECT_NE(policy.find("script-src 'none'"), std::string::npos) << policy;
  EXPECT_NE(page_policy("<style>b{}</style>"), policy);
  const std::string two = page_policy("<style>a{}</style><style>b{}</style>");
  EXPECT_NE(two.find("style-src" + hash + " 'sha256-"), std::string::npos) << two;
  EXPECT_EQ(page_policy(page_text()).find("unsafe"), std::string::npos);
}

constexpr auto none = [](api::Task) { return api::Settings{}; };

TEST(Page, SettingsAreThoseOfTheLibrary) {
  const std::vector<api::SettingInfo> table = api::setting_table(api::Task::kImage);
  const Json answer = settings_json("task=image", none);
  EXPECT_EQ(answer["task"], "image");
  ASSERT_EQ(answer["data"].size(), table.size());
  for (std::size_t at = 0; at < table.size(); ++at) {
    const Json& row = answer["data"][at];
    EXPECT_EQ(row["name"], table[at].name);
    EXPECT_EQ(row["help"], table[at].help);
    EXPECT_EQ(row["without"], table[at].without);
    EXPECT_EQ(row["place"], table[at].place == api::SettingPlace::kOpen ? "open" : "request");
    EXPECT_EQ(row.contains("low"), table[at].kind == "number" || table[at].kind == "integer");
    EXPECT_EQ(row.contains("choices"), !table[at].choices.empty());
  }
  const auto temp = std::find_if(answer["data"].begin(), answer["data"].end(),
                                 [](const Json& row) { return row["name"] == "temp"; });
  ASSERT_NE(temp, answer["data"].end());
  EXPECT_EQ((*temp)["high"], 100.0);
  EXPECT_NE(settings_json("task=describe", none), answer);
}

TEST(Page, WhatAServerDoesByItselfIsSaid) {
  const auto without = [](const Json& answer, std::string_view name) {
    for (const Json& row : answer["data"]) {
      if (row["name"] == name) return row["without"].get<std::string>();
    }
    return std::string();
  };
  const auto own = [](api::Task task) {
    return task == api::Task::kDescribe ? api::Settings{{"prune", "divprune"}} : api::Settings{};
  };
  EXPECT_EQ(without(settings_json("task=describe", own), "prune"), "divprune");
  EXPECT_EQ(without(settings_json("task=describe", none), "prune"), "none");
  EXPECT_EQ(without(settings_json("task=describe", own), "prune-rate"), "0.67");
}

TEST(Page, SettingsOfAnotherQueryAreRefused) {
  for (const char* query : {"", "task=", "task=images", "image", "task=image&more=1"}) {
    try {
      settings_json(query, none);
      ADD_FAILURE() << query;
    } catch (const api::Error& error) {
      EXPECT_EQ(error.code(), "E_FIELD");
      EXPECT_EQ(error.kind(), api::ErrorKind::kUsage);
      EXPECT_NE(error.expected().find("task=image"), std::string::npos);
    }
  }
}

}  // namespace tessera::page_test
