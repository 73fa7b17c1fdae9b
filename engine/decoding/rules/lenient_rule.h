// Lenience (Leviathan et al. 2023, A.5): drafts count a fraction of their probability. It is
// cooling acceptance without decay.
#pragma once

#include "engine/decoding/rules/cool_rule.h"

namespace tessera {

namespace setting {

inline constexpr Setting kLenience{.name = "lenience",
                                   .help = "drafts count this fraction of their probability",
                                   .low = 1e-6,
                                   .high = 1e6,
                                   .fallback = 0.5,
                                   .doors = kWhereDecoded,
                                   .record = "lenience",
                                   .step = 0.05,
                                   .lossless = 1};

}  // namespace setting

inline constexpr MethodPart kLenientPart{
    .name = "lenient", .settings = []() -> std::span<const Setting* const> {
      static constexpr const Setting* kRows[] = {&setting::kLenience};
      return kRows;
    }};

template <typename Real, typename Random>
struct LenientRule {
  static std::unique_ptr<AcceptanceRule<Real, Random>> make(const SettingValues& values,
                                                            const DecodeAids&) {
    return std::make_unique<CoolRule<Real, Random>>(
        CoolSettings{1 / values.number(setting::kLenience), 0});
  }
};

}  // namespace tessera
