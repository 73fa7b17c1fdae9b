// Rules that devices do not know, so that the host judges by them.
#pragma once

#include "engine/decoding/trees/sibling_rule.h"

namespace tessera::testing {

class HostsRule final : public AcceptanceRule<float, KeyedRandom> {
 public:
  explicit HostsRule(const AcceptanceRule<float, KeyedRandom>& rule) : rule_(rule) {}
  std::string_view name() const override { return rule_.name(); }
  Promise promise() const override { return rule_.promise(); }
  bool needs_laws() const override { return rule_.needs_laws(); }
  Judgement<float> judge(const DraftTest<float>& test, KeyedRandom& random,
                         std::span<float> scratch) const override {
    return rule_.judge(test, random, scratch);
  }

 private:
  const AcceptanceRule<float, KeyedRandom>& rule_;
};

class HostsSiblings final : public SiblingRule<float, KeyedRandom> {
 public:
  explicit HostsSiblings(const SiblingRule<float, KeyedRandom>& rule) : rule_(rule) {}
  std::string_view name() const override { return rule_.name(); }
  Promise promise() const override { return rule_.promise(); }
  Candidates candidates() const override { return rule_.candidates(); }
  SiblingJudgement<float> judge(const SiblingTest<float>& test, KeyedRandom& random,
                                std::span<float> scratch) const override {
    return rule_.judge(test, random, scratch);
  }

 private:
  const SiblingRule<float, KeyedRandom>& rule_;
};

}  // namespace tessera::testing
