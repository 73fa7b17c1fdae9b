// The parts by name. A new rule, tail, drafter or tree is a file and a row here.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "engine/decoding/decode_method.h"
#include "engine/decoding/drafters/context_drafter.h"
#include "engine/decoding/drafters/neighbour_law_drafter.h"
#include "engine/decoding/drafters/previous_frame_drafter.h"
#include "engine/decoding/drafters/simple_drafters.h"
#include "engine/decoding/drafters/table_drafters.h"
#include "engine/decoding/rules/exact_rule.h"
#include "engine/decoding/rules/gumbel_rule.h"
#include "engine/decoding/sequence_parts.h"
#include "engine/decoding/tails/tails.h"
#include "engine/decoding/trees/sibling_rules.h"

namespace tessera {

// Where a tree's candidates come from: the rows that the last pass left, a draft model.
enum class TreeLaws : std::uint8_t { kEither, kWindow, kModel };

template <typename Real, typename Random>
struct MethodParts {
  using Rule = AcceptanceRule<Real, Random>;
  using Tail = TailPolicy<Real, Random>;
  using Guesser = Drafter<Real, Random>;

  template <typename Part>
  struct Row {
    std::string_view name;
    std::unique_ptr<Part> (*make)(const DecodeMethod&, const DecodeAids&);
  };

  static constexpr std::array<Row<Rule>, 6> kRules{{
      {"exact",
       [](const DecodeMethod&, const DecodeAids&) -> std::unique_ptr<Rule> {
         return std::make_unique<ExactRule<Real, Random>>();
       }},
      {"gumbel",
       [](const DecodeMethod&, const DecodeAids&) -> std::unique_ptr<Rule> {
         return std::make_unique<GumbelRule<Real, Random>>();
       }},
      {"grouped",
       [](const DecodeMethod& method, const DecodeAids& aids) -> std::unique_ptr<Rule> {
         return std::make_unique<GroupedRule<Real, Random>>(method.grouped, aids.neighbours,
                                                            aids.groups);
       }},
      {"relaxed",
       [](const DecodeMethod& method, const DecodeAids& aids) -> std::unique_ptr<Rule> {
         return std::make_unique<RelaxedRule<Real, Random>>(method.relaxed, aids.neighbours);
       }},
      {"cool",
       [](const DecodeMethod& method, const DecodeAids&) -> std::unique_ptr<Rule> {
         return std::make_unique<CoolRule<Real, Random>>(method.cool);
       }},
      {"lenient",
       [](const DecodeMethod& method, const DecodeAids&) -> std::unique_ptr<Rule> {
         return std::make_unique<CoolRule<Real, Random>>(CoolSettings{1 / method.lenience, 0});
       }},
  }};

  static constexpr std::array<Row<Tail>, 4> kTails{{
      {"drop",
       [](const DecodeMethod&, const DecodeAids&) -> std::unique_ptr<Tail> {
         return std::make_unique<DropTail<Real, Random>>();
       }},
      {"resample",
       [](const DecodeMethod&, const DecodeAids&) -> std::unique_ptr<Tail> {
         return std::make_unique<ResampleTail<Real, Random>>();
       }},
      {"maximal",
       [](const DecodeMethod&, const DecodeAids&) -> std::unique_ptr<Tail> {
         return std::make_unique<MaximalTail<Real, Random>>();
       }},
      {"gumbel",
       [](const DecodeMethod&, const DecodeAids&) -> std::unique_ptr<Tail> {
         return std::make_unique<GumbelTail<Real, Random>>();
       }},
  }};

  static constexpr std::array<Row<Guesser>, 9> kDrafters{{
      {"none",
       [](const DecodeMethod&, const DecodeAids&) -> std::unique_ptr<Guesser> { return nullptr; }},
      {"uniform",
       [](const DecodeMethod&, const DecodeAids& aids) -> std::unique_ptr<Guesser> {
         return std::make_unique<UniformDrafter<Real, Random>>(aids.grammar);
       }},
      {"left",
       [](const DecodeMethod&, const DecodeAids& aids) -> std::unique_ptr<Guesser> {
         return std::make_unique<LeftDrafter<Real, Random>>(aids.grammar);
       }},
      {"above",
       [](const DecodeMethod&, const DecodeAids& aids) -> std::unique_ptr<Guesser> {
         return std::make_unique<AboveDrafter<Real, Random>>(aids.grammar);
       }},
      {"neighbour-law",
       [](const DecodeMethod&, const DecodeAids& aids) -> std::unique_ptr<Guesser> {
         return std::make_unique<NeighbourLawDrafter<Real, Random>>(aids.grammar);
       }},
      {"context",
       [](const DecodeMethod&, const DecodeAids& aids) -> std::unique_ptr<Guesser> {
         return std::make_unique<ContextDrafter<Real, Random>>(aids.grammar, aids.guesses);
       }},
      {"lookup",
       [](const DecodeMethod&, const DecodeAids& aids) -> std::unique_ptr<Guesser> {
         return std::make_unique<LookupDrafter<Real, Random>>(aids.grammar);
       }},
      {"recycling",
       [](const DecodeMethod&, const DecodeAids& aids) -> std::unique_ptr<Guesser> {
         return std::make_unique<RecyclingDrafter<Real, Random>>(aids.grammar);
       }},
      {"previous-frame",
       [](const DecodeMethod&, const DecodeAids& aids) -> std::unique_ptr<Guesser> {
         std::unique_ptr<Guesser> first;
         if (aids.guesses != nullptr) {
           first = std::make_unique<ContextDrafter<Real, Random>>(aids.grammar, aids.guesses);
         } else {
           first = std::make_unique<UniformDrafter<Real, Random>>(aids.grammar);
         }
         return std::make_unique<PreviousFrameDrafter<Real, Random>>(aids.grammar,
                                                                     std::move(first));
       }},
  }};

  // Trees: who judges siblings, and how the tree grows.
  struct TreeRow {
    std::string_view name;
    bool by_value;  // growth: likeliest slot first, or level by level
    TreeLaws laws;  // where candidates come from
    std::unique_ptr<SiblingRule<Real, Random>> (*make)();
  };
  static std::unique_ptr<SiblingRule<Real, Random>> recursive(bool distinct) {
    return std::make_unique<RecursiveRule<Real, Random>>(distinct);
  }
  static constexpr std::array<TreeRow, 7> kTrees{{
      {"rrs", false, TreeLaws::kEither, [] { return recursive(false); }},
      {"rsd", false, TreeLaws::kEither, [] { return recursive(true); }},
      {"kseq", false, TreeLaws::kEither,
       []() -> std::unique_ptr<SiblingRule<Real, Random>> {
         return std::make_unique<KSeqRule<Real, Random>>();
       }},
      {"points", false, TreeLaws::kEither,
       []() -> std::unique_ptr<SiblingRule<Real, Random>> {
         return std::make_unique<PointsRule<Real, Random>>();
       }},
      {"dyspec", true, TreeLaws::kModel, [] { return recursive(true); }},
      {"pac", false, TreeLaws::kWindow, [] { return recursive(true); }},
      {"gumbel", true, TreeLaws::kEither,
       []() -> std::unique_ptr<SiblingRule<Real, Random>> {
         return std::make_unique<EqualityRule<Real, Random>>();
       }},
  }};
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
    rule_ = Parts::find(Parts::kRules, method.rule)->make(method, aids);
    tail_ = Parts::find(Parts::kTails, method.tail)->make(method, aids);
    if (method.drafter != kModelDrafter) {
      drafter_ = Parts::find(Parts::kDrafters, method.drafter)->make(method, aids);
    }
    if (const auto* tree = Parts::find_tree(method.tree)) {
      siblings_ = tree->make();
      // Shapes that follow laws need laws that nothing of outlives the pass, or a rule without
      // laws.
      const bool free = tree->laws != TreeLaws::kModel || method.drafter == kModelDrafter;
      tree_ = {method.tree_width, method.tree_depth, tree->by_value && free};
    }
    row_lead_ = static_cast<std::size_t>(method.row_lead);
    tv_budget_ = method.tv_budget;
  }
  // The drafter of a method that asks for kModelDrafter; `source` is the same one as trees ask it.
  void set_drafter(std::unique_ptr<Drafter<Real, Random>> drafter,
                   TreeLawSource<Real>* source = nullptr) {
    drafter_ = std::move(drafter);
    source_ = source;
  }
  SequenceParts<Real, Random> parts() const {
    SequenceParts<Real, Random> out{{rule_.get(), tail_.get(), drafter_.get(), tv_budget_}};
    out.row_lead = row_lead_;
    if (siblings_ == nullptr) return out;
    out.tree = {siblings_.get(), source_, tree_};
    if (source_ != nullptr) out.drafter = nullptr;
    return out;
  }

 private:
  std::unique_ptr<AcceptanceRule<Real, Random>> rule_;
  std::unique_ptr<TailPolicy<Real, Random>> tail_;
  std::unique_ptr<Drafter<Real, Random>> drafter_;
  std::unique_ptr<SiblingRule<Real, Random>> siblings_;
  TreeLawSource<Real>* source_ = nullptr;
  TreeSettings tree_;
  std::size_t row_lead_ = 0;
  double tv_budget_ = 0;
};

}  // namespace tessera
