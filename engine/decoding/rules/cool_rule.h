// Acceptance with the target's probability times a factor of the draft's depth, from cooling
// acceptance (COOL-SD, arXiv 2601.09212): a_i(x) = min(1, omega_i p/q), omega_i = peak exp(-decay
// i), residual norm((p - q a_i)+). Generous early in a window, strict or stingy late. decay = 0 is
// lenience 1/peak of Leviathan et al. 2023, A.5. Where omega_i <= 1 the distribution is kept.
#pragma once

#include <memory>

#include "engine/core/index.h"
#include "engine/decoding/acceptance.h"
#include "engine/decoding/method_part.h"

namespace tessera {

struct CoolSettings {
  double peak = 1.1;   // omega at depth 0, the paper's delta
  double decay = 0.7;  // the paper's nu, per draft
  bool operator==(const CoolSettings&) const = default;
  static std::span<const BoundSetting<CoolSettings>> rows();
};

namespace setting {

inline constexpr Setting kCoolPeak{.name = "cool-peak",
                                   .help = "factor of the first draft",
                                   .low = 0,
                                   .high = 1e6,
                                   .fallback = CoolSettings{}.peak,
                                   .doors = kWhereDecoded,
                                   .record = "cool.peak",
                                   .word = "peak",
                                   .step = 0.1,
                                   .lossless = 1};
inline constexpr Setting kCoolDecay{.name = "cool-decay",
                                    .help = "decay of it by depth",
                                    .low = 0,
                                    .high = 1e3,
                                    .fallback = CoolSettings{}.decay,
                                    .doors = kWhereDecoded,
                                    .record = "cool.decay",
                                    .word = "decay",
                                    .step = 0.1};

}  // namespace setting

inline std::span<const BoundSetting<CoolSettings>> CoolSettings::rows() {
  static constexpr BoundSetting<CoolSettings> kRows[] = {
      {&setting::kCoolPeak, &CoolSettings::peak}, {&setting::kCoolDecay, &CoolSettings::decay}};
  return kRows;
}

inline constexpr MethodPart kCoolPart{.name = "cool", .settings = rows_of<CoolSettings>};

template <typename Real, typename Random>
class CoolRule final : public AcceptanceRule<Real, Random> {
 public:
  explicit CoolRule(const CoolSettings& settings) : settings_(settings) {}
  static std::unique_ptr<AcceptanceRule<Real, Random>> make(const SettingValues& values,
                                                            const DecodeAids&) {
    return std::make_unique<CoolRule>(settings_from<CoolSettings>(values));
  }
  std::string_view name() const override { return kCoolPart.name; }
  Guarantee guarantee() const override {
    return settings_.peak > 1 ? Guarantee::kNone : Guarantee::kLossless;
  }
  bool describe(VerifyMethod& out) const override {
    out.rule = {.name = kCoolPart.name, .numbers = {settings_.peak, settings_.decay}};
    return true;
  }
  Decision<Real> accept(const DraftTest<Real>& test, Random& random,
                        std::span<Real> scratch) const override {
    const auto omega = cool_factor<Real>(settings_.peak, settings_.decay, test.depth);
    const Real p = nth(test.target.probs, test.token);
    if (omega >= 1) return verify_by_ratio(test, omega * p, random, scratch);
    const auto taken = [&](std::int32_t id) {
      const Real q = test.draft.prob(id);
      return std::min(q, omega * nth(test.target.probs, id));
    };
    const Real q = test.draft.prob(test.token);
    Decision<Real> out;
    out.strict = strict_chance(test);
    out.chance = chance_of(omega * p, q);
    out.accepted = random.accepts({Purpose::kAccept, test.position}, omega * p, q);
    out.token = out.accepted ? test.token
                             : draw_residual(test.target, {Purpose::kResidual, test.position},
                                             taken, random, scratch);
    return out;
  }

 private:
  CoolSettings settings_;
};

}  // namespace tessera
