// Methods whose drafts branch: settings that are refused, and rows that are broken. A broken row in
// the middle of a tree stands after drafts that may be wrong and costs passes alone; the first row
// stands after what is true and fails its image.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engine/decoding/drafters/model_drafter.h"
#include "tests/support/draft_streams.h"
#include "tests/support/tree_decoding.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::tree_method_test {
namespace {

// --- settings that are refused ------------------------------------------------------------------

constexpr std::int64_t kTokens = 64;

std::string refusal(const DecodeMethod& method, bool draft_model = true) {
  DecodeAids aids = aids_for(64, 8);
  aids.draft_model = draft_model;
  return refusal_code(method, aids, kTokens);
}

DecodeMethod settled(const char* name) {
  return settle_method(decode_method(name), aids_for(64, 8), kTokens);
}
constexpr const char* kNames[] = {"tree", "gumbel-tree", "draft-tree"};

TEST(CheckTrees, TakesWhatThereIs) {
  for (const char* name : kNames) EXPECT_EQ(refusal(settled(name)), "") << name;
  for (const std::string_view tree : tree_names()) {
    for (const std::string_view drafter : drafter_names()) {
      if (drafter == "none") continue;
      for (const std::string_view redraft_policy : {"resample", "maximal", "gumbel"}) {
        // Values of a window's distributions would tell of drafts that outlive the pass.
        EXPECT_EQ(refusal(combine_tree(tree, drafter, redraft_policy, {})),
                  tree == "dyspec" ? "E_DECODE_CONFLICT" : "")
            << tree << ' ' << drafter;
      }
    }
    const DecodeMethod sourced = combine_tree(tree, kModelDrafter, "drop", {});
    EXPECT_EQ(refusal(sourced), tree == "pac" ? "E_DECODE_CONFLICT" : "") << tree;
    EXPECT_EQ(refusal(sourced, /*draft_model=*/false), "E_DECODE_DRAFT") << tree;
  }
}

TEST(CheckTrees, RefusesTreesThatAreNot) {
  for (const char* name : {"", "Rsd", "pac ", "exact", "none "}) {
    for (const char* method : kNames) {
      DecodeMethod changed = settled(method);
      changed.tree = name;
      EXPECT_EQ(refusal(changed), "E_DECODE_PART") << name << " in " << method;
    }
  }
}

TEST(CheckTrees, RefusesAnotherRuleThanTheTreesOwn) {
  for (const std::string_view tree : tree_names()) {
    for (const std::string_view rule : rule_names()) {
      for (const bool sourced : {false, true}) {
        DecodeMethod method = combine_tree(tree, sourced ? kModelDrafter : "uniform",
                                           sourced ? "drop" : "maximal", {});
        method.rule = rule;
        if (sourced ? tree == "pac" : tree == "dyspec") continue;
        EXPECT_EQ(refusal(method), rule == rule_of_tree(tree) ? "" : "E_DECODE_CONFLICT")
            << tree << ' ' << rule;
      }
    }
  }
}

TEST(CheckTrees, RefusesTailsThatDoNotGoWithTheDrafter) {
  for (const std::string_view tree : tree_names()) {
    for (const std::string_view redraft_policy : {"resample", "maximal", "gumbel"}) {
      EXPECT_EQ(refusal(combine_tree(tree, kModelDrafter, redraft_policy, {})), "E_DECODE_CONFLICT")
          << tree << ' ' << redraft_policy;
    }
    for (const std::string_view drafter : drafter_names()) {
      EXPECT_EQ(refusal(combine_tree(tree, drafter, "drop", {})), "E_DECODE_CONFLICT")
          << tree << ' ' << drafter;
      if (drafter != "none") continue;
      EXPECT_EQ(refusal(combine_tree(tree, drafter, "maximal", {})), "E_DECODE_CONFLICT") << tree;
    }
  }
}

// What a name guarantees, parts cannot take away.
TEST(CheckTrees, NamesKeepTheirGuarantee) {
  DecodeMethod method = settled("gumbel-tree");
  method.tree = "rsd";
  method.rule = "exact";
  EXPECT_EQ(refusal(method), "E_DECODE_CONFLICT");
  method.tree = "none";
  EXPECT_EQ(refusal(method), "E_DECODE_CONFLICT");
  for (const char* name : {"plain", "auto", "gumbel", "sjd", "tree"}) {
    method = settled(name);
    method.set(setting::kRowLead, 2);
    EXPECT_EQ(refusal(method), "E_DECODE_CONFLICT") << name;
  }
  method = settled("plain");
  method.tree = "rsd";
  EXPECT_EQ(refusal(method), "E_DECODE_CONFLICT");
  method = settled("rows");
  EXPECT_EQ(refusal(method), "");
  method.set(setting::kRowLead, 0);
  EXPECT_EQ(refusal(method), "E_DECODE_CONFLICT");
  method = settled("rows");
  method.set(setting::kTvBudget, 0.1);
  EXPECT_EQ(refusal(method), "E_DECODE_CONFLICT");
  method = settled("rows");
  method.rule = "relaxed";
  EXPECT_EQ(refusal(method), "E_DECODE_CONFLICT");
}

TEST(CheckTrees, RefusesABudgetOfVariation) {
  for (const char* name : kNames) {
    DecodeMethod method = settled(name);
    method.set(setting::kTvBudget, 0.1);
    EXPECT_EQ(refusal(method), "E_DECODE_CONFLICT") << name;
  }
}

TEST(CheckTrees, RefusesShapesOutOfRange) {
  const auto shaped = [](const char* name, std::int64_t width, std::int64_t depth) {
    DecodeMethod method = settled(name);
    method.set(setting::kTreeWidth, static_cast<double>(width));
    method.set(setting::kTreeDepth, static_cast<double>(depth));
    return refusal(method);
  };
  for (const char* name : kNames) {
    for (const std::int64_t width : {-1, 0, 65}) {
      EXPECT_EQ(shaped(name, width, 3), "E_DECODE_RANGE") << name << ' ' << width;
    }
    for (const std::int64_t depth : {-1, 65}) {
      EXPECT_EQ(shaped(name, 3, depth), "E_DECODE_RANGE") << name << ' ' << depth;
    }
    EXPECT_EQ(shaped(name, 1, 0), "") << name;
    EXPECT_EQ(shaped(name, 64, 64), "") << name;
  }
}

TEST(CheckTrees, GuaranteesFollowTheTree) {
  EXPECT_EQ(guarantee_of(settled("tree")), Guarantee::kLossless);
  EXPECT_EQ(guarantee_of(settled("draft-tree")), Guarantee::kLossless);
  EXPECT_EQ(guarantee_of(settled("gumbel-tree")), Guarantee::kSameTokens);
}

// --- rows that are broken -----------------------------------------------------------------------

// The tiny model with an image code that overflows whoever sees it.
struct BrokenCode {
  explicit BrokenCode(std::int32_t code)
      : opened(open_model("test:tiny")), backend(make_backend("cpu", {.threads = 2})), model([&] {
          plant(code);
          return load_stream_model(opened, *backend, DType::kF32);
        }()) {}

  void plant(std::int32_t code) {
    std::map<std::string, Tensor> tensors;
    for (const auto& [name, view] : opened.weights->tensors()) {
      Tensor copy = Tensor::host(view.dtype, view.shape);
      std::memcpy(copy.view().data, view.data, view.bytes());
      if (name == opened.spec.names.code_table) {
        std::fill_n(copy.f32() + code * view.shape[1], view.shape[1], 3e38f);
      }
      tensors.emplace(name, std::move(copy));
    }
    opened.weights =
        std::make_shared<const Checkpoint>(Checkpoint::from_tensors("broken", std::move(tensors)));
    opened.source = source_of(opened.weights);
  }

  OpenedModel opened;
  std::unique_ptr<Backend> backend;
  StreamModel model;
};

// One code at every third position, another one elsewhere.
class StubbornDrafter final : public SlotDrafter<float, KeyedRandom> {
 public:
  explicit StubbornDrafter(std::int32_t code) : code_(code) {}
  std::string_view name() const override { return "stubborn"; }

 private:
  bool fill(DraftJob<float, KeyedRandom>& job) override {
    const std::size_t position = job.next_position();
    job.window->append_point(position % 3 == 0 ? code_ : static_cast<std::int32_t>(position % 60));
    return true;
  }

  std::int32_t code_;
};

std::vector<StreamResult> run_tree(const StreamModel& model, const std::vector<Stream>& items,
                                   std::string_view tree, std::int32_t drafted,
                                   ModelDrafter* source = nullptr) {
  const DecodeMethod method = combine_tree(tree, source != nullptr ? kModelDrafter : "uniform",
                                           source != nullptr ? "drop" : "maximal", {12, 3, 2});
  OwnedParts<float, KeyedRandom> owned(method, aids_for(model.config().grammar()));
  if (source == nullptr) owned.set_drafter(std::make_unique<StubbornDrafter>(drafted));
  LoopParts parts = owned.parts();
  parts.tree.source = source;
  StreamLoop loop(model,
                  image_limits(model, {.items = static_cast<std::int64_t>(items.size()),
                                       .prompt_rows = 8,
                                       .window = method.window,
                                       .dists = true,
                                       .shape = parts.shape()}),
                  parts);
  return run_drafted(loop, items, source);
}

bool holds(const Tokens& tokens, std::int32_t code) {
  return std::find(tokens.begin(), tokens.end(), code) != tokens.end();
}

// A code that one image has and no other one; their last codes, which no row sees, apart.
std::int32_t code_of_one(const std::vector<StreamResult>& results, std::size_t one) {
  for (std::int32_t code = 0; code < 64; ++code) {
    bool alone = true;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Tokens& tokens = results[i].tokens;
      alone = alone && holds({tokens.begin(), tokens.end() - 1}, code) == (i == one);
    }
    if (alone) return code;
  }
  return -1;
}

TEST(BrokenRows, CostPassesWhereTheyAreDraftsAndFailWhereTheyAreTrue) {
  const TinyRun tiny;
  const std::vector<Stream> items = {tiny.item(0), tiny.item(1), tiny.item(2)};
  const auto healthy = tiny.run(items);
  for (const std::size_t one : {std::size_t{0}, std::size_t{1}}) {
    const std::int32_t code = code_of_one(healthy, one);
    ASSERT_GE(code, 0) << "the seeds must give such a code";
    const BrokenCode broken(code);
    const auto results = run_tree(broken.model, items, "gumbel", code);
    const auto sound = run_tree(tiny.model, items, "gumbel", code);
    std::int64_t passes = 0, sound_passes = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      ASSERT_EQ(sound[i].tokens, healthy[i].tokens);
      if (i == one) continue;
      passes += results[i].passes;
      sound_passes += sound[i].passes;
      EXPECT_EQ(results[i].status, StreamStatus::kDone) << i;
      EXPECT_EQ(results[i].tokens, healthy[i].tokens) << i;
    }
    EXPECT_GT(passes, sound_passes) << "no broken row was ever drafted";
    EXPECT_EQ(results[one].status, StreamStatus::kFailed);
    EXPECT_EQ(results[one].error.code, "E_LOGITS");
    const Tokens& tokens = healthy[one].tokens;
    const auto first = std::find(tokens.begin(), tokens.end(), code) + 1;
    EXPECT_EQ(results[one].tokens, Tokens(tokens.begin(), first)) << "up to the code that breaks";
    EXPECT_NE(
        results[one].error.where.find("image token " + std::to_string(first - tokens.begin())),
        std::string::npos)
        << results[one].error.where;
  }
}

// Under the other rules an image ends early only if it holds the code.
TEST(BrokenRows, FailNothingUnderAnyTree) {
  const TinyRun tiny;
  const std::vector<Stream> items = {tiny.item(0), tiny.item(2), tiny.item(3), tiny.item(5)};
  const BrokenCode broken(5);
  int done = 0;
  for (const std::string_view tree : tree_names()) {
    for (const StreamResult& result : run_tree(broken.model, items, tree, 5)) {
      Tokens seen = result.tokens;
      seen.pop_back();
      EXPECT_FALSE(holds(seen, 5)) << tree;
      EXPECT_EQ(result.status == StreamStatus::kDone, result.tokens.size() == kTokens) << tree;
      if (result.status != StreamStatus::kDone) {
        EXPECT_EQ(result.tokens.back(), 5) << tree;
      }
      done += result.status == StreamStatus::kDone ? 1 : 0;
    }
  }
  EXPECT_GT(done, 5);
}

// A draft model whose rows are broken after some codes leaves nodes without children.
TEST(BrokenRows, OfADraftModelFailNothing) {
  const TinyRun tiny;
  const std::vector<Stream> items = {tiny.item(0), tiny.item(1), tiny.item(2)};
  const auto truth = tiny.run(items);
  for (const std::int32_t code : {truth[0].tokens[1], truth[1].tokens[30]}) {
    const BrokenCode broken(code);
    ModelDrafter drafter(broken.model,
                         {.items = 3,
                          .prompt_rows = 8,
                          .tokens = static_cast<std::int64_t>(kTokens),
                          .window = 12,
                          .trees = true});
    const auto results = run_tree(tiny.model, items, "gumbel", 0, &drafter);
    for (std::size_t i = 0; i < items.size(); ++i) {
      EXPECT_EQ(results[i].status, StreamStatus::kDone);
      EXPECT_EQ(results[i].tokens, truth[i].tokens);
      // After such a code the draft model is of no use any more.
      const bool early = holds({truth[i].tokens.begin(), truth[i].tokens.begin() + 40}, code);
      if (!early) continue;
      EXPECT_GT(results[i].passes, 20);
    }
  }
}

}  // namespace
}  // namespace tessera::tree_method_test
