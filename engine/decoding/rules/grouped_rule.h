// Grouped speculative decoding (GSD, arXiv 2508.07747, section 4): codes that stand close to the
// draft in the target's own order, and close in the codebook, count as one. Accept with min(1, P(C)
// / Q(C)), C the group of the draft; never with less than the exact rule's chance, so that the
// meters' total variation holds. Another distribution than the target's. The paper's static groups,
// a partition of the codes by k-means, stand next to for comparison.
#pragma once

#include <cmath>
#include <memory>

#include "engine/core/index.h"
#include "engine/decoding/acceptance.h"
#include "engine/decoding/code_groups.h"
#include "engine/decoding/code_neighbours.h"
#include "engine/decoding/method_part.h"

namespace tessera {

struct GroupedSettings {
  std::int64_t size = 14;     // ids of a group, the draft included; 1 = exact
  double max_gap = 0.15;      // |p(y) - p(x)|
  double max_distance = 0.5;  // squared, between unit code vectors (0 … 4)
  bool fixed_groups = false;  // a partition by likeness instead of neighbours by rank
  bool operator==(const GroupedSettings&) const = default;
  static std::span<const BoundSetting<GroupedSettings>> rows();
};

namespace setting {

inline constexpr Setting kGroupSize{.name = "group-size",
                                    .kind = SettingKind::kInteger,
                                    .help = "codes that count as one",
                                    .low = 1,
                                    .high = 1 << 20,
                                    .limit = ModelLimit::kCodes,
                                    .unit = "codes",
                                    .fallback = GroupedSettings{}.size,
                                    .doors = kWhereDecoded,
                                    .record = "grouped.size",
                                    .word = "group size",
                                    .step = 1,
                                    .lossless = 1};
inline constexpr Setting kGroupGap{.name = "group-gap",
                                   .help = "difference in probability within a group, below",
                                   .low = 0,
                                   .high = 1,
                                   .fallback = GroupedSettings{}.max_gap,
                                   .doors = Door::kRecord,
                                   .record = "grouped.max_gap"};
inline constexpr Setting kGroupDistance{
    .name = "group-distance",
    .help = "squared distance of unit code vectors within a group, below",
    .low = 0,
    .high = 4,
    .fallback = GroupedSettings{}.max_distance,
    .doors = Door::kRecord,
    .record = "grouped.max_distance"};
inline constexpr Setting kStaticGroups{.name = "static-groups",
                                       .kind = SettingKind::kSwitch,
                                       .help = "a fixed partition of the codes by likeness",
                                       .fallback = GroupedSettings{}.fixed_groups,
                                       .doors = kWhereDecoded,
                                       .record = "grouped.fixed_groups",
                                       .late = true,
                                       .refused_unused = true,
                                       .word = "fixed groups"};

}  // namespace setting

inline std::span<const BoundSetting<GroupedSettings>> GroupedSettings::rows() {
  static constexpr BoundSetting<GroupedSettings> kRows[] = {
      {&setting::kGroupSize, &GroupedSettings::size},
      {&setting::kGroupGap, &GroupedSettings::max_gap},
      {&setting::kGroupDistance, &GroupedSettings::max_distance},
      {&setting::kStaticGroups, &GroupedSettings::fixed_groups}};
  return kRows;
}

inline constexpr MethodPart kGroupedPart{
    .name = "grouped",
    .settings = rows_of<GroupedSettings>,
    .needs =
        [](const SettingValues& values, const VocabularyGrammar&) {
          const auto own = settings_from<GroupedSettings>(values);
          return PartNeeds{.neighbours = true, .group_size = own.fixed_groups ? own.size : 0};
        },
    .bytes = [](const SettingValues&, const DecodeAids& aids,
                std::int64_t) { return neighbour_bytes({}, aids); }};

template <typename Real, typename Random>
class GroupedRule final : public AcceptanceRule<Real, Random> {
 public:
  GroupedRule(const GroupedSettings& settings, std::shared_ptr<const CodeNeighbours> neighbours,
              std::shared_ptr<const CodeGroups> groups)
      : settings_(settings), neighbours_(std::move(neighbours)), groups_(std::move(groups)) {}
  static std::unique_ptr<AcceptanceRule<Real, Random>> make(const SettingValues& values,
                                                            const DecodeAids& aids) {
    return std::make_unique<GroupedRule>(settings_from<GroupedSettings>(values), aids.neighbours,
                                         aids.groups);
  }
  std::string_view name() const override { return kGroupedPart.name; }
  Guarantee guarantee() const override {
    const bool alone = settings_.size == 1 && !settings_.fixed_groups;
    return alone ? Guarantee::kLossless : Guarantee::kNone;
  }

  bool describe(VerifyMethod& out) const override {
    if (settings_.fixed_groups) {
      out.rule = {.name = "partition",
                  .ids = {groups_->of_codes(), groups_->all_members(), groups_->first_members()}};
      return true;
    }
    out.rule = {.name = kGroupedPart.name,
                .numbers = {to_double(settings_.size), settings_.max_gap, settings_.max_distance}};
    if (settings_.size > 1) {
      out.rule.reals = neighbours_->vectors();
      out.rule.numbers[3] = to_double(neighbours_->width());
    }
    return true;
  }
  Decision<Real> accept(const DraftTest<Real>& test, Random& random,
                        std::span<Real> scratch) const override {
    const std::int64_t size = settings_.size;
    const auto x = to_size(test.token);
    Real target = test.target.probs[x], draft = test.draft.prob(test.token);
    const Real own = draft;
    if (settings_.fixed_groups) {
      for (const std::int32_t y : groups_->members(test.token)) {
        if (y == test.token) continue;
        target += nth(test.target.probs, y);
        draft += test.draft.prob(y);
      }
    } else {
      // Half of the group on each side of the draft: by rank, nearest first.
      take_side(test, (size - 1) / 2, /*above=*/true, scratch, target, draft);
      take_side(test, size - 1 - (size - 1) / 2, /*above=*/false, scratch, target, draft);
    }
    const Real mass = group_mass(target, draft, test.target.probs[x], own);
    return verify_by_ratio(test, mass, random, scratch);
  }

 private:
  void add(const DraftTest<Real>& test, std::int32_t y, Real& target, Real& draft) const {
    const Real p = nth(test.target.probs, y);
    const Real gap = p - nth(test.target.probs, test.token);
    if (std::abs(to_double(gap)) >= settings_.max_gap) return;
    if (neighbours_->distance(test.token, y) >= settings_.max_distance) return;
    target += p;
    draft += test.draft.prob(y);
  }

  // The `count` ids whose probability comes next above (or below) the draft's; equal ones go by id.
  void take_side(const DraftTest<Real>& test, std::int64_t count, bool above,
                 std::span<Real> scratch, Real& target, Real& draft) const {
    if (count <= 0) return;
    const Real p = nth(test.target.probs, test.token);
    // Insertion into a list of `count` nearest, kept in scratch as (gap, id) pairs.
    const auto room = std::min(to_size(count), scratch.size() / 2);
    std::size_t held = 0;
    for (const std::int32_t y : test.target.logits.support) {
      const Real value = nth(test.target.probs, y);
      const bool mine = above ? value > p || (value == p && y < test.token)
                              : value < p || (value == p && y > test.token);
      if (y == test.token || !mine) continue;
      const Real gap = std::abs(value - p);
      if (held == room && gap >= scratch[2 * (held - 1)]) continue;
      std::size_t at = held < room ? held++ : held - 1;
      for (; at > 0 && scratch[2 * (at - 1)] > gap; --at) {
        scratch[2 * at] = scratch[2 * at - 2];
        scratch[2 * at + 1] = scratch[2 * at - 1];
      }
      scratch[2 * at] = gap;
      scratch[2 * at + 1] = static_cast<Real>(y);
    }
    for (std::size_t i = 0; i < held; ++i) {
      add(test, truncate<std::int32_t>(scratch[2 * i + 1]), target, draft);
    }
  }

  GroupedSettings settings_;
  std::shared_ptr<const CodeNeighbours> neighbours_;  // null for a fixed partition
  std::shared_ptr<const CodeGroups> groups_;          // null otherwise
};

}  // namespace tessera
