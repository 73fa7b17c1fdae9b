// Every outcome of the shipped decoding code, weighed: on random table models of two and three ids
// each method that promises the law must make every picture with the product of its conditional
// probabilities, to rounding. Methods that promise nothing must be seen to miss it.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/support/table_decoding.h"

namespace tessera {
namespace {

template <typename Real>
void expect_lossless(std::string_view rule, double tolerance) {
  std::size_t paths = 0, laws = 0;
  double worst = 0;
  for (unsigned number = 0; number < 20; ++number) {
    const TableModel<Real> model = table<Real>(number);
    const DecodeAids aids = aids_for(model.vocabulary);
    const auto truth = product_law(model);
    for (const std::string_view drafter : drafter_names()) {
      for (const std::string_view tail : tail_names()) {
        if (drafter == "none" && tail != "drop") continue;
        for (std::int64_t window = 2; window <= 4; ++window) {
          if (window > 3 && model.vocabulary == 3 && number > 7) continue;  // the same, longer
          DecodeMethod method = combine(drafter, tail, rule, window);
          method.grouped.size = 1;
          method.relaxed.delta = 0;
          method.cool = {1.0, 0.7};
          ASSERT_NE(promise_of(method), Promise::kNone);
          const double gap = total_variation(output_law(model, method, aids, 1, &paths), truth);
          worst = std::max(worst, gap);
          ASSERT_LT(gap, tolerance) << "table " << number << ' ' << drafter << ' ' << tail << ' '
                                    << rule << " window " << window;
          ++laws;
        }
      }
    }
  }
  std::cout << rule << ": " << laws << " laws, " << paths << " paths, worst total variation "
            << worst << '\n';
}

class EveryRule : public testing::TestWithParam<std::string_view> {};

TEST_P(EveryRule, KeepsTheLawInDouble) { expect_lossless<double>(GetParam(), 1e-12); }
TEST_P(EveryRule, KeepsTheLawInFloat) { expect_lossless<float>(GetParam(), 1e-6); }

INSTANTIATE_TEST_SUITE_P(All, EveryRule,
                         testing::ValuesIn(rule_names().begin(), rule_names().end()));

// Two pictures at once, each at its own pace: their joint law is the product.
TEST(Enumeration, RaggedBatchesKeepTheLaw) {
  for (unsigned number = 0; number < 4; ++number) {
    TableModel<double> model = table<double>(number);
    model.total = 2;
    const DecodeAids aids = aids_for(model.vocabulary);
    const auto truth = law_of_two(product_law(model));
    for (const NamedMethod& named : named_methods()) {
      DecodeMethod method = settle_method(decode_method(named.name), aids, 3);
      method.window = 3;
      if (promise_of(method) == Promise::kNone) continue;
      EXPECT_LT(total_variation(output_law(model, method, aids, 2), truth), 1e-12) << named.name;
    }
  }
}

// Rules that promise nothing do change the law, and by no more than their meters say.
TEST(Enumeration, RelaxedRulesAreSeen) {
  for (const char* name : {"gsd", "lantern", "cool"}) {
    double most = 0;
    for (unsigned number = 0; number < 8; ++number) {
      TableModel<double> model = table<double>(number);
      const DecodeAids aids = aids_for(model.vocabulary);
      DecodeMethod method = decode_method(name);
      method.window = 3;
      method.grouped = {3, 1.0, 4.0, false};
      method.relaxed = {2, 0.5, 0};
      method.cool = {2.0, 0.1};
      ASSERT_EQ(promise_of(method), Promise::kNone);
      most = std::max(most, total_variation(output_law(model, method, aids), product_law(model)));
    }
    EXPECT_GT(most, 1e-3) << name;
  }
}

}  // namespace
}  // namespace tessera
