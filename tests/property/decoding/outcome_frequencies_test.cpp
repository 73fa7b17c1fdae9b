// Images drawn with the shipped arithmetic and the shipped random numbers, counted: with V = 4
// and N = 4 every one of the 256 images must come as often as the product of its conditional
// probabilities says. What enumeration cannot see is seen here, numbers that are not independent.
// Four tokens, as drafts of a tail are tested from the third one on and the last is never drafted.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <numeric>

#include "tests/property/decoding/row_table.h"
#include "tests/support/made_up_methods.h"
#include "tests/support/stale_dist.h"

namespace tessera::outcome_frequencies_test {
namespace {

constexpr std::size_t kIds = 4, kTotal = 4, kImages = 256;
constexpr std::uint64_t kSeed = 20240;
// Two million where a draft's distribution decides and nothing else, fewer elsewhere: each takes seconds.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kMany = 60'000, kFewer = 30'000;
#else
constexpr std::size_t kMany = 2'000'000, kFewer = 1'000'000;
#endif

RowTable make_table() {
  DistributionSettings dist;
  dist.guidance = 2;
  dist.temperature = 1.2;
  return {kIds, kTotal - 1, 0.4f, 0.4f, dist};
}

using Counts = std::vector<std::uint64_t>;
// The number of the image that `item` decodes to.
using Decode = std::function<std::size_t(std::uint64_t item)>;

std::size_t number_of(const FloatSequence& sequence) {
  return std::accumulate(sequence.tokens().begin(), sequence.tokens().end(), std::size_t{0},
                         [](std::size_t number, std::int32_t token) {
                           return number * kIds + static_cast<std::size_t>(token);
                         });
}

// `make()` gives each thread a decoder of its own.
template <typename Make>
Counts count_images(std::size_t samples, Make make) {
  Counts total(kImages);
  std::mutex lock;
  on_all_cores([&](std::size_t thread, std::size_t threads) {
    const Decode decode = make();
    Counts mine(kImages);
    for (std::size_t item = thread; item < samples; item += threads) ++mine[decode(item)];
    const std::lock_guard<std::mutex> hold(lock);
    for (std::size_t i = 0; i < kImages; ++i) total[i] += mine[i];
  });
  return total;
}

// (chi-square / degrees of freedom - 1) in its standard deviations.
double deviation(const char* name, const Counts& counts, const std::vector<double>& probs) {
  const auto samples =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
  double chi_square = 0, rarest = samples;
  for (std::size_t i = 0; i < kImages; ++i) {
    const double expected = samples * probs[i];
    const double gap = static_cast<double>(counts[i]) - expected;
    chi_square += gap * gap / expected;
    rarest = std::min(rarest, expected);
  }
  EXPECT_GT(rarest, 20) << "too few of the rarest image for the statistic";
  const double freedom = kImages - 1;
  const double out = (chi_square / freedom - 1) / std::sqrt(2 / freedom);
  std::cout << name << ": " << samples << " images, chi-square / df " << chi_square / freedom
            << ", " << out << " deviations\n";
  return out;
}

// A decoder of one method.
Decode decoder_of(const RowTable& table, const DecodeMethod& method) {
  const auto owned = std::make_shared<OwnedParts<float, KeyedRandom>>(method, aids_for(kIds));
  const auto window = static_cast<std::size_t>(method.window);
  return [&table, owned, window](std::uint64_t item) {
    return number_of(decode_image(table, owned->parts(), window, kTotal, kSeed, item));
  };
}

double deviation_of(const char* name, std::size_t samples) {
  const RowTable table = make_table();
  DecodeMethod method = decode_method(name);
  method.window = std::min<std::int64_t>(method.window, kTotal);
  return deviation(name, count_images(samples, [&] { return decoder_of(table, method); }),
                   image_probabilities(table, kTotal));
}

TEST(OutcomeFrequencies, Plain) { EXPECT_LT(std::abs(deviation_of("plain", kFewer / 2)), 4); }
TEST(OutcomeFrequencies, Sjd) { EXPECT_LT(std::abs(deviation_of("sjd", kMany)), 4); }
TEST(OutcomeFrequencies, Coupled) { EXPECT_LT(std::abs(deviation_of("coupled", kMany)), 4); }
TEST(OutcomeFrequencies, CoupledGumbel) {
  EXPECT_LT(std::abs(deviation_of("coupled-gumbel", kFewer)), 4);
}

// Every drafter, tail and window takes its turn; all must also give plain's image.
TEST(OutcomeFrequencies, GumbelWhoeverDrafts) {
  const RowTable table = make_table();
  std::atomic<std::size_t> strangers{0};
  const auto make = [&]() -> Decode {
    std::vector<Decode> decoders;
    for (const std::string_view drafter : drafter_names()) {
      for (const std::string_view redraft_policy : redraft_names()) {
        for (const std::int64_t window : {2, 3, 4}) {
          if (drafter == "none") continue;
          decoders.push_back(decoder_of(table, combine(drafter, redraft_policy, "gumbel", window)));
        }
      }
    }
    const Decode plain = decoder_of(table, decode_method("plain"));
    return [&strangers, plain, decoders](std::uint64_t item) {
      const std::size_t image = decoders[item % decoders.size()](item);
      if (item % 8 == 0 && image != plain(item)) ++strangers;
      return image;
    };
  };
  EXPECT_LT(std::abs(deviation("gumbel", count_images(kFewer, make),
                               image_probabilities(table, kTotal))),
            4);
  EXPECT_EQ(strangers, 0u);
}

// The statistic must be able to fail: kept drafts are tested against their first distribution.
TEST(OutcomeFrequencies, StaleDistributionIsSeen) {
  const RowTable table = make_table();
  for (const bool faulty : {false, true}) {
    const auto make = [&]() -> Decode {
      const auto record = std::make_shared<DistributionRecord<float>>(2 * kTotal);
      const auto rule = std::make_shared<StaleRule<float, KeyedRandom>>(record);
      const auto redraft_policy = std::make_shared<StaleRedraft<float, KeyedRandom>>(record, faulty);
      const auto drafter = std::make_shared<UniformDrafter<float, KeyedRandom>>(
          VocabularyGrammar::line(kIds, kTotal));
      return [=, &table](std::uint64_t item) {
        record->clear();
        const FloatParts parts{rule.get(), redraft_policy.get(), drafter.get()};
        return number_of(decode_image(table, parts, kTotal, kTotal, kSeed, item));
      };
    };
    const double gap =
        deviation(faulty ? "stale distribution" : "stale distribution, fault switched off",
                  count_images(kMany / 4, make), image_probabilities(table, kTotal));
    if (faulty) {
      EXPECT_GT(gap, 4);
    } else {
      EXPECT_LT(std::abs(gap), 4);
    }
  }
}

}  // namespace
}  // namespace tessera::outcome_frequencies_test
