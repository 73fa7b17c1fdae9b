// The partition of codes: every code in one group, groups of what lies together, the same on every
// machine.
#include "engine/decoding/code_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace tessera::code_groups_test {
namespace {

// Directions on a circle: `bundles` of `each` codes, close together within a bundle.
CodeNeighbours circle(int bundles, int each) {
  std::vector<float> codebook;
  for (int code = 0; code < bundles * each; ++code) {
    const double turn = 6.283185307179586 * (code % bundles) / bundles + 0.01 * (code / bundles);
    codebook.push_back(static_cast<float>(3 * std::cos(turn)));
    codebook.push_back(static_cast<float>(3 * std::sin(turn)));
  }
  return {codebook, bundles * each, 0};
}

TEST(CodeGroups, FindsBundles) {
  const CodeNeighbours codes = circle(5, 7);
  const CodeGroups groups(codes, 7);
  ASSERT_EQ(groups.groups(), 5);
  for (std::int32_t a = 0; a < 35; ++a) {
    EXPECT_EQ(groups.members(a).size(), 7u);
    for (std::int32_t b = 0; b < 35; ++b) {
      EXPECT_EQ(groups.group_of(a) == groups.group_of(b), a % 5 == b % 5) << a << " " << b;
    }
  }
}

TEST(CodeGroups, IsAPartition) {
  for (const std::int64_t size : {1, 2, 3, 8, 40, 100}) {
    const CodeGroups groups(circle(8, 5), size);
    EXPECT_EQ(groups.groups(), (40 + size - 1) / size);
    std::set<std::int32_t> seen;
    for (std::int32_t code = 0; code < 40; ++code) {
      const auto members = groups.members(code);
      EXPECT_TRUE(std::is_sorted(members.begin(), members.end()));
      EXPECT_EQ(std::count(members.begin(), members.end(), code), 1);
      seen.insert(members.begin(), members.end());
      for (const std::int32_t other : members)
        EXPECT_EQ(groups.group_of(other), groups.group_of(code));
    }
    EXPECT_EQ(seen.size(), 40u);
  }
}

// No code lies nearer to another group's mean than to its own.
TEST(CodeGroups, EndsAtAFixedPoint) {
  const CodeNeighbours codes = circle(13, 4);
  const CodeGroups groups(codes, 6);
  const auto mean_of = [&](std::int32_t code) {
    std::vector<double> mean(2);
    for (const std::int32_t other : groups.members(code)) {
      for (std::size_t d = 0; d < 2; ++d) {
        mean[d] += codes.vector(other)[d] / static_cast<double>(groups.members(code).size());
      }
    }
    return mean;
  };
  for (std::int32_t code = 0; code < 52; ++code) {
    const auto gap = [&](const std::vector<double>& mean) {
      return std::hypot(mean[0] - codes.vector(code)[0], mean[1] - codes.vector(code)[1]);
    };
    for (std::int32_t other = 0; other < 52; ++other) {
      EXPECT_LE(gap(mean_of(code)), gap(mean_of(other)) + 1e-6) << code << " " << other;
    }
  }
}

}  // namespace
}  // namespace tessera::code_groups_test
