// Rules that devices do not know, so that the host verifies by them.
#pragma once

#include "engine/decoding/trees/sibling_rule.h"

namespace tessera::testing {

class HostsRule final : public AcceptanceRule<float, KeyedRandom> {
 public:
  explicit HostsRule(const AcceptanceRule<float, KeyedRandom>& rule) : rule_(rule) {}
  std::string_view name() const override { return rule_.name(); }
  Guarantee guarantee() const override { return rule_.guarantee(); }
  bool needs_dists() const override { return rule_.needs_dists(); }
  Decision<float> accept(const DraftTest<float>& test, KeyedRandom& random,
                         std::span<float> scratch) const override {
    return rule_.accept(test, random, scratch);
  }

 private:
  const AcceptanceRule<float, KeyedRandom>& rule_;
};

class HostsSiblings final : public SiblingRule<float, KeyedRandom> {
 public:
  explicit HostsSiblings(const SiblingRule<float, KeyedRandom>& rule) : rule_(rule) {}
  std::string_view name() const override { return rule_.name(); }
  Guarantee guarantee() const override { return rule_.guarantee(); }
  Candidates candidates() const override { return rule_.candidates(); }
  SiblingDecision<float> accept(const SiblingTest<float>& test, KeyedRandom& random,
                                std::span<float> scratch) const override {
    return rule_.accept(test, random, scratch);
  }

 private:
  const SiblingRule<float, KeyedRandom>& rule_;
};

}  // namespace tessera::testing
