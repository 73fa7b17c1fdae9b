// The parts by name. A new rule, redraft policy, drafter or tree is a file and a row here.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <type_traits>

#include "engine/core/index.h"
#include "engine/decoding/decode_method.h"
#include "engine/decoding/drafters/named_drafters.h"
#include "engine/decoding/drafters/neighbour_dist_drafter.h"
#include "engine/decoding/rules/exact_rule.h"
#include "engine/decoding/rules/grouped_rule.h"
#include "engine/decoding/rules/gumbel_rule.h"
#include "engine/decoding/rules/lenient_rule.h"
#include "engine/decoding/rules/relaxed_rule.h"
#include "engine/decoding/sequence_parts.h"
#include "engine/decoding/tails/tails.h"
#include "engine/decoding/trees/sibling_rules.h"

namespace tessera {

// Where a tree's candidates come from: the rows that the last pass left, a draft model.
enum class TreeDistributions : std::uint8_t { kEither, kWindow, kModel };

template <typename Real, typename Random>
struct MethodParts {
  using Rule = AcceptanceRule<Real, Random>;
  using RedraftPolicyKind = RedraftPolicy<Real, Random>;
  using DrafterOf = Drafter<Real, Random>;

  template <typename Part>
  struct Row {
    std::string_view name;
    const MethodPart* part;
    // Null where something else makes it, or another part stands for it.
    std::unique_ptr<Part> (*make)(const SettingValues&, const DecodeAids&);
  };
  // By Made::make() where there is one, else from the grammar or from nothing.
  template <typename Part, template <typename, typename> class Made>
  static constexpr Row<Part> row(const MethodPart& part) {
    return {part.name, &part,
            [](const SettingValues& values, const DecodeAids& aids) -> std::unique_ptr<Part> {
              using Type = Made<Real, Random>;
              if constexpr (requires { Type::make(values, aids); }) {
                return Type::make(values, aids);
              } else if constexpr (std::is_constructible_v<Type, const VocabularyGrammar&>) {
                return std::make_unique<Type>(aids.grammar);
              } else {
                return std::make_unique<Type>();
              }
            }};
  }
  template <typename Part>
  static constexpr Row<Part> made_elsewhere(const MethodPart& part) {
    return {part.name, &part, nullptr};
  }

  static constexpr auto kRules = std::to_array<Row<Rule>>({
      row<Rule, ExactRule>(kExactPart),
      row<Rule, GumbelRule>(kGumbelPart),
      row<Rule, GroupedRule>(kGroupedPart),
      row<Rule, RelaxedRule>(kRelaxedPart),
      row<Rule, CoolRule>(kCoolPart),
      row<Rule, LenientRule>(kLenientPart),
  });

  static constexpr auto kRedrafts = std::to_array<Row<RedraftPolicyKind>>({
      row<RedraftPolicyKind, DropRedraft>(kDropPart),
      row<RedraftPolicyKind, ResampleRedraft>(kResamplePart),
      row<RedraftPolicyKind, MaximalRedraft>(kMaximalPart),
      row<RedraftPolicyKind, GumbelRedraft>(kGumbelRedraftPart),
  });

  static constexpr auto kDrafters = std::to_array<Row<DrafterOf>>({
      row<DrafterOf, NoDrafter>(kNoDrafterPart),
      row<DrafterOf, UniformDrafter>(kUniformPart),
      row<DrafterOf, LeftDrafter>(kLeftPart),
      row<DrafterOf, AboveDrafter>(kAbovePart),
      row<DrafterOf, NeighbourDistributionDrafter>(kNeighbourDistributionPart),
      row<DrafterOf, ContextDrafter>(kContextPart),
      row<DrafterOf, LookupDrafter>(kLookupPart),
      row<DrafterOf, RecyclingDrafter>(kRecyclingPart),
      row<DrafterOf, PreviousFrameDrafter>(kPreviousFramePart),
      made_elsewhere<DrafterOf>(kModelPart),
      made_elsewhere<DrafterOf>(kBestPart),
  });

  // Trees: whose rule accepts siblings, and how the tree grows.
  struct TreeRow {
    std::string_view name;
    const MethodPart* part;
    bool by_value;  // growth: likeliest slot first, or level by level
    TreeDistributions dists;  // where candidates come from
    std::unique_ptr<SiblingRule<Real, Random>> (*make)();
  };
  template <template <typename, typename> class Made>
  static std::unique_ptr<SiblingRule<Real, Random>> siblings() {
    return std::make_unique<Made<Real, Random>>();
  }
  template <bool kDistinct>
  static std::unique_ptr<SiblingRule<Real, Random>> recursive() {
    return std::make_unique<RecursiveRule<Real, Random>>(kDistinct);
  }
  static constexpr auto kTrees = std::to_array<TreeRow>({
      {kRrsPart.name, &kRrsPart, false, TreeDistributions::kEither, recursive<false>},
      {kRsdPart.name, &kRsdPart, false, TreeDistributions::kEither, recursive<true>},
      {kKSeqPart.name, &kKSeqPart, false, TreeDistributions::kEither, siblings<KSeqRule>},
      {kPointsPart.name, &kPointsPart, false, TreeDistributions::kEither, siblings<PointsRule>},
      {kDySpecPart.name, &kDySpecPart, true, TreeDistributions::kModel, recursive<true>},
      {kPacPart.name, &kPacPart, false, TreeDistributions::kWindow, recursive<true>},
      {kGumbelTreePart.name, &kGumbelTreePart, true, TreeDistributions::kEither, siblings<EqualityRule>},
  });
  static const TreeRow* find_tree(std::string_view name) {
    for (const TreeRow& row : kTrees) {
      if (row.name == name) return &row;
    }
    return nullptr;
  }

  // nullptr if there is no such part.
  template <typename Part, std::size_t N>
  static const Row<Part>* find(const std::array<Row<Part>, N>& rows, std::string_view name) {
    for (const Row<Part>& row : rows) {
      if (row.name == name) return &row;
    }
    return nullptr;
  }
};

// The parts of one method, owned.
template <typename Real, typename Random>
class OwnedParts {
 public:
  // The method was checked.
  OwnedParts(const DecodeMethod& method, const DecodeAids& aids) {
    using Parts = MethodParts<Real, Random>;
    rule_ = Parts::find(Parts::kRules, method.rule)->make(method.settings, aids);
    redraft_policy_ = Parts::find(Parts::kRedrafts, method.redraft_policy)->make(method.settings, aids);
    const auto* drafter = Parts::find(Parts::kDrafters, method.drafter);
    if (drafter->make != nullptr) drafter_ = drafter->make(method.settings, aids);
    if (const auto* tree = Parts::find_tree(method.tree)) {
      siblings_ = tree->make();
      // Shapes that follow distributions need distributions that nothing of outlives the pass, or a
      // rule without distributions.
      const bool free = tree->dists != TreeDistributions::kModel || drafter->make == nullptr;
      tree_ = method.get<TreeSettings>();
      tree_.by_value = tree->by_value && free;
    }
    row_lead_ = to_size(method.row_lead());
    row_window_ = to_size(method.row_window());
    tv_budget_ = method.tv_budget();
  }
  // The drafter of a method that asks for a draft model; `source` is the same one as trees ask it.
  void set_drafter(std::unique_ptr<Drafter<Real, Random>> drafter,
                   TreeDistributionSource<Real>* source = nullptr) {
    drafter_ = std::move(drafter);
    source_ = source;
  }
  SequenceParts<Real, Random> parts() const {
    SequenceParts<Real, Random> out{{rule_.get(), redraft_policy_.get(), drafter_.get(), tv_budget_}};
    out.row_lead = row_lead_;
    out.row_window = row_window_;
    if (siblings_ == nullptr) return out;
    out.tree = {siblings_.get(), source_, tree_};
    if (source_ != nullptr) out.drafter = nullptr;
    return out;
  }

 private:
  std::unique_ptr<AcceptanceRule<Real, Random>> rule_;
  std::unique_ptr<RedraftPolicy<Real, Random>> redraft_policy_;
  std::unique_ptr<Drafter<Real, Random>> drafter_;
  std::unique_ptr<SiblingRule<Real, Random>> siblings_;
  TreeDistributionSource<Real>* source_ = nullptr;
  TreeSettings tree_;
  std::size_t row_lead_ = 0, row_window_ = 1;
  double tv_budget_ = 0;
};

}  // namespace tessera
