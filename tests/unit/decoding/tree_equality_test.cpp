// Branching drafts in the real loop on the seeded tiny model: under equality the image is plain
// decoding's whoever drafts and however the tree grows; a tree of one candidate a position is the
// chain; batches, threads and widths of passes change nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "apps/lab/models/random_weights.h"
#include "engine/decoding/drafters/model_drafter.h"
#include "tests/support/draft_streams.h"
#include "tests/support/tree_decoding.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::tree_equality_test {
namespace {

// Sanitizers make a pass many times as slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kWindows[] = {3, 16};
#else
constexpr std::int64_t kWindows[] = {2, 3, 5, 8, 16, 64};
#endif
constexpr std::string_view kKeepingRedrafts[] = {"resample", "maximal", "gumbel"};

std::string named(const DecodeMethod& method) {
  return method.tree + ": " + method.drafter + '/' + method.redraft_policy + " window " +
         std::to_string(method.window) + ", width " + std::to_string(method.get<TreeSettings>().width) +
         ", depth " + std::to_string(method.get<TreeSettings>().depth);
}

// A run of shipped parts; with a draft model the tree's distributions are its.
std::vector<StreamResult> run_tree(const TinyRun& tiny, const std::vector<Stream>& items,
                                   const DecodeMethod& method, ModelDrafter* draft = nullptr,
                                   WindowController* controller = nullptr) {
  const OwnedParts<float, KeyedRandom> owned(method, tiny.aids());
  LoopParts parts = owned.parts();
  parts.tree.source = draft;
  StreamLoop loop(tiny.model,
                  image_limits(tiny.model, {.items = static_cast<std::int64_t>(items.size()),
                                            .prompt_rows = 8,
                                            .window = method.window,
                                            .dists = true,
                                            .shape = parts.shape()}),
                  parts, controller);
  return run_drafted(loop, items, draft);
}

// --- equality ---------------------------------------------------------------------------------

class TreeEquality : public ::testing::TestWithParam<int> {};

// The parameter is the threads; drafters and tails take turns.
TEST_P(TreeEquality, IsPlainDecodingTokenForToken) {
  const TinyRun tiny(GetParam());
  const std::vector<Stream> items = first_items(tiny, 3);
  const std::vector<Tokens> truth = tokens_of(tiny.run(items));
  const std::int64_t most = tiny.model.image_token_count();
  std::int64_t fewest = most;
  auto turn = static_cast<std::size_t>(GetParam());
  for (const std::int64_t width : {1, 2, 3}) {
    for (const std::int64_t window : kWindows) {
      for (int again = 0; again < 3; ++again, ++turn) {
        const std::string_view drafter = drafter_names()[1 + turn % (drafter_names().size() - 1)];
        const DecodeMethod method =
            combine_tree("gumbel", drafter, kKeepingRedrafts[turn % 3], {window, width, 3});
        const auto together = run_tree(tiny, items, method);
        ASSERT_EQ(tokens_of(together), truth) << named(method);
        const std::size_t one = turn % items.size();
        const auto alone = run_tree(tiny, {items[one]}, method);
        ASSERT_EQ(alone[0].tokens, truth[one]) << named(method) << ", item " << one << " alone";
        ASSERT_EQ(alone[0].passes, together[one].passes) << named(method);
        for (const StreamResult& result : together) {
          ASSERT_LE(result.passes, most) << named(method);
          fewest = std::min(fewest, result.passes);
        }
      }
    }
  }
  EXPECT_LT(fewest, most * 9 / 10) << "candidates were hardly ever right";
}

TEST(TreeEquality, LogitsProcessorsFollowEachNodesPath) {
  const TinyRun tiny;
  const std::vector<Stream> items = processed_items(tiny, 3);
  const std::vector<Tokens> truth = tokens_of(tiny.run(items));
  std::size_t turn = 0;
  for (const std::int64_t width : {1, 2, 3}) {
    for (const std::int64_t window : {5, 12}) {
      const std::string_view drafter = drafter_names()[1 + turn % (drafter_names().size() - 1)];
      const DecodeMethod method =
          combine_tree("gumbel", drafter, kKeepingRedrafts[turn++ % 3], {window, width, 3});
      ASSERT_EQ(tokens_of(run_tree(tiny, items, method)), truth) << named(method);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, TreeEquality, ::testing::Values(1, 2, 3));

// --- a tree of one candidate is the chain -----------------------------------------------------

TEST(TreeEquality, OneCandidateAPositionIsTheExactChain) {
  const TinyRun tiny;
  const std::vector<Stream> items = first_items(tiny, 3);
  for (const std::string_view drafter : {"uniform", "left", "neighbour-law", "lookup"}) {
    for (const std::string_view redraft_policy : kKeepingRedrafts) {
      for (const std::int64_t window : {2, 5, 16}) {
        const auto chain = run_tree(tiny, items, combine(drafter, redraft_policy, "exact", window));
        for (const std::string_view tree : {"rrs", "rsd", "dyspec", "pac"}) {
          const DecodeMethod method = combine_tree(tree, drafter, redraft_policy, {window, 1, 3});
          const auto made = run_tree(tiny, items, method);
          ASSERT_EQ(tokens_of(made), tokens_of(chain)) << named(method);
          for (std::size_t i = 0; i < items.size(); ++i) {
            EXPECT_EQ(made[i].passes, chain[i].passes) << named(method);
            EXPECT_EQ(made[i].meters.accepted, chain[i].meters.accepted) << named(method);
          }
        }
      }
    }
  }
}

// --- passes, batches ----------------------------------------------------------------------------

TEST(TreeEquality, PassesAreNeverMoreThanPlain) {
  const TinyRun tiny;
  const std::vector<Stream> items = first_items(tiny, 3);
  const std::int64_t most = tiny.model.image_token_count();
  std::size_t turn = 0;
  for (const std::string_view tree : tree_names()) {
    for (const std::string_view redraft_policy : kKeepingRedrafts) {
      const std::int64_t window = std::array{2, 16, 64}[turn++ % 3];
      const DecodeMethod method = combine_tree(tree, "uniform", redraft_policy, {window, 3, 3});
      for (const StreamResult& result : run_tree(tiny, items, method)) {
        EXPECT_EQ(result.status, StreamStatus::kDone) << named(method);
        EXPECT_LE(result.passes, most) << named(method);
        EXPECT_GE(result.passes * window, most) << named(method) << ": more tokens than rows";
        EXPECT_EQ(result.meters.tokens, most) << named(method);
        EXPECT_LT(std::abs(result.meters.z_score()), 4) << named(method);
      }
    }
  }
}

TEST(TreeEquality, BatchOrderSizeAndThreadsChangeNothing) {
  constexpr int kItems = 4;
  for (const std::string_view tree : {"rsd", "kseq", "points", "dyspec"}) {
    const DecodeMethod method = combine_tree(tree, "neighbour-law", "maximal", {12, 3, 2});
    std::vector<Tokens> alone;
    {
      const TinyRun tiny(1);
      for (int number = 0; number < kItems; ++number) {
        alone.push_back(run_tree(tiny, {tiny.item(number)}, method)[0].tokens);
      }
    }
    for (const int threads : {1, 2, 3}) {
      const TinyRun tiny(threads);
      std::vector<Stream> items = first_items(tiny, kItems);
      std::reverse(items.begin(), items.end());
      const auto results = run_tree(tiny, items, method);
      for (std::size_t i = 0; i < alone.size(); ++i) {
        ASSERT_EQ(results[kItems - 1 - i].tokens, alone[i]) << named(method) << ", item " << i;
      }
    }
  }
}

// --- distributions from a draft model ------------------------------------------------------------------

// Weights of another seed under the names and shapes of a model.
class OtherWeights final : public TensorSource {
 public:
  explicit OtherWeights(std::vector<TensorSpec> tensors) : tensors_(std::move(tensors)) {}
  ConstTensorView get(const std::string& name) override {
    const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                    [&](const TensorSpec& tensor) { return tensor.name == name; });
    expects(found != tensors_.end(), "a tensor of the model");
    made_ = random_weight(name, found->shape, {.seed = 99, .matrix_std = 0});
    return made_.view();
  }
  void done(const std::string&) override {}
  std::string file_of(const std::string&) const override { return "other"; }

 private:
  std::vector<TensorSpec> tensors_;
  Tensor made_;
};

struct OtherModel {
  OtherModel()
      : opened(open_model("test:tiny")), backend(make_backend("cpu", {.threads = 2})), model([&] {
          opened.source = std::make_unique<OtherWeights>(opened.spec.tensors);
          return load_stream_model(opened, *backend, DType::kF32);
        }()) {}

  OpenedModel opened;
  std::unique_ptr<Backend> backend;
  StreamModel model;
};

std::unique_ptr<ModelDrafter> tree_drafter(const StreamModel& model,
                                           const std::vector<Stream>& items, std::int64_t window) {
  return std::make_unique<ModelDrafter>(
      model, DraftLimits{.items = static_cast<std::int64_t>(items.size()),
                         .prompt_rows = 8,
                         .tokens = model.image_token_count(),
                         .window = window,
                         .trees = true});
}

TEST(TreeEquality, ADraftModelChangesPassesNeverTheImage) {
  const TinyRun tiny;
  const OtherModel other;
  const std::vector<Stream> items = first_items(tiny, 3);
  const std::vector<Tokens> truth = tokens_of(tiny.run(items));
  const auto total = static_cast<std::int64_t>(truth[0].size());
  for (const std::int64_t window : {2, 3, 5, 16}) {
    for (const std::int64_t width : {1, 3}) {
      for (const StreamModel* draft : {&tiny.model, &other.model}) {
        const auto drafter = tree_drafter(*draft, items, window);
        const DecodeMethod method =
            combine_tree("gumbel", kModelDrafter, "drop", {window, width, 3});
        const auto results = run_tree(tiny, items, method, drafter.get());
        ASSERT_EQ(tokens_of(results), truth) << named(method);
        for (const StreamResult& result : results) {
          EXPECT_LE(result.passes, total) << named(method);
          if (draft != &tiny.model || width > 1) continue;
          // The race's winner is the target's own token: each pass brings all rows.
          EXPECT_EQ(result.passes, 1 + (total - 1 + window - 1) / window) << named(method);
        }
      }
    }
  }
}

TEST(TreeEquality, ADraftModelUnderEveryTree) {
  const TinyRun tiny;
  const OtherModel other;
  const std::vector<Stream> items = first_items(tiny, 3);
  for (const std::string_view tree : {"rrs", "rsd", "kseq", "points", "dyspec"}) {
    const DecodeMethod method = combine_tree(tree, kModelDrafter, "drop", {10, 3, 2});
    const auto drafter = tree_drafter(other.model, items, method.window);
    const auto together = run_tree(tiny, items, method, drafter.get());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto own = tree_drafter(other.model, {items[i]}, method.window);
      EXPECT_EQ(run_tree(tiny, {items[i]}, method, own.get())[0].tokens, together[i].tokens);
      EXPECT_LE(together[i].passes, tiny.model.image_token_count()) << named(method);
      EXPECT_LT(std::abs(together[i].meters.z_score()), 4) << named(method);
    }
  }
}

// The distribution after the first `known` tokens, as trees ask for it.
std::vector<float> asked_dist(ModelDrafter& drafter, const Tokens& tokens, std::size_t known,
                             std::size_t vocabulary) {
  DraftTree<float> tree(2, vocabulary, true);
  tree.reset(tokens[known - 1]);
  const std::int32_t root[] = {0};
  TreeJob<float> job{0, std::span(tokens).first(known), &tree, root};
  drafter.answer({&job, 1});
  const std::span<const float> dist = tree.dist(0).dense;
  return {dist.begin(), dist.end()};
}

bool catches_up() {
  const TinyRun tiny;
  const std::vector<Stream> items = {tiny.item(0)};
  const Tokens tokens = tiny.run(items)[0].tokens;
  const auto vocabulary = tiny.model.config().grammar().vocabulary();
  const auto often = tree_drafter(tiny.model, items, 2);
  const auto seldom = tree_drafter(tiny.model, items, 2);
  for (const auto& drafter : {&often, &seldom}) {
    (*drafter)->set_stream(0, draft_stream(items[0], tiny.model.config().grammar()));
  }
  asked_dist(*seldom, tokens, 1, vocabulary);
  std::vector<float> dist;
  for (std::size_t known = 1; known <= 12; ++known) {
    dist = asked_dist(*often, tokens, known, vocabulary);
  }
  return asked_dist(*seldom, tokens, 12, vocabulary) == dist;
}

// Passes of one row ask the draft model for nothing, however many there are: what it says next is
// what it would have said, had it been asked all along. In a process of its own, as a broken
// invariant ends the program.
TEST(TreeEquality, ADraftModelCatchesUpAfterPassesWithoutIt) {
  EXPECT_EXIT(std::exit(catches_up() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST(TreeEquality, WidthsOfPassesChangeNothing) {
  const TinyRun tiny;
  const OtherModel other;
  const std::vector<Stream> items = first_items(tiny, 2);
  const std::vector<Tokens> truth = tokens_of(tiny.run(items));
  for (const std::int64_t window : {2, 6}) {
    const auto drafter = tree_drafter(other.model, items, window);
    for (ModelDrafter* draft : {static_cast<ModelDrafter*>(nullptr), drafter.get()}) {
      const DecodeMethod method =
          combine_tree("gumbel", draft == nullptr ? std::string_view("uniform") : kModelDrafter,
                       draft == nullptr ? "gumbel" : "drop", {window, 2, 3});
      WindowController controller(window);
      ASSERT_EQ(tokens_of(run_tree(tiny, items, method, draft, &controller)), truth)
          << named(method);
    }
  }
}

}  // namespace
}  // namespace tessera::tree_equality_test
