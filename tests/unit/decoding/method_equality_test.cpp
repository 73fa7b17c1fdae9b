// Methods that must give the same tokens do, on the seeded tiny model: the equality rule and plain
// decoding, rules set to be exact and the exact one, one image alone and in company. Settings
// that contradict each other are refused with their code.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "engine/core/error.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::method_equality_test {
namespace {

struct Pair {
  std::string_view drafter, redraft_policy;
};

// Every drafter that drafts, with every redraft policy.
std::vector<Pair> drafting_pairs() {
  std::vector<Pair> out;
  for (const std::string_view drafter : drafter_names()) {
    for (const std::string_view redraft_policy : redraft_names()) {
      if (drafter != "none") out.push_back({drafter, redraft_policy});
    }
  }
  return out;
}

std::string named(const DecodeMethod& method) {
  return method.drafter + "/" + method.redraft_policy + "/" + method.rule + " window " +
         std::to_string(method.window);
}

// Sanitizers make a pass many times as slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kWindows[] = {3, 16};
#else
constexpr std::int64_t kWindows[] = {2, 3, 5, 8, 16, 64};
#endif

class EqualityRule : public ::testing::TestWithParam<int> {};

// All windows, drafters, redraft policies, alone and three together; the parameter is the threads.
TEST_P(EqualityRule, IsPlainDecodingTokenForToken) {
  const TinyRun tiny(GetParam());
  const std::vector<Stream> items = first_items(tiny, 3);
  const std::vector<Tokens> truth = tokens_of(tiny.run(items));
  const std::int64_t most = tiny.model.image_token_count();
  std::int64_t fewest = most;
  std::size_t turn = 0;
  for (const Pair& pair : drafting_pairs()) {
    for (const std::int64_t window : kWindows) {
      const DecodeMethod method = combine(pair.drafter, pair.redraft_policy, "gumbel", window);
      const auto together = tiny.run_method(items, method);
      ASSERT_EQ(tokens_of(together), truth) << named(method);
      const std::size_t one = turn++ % items.size();
      const auto alone = tiny.run_method({items[one]}, method);
      ASSERT_EQ(alone[0].tokens, truth[one]) << named(method) << ", item " << one << " alone";
      ASSERT_EQ(alone[0].passes, together[one].passes) << named(method);
      for (const StreamResult& result : together) {
        ASSERT_LE(result.passes, most) << named(method);
        fewest = std::min(fewest, result.passes);
      }
    }
  }
  EXPECT_LT(fewest, most) << "no draft was ever right: the comparison saw nothing but refusals";
}

INSTANTIATE_TEST_SUITE_P(Threads, EqualityRule, ::testing::Values(1, 2, 3));

TEST(MethodEquality, LogitsProcessorsChangeNoDraftedImage) {
  const TinyRun tiny;
  const std::vector<Stream> items = processed_items(tiny, 3);
  const std::vector<Tokens> truth = tokens_of(tiny.run(items));
  EXPECT_NE(truth, tokens_of(tiny.run(first_items(tiny, 3)))) << "the processors change something";
  EXPECT_EQ(truth[0][0], 3);
  std::size_t turn = 0;
  for (const Pair& pair : drafting_pairs()) {
    const DecodeMethod method = combine(pair.drafter, pair.redraft_policy, "gumbel", 3 + turn++ % 9);
    ASSERT_EQ(tokens_of(tiny.run_method(items, method)), truth) << named(method);
    const std::size_t one = turn % items.size();
    ASSERT_EQ(tiny.run_method({items[one]}, method)[0].tokens, truth[one]) << named(method);
  }
}

// Keys and values in 8 bits make other tokens, and every drafter those of plain decoding over them:
// windows, trees, rollback, alone and together.
TEST(MethodEquality, OverACacheOfEightBitsToo) {
  const TinyRun tiny;
  const std::vector<Stream> items = first_items(tiny, 3);
  const auto over_eight_bits = [](DecodeMethod method) {
    method.set(setting::kCache, {0, "q8"});
    return method;
  };
  const std::vector<Tokens> truth =
      tokens_of(tiny.run_method(items, over_eight_bits(DecodeMethod{})));
  EXPECT_NE(truth, tokens_of(tiny.run(items))) << "the cache changes something";
  std::size_t turn = 0;
  for (const Pair& pair : drafting_pairs()) {
    const DecodeMethod method = over_eight_bits(
        combine(pair.drafter, pair.redraft_policy, "gumbel", kWindows[turn++ % 2 + 1]));
    ASSERT_EQ(tokens_of(tiny.run_method(items, method)), truth) << named(method);
    const std::size_t one = turn % items.size();
    ASSERT_EQ(tiny.run_method({items[one]}, method)[0].tokens, truth[one]) << named(method);
  }
  DecodeMethod tree = decode_method("gumbel-tree");
  tree.set(setting::kWindow, 12);
  tree = settle_method(over_eight_bits(tree), tiny.aids(), tiny.model.image_token_count());
  EXPECT_EQ(tokens_of(tiny.run_method(items, tree)), truth);
}

// Draw for draw: the same tokens in the same passes with the same tests.
TEST(MethodEquality, RulesSetToBeExactAreExact) {
  const TinyRun tiny;
  const std::vector<Stream> items = first_items(tiny, 3);
  bool wide_group_differs = false, lent_mass_differs = false, warm_differs = false;
  for (const Pair& pair : drafting_pairs()) {
    DecodeMethod exact = combine(pair.drafter, pair.redraft_policy, "exact", 8);
    const auto truth = tiny.run_method(items, exact);
    const auto same = [&](DecodeMethod method, std::string_view rule) {
      method.rule = rule;
      const auto results = tiny.run_method(items, method);
      bool all = true;
      for (std::size_t i = 0; i < items.size(); ++i) {
        all = all && results[i].tokens == truth[i].tokens && results[i].passes == truth[i].passes &&
              results[i].meters.accepted == truth[i].meters.accepted;
      }
      return all;
    };
    DecodeMethod method = exact;
    set_lossless(method, 0.0);
    EXPECT_TRUE(same(method, "grouped")) << named(method);
    EXPECT_TRUE(same(method, "relaxed")) << named(method);
    EXPECT_TRUE(same(method, "cool")) << named(method);
    EXPECT_TRUE(same(method, "lenient")) << named(method);
    method.put(RelaxedSettings{0, 0.5, 0});
    EXPECT_TRUE(same(method, "relaxed")) << named(method) << ", no neighbours";
    method.put(RelaxedSettings{8, 0.5, 1});
    EXPECT_TRUE(same(method, "relaxed")) << named(method) << ", lambda 1";
    method.put(GroupedSettings{8, 1.0, 4.0, false});
    method.put(RelaxedSettings{8, 0.5, 0});
    method.put(CoolSettings{4.0, 0.1});
    wide_group_differs = wide_group_differs || !same(method, "grouped");
    lent_mass_differs = lent_mass_differs || !same(method, "relaxed");
    warm_differs = warm_differs || !same(method, "cool");
  }
  EXPECT_TRUE(wide_group_differs && lent_mass_differs && warm_differs);
}

TEST(MethodEquality, WindowOfOneIsPlain) {
  const TinyRun tiny;
  const std::vector<Stream> items = first_items(tiny, 3);
  const std::vector<Tokens> truth = tokens_of(tiny.run(items));
  for (const std::string_view rule : rule_names()) {
    for (const Pair& pair : drafting_pairs()) {
      const DecodeMethod method = combine(pair.drafter, pair.redraft_policy, rule, 1);
      const auto results = tiny.run_method(items, method);
      ASSERT_EQ(tokens_of(results), truth) << named(method);
      ASSERT_EQ(results[0].passes, tiny.model.image_token_count());
    }
  }
}

TEST(MethodEquality, BatchOrderSizeAndThreadsChangeNothing) {
  constexpr int kItems = 5;
  for (const std::string_view redraft_policy : {"resample", "maximal", "gumbel"}) {
    for (const std::string_view drafter : {"uniform", "neighbour-law", "recycling"}) {
      const DecodeMethod method = combine(drafter, redraft_policy, "exact", 8);
      std::vector<Tokens> alone;
      std::vector<std::int64_t> passes;
      {
        const TinyRun tiny(1);
        for (int number = 0; number < kItems; ++number) {
          const auto result = tiny.run_method({tiny.item(number)}, method)[0];
          alone.push_back(result.tokens);
          passes.push_back(result.passes);
        }
      }
      for (const int threads : {1, 2, 3}) {
        const TinyRun tiny(threads);
        std::vector<Stream> items = first_items(tiny, kItems);
        std::vector<int> order(kItems);
        std::iota(order.begin(), order.end(), 0);
        for (int turn = 0; turn < 3; ++turn) {  // five, four, three of them, turned
          const auto results = tiny.run_method(items, method);
          for (std::size_t i = 0; i < items.size(); ++i) {
            const auto number = static_cast<std::size_t>(order[i]);
            ASSERT_EQ(results[i].tokens, alone[number]) << named(method) << ", item " << number;
            ASSERT_EQ(results[i].passes, passes[number]) << named(method) << ", item " << number;
          }
          items.pop_back(), order.pop_back();
          std::reverse(items.begin(), items.end()), std::reverse(order.begin(), order.end());
        }
      }
    }
  }
}

TEST(MethodEquality, PassesAreNeverMoreThanPlain) {
  const TinyRun tiny;
  const std::vector<Stream> items = first_items(tiny, 3);
  const std::int64_t most = tiny.model.image_token_count();
  std::size_t turn = 0;
  for (const std::string_view rule : rule_names()) {
    for (const Pair& pair : drafting_pairs()) {
      const std::int64_t window = std::array{2, 16, 64}[turn++ % 3];
      const DecodeMethod method = combine(pair.drafter, pair.redraft_policy, rule, window);
      for (const StreamResult& result : tiny.run_method(items, method)) {
        EXPECT_EQ(result.status, StreamStatus::kDone) << named(method);
        EXPECT_LE(result.passes, most) << named(method);
        EXPECT_GE(result.passes * window, most) << named(method) << ": more tokens than rows";
        EXPECT_EQ(result.meters.tokens, most) << named(method);
      }
    }
  }
}

// --- settings that are refused ----------------------------------------------------------------

constexpr std::int64_t kTokens = 64;

std::string refusal(const DecodeMethod& method, const DecodeAids& aids) {
  return refusal_code(method, aids, kTokens);
}

template <typename Change>
std::string refusal_of(const char* name, Change change) {
  const DecodeAids aids = aids_for(64, 8);
  DecodeMethod method = settle_method(decode_method(name), aids, kTokens);
  change(method);
  return refusal(method, aids);
}

TEST(CheckMethod, TakesWhatThereIs) {
  const DecodeAids aids = aids_for(64, 8);
  for (const NamedMethod& row : named_methods()) {
    const DecodeMethod method = settle_method(decode_method(row.name), aids, kTokens);
    EXPECT_EQ(refusal(method, aids), method.drafter == kModelDrafter ? "E_DECODE_DRAFT" : "")
        << row.name;
  }
  for (const std::string_view rule : rule_names()) {
    for (const Pair& pair : drafting_pairs()) {
      EXPECT_EQ(refusal(combine(pair.drafter, pair.redraft_policy, rule, kTokens), aids), "");
    }
  }
}

TEST(CheckMethod, RefusesWindowsThatNoImageHas) {
  for (const std::int64_t window : {std::int64_t{0}, std::int64_t{-1}, kTokens + 1}) {
    for (const char* name : {"plain", "gumbel", "sjd", "coupled"}) {
      EXPECT_EQ(refusal_of(name, [&](DecodeMethod& method) { method.window = window; }),
                "E_DECODE_WINDOW")
          << name << ' ' << window;
    }
  }
}

TEST(CheckMethod, RefusesContradictions) {
  EXPECT_EQ(refusal_of("gumbel", [](DecodeMethod& m) { m.rule = "exact"; }), "E_DECODE_CONFLICT");
  EXPECT_EQ(refusal_of("auto", [](DecodeMethod& m) { m.rule = "cool"; }), "E_DECODE_CONFLICT");
  EXPECT_EQ(refusal_of("plain", [](DecodeMethod& m) { m.drafter = "left"; }), "E_DECODE_CONFLICT");
  EXPECT_EQ(refusal_of("plain", [](DecodeMethod& m) { m.redraft_policy = "gumbel"; }), "E_DECODE_CONFLICT");
  EXPECT_EQ(refusal_of("sjd", [](DecodeMethod& m) { m.drafter = "none"; }), "E_DECODE_CONFLICT");
  EXPECT_EQ(refusal_of("coupled", [](DecodeMethod& m) { m.drafter = "none"; }),
            "E_DECODE_CONFLICT");
}

TEST(CheckMethod, RefusesPartsThatAreNot) {
  for (const char* name : {"", "Exact", "uniform ", "best"}) {
    EXPECT_EQ(refusal_of("sjd", [&](DecodeMethod& m) { m.drafter = name; }), "E_DECODE_PART");
    EXPECT_EQ(refusal_of("sjd", [&](DecodeMethod& m) { m.redraft_policy = name; }), "E_DECODE_PART");
    EXPECT_EQ(refusal_of("sjd", [&](DecodeMethod& m) { m.rule = name; }), "E_DECODE_PART");
  }
  try {
    decode_method("plane");
    ADD_FAILURE() << "a method of no such name";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_DECODE");
    EXPECT_NE(error.info().expected.find("plain"), std::string::npos);
  }
}

TEST(CheckMethod, RefusesWhatTheModelDoesNotBring) {
  DecodeAids aids = aids_for(64, 8);
  aids.drafts.reset();
  EXPECT_EQ(refusal(combine("context", "drop", "exact", 8), aids), "E_DECODE_GUESSES");
}

TEST(CheckMethod, RefusesSettingsOutOfRange) {
  const double nan = std::nan("");
  const auto check = [](const char* what, auto change) {
    EXPECT_EQ(refusal_of("coupled", change), "E_DECODE_RANGE") << what;
  };
  for (const std::int64_t size : {0, -1, 65}) {
    check("group size", [&](DecodeMethod& m) { m.set(setting::kGroupSize, static_cast<double>(size)); });
  }
  for (const double value : {-0.1, 1.1, nan}) {
    check("delta", [&](DecodeMethod& m) { m.set(setting::kDelta, value); });
  }
  for (const double value : {0.5, -1.0, 2e6, nan}) {
    check("lambda", [&](DecodeMethod& m) { m.set(setting::kLambda, value); });
  }
  check("neighbours", [](DecodeMethod& m) { m.set(setting::kNeighbours, -1); });
  for (const double value : {0.0, -1.0, 2e6, nan}) {
    check("lenience", [&](DecodeMethod& m) { m.set(setting::kLenience, value); });
  }
  for (const double value : {-0.1, 2e6, nan}) {
    check("budget", [&](DecodeMethod& m) { m.set(setting::kTvBudget, value); });
    check("peak", [&](DecodeMethod& m) { m.set(setting::kCoolPeak, value); });
    check("decay", [&](DecodeMethod& m) { m.set(setting::kCoolDecay, value); });
  }
}

}  // namespace
}  // namespace tessera::method_equality_test
