// Speculative sampling (Leviathan et al. 2023, alg. 1; Chen et al. 2023): the output has the
// target's distribution, whatever the drafts.
#pragma once

#include "engine/core/index.h"
#include "engine/decoding/acceptance.h"
#include "engine/decoding/method_part.h"

namespace tessera {

inline constexpr MethodPart kExactPart{.name = "exact"};

template <typename Real, typename Random>
class ExactRule final : public AcceptanceRule<Real, Random> {
 public:
  std::string_view name() const override { return kExactPart.name; }
  Guarantee guarantee() const override { return Guarantee::kLossless; }
  bool describe(VerifyMethod& out) const override {
    out.rule = {.name = kExactPart.name};
    return true;
  }
  Decision<Real> accept(const DraftTest<Real>& test, Random& random,
                        std::span<Real> scratch) const override {
    const Real p = nth(test.target.probs, test.token);
    return verify_by_ratio(test, p, random, scratch);
  }
};

}  // namespace tessera
