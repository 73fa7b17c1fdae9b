// Speculative sampling (Leviathan et al. 2023, alg. 1; Chen et al. 2023): the output has the
// target's law, whatever the drafts.
#pragma once

#include "engine/decoding/acceptance.h"
#include "engine/decoding/method_part.h"

namespace tessera {

inline constexpr MethodPart kExactPart{.name = "exact"};

template <typename Real, typename Random>
class ExactRule final : public AcceptanceRule<Real, Random> {
 public:
  std::string_view name() const override { return kExactPart.name; }
  Promise promise() const override { return Promise::kSameLaw; }
  bool describe(JudgeMethod& out) const override {
    out.rule = {.name = kExactPart.name};
    return true;
  }
  Judgement<Real> judge(const DraftTest<Real>& test, Random& random,
                        std::span<Real> scratch) const override {
    const Real p = test.target.probs[static_cast<std::size_t>(test.token)];
    return judge_by_ratio(test, p, random, scratch);
  }
};

}  // namespace tessera
