// The parts by name. A new rule, tail or drafter is a file and a row here.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "engine/decoding/chain_sequence.h"
#include "engine/decoding/decode_method.h"
#include "engine/decoding/drafters/context_drafter.h"
#include "engine/decoding/drafters/neighbour_law_drafter.h"
#include "engine/decoding/drafters/simple_drafters.h"
#include "engine/decoding/drafters/table_drafters.h"
#include "engine/decoding/rules/exact_rule.h"
#include "engine/decoding/rules/gumbel_rule.h"
#include "engine/decoding/tails/tails.h"

namespace tessera {

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
         return std::make_unique<GroupedRule<Real, Random>>(method.grouped, aids.neighbours);
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

  static constexpr std::array<Row<Guesser>, 8> kDrafters{{
      {"none",
       [](const DecodeMethod&, const DecodeAids&) -> std::unique_ptr<Guesser> { return nullptr; }},
      {"uniform",
       [](const DecodeMethod&, const DecodeAids& aids) -> std::unique_ptr<Guesser> {
         return std::make_unique<UniformDrafter<Real, Random>>(
             static_cast<std::size_t>(aids.codes));
       }},
      {"left",
       [](const DecodeMethod&, const DecodeAids&) -> std::unique_ptr<Guesser> {
         return std::make_unique<LeftDrafter<Real, Random>>();
       }},
      {"above",
       [](const DecodeMethod&, const DecodeAids& aids) -> std::unique_ptr<Guesser> {
         return std::make_unique<AboveDrafter<Real, Random>>(
             static_cast<std::size_t>(aids.columns));
       }},
      {"neighbour-law",
       [](const DecodeMethod&, const DecodeAids& aids) -> std::unique_ptr<Guesser> {
         return std::make_unique<NeighbourLawDrafter<Real, Random>>(
             static_cast<std::size_t>(aids.columns), static_cast<std::size_t>(aids.codes));
       }},
      {"context",
       [](const DecodeMethod&, const DecodeAids& aids) -> std::unique_ptr<Guesser> {
         return std::make_unique<ContextDrafter<Real, Random>>(
             static_cast<std::size_t>(aids.columns), aids.guesses);
       }},
      {"lookup",
       [](const DecodeMethod&, const DecodeAids&) -> std::unique_ptr<Guesser> {
         return std::make_unique<LookupDrafter<Real, Random>>();
       }},
      {"recycling",
       [](const DecodeMethod&, const DecodeAids& aids) -> std::unique_ptr<Guesser> {
         return std::make_unique<RecyclingDrafter<Real, Random>>(
             static_cast<std::size_t>(aids.codes));
       }},
  }};

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
    tv_budget_ = method.tv_budget;
  }
  // The drafter of a method that asks for kModelDrafter.
  void set_drafter(std::unique_ptr<Drafter<Real, Random>> drafter) {
    drafter_ = std::move(drafter);
  }
  ChainParts<Real, Random> parts() const {
    return {rule_.get(), tail_.get(), drafter_.get(), tv_budget_};
  }

 private:
  std::unique_ptr<AcceptanceRule<Real, Random>> rule_;
  std::unique_ptr<TailPolicy<Real, Random>> tail_;
  std::unique_ptr<Drafter<Real, Random>> drafter_;
  double tv_budget_ = 0;
};

}  // namespace tessera
