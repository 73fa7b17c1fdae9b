// Pruning through the real program: every method of the table, and the counts it guarantees.
#include <cmath>

#include "tests/integration/caption/caption_program.h"
#include "vision/pruning/registry.h"

namespace tessera::caption_prune_test {
namespace {

class CaptionPrune : public CaptionTest {
 protected:
  Json ask(std::vector<std::string> more) {
    more.insert(more.end(), {"--image", "in.png", "--json", "-p", "What is there?"});
    const auto lines = caption(more).json_lines();
    return lines.empty() ? Json::object() : lines[0];
  }
};

TEST_F(CaptionPrune, EveryMethodKeepsAsManyAsItGuarantees) {
  put("in.png", image(3));
  const Json whole = ask({});
  const int total = whole.at("visual_tokens");
  ASSERT_GE(total, 64);
  EXPECT_EQ(whole.at("kept_tokens"), total);
  for (const PrunerRow& row : pruner_table()) {
    const std::string name(row.name);
    SCOPED_TRACE(name);
    const auto kept = [&](const std::string& flag, const std::string& value) {
      const Json line = ask({"--prune", name, flag, value});
      EXPECT_EQ(line.at("prune"), name);
      EXPECT_EQ(line.at("visual_tokens"), total);
      EXPECT_EQ(line.contains("prune_source") && line["prune_source"] != "cls", false);
      return line.at("kept_tokens").get<int>();
    };
    const auto check = [&](int found, int asked) {
      switch (row.kept) {
        case KeptCount::kExact:
          EXPECT_EQ(found, asked);
          break;
        case KeptCount::kAtMost:
          EXPECT_LE(found, asked);
          EXPECT_GE(found, asked - 8);
          break;
        case KeptCount::kAtLeast:
          EXPECT_GE(found, asked);
          EXPECT_LT(found, total);
          break;
        case KeptCount::kListed:  // after its last cut
          EXPECT_LE(found, asked);
          EXPECT_GT(found, 0);
      }
    };
    check(kept("--keep-tokens", "40"), 40);
    check(kept("--prune-rate", "0.75"), total / 4);
    EXPECT_EQ(kept("--keep-tokens", std::to_string(total + 7)), total) << "more than there are";
    EXPECT_EQ(ask({"--prune", name, "--prune-rate", "0"}).at("caption"), whole.at("caption"))
        << "with nothing dropped the text is the whole image's";
  }
}

TEST_F(CaptionPrune, TheDefaultDropsTwoThirdsAndImagesCountTogether) {
  put("in.png", image(3));
  const int total = ask({}).at("visual_tokens");
  EXPECT_EQ(ask({"--prune", "divprune"}).at("kept_tokens"), std::lround(total * (1 - 0.67)));
  const Json two = ask({"--prune", "divprune", "--keep-tokens", "10", "--image", "in.png"});
  EXPECT_EQ(two.at("visual_tokens"), 2 * total);
  EXPECT_EQ(two.at("kept_tokens"), 20) << "a budget is an image's";
}

TEST_F(CaptionPrune, WhatCannotBePrunedIsRefusedBeforeAnythingIsWritten) {
  put("in.png", image(3));
  const auto refused = [&](std::vector<std::string> more, const std::string& part) {
    more.insert(more.end(), {"in.png", "-o", "x.jsonl"});
    const ProgramResult result = caption(more, 2);
    EXPECT_EQ(result.error_lines(), 1u) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_EQ(files(), std::vector<std::string>{"in.png"});
  };
  refused({"--prune", "nobody"}, "divprune");
  refused({"--prune-rate", "0.5"}, "--prune");
  refused({"--keep-tokens", "5"}, "--prune");
  refused({"--prune", "divprune", "--keep-tokens", "5", "--prune-rate", "0.5"}, "--keep-tokens");
  refused({"--prune", "divprune", "--prune-rate", "1.5"}, "--prune-rate");
  refused({"--prune", "divprune", "--prune-option", "nothing=1"}, "nothing");
  refused({"--prune", "fastv", "--prune-option", "layer"}, "NAME=NUMBER");
  refused({"--prune", "fastv", "--prune-option", "layer=40"}, "layers");
  refused({"--prune", "correlation", "--prune-option", "local_layer=1000"}, "layers");
  refused({"--prune", "divprune", "--keep-tokens", "auto"}, "corematching, correlation");
  refused({"--prune", "correlation", "--keep-tokens", "auto", "--prune-rate", "0.5"},
          "--prune-rate");
  for (const char* wrong : {"0", "-3", "many", "5.5", ""}) {
    refused({"--prune", "divprune", "--keep-tokens", wrong}, "auto");
  }
  refused({"--prune", "random", "--parity"}, "divprune, vispruner, visionzip, hired, flowcut");
}

// A method's number hangs on the image: images that differ get different ones, and the same
// image the same.
TEST_F(CaptionPrune, AMethodFindsItsOwnNumber) {
  for (const PrunerRow& row : pruner_table()) {
    if (!row.adaptive || row.name == "temporal") continue;  // an image says nothing twice
    const std::string name(row.name);
    SCOPED_TRACE(name);
    std::set<int> numbers;
    for (const int number : {1, 3, 4}) {
      put("in.png", image(number));
      const Json line = ask({"--prune", name, "--keep-tokens", "auto"});
      const int kept = line.at("kept_tokens");
      EXPECT_GE(kept, 1);
      EXPECT_LT(kept, line.at("visual_tokens").get<int>());
      EXPECT_EQ(ask({"--prune", name, "--keep-tokens", "auto"}).at("kept_tokens"), kept);
      numbers.insert(kept);
    }
    EXPECT_GT(numbers.size(), 1u);
  }
}

TEST_F(CaptionPrune, OneTokenStaysAtAnyRate) {
  put("in.png", image(3));
  for (const PrunerRow& row : pruner_table()) {
    EXPECT_GE(ask({"--prune", std::string(row.name), "--prune-rate", "0.999"}).at("kept_tokens"), 1)
        << row.name;
  }
}

// Every method whose published code differs takes --parity, and no other.
TEST_F(CaptionPrune, ParityIsTakenWhereCodeDiffers) {
  put("in.png", image(3));
  for (const PrunerRow& row : pruner_table()) {
    if (row.code.differs.empty()) continue;
    const std::string name(row.name);
    EXPECT_EQ(ask({"--prune", name, "--keep-tokens", "30", "--parity"}).at("prune"), name);
  }
}

}  // namespace
}  // namespace tessera::caption_prune_test
