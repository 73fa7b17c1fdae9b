// A device's verify of rows against the host's own parts, field by field and bit by bit, over rows
// with everything in them that could go wrong. A fault injected in the reference must be noticed.
#include "engine/backend/row_verifier.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/devices.h"
#include "tests/support/verified_rows.h"

namespace tessera::testing::row_verifier_test {
namespace {

class RowVerifiers : public OnDevice {
 protected:
  // Verifies passes of one method on both sides; returns the first difference. Counts rows.
  std::string compare(const VerifiedCase& drawn, int passes, std::int64_t items, std::int64_t window,
                      VerifyFault fault = VerifyFault::kNone) {
    HostRowVerifier host(drawn);
    EXPECT_TRUE(host.described());
    const auto verifier = backend->row_verifiers()->make(
        host.method(), {.codes = drawn.codes, .rows = items * window, .items = items});
    Dice dice(drawn.seed);
    for (int number = 0; number < passes; ++number) {
      const DrawnPass pass =
          draw_pass(dice, drawn.codes, items, window, host.dist_rows(), drawn.budget);
      const auto rows = static_cast<std::int64_t>(pass.logits.size()) / drawn.codes;
      const Tensor logits = upload(pass.logits, Shape{rows, drawn.codes});
      verifier->verify({logits.view(), pass.items, pass.rows});
      const HostRowVerifier::Records want = host.verify(pass, fault);
      const std::string found =
          difference(want, verifier->rows(), verifier->items(), pass, drawn.redraft_policy != "drop");
      verified_ += static_cast<std::int64_t>(pass.rows.size());
      if (!found.empty()) {
        return drawn.rule + " " + drawn.redraft_policy + ", " + std::to_string(drawn.codes) +
               " codes, pass " + std::to_string(number) + ", " + found;
      }
    }
    return "";
  }

  std::int64_t verified_ = 0;
};

const std::vector<std::string> kRules(rule_names().begin(), rule_names().end());
const std::vector<std::string> kRedrafts = {"drop", "resample", "maximal", "gumbel"};

// Every rule with every redraft policy, settings at random.
VerifiedCase draw_case(std::uint64_t number, std::int64_t codes) {
  Dice dice(number * 77 + 5);
  VerifiedCase out{.rule = kRules[number % kRules.size()],
                 .redraft_policy = kRedrafts[number / kRules.size() % kRedrafts.size()],
                 .codes = codes,
                 .seed = number};
  out.grouped = {.size = dice.of<std::int64_t>({1, 2, 5, 14, 1000}),
                 .max_gap = dice.of({0.15, 0.01, 2.0}),
                 .max_distance = dice.of({0.5, 0.1, 5.0}),
                 .fixed_groups = codes <= 1024 && dice.one_in(3)};
  out.relaxed = {.neighbours = dice.of<std::int64_t>({0, 1, 3, 100}),
                 .delta = dice.of({0.1, 0.01, 1.0}),
                 .lambda = dice.of({0.0, 1.5, 3.0})};
  out.cool = {.peak = dice.of({1.1, 0.6, 3.0}), .decay = dice.of({0.7, 0.0, 60.0})};
  return out;
}

// 100,000 rows in all, or a million.
class SmallVocabularies : public RowVerifiers {
 protected:
  void decide_alike(std::initializer_list<std::int64_t> codes) {
    const std::int64_t wanted = std::getenv("TESSERA_LONG") != nullptr ? 250000 : 25000;
    Dice dice(3);
    for (std::uint64_t number = 0; verified_ < wanted; ++number) {
      ASSERT_EQ(compare(draw_case(number, dice.of(codes)), 8, 40, 6), "");
    }
  }
};

TEST_P(SmallVocabularies, OfOneToThree) { decide_alike({1, 2, 3}); }
TEST_P(SmallVocabularies, OfFourToSeven) { decide_alike({4, 5, 6, 7}); }
TEST_P(SmallVocabularies, OfEightToSixteen) { decide_alike({8, 11, 16}); }
TEST_P(SmallVocabularies, OfAWarp) { decide_alike({20, 31, 32}); }

INSTANTIATE_TEST_SUITE_P(Devices, SmallVocabularies, ::testing::ValuesIn(cuda_devices()),
                         device_name);

TEST_P(RowVerifiers, DecideAsTheHostDoesOverRowsOfSeveralWarps) {
  std::uint64_t number = 1008;  // the methods in turn, from the first
  for (const std::int64_t codes : {33, 64, 65, 100, 257, 511, 512, 513, 1000}) {
    for (int i = 0; i < 16; ++i) {
      ASSERT_EQ(compare(draw_case(number++, codes), 2, 2, 3), "");
    }
  }
}

TEST_P(RowVerifiers, DecideAsTheHostDoesOverWholeVocabularies) {
  std::uint64_t number = 2016;
  for (const std::int64_t codes : {8194, 16384, 65536}) {
    for (int i = 0; i < 24; ++i) {
      const VerifiedCase drawn = draw_case(number++, codes);
      if (drawn.rule == "relaxed") continue;
      ASSERT_EQ(compare(drawn, 2, 1, 2), "");
    }
  }
}

// Those of language models, and the most that a verifier takes.
TEST_P(RowVerifiers, DecideAsTheHostDoesOverVocabulariesOfText) {
  std::uint64_t number = 3024;
  for (const std::int64_t codes :
       {std::int64_t{128256}, std::int64_t{151936}, std::int64_t{152064}, kMaxVerifiedCodes}) {
    for (int i = 0; i < 8; ++i) {
      VerifiedCase drawn = draw_case(number, codes);
      number += 7;  // another rule and, in time, another redraft policy
      if (drawn.rule == "relaxed") drawn.rule = "exact";
      ASSERT_EQ(compare(drawn, 2, 1, 2), "");
    }
  }
}

TEST_P(RowVerifiers, SpendBudgetsAsTheHostDoes) {
  std::uint64_t number = 5040;
  for (const std::int64_t codes : {2, 5, 8, 33, 300}) {
    for (int i = 0; i < 24; ++i) {
      VerifiedCase drawn = draw_case(number++, codes);
      drawn.budget = true;
      ASSERT_EQ(compare(drawn, 3, 4, 6), "");
    }
  }
}

TEST_P(RowVerifiers, WindowsLongerThanABlock) {
  ASSERT_EQ(compare(draw_case(6, 8), 3, 2, 100), "");
  ASSERT_EQ(compare(draw_case(12, 8), 3, 2, 100), "");
}

// Were the reference wrong in one number of chance, in the order of ties, in whose distribution a
// draft has, or in the last bit of one logit, some row would say so.
TEST_P(RowVerifiers, EveryInjectedFaultIsNoticed) {
  for (const VerifyFault fault :
       {VerifyFault::kAcceptance, VerifyFault::kTies, VerifyFault::kDistribution, VerifyFault::kOneBit}) {
    int noticed = 0;
    for (std::uint64_t number = 0; number < 24; ++number) {
      if (!compare(draw_case(number, 8), 6, 8, 6, fault).empty()) ++noticed;
    }
    EXPECT_GE(noticed, 6) << static_cast<int>(fault);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RowVerifiers, ::testing::ValuesIn(cuda_devices()), device_name);

}  // namespace
}  // namespace tessera::testing::row_verifier_test
