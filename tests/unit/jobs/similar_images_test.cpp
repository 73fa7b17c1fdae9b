// Who repeats whom: by the order of the inputs alone, also after an interruption.
#include "apps/jobs/similar_images.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

namespace tessera::similar_test {
namespace {

ImageFingerprint print_of(std::uint64_t shape, std::uint8_t colour = 100) {
  ImageFingerprint out{.shape = shape};
  out.colours.fill(colour);
  return out;
}

TEST(SimilarImages, TheFirstOfThoseBeforeItCounts) {
  SimilarImages seen(3);
  EXPECT_FALSE(seen.find(0, print_of(0)));
  EXPECT_TRUE(seen.keep(5, "five", print_of(0b111)));
  EXPECT_TRUE(seen.keep(2, "two", print_of(0b1)));
  EXPECT_FALSE(seen.keep(2, "two again", print_of(0b1))) << "known";
  const auto found = seen.find(9, print_of(0));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path, "two");
  EXPECT_EQ(found->distance, 1);
  EXPECT_EQ(seen.find(9, print_of(0b110111))->path, "five") << "two is 4 bits away";
  EXPECT_FALSE(seen.find(2, print_of(0b1))) << "itself and what comes later are no answer";
  EXPECT_FALSE(seen.find(9, print_of(0, 200))) << "another colour";
  EXPECT_FALSE(seen.find(9, print_of(0b1111110000)));
}

// Images of an input, decided one by one: which repeats which.
std::map<std::uint64_t, std::string> decide(SimilarImages& seen, std::vector<Json>& records,
                                            const std::vector<std::uint64_t>& shapes,
                                            const std::vector<std::uint64_t>& places) {
  std::map<std::uint64_t, std::string> out;
  for (const std::uint64_t at : places) {
    const ImageFingerprint print = print_of(shapes[at]);
    if (const auto found = seen.find(at, print)) {
      out[at] = found->path;
      continue;
    }
    if (const auto record = seen.keep(at, std::to_string(at), print)) records.push_back(*record);
  }
  return out;
}

// A run that ended anywhere, of whose images any were not recorded as done, gives the same answers
// for those when it goes on.
TEST(SimilarImages, RunsThatGoOnSayTheSame) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint64_t> shapes;
    for (int i = 0; i < 40; ++i) shapes.push_back(random() & 0x3f);
    std::vector<std::uint64_t> all(shapes.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    std::vector<Json> records, none;
    SimilarImages whole(1);
    const auto truth = decide(whole, none, shapes, all);
    SimilarImages first(1), second(1);
    const std::size_t end = random() % all.size();
    const std::vector<std::uint64_t> before(all.begin(),
                                            all.begin() + static_cast<std::ptrdiff_t>(end));
    const auto done = decide(first, records, shapes, before);
    for (const Json& record : records) second.replay(Json::parse(record.dump()));
    second.replay({{"id", "x"}, {"st", "done"}});
    std::vector<std::uint64_t> left(all.begin() + static_cast<std::ptrdiff_t>(end), all.end());
    for (const std::uint64_t at : before) {
      if (random() % 3 == 0) left.push_back(at);
    }
    std::sort(left.begin(), left.end());
    auto got = decide(second, records, shapes, left);
    got.insert(done.begin(), done.end());
    ASSERT_EQ(got, truth) << round;
  }
}

}  // namespace
}  // namespace tessera::similar_test
