// Relaxed acceptance of neighbouring codes: LANTERN (arXiv 2410.03355) and LANTERN++ (2502.06352).
// The draft x may borrow the target's mass of its nearest codes: a(x) = min(1, (p(x) + p(A)) /
// q(x)), A the longest prefix of x's neighbours, nearest first, with p(A) <= delta (LANTERN) or
// p(A) <= (lambda - 1) p(x) (LANTERN++). Both may be set; the tighter bound counts. The refused
// draft is replaced from norm((p - q)+), so that the meters' total variation holds (LANTERN's own
// residual, of a distribution with A's mass moved onto x, has no such bound).
//
// At temperature 0 the mass moves before the argmax: x is accepted where it is the likeliest with p(A), by
// the row without temperature, else replaced by the likeliest. That no neighbour keeps its mass changes
// nothing: one in A has less than x has with it.
#pragma once

#include <memory>

#include "engine/core/index.h"
#include "engine/decoding/acceptance.h"
#include "engine/decoding/code_neighbours.h"
#include "engine/decoding/method_part.h"

namespace tessera {

struct RelaxedSettings {
  std::int64_t neighbours = 100;  // of a code; 0 = exact
  double delta = 0.1;             // most mass borrowed; 0 = exact
  double lambda = 0;              // most of (p(x) + borrowed) / p(x); 0 = no such bound
  bool operator==(const RelaxedSettings&) const = default;
  static std::span<const BoundSetting<RelaxedSettings>> rows();
};

namespace setting {

inline constexpr Setting kNeighbours{.name = "neighbours",
                                     .kind = SettingKind::kInteger,
                                     .help = "similar codes that lend their mass",
                                     .low = 0,
                                     .high = 1 << 20,
                                     .unit = "codes",
                                     .fallback = RelaxedSettings{}.neighbours,
                                     .doors = kWhereDecoded,
                                     .record = "relaxed.neighbours",
                                     .step = 1};
inline constexpr Setting kDelta{.name = "delta",
                                .help = "most mass that is lent",
                                .low = 0,
                                .high = 1,
                                .fallback = RelaxedSettings{}.delta,
                                .doors = kWhereDecoded,
                                .record = "relaxed.delta",
                                .step = 0.01,
                                .lossless = 0};
inline constexpr Setting kLambda{.name = "lambda",
                                 .help = "most factor of the draft's own mass; 0 = no bound",
                                 .low = 1,
                                 .high = 1e6,
                                 .zero_is_off = true,
                                 .fallback = RelaxedSettings{}.lambda,
                                 .doors = kWhereDecoded,
                                 .record = "relaxed.lambda",
                                 .step = 0.5};

}  // namespace setting

inline std::span<const BoundSetting<RelaxedSettings>> RelaxedSettings::rows() {
  static constexpr BoundSetting<RelaxedSettings> kRows[] = {
      {&setting::kNeighbours, &RelaxedSettings::neighbours},
      {&setting::kDelta, &RelaxedSettings::delta},
      {&setting::kLambda, &RelaxedSettings::lambda}};
  return kRows;
}

inline PartNeeds relaxed_needs(const SettingValues& values, const VocabularyGrammar& = {}) {
  return {.neighbours = true, .nearest = values.integer(setting::kNeighbours)};
}

inline constexpr MethodPart kRelaxedPart{
    .name = "relaxed",
    .settings = rows_of<RelaxedSettings>,
    .needs = relaxed_needs,
    .bytes = [](const SettingValues& values, const DecodeAids& aids, std::int64_t) {
      return neighbour_bytes(relaxed_needs(values), aids);
    }};

template <typename Real, typename Random>
class RelaxedRule final : public AcceptanceRule<Real, Random> {
 public:
  RelaxedRule(const RelaxedSettings& settings, std::shared_ptr<const CodeNeighbours> neighbours)
      : settings_(settings), neighbours_(std::move(neighbours)) {}
  static std::unique_ptr<AcceptanceRule<Real, Random>> make(const SettingValues& values,
                                                            const DecodeAids& aids) {
    return std::make_unique<RelaxedRule>(settings_from<RelaxedSettings>(values), aids.neighbours);
  }
  std::string_view name() const override { return kRelaxedPart.name; }
  Guarantee guarantee() const override {
    return settings_.neighbours > 0 && settings_.delta > 0 ? Guarantee::kNone : Guarantee::kLossless;
  }

  bool reads_warm() const override { return true; }
  bool describe(VerifyMethod& out) const override {
    const std::int64_t listed = neighbours_->most();
    const std::int64_t read = std::min(settings_.neighbours, listed);
    out.rule = {.name = kRelaxedPart.name,
                .numbers = {to_double(read), to_double(listed), settings_.delta, settings_.lambda},
                .ids = {neighbours_->table()}};
    return true;
  }
  Decision<Real> accept(const DraftTest<Real>& test, Random& random,
                        std::span<Real> scratch) const override {
    if (test.target.warm.empty()) {
      return verify_by_ratio(test, with_borrowed(test.target.probs, test.token), random, scratch);
    }
    // What is not the likeliest is accepted or not: no draw, unless a budget asks for one.
    const Real p = nth(test.target.probs, test.token);
    const Real mass = p > 0 || wins(test) ? Real{1} : Real{0};
    return verify_by_mass(test, p, Real{1}, mass, random, scratch);
  }

 private:
  // p(x) and what may be borrowed of its neighbours.
  Real with_borrowed(std::span<const Real> probs, std::int32_t token) const {
    const Real p = nth(probs, token);
    const Real bound = borrowed_bound(settings_.delta, settings_.lambda, p);
    Real borrowed = 0;
    for (const std::int32_t y : neighbours_->nearest(token, settings_.neighbours)) {
      const Real more = borrowed + nth(probs, y);
      if (more > bound) break;
      borrowed = more;
    }
    return p + borrowed;
  }
  // Against the likeliest of the row, which is all that temperature 0 left of it.
  bool wins(const DraftTest<Real>& test) const {
    const std::span<const Real> warm = test.target.warm;
    const std::int32_t best = test.target.logits.support.front();
    return moved_mass_wins(nth(warm, test.token), with_borrowed(warm, test.token), test.token,
                           nth(warm, best), best);
  }

  RelaxedSettings settings_;
  std::shared_ptr<const CodeNeighbours> neighbours_;
};

}  // namespace tessera
