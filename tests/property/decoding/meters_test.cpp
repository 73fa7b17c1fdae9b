// What a run measures about itself, on images of 400 tokens over 64 ids: methods that keep the
// distribution stay within the meters' bounds, pooled over images; one that keeps a stale distribution leaves them.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <mutex>

#include "tests/property/decoding/row_table.h"
#include "tests/support/made_up_methods.h"
#include "tests/support/stale_dist.h"

namespace tessera::meters_test {
namespace {

constexpr std::size_t kIds = 64, kTotal = 400, kColumns = 20;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kMany = 4, kFewer = 2;
#else
constexpr std::uint64_t kMany = 36, kFewer = 12;
#endif
constexpr double kPitBound = 1.95;  // one in a thousand

const RowTable& long_table() {
  static const RowTable table = [] {
    DistributionSettings dist;
    dist.guidance = 2;
    dist.temperature = 0.9;
    dist.top_k = 48;
    return RowTable(kIds, 2, 0.7f, 2.0f, dist);
  }();
  return table;
}

// Meters of `images` images together; `make()` gives a thread its parts, anything with parts().
template <typename Make>
DecodeMeters pooled(std::uint64_t images, std::size_t window, std::uint64_t seed, Make make) {
  DecodeMeters all;
  std::mutex lock;
  on_all_cores([&](std::size_t thread, std::size_t threads) {
    for (std::uint64_t item = thread; item < images; item += threads) {
      const auto owned = make();
      const FloatSequence image =
          decode_image(long_table(), owned.parts(), window, kTotal, seed, item);
      const std::lock_guard<std::mutex> hold(lock);
      all.add(image.meters());
    }
  });
  EXPECT_EQ(all.tokens, static_cast<std::int64_t>(images * kTotal));
  EXPECT_EQ(all.transforms.size(), images * kTotal);
  return all;
}

DecodeMeters pooled(std::uint64_t images, const DecodeMethod& method, std::uint64_t seed) {
  const DecodeAids aids = aids_for(kIds, kColumns);
  return pooled(images, static_cast<std::size_t>(method.window), seed,
                [&] { return OwnedParts<float, KeyedRandom>(method, aids); });
}

void expect_sound(const std::string& name, const DecodeMeters& meters) {
  std::cout << name << ": z " << meters.z_score() << ", PIT " << meters.pit_statistic() << ", "
            << meters.tokens_per_pass() << " tokens a pass\n";
  EXPECT_LT(std::abs(meters.z_score()), DecodeMeters::kSuspectZ) << name;
  EXPECT_LT(meters.pit_statistic(), kPitBound) << name;
}

TEST(Meters, NamedMethodsThatKeepTheDistributionAreSound) {
  const DecodeAids aids = aids_for(kIds, kColumns);
  int methods = 0;
  for (const NamedMethod& named : named_methods()) {
    const DecodeMethod method = settle_method(decode_method(named.name), aids, kTotal);
    if (guarantee_of(method) == Guarantee::kNone || method.drafter == kModelDrafter) continue;
    const DecodeMeters meters = pooled(kMany, method, 11);
    expect_sound(method.name, meters);
    EXPECT_NEAR(meters.excess, 0, 1e-3) << "an exact rule accepts with the strict chance";
    ++methods;
  }
  EXPECT_GE(methods, 7);
}

TEST(Meters, EveryDrafterAndTailIsSound) {
  std::uint64_t seed = 100;
  for (const std::string_view drafter : drafter_names()) {
    for (const std::string_view redraft_policy : redraft_names()) {
      if (drafter == "none") continue;
      const DecodeMethod method = combine(drafter, redraft_policy, "exact", 12);
      expect_sound(method.drafter + "/" + method.redraft_policy, pooled(kFewer, method, ++seed));
    }
  }
}

struct StaleParts {
  explicit StaleParts(bool faulty)
      : record(std::make_shared<DistributionRecord<float>>(2 * kTotal)),
        rule(record),
        redraft_policy(record, faulty),
        drafter(VocabularyGrammar::line(kIds, kTotal)) {}
  FloatParts parts() const { return {&rule, &redraft_policy, &drafter}; }

  std::shared_ptr<DistributionRecord<float>> record;
  mutable StaleRule<float, KeyedRandom> rule;
  StaleRedraft<float, KeyedRandom> redraft_policy;
  mutable UniformDrafter<float, KeyedRandom> drafter;
};

TEST(Meters, StaleDistributionIsSeen) {
  expect_sound("fault switched off", pooled(kMany, 32, 7, [] { return StaleParts(false); }));
  const DecodeMeters meters = pooled(kMany, 32, 7, [] { return StaleParts(true); });
  std::cout << "stale distribution: z " << meters.z_score() << ", PIT " << meters.pit_statistic() << '\n';
  EXPECT_TRUE(std::abs(meters.z_score()) > DecodeMeters::kSuspectZ ||
              meters.pit_statistic() > DecodeMeters::kCriticalPit);
}

}  // namespace
}  // namespace tessera::meters_test
