// The table, settings by name, and refusals that name the method.
#include "vision/pruning/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/llava_next_image.h"
#include "tests/support/pruning_chain.h"

namespace tessera::registry_test {
namespace {

std::string code_of(const std::function<void()>& call, std::string* message = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (message) *message = error.what();
    return error.info().code;
  }
  return "";
}

TEST(Registry, EveryMethodUnderItsOwnName) {
  std::set<std::string_view> names;
  for (const PrunerRow& row : pruner_table()) {
    EXPECT_EQ(make_pruner(row.name)->name(), row.name);
    EXPECT_FALSE(row.does.empty());
    names.insert(row.name);
  }
  EXPECT_EQ(names.size(), pruner_table().size()) << "no name twice";
  EXPECT_GE(names.size(), 14u);
}

TEST(Registry, RowsSayWhatTheMethodsDo) {
  const PrunedModel model;
  for (const PrunerRow& row : pruner_table()) {
    const auto pruner = make_pruner(row.name);
    bool wants_cls = false;
    PruneState state;
    state.numbers.assign(8, 1);
    for (const Hook& hook : pruner->hooks(model)) {
      for (const SignalNeed& need : pruner->needs(hook, model, state)) {
        wants_cls |= need.kind == SignalKind::kClsRow;
      }
    }
    EXPECT_EQ(wants_cls, row.cls == ClsNeed::kRow) << row.name;
  }
}

TEST(Registry, UnknownNamesAndOptionsAreRefusedWithTheChoices) {
  std::string message;
  EXPECT_EQ(code_of([] { make_pruner("divprun"); }, &message), "E_PRUNE_METHOD");
  EXPECT_NE(message.find("divprune"), std::string::npos) << message;
  const std::vector<PruneOption> wrong = {{"beta", 1}};
  EXPECT_EQ(code_of([&] { make_pruner("hired", wrong); }, &message), "E_PRUNE_OPTION");
  EXPECT_NE(message.find("alpha"), std::string::npos) << message;
  for (const double value : {-0.1, 1.1, std::nan("")}) {
    const std::vector<PruneOption> outside = {{"alpha", value}};
    EXPECT_EQ(code_of([&] { make_pruner("hired", outside); }), "E_PRUNE_OPTION");
  }
  const std::vector<PruneOption> half = {{"per_round", 2.5}};
  EXPECT_EQ(code_of([&] { make_pruner("vispruner", half); }), "E_PRUNE_OPTION");
  const std::vector<PruneOption> good = {{"important_ratio", 0.75}, {"per_round", 4}};
  EXPECT_EQ(code_of([&] { make_pruner("vispruner", good); }), "");
}

TEST(Registry, AnOptionReachesItsMethod) {
  const std::vector<PruneOption> third = {{"layer", 3}};
  EXPECT_EQ(make_pruner("fastv", third)->hooks({}).front(), (Hook{HookPoint::kBeforeLlm, 3}));
}

TEST(Registry, EncodersWithoutClsGetASubstituteOrARefusal) {
  PrunedModel model{.family = "siglip-model", .cls = false};
  std::string message;
  EXPECT_EQ(code_of([&] { check_pruner("hired", model, {}); }, &message), "E_PRUNE_CLS");
  EXPECT_NE(message.find("hired"), std::string::npos);
  EXPECT_NE(message.find("siglip-model"), std::string::npos);
  EXPECT_EQ(check_pruner("divprune", model, {}), RowSource::kNone);
  model.substitute = RowSource::kMeanOfRows;
  EXPECT_EQ(check_pruner("hired", model, {}), RowSource::kMeanOfRows);
  EXPECT_EQ(check_pruner("hired", PrunedModel{}, {}), RowSource::kCls);
}

TEST(Registry, OnlyMethodsWithANumberOfTheirOwnAreAdaptive) {
  Budget budget;
  budget.adaptive = true;
  EXPECT_EQ(code_of([&] { check_pruner("divprune", {}, budget); }), "E_PRUNE_ADAPTIVE");
  EXPECT_EQ(code_of([&] { check_pruner("corematching", {}, budget); }), "");
  EXPECT_EQ(code_of([&] { check_pruner("correlation", {}, budget); }), "");
}

TEST(Registry, PublishedCodeIsFollowedWhereItDiffers) {
  const VisualBlock block = llava_next_image(640, 480, Padding::kDropped);
  std::set<std::string_view> differ;
  for (const PrunerRow& row : pruner_table()) {
    const std::vector<PruneOption> parity = {{"parity", 1}};
    std::string message;
    const std::string code = code_of([&] { make_pruner(row.name, parity); }, &message);
    if (row.code.differs.empty()) {
      EXPECT_EQ(code, "E_PRUNE_PARITY") << row.name;
      EXPECT_NE(message.find("divprune, vispruner, visionzip, hired, flowcut"), std::string::npos)
          << message;
      continue;
    }
    EXPECT_EQ(code, "") << row.name << message;
    differ.insert(row.name);
    // The plans are others, and row ends go or compete.
    const PrunedModel model{.tiles = 5};
    PruneScratch scratch;
    const auto run = [&](const std::vector<PruneOption>& options) {
      return run_chain(*make_pruner(row.name, options), block, model, keep_shared(400),
                       noise_source(31), scratch);
    };
    const auto newlines = [](const VisualBlock& left) {
      return std::count_if(left.tokens.begin(), left.tokens.end(), [](const VisualToken& token) {
        return token.kind == TokenKind::kNewline;
      });
    };
    const auto ours = run({}), theirs = run(parity);
    EXPECT_EQ(newlines(ours.block), newlines(block)) << row.name;
    EXPECT_LT(newlines(theirs.block), newlines(block)) << row.name;
    EXPECT_EQ(newlines(run({{"parity", 0}}).block), newlines(block)) << row.name;
    if (row.name != "divprune") {
      EXPECT_EQ(newlines(theirs.block), 0) << row.name;
    }
  }
  EXPECT_EQ(differ,
            (std::set<std::string_view>{"divprune", "flowcut", "hired", "visionzip", "vispruner"}));
}

TEST(Registry, MissingSignalsAndWrongSizesAreNamed) {
  const VisualBlock block = grid_block(2, 3);
  SignalStore none, shorter;
  shorter.add(SignalKind::kEmbeddings, 0, 2, noise_list(1, 10));
  std::string message;
  const auto pruner = make_pruner("divprune");
  EXPECT_EQ(code_of([&] { select_once(*pruner, block, none, keep_tokens(2)); }, &message),
            "E_PRUNE_SIGNAL");
  EXPECT_NE(message.find("divprune"), std::string::npos);
  EXPECT_NE(message.find("embeddings"), std::string::npos);
  EXPECT_EQ(code_of([&] { select_once(*pruner, block, shorter, keep_tokens(2)); }, &message),
            "E_PRUNE_SIGNAL");
  EXPECT_NE(message.find("6 tokens"), std::string::npos) << message;
}

TEST(Registry, SinglePatchesOfACellAreRefused) {
  const VisualBlock block = qwen_block(1, 2, 2, QwenStage::kPatches);
  SignalStore store;
  store.add(SignalKind::kEmbeddings, 0, 2, noise_list(1, 32));
  EXPECT_EQ(code_of([&] { select_once(*make_pruner("divprune"), block, store, keep_tokens(2)); }),
            "E_PRUNE_CELLS");
}

}  // namespace
}  // namespace tessera::registry_test
