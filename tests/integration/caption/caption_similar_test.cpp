// `caption --skip-similar`: which images get no caption, and what every output says of them.
#include <chrono>
#include <thread>

#include "apps/captions/webdataset.h"
#include "tests/integration/caption/caption_program.h"
#include "tests/support/memory_source.h"
#include "tests/support/tar_builder.h"

namespace tessera::caption_similar_test {
namespace {

class CaptionSimilar : public CaptionTest {
 protected:
  // The image once more, a little brighter and twice as large.
  std::string again(int number) const {
    put("spare.png", image(number));
    const Image small = read_own_png(folder_ / "spare.png");
    Image out;
    out.width = 2 * small.width;
    out.height = 2 * small.height;
    for (std::int64_t y = 0; y < out.height; ++y) {
      for (std::int64_t x = 0; x < 3 * out.width; ++x) {
        const std::int64_t from = (y / 2 * small.width + x / 6) * 3 + x % 3;
        const int value = small.rgb[static_cast<std::size_t>(from)] + 3;
        out.rgb.push_back(static_cast<std::uint8_t>(std::min(value, 255)));
      }
    }
    return encode_png(out, {}, "");
  }
  // Originals a0 to a4; b0, b2 and c2 repeat some.
  void put_folder() {
    for (int i = 0; i < 5; ++i) put("in/a" + std::to_string(i) + ".png", image(7 * i + 3));
    put("in/b0.png", again(3));
    put("in/b2.png", again(17));
    put("in/c2.png", image(17));
  }
  static inline const std::map<std::string, std::string> kRepeats = {
      {"in/b0.png", "in/a0.png"}, {"in/b2.png", "in/a2.png"}, {"in/c2.png", "in/a2.png"}};

  // Who repeats whom in a file of JSON lines.
  std::map<std::string, std::string> repeats(const std::string& text) const {
    std::map<std::string, std::string> out;
    for (const auto& [path, line] : by_path(text)) {
      EXPECT_NE(line.contains("caption"), line.contains("repeats")) << line;
      if (line.contains("repeats")) out[path] = line.at("repeats");
    }
    return out;
  }
  std::vector<TarSample> samples(const std::string& name) const {
    MemorySource source(content(name));
    SampleReader reader(source, name, Carry::kEverything);
    std::vector<TarSample> out;
    while (auto sample = reader.next()) out.push_back(std::move(*sample));
    return out;
  }
};

TEST_F(CaptionSimilar, JsonLinesSayWhomAnImageRepeatsWhateverTheBatch) {
  put_folder();
  const auto plain = texts_of("plain.jsonl", {"in"});
  ASSERT_EQ(plain.size(), 8u);
  for (const char* batch : {"1", "3", "8"}) {
    const std::string name = std::string("x") + batch + ".jsonl";
    const ProgramResult result =
        caption({"in", "--skip-similar", "--batch-size", batch, "-o", name});
    EXPECT_NE(result.out.find("in/b0.png: repeats in/a0.png"), std::string::npos) << result.out;
    EXPECT_NE(run({"caption", "status", name}).out.find(", 3 repeat another image, 0 failed"),
              std::string::npos);
    const std::string text = content(name);
    EXPECT_EQ(repeats(text), kRepeats);
    for (const auto& [path, line] : by_path(text)) {
      if (line.contains("caption")) {
        EXPECT_EQ(line.at("caption"), plain.at(path)) << path;
      }
    }
  }
  // Nothing is repeated exactly but c2, and an exact copy of a2 is all that distance 0 leaves out.
  caption({"in", "--skip-similar=0", "-o", "exact.jsonl"});
  const auto exact = repeats(content("exact.jsonl"));
  EXPECT_EQ(exact.at("in/c2.png"), "in/a2.png");
  caption({"in", "--skip-similar=17", "-o", "y.jsonl"}, 2);
  caption({"--image", "in/a0.png", "--skip-similar"}, 2);
  caption({"in", "--skip-similar=5", "-o", "x1.jsonl"}, 2);  // another job
}

TEST_F(CaptionSimilar, CsvArchivesAndTextsRecordThem) {
  put_folder();
  caption({"in", "-o", "x.csv", "--skip-similar"});
  const std::string csv = content("x.csv");
  EXPECT_NE(csv.find(",id,prompt,repeats\r\n"), std::string::npos);
  EXPECT_NE(csv.find("\nin/b2.png,,,,,,,,,,in/a2.png\r\n"), std::string::npos) << csv;

  caption({"in", "-o", "x.tar", "--skip-similar"});
  std::map<std::string, std::string> found;
  for (const TarSample& sample : samples("x.tar")) {
    const bool captioned = std::any_of(sample.others.begin(), sample.others.end(),
                                       [](const auto& other) { return other.extension == "txt"; });
    const Json facts = Json::parse(sample.others.back().bytes);
    EXPECT_EQ(sample.others.back().extension, "caption.json");
    EXPECT_NE(captioned, facts.contains("repeats"));
    EXPECT_EQ(sample.image.bytes, content("in/" + sample.key + ".png"));
    if (!captioned) found["in/" + sample.key + ".png"] = facts.at("repeats");
  }
  EXPECT_EQ(found, kRepeats);

  caption({"in", "--skip-similar"});
  for (const char* name : {"in/a0.txt", "in/a2.txt"}) EXPECT_TRUE(std::filesystem::exists(folder_ / (name))) << name;
  for (const char* name : {"in/b0.txt", "in/b2.txt", "in/c2.txt"}) {
    EXPECT_FALSE(std::filesystem::exists(folder_ / (name))) << name;
  }
  const ProgramResult status = run({"caption", "status", "in"});
  EXPECT_EQ(status.exit_code, 0) << status.err;
  EXPECT_NE(status.out.find("5 done, 0 were there already, 3 repeat another image, 0 failed"),
            std::string::npos)
      << status.out;
  EXPECT_NE(status.out.find("in/c2.png: repeats in/a2.png"), std::string::npos) << status.out;
  const Json json = Json::parse(run({"caption", "status", "in", "--json"}).out);
  EXPECT_EQ(json.at("repeats"), 3);
  const ProgramResult second = caption({"in", "--skip-similar"});
  EXPECT_EQ(second.out, "") << "nothing is done twice";
}

TEST_F(CaptionSimilar, ListsShardsAndArchivesAreOneInput) {
  put_folder();
  put("list.jsonl", "{\"image\":\"in/a3.png\",\"id\":\"three\"}\n{\"image\":\"in/b2.png\"}\n");
  put("s.tar",
      TarText().file("0.png", image(17)).file("1.png", image(24)).file("2.png", image(90)).end());
  const ProgramResult result =
      caption({"list.jsonl", "s.tar", "--skip-similar", "-o", "x.jsonl", "--json"});
  const auto found = repeats(content("x.jsonl"));
  EXPECT_EQ(found, (std::map<std::string, std::string>{{"s.tar/0.png", "in/b2.png"},
                                                       {"s.tar/1.png", "in/a3.png"}}));
  EXPECT_EQ(repeats(result.out), found);
  for (const char* part : {"1/2", "2/2"}) {
    caption({"in", "--skip-similar", "-o", "p.jsonl", "--shard", part});
  }
  const ProgramResult merged = run({"caption", "merge", "p.jsonl"});
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_EQ(by_path(content("p.jsonl")).size(), 8u);
  // A shard knows its own images: "c2" may repeat "b2" where "a2" is in the other one.
  for (const auto& [path, other] : repeats(content("p.jsonl"))) {
    EXPECT_LT(other, path);
    EXPECT_EQ(other[4], kRepeats.at(path)[4]) << "the same number";
  }
}

TEST_F(CaptionSimilar, AnImageThatWaitsForAPlaceIsComparedInItsTurn) {
  put("in/a.jpeg", "no image at all");
  put("in/a.png", image(3));
  put("in/b.png", again(3));
  for (const char* batch : {"1", "8"}) {
    const std::string folder = std::string("run") + batch;
    for (const char* name : {"a.jpeg", "a.png", "b.png"}) {
      put(folder + "/" + name, content(std::string("in/") + name));
    }
    caption({folder, "--skip-similar", "--batch-size", batch}, 3);
    EXPECT_TRUE(std::filesystem::exists(folder_ / (folder + "/a.txt")));
    EXPECT_FALSE(std::filesystem::exists(folder_ / (folder + "/b.txt")));
  }
}

TEST_F(CaptionSimilar, AKilledJobEndsAsIfItHadNotBeen) {
  for (int i = 0; i < 24; ++i) {
    put("in/p" + std::to_string(i) + ".png", i % 3 == 2 ? again(5 * (i - 2)) : image(5 * i));
  }
  const std::vector<std::string> job = {"in", "--skip-similar", "--batch-size", "2", "-o"};
  const auto to = [&](const std::string& name) {
    std::vector<std::string> out = job;
    out.push_back(name);
    return words(out, "24");
  };
  ASSERT_EQ(run(to("truth.jsonl")).exit_code, 0);
  const auto truth = repeats(content("truth.jsonl"));
  EXPECT_GE(truth.size(), 8u);
  for (const std::size_t lines : {2u, 11u}) {
    const ProgramResult killed = run(to("x.jsonl"), {}, [&](pid_t child) {
      const auto enough = [&] {
        const std::string text = content("x.jsonl.part");
        return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) >= lines;
      };
      for (int i = 0; i < 30000 && !enough(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      kill(child, SIGKILL);
    });
    ASSERT_EQ(killed.exit_code, -1) << "it ended before it was killed";
  }
  ASSERT_EQ(run(to("x.jsonl")).exit_code, 0);
  EXPECT_EQ(repeats(content("x.jsonl")), truth);
  const auto whole = by_path(content("x.jsonl")), want = by_path(content("truth.jsonl"));
  ASSERT_EQ(whole.size(), want.size());
  for (const auto& [path, line] : want) {
    if (line.contains("caption")) {
      EXPECT_EQ(whole.at(path).at("caption"), line.at("caption")) << path;
    }
  }
}

}  // namespace
}  // namespace tessera::caption_similar_test
