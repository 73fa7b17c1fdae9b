// Samples of shards: grouping, the choice of the image, keys that come twice, limits, cuts.
#include <gtest/gtest.h>

#include <algorithm>

#include "apps/captions/webdataset.h"
#include "tests/support/memory_source.h"
#include "tests/support/tar_builder.h"

namespace tessera::shard_test {
namespace {

struct Outcome {
  std::vector<TarSample> samples;
  std::string code;
  std::uint64_t without_key = 0;
};

Outcome read_all(const std::string& bytes, Carry carry = Carry::kEverything) {
  MemorySource source(bytes);
  SampleReader reader(source, "s.tar", carry);
  Outcome out;
  try {
    while (auto sample = reader.next()) out.samples.push_back(std::move(*sample));
  } catch (const Error& error) {
    out.code = error.info().code;
  }
  EXPECT_FALSE(reader.next()) << "over is over";
  out.without_key = reader.without_key();
  return out;
}

std::string found(const TarSample& sample) { return sample.failure ? sample.failure->found : ""; }
std::string code(const TarSample& sample) { return sample.failure ? sample.failure->code : ""; }

TEST(SplitKey, AtTheFirstDotOfTheBaseName) {
  const auto both = [](std::string_view name) {
    const KeyParts parts = split_key(name);
    return std::string(parts.key) + "|" + std::string(parts.extension);
  };
  EXPECT_EQ(both("a.jpg"), "a|jpg");
  EXPECT_EQ(both("x.y/a.seg.png"), "x.y/a|seg.png");
  EXPECT_EQ(both("a"), "|");
  EXPECT_EQ(both("x.y/a"), "|");
  EXPECT_EQ(both(".hidden.jpg"), "|");
  EXPECT_EQ(both("d/._a.jpg"), "|");
  EXPECT_EQ(both("a."), "|");
}

TEST(Samples, AreNeighboursOfOneKey) {
  const Outcome got = read_all(TarText()
                                   .file("0.txt", "old")
                                   .file("0.JPG", "pic 0")
                                   .file("0.json", "{}")
                                   .file("README", "no key")
                                   .file("d/1.png", "pic 1")
                                   .file("d/1.seg.png", "mask")
                                   .file("2.rgb.png", "pic 2")
                                   .end());
  ASSERT_EQ(got.samples.size(), 3u);
  EXPECT_EQ(got.code, "");
  EXPECT_EQ(got.without_key, 1u);
  EXPECT_EQ(got.samples[0].key, "0");
  EXPECT_EQ(got.samples[0].image.extension, "JPG");
  EXPECT_EQ(got.samples[0].image.bytes, "pic 0");
  ASSERT_EQ(got.samples[0].others.size(), 2u);
  EXPECT_EQ(got.samples[0].others[0].bytes, "old");
  EXPECT_EQ(got.samples[1].key, "d/1");
  EXPECT_EQ(got.samples[1].image.bytes, "pic 1") << "a whole image ending goes before a part";
  EXPECT_EQ(got.samples[1].others[0].bytes, "mask");
  EXPECT_EQ(got.samples[2].image.bytes, "pic 2");
}

TEST(Samples, CarryOnlyWhatIsAsked) {
  const Outcome got =
      read_all(TarText().file("0.txt", "old").file("0.jpg", "pic").end(), Carry::kImageOnly);
  ASSERT_EQ(got.samples.size(), 1u);
  EXPECT_EQ(got.samples[0].image.bytes, "pic");
  EXPECT_EQ(got.samples[0].others[0].extension, "txt");
  EXPECT_EQ(got.samples[0].others[0].bytes, "");
}

TEST(Samples, SeveralImagesFailAndTheRestGoesOn) {
  const Outcome got = read_all(TarText()
                                   .file("0.jpg", "a")
                                   .file("0.png", "b")
                                   .file("1.jpg", "fine")
                                   .file("2.a.jpg", "a")
                                   .file("2.b.jpg", "b")
                                   .file("3.txt", "alone")
                                   .file("4.jpg", "x")
                                   .file("4.JPG", "y")
                                   .end());
  ASSERT_EQ(got.samples.size(), 5u);
  EXPECT_EQ(found(got.samples[0]), "0.jpg and 0.png");
  EXPECT_EQ(code(got.samples[0]), "E_SAMPLE_PICTURE");
  EXPECT_EQ(got.samples[1].image.bytes, "fine");
  EXPECT_EQ(found(got.samples[2]), "2.a.jpg and 2.b.jpg");
  EXPECT_EQ(found(got.samples[3]), "only 3.txt");
  EXPECT_EQ(code(got.samples[4]), "E_SAMPLE_MEMBER");
  EXPECT_EQ(found(got.samples[4]), "4.jpg and 4.JPG");
}

TEST(Samples, AKeyThatComesBackFailsNamingBoth) {
  const Outcome got = read_all(TarText()
                                   .file("0.jpg", "a")
                                   .file("1.jpg", "b")
                                   .file("0.png", "c")
                                   .file("0.txt", "")
                                   .file("2.jpg", "d")
                                   .end());
  ASSERT_EQ(got.samples.size(), 4u);
  EXPECT_FALSE(got.samples[0].failure);
  EXPECT_EQ(code(got.samples[2]), "E_SAMPLE_KEY");
  EXPECT_EQ(got.samples[2].failure->where, "sample 0 at byte 2560");
  EXPECT_EQ(found(got.samples[2]), "the same key at byte 512");
  EXPECT_TRUE(got.samples[2].repeated);
  EXPECT_FALSE(got.samples[3].failure);
}

TEST(Samples, TooManyMembersFailOneSample) {
  TarText tar;
  tar.file("0.jpg", "a");
  for (std::size_t i = 0; i < SampleReader::kMaxMembers; ++i)
    tar.file("0." + std::to_string(i), "");
  const Outcome got = read_all(tar.file("1.jpg", "b").end());
  ASSERT_EQ(got.samples.size(), 2u);
  EXPECT_EQ(code(got.samples[0]), "E_SAMPLE_SIZE");
  EXPECT_EQ(got.samples[1].image.bytes, "b");
}

// A source that is long without being in memory: header, then zeros.
class LongSource final : public ByteSource {
 public:
  LongSource(std::string head, std::uint64_t size) : head_(std::move(head)), size_(size) {}
  std::size_t read(char* data, std::size_t size) override {
    size = static_cast<std::size_t>(std::min<std::uint64_t>(size, size_ - at_));
    std::fill_n(data, size, '\0');
    if (at_ < head_.size()) head_.copy(data, size, static_cast<std::size_t>(at_));
    at_ += size;
    return size;
  }
  std::uint64_t size() const override { return size_; }

 private:
  std::string head_;
  std::uint64_t size_, at_ = 0;
};

TEST(Samples, AMemberTooLargeFailsWithoutBeingRead) {
  const std::uint64_t size = SampleReader::kMaxMemberBytes + 1;
  LongSource source(TarText().header({.name = "0.jpg"}, size).text(), 512 + size + 511 + 1024);
  SampleReader reader(source, "s.tar", Carry::kEverything);
  const auto sample = reader.next();
  ASSERT_TRUE(sample && sample->failure);
  EXPECT_EQ(sample->failure->code, "E_SAMPLE_SIZE");
  EXPECT_EQ(found(*sample), "0.jpg of 268435457");
  EXPECT_FALSE(reader.next());
}

TEST(Samples, ACutKeepsWholeMembersAndIsHeardAfterwards) {
  const std::string text = TarText().file("0.jpg", "a").file("1.jpg", "b").file("1.txt", "t").end();
  const Outcome got = read_all(text.substr(0, 2048 + 300));
  ASSERT_EQ(got.samples.size(), 2u);
  EXPECT_EQ(got.samples[1].image.bytes, "b");
  EXPECT_TRUE(got.samples[1].others.empty());
  EXPECT_EQ(got.code, "E_TAR_CUT");
}

}  // namespace
}  // namespace tessera::shard_test
