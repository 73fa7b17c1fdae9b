// A draft is right when it equals what the target draws at that position under the position's own
// noise. The image is plain decoding's, token for token, whoever drafted, and no distribution of a draft
// is needed. Under noise that is shared by all passes this is a fixed-point iteration.
#pragma once

#include "engine/decoding/acceptance.h"
#include "engine/decoding/method_part.h"

namespace tessera {

inline constexpr MethodPart kGumbelPart{.name = "gumbel"};

template <typename Real, typename Random>
class GumbelRule final : public AcceptanceRule<Real, Random> {
 public:
  std::string_view name() const override { return kGumbelPart.name; }
  Guarantee guarantee() const override { return Guarantee::kSameTokens; }
  bool needs_dists() const override { return false; }
  bool describe(VerifyMethod& out) const override {
    out.rule = {.name = kGumbelPart.name};
    return true;
  }
  Decision<Real> accept(const DraftTest<Real>& test, Random& random,
                        std::span<Real>) const override {
    Decision<Real> out;
    out.token = random.race(test.position, test.target.logits);
    out.accepted = out.token == test.token;
    out.strict = out.chance = out.accepted ? Real{1} : Real{0};
    return out;
  }
};

}  // namespace tessera
