// `tessera caption` over videos: scenes with right times, where captions go, what a second run does,
// videos that are broken, memory. What the texts say is up to the weights and never looked at.
#include <random>

#include "tests/integration/caption/caption_program.h"
#include "video/frame_reader.h"
#include "video/frame_writer.h"

namespace tessera {
namespace {

class VideoCaption : public CaptionTest {
 protected:
  static constexpr std::int64_t kWide = 64, kHigh = 48;

  static std::vector<std::uint8_t> frame(int scene, int number) {
    static constexpr int kColours[][2][3] = {{{200, 60, 40}, {20, 20, 200}},
                                             {{40, 120, 60}, {240, 240, 100}},
                                             {{30, 30, 90}, {180, 40, 160}}};
    std::vector<std::uint8_t> out;
    for (std::int64_t y = 0; y < kHigh; ++y) {
      for (std::int64_t x = 0; x < kWide; ++x) {
        const bool inside = x > 10 && x < 44 && y > 12 && y < 36;
        for (const int level : kColours[scene % 3][inside ? 1 : 0]) {
          out.push_back(static_cast<std::uint8_t>(level + (x + y + number) % 3));
        }
      }
    }
    return out;
  }

  // Lossless, eight frames a second; scenes of these lengths.
  void put_video(const std::string& name, const std::vector<int>& lengths) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    FrameWriter writer(folder_ / name,
                       {.container = VideoContainer::kMatroska,
                        .codec = VideoCodec::kFfv1,
                        .width = kWide,
                        .height = kHigh,
                        .tick = {1, 8}},
                       {.program = VIDEO_HELPER});
    int at = 0;
    for (std::size_t scene = 0; scene < lengths.size(); ++scene) {
      for (int i = 0; i < lengths[scene]; ++i, ++at) {
        writer.put(frame(static_cast<int>(scene), i), at);
      }
    }
    ASSERT_TRUE(writer.finish(at));
  }
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> out;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }
};

TEST_F(VideoCaption, EachSceneHasACaptionAndItsTimes) {
  put_video("in/a.mkv", {17, 24, 19});
  const ProgramResult result =
      caption({"--video", "in/a.mkv", "--video-frames", "4", "-o", "x.jsonl", "--json"});
  ASSERT_EQ(result.json_lines().size(), 1u);
  const Json line = by_path(content("x.jsonl")).at("in/a.mkv");
  EXPECT_EQ(line, result.json_lines()[0]) << "the terminal and the file say the same";
  const Json& scenes = line.at("scenes");
  ASSERT_EQ(scenes.size(), 3u);
  const int first[] = {0, 17, 41, 60};
  std::string joined;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(scenes[i].at("first_frame"), first[i]);
    EXPECT_EQ(scenes[i].at("last_frame"), first[i + 1] - 1);
    EXPECT_NEAR(scenes[i].at("start").get<double>(), first[i] / 8.0, 1e-6);
    EXPECT_NEAR(scenes[i].at("end").get<double>(), first[i + 1] / 8.0, 1e-3);
    const std::vector<int> shown = scenes[i].at("frames");
    ASSERT_EQ(shown.size(), 4u);
    for (const int number : shown) {
      EXPECT_GE(number, first[i]);
      EXPECT_LT(number, first[i + 1]);
    }
    EXPECT_GT(scenes[i].at("visual_tokens"), 0);
    joined += (i == 0 ? "" : "\n") + scenes[i].at("caption").get<std::string>();
  }
  EXPECT_EQ(line.at("caption"), joined);
  EXPECT_EQ(line.at("frames").size(), 12u);
  EXPECT_EQ(line.at("sizes"), Json::parse("[[64,48]]"));
}

TEST_F(VideoCaption, VideosAmongImagesOfAFolderAndASecondRunWritesNothing) {
  put_images("in", 2);
  put_video("in/clip.MKV", {9, 9});
  put("in/notes.md", "no image");
  caption({"in", "--video-frames", "2"});
  EXPECT_EQ(files(),
            (std::vector<std::string>{"in/clip.MKV", "in/clip.txt", "in/notes.md", "in/p1.png",
                                      "in/p1.txt", "in/p2.png", "in/p2.txt"}));
  const std::string text = content("in/clip.txt");
  EXPECT_EQ(caption({"in", "--video-frames", "2"}).out, "");
  EXPECT_EQ(content("in/clip.txt"), text);
  put("in/clip.txt", "mine");
  caption({"in", "--video-frames", "2"});
  EXPECT_EQ(content("in/clip.txt"), "mine");
  caption({"in", "--video-frames", "2", "--existing", "overwrite"});
  EXPECT_EQ(content("in/clip.txt"), text);
}

TEST_F(VideoCaption, SubtitlesHaveNumbersAndTimes) {
  put_video("in/a.mkv", {16, 12});
  put_images("in", 1);
  const ProgramResult result = caption({"in", "--video-frames", "2", "--caption-ext", "srt"}, 3);
  EXPECT_NE(result.err.find("p1.png: expected a video"), std::string::npos) << result.err;
  const std::vector<std::string> lines = lines_of(content("in/a.srt"));
  ASSERT_GE(lines.size(), 7u) << content("in/a.srt");
  EXPECT_EQ(lines[0], "1");
  EXPECT_EQ(lines[1], "00:00:00,000 --> 00:00:02,000");
  EXPECT_FALSE(lines[2].empty());
  EXPECT_EQ(lines[3], "");
  EXPECT_EQ(lines[4], "2");
  EXPECT_EQ(lines[5].substr(0, 25), "00:00:02,000 --> 00:00:03");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "in/p1.srt"));
  caption({"in/a.mkv", "--caption-ext", "srt", "--existing", "append"}, 2);
}

// Scenes 4 and 5 are shot like scenes 1 and 2.
TEST_F(VideoCaption, ASceneThatLooksLikeAnEarlierOneHasItsCaption) {
  put_video("a.mkv", {9, 10, 11, 12, 13});
  caption({"a.mkv", "--video-frames", "2", "-o", "plain.jsonl"});
  caption({"a.mkv", "--video-frames", "2", "--skip-similar", "-o", "x.jsonl"});
  const Json plain = by_path(content("plain.jsonl")).at("a.mkv").at("scenes");
  const Json whole = by_path(content("x.jsonl")).at("a.mkv");
  const Json& scenes = whole.at("scenes");
  ASSERT_EQ(scenes.size(), 5u);
  std::string joined;
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(scenes[i].at("start"), plain[i].at("start"));
    EXPECT_EQ(scenes[i].at("end"), plain[i].at("end"));
    EXPECT_EQ(scenes[i].at("caption"), plain[i % 3].at("caption"));
    EXPECT_EQ(scenes[i].contains("repeats"), i > 2) << i;
    EXPECT_EQ(scenes[i].at("tokens") == 0, i > 2) << i;
    if (i > 2) {
      EXPECT_EQ(scenes[i].at("repeats"), i - 2);
    }
    joined += (i == 0 ? "" : "\n") + scenes[i].at("caption").get<std::string>();
  }
  EXPECT_EQ(whole.at("caption"), joined);
  EXPECT_EQ(whole.at("frames").size(), 6u);
  caption({"a.mkv", "--video-frames", "2", "--skip-similar", "--caption-ext", "srt"});
  const std::vector<std::string> lines = lines_of(content("a.srt"));
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const auto& text) { return text.find(" --> ") != std::string::npos; }),
            5);
}

TEST_F(VideoCaption, OneSceneWhereNoCutIsWanted) {
  put_video("a.mkv", {10, 10});
  caption({"a.mkv", "--scene-cut", "1", "--video-frames", "4", "--fps", "2", "-o", "x.jsonl"});
  const Json line = by_path(content("x.jsonl")).at("a.mkv");
  ASSERT_EQ(line.at("scenes").size(), 1u);
  EXPECT_EQ(line.at("scenes")[0].at("last_frame"), 19);
  // Two a second are frames 0, 4, 8, 12 and 16 of 20, thinned evenly to four.
  EXPECT_EQ(line.at("frames"), Json::parse("[0,4,8,16]"));
}

// Without a number, as many frames as the prompt has room for: 1,024 places, 144 tokens a frame.
TEST_F(VideoCaption, FramesFitThePrompt) {
  put_video("a.mkv", {160});
  caption({"a.mkv", "-o", "x.jsonl"});
  const Json line = by_path(content("x.jsonl")).at("a.mkv");
  EXPECT_GE(line.at("frames").size(), 4u);
  EXPECT_LE(line.at("frames").size(), 6u);
  caption({"a.mkv", "--video-frames", "32", "-o", "y.jsonl"}, 1);
}

// A text is the model's word on the scene alone: neither neighbours nor texts at once change it.
TEST_F(VideoCaption, ASceneIsDescribedAsIfAlone) {
  put_video("two.mkv", {12, 12});
  const auto scenes_of = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.end(), {"two.mkv", "--video-frames", "3", "-o", out});
    caption(more);
    return by_path(content(out)).at("two.mkv").at("scenes");
  };
  const Json together = scenes_of("a.jsonl", {"--batch-size", "8"});
  const Json alone = scenes_of("b.jsonl", {"--batch-size", "1"});
  ASSERT_EQ(together.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(together[i].at("caption"), alone[i].at("caption"));
    EXPECT_EQ(together[i].at("frames"), alone[i].at("frames"));
  }
}

TEST_F(VideoCaption, ABrokenVideoIsOneFailedItem) {
  put_video("in/good.mkv", {8});
  put_video("in/cut.mkv", {40});
  const std::string bytes = content("in/cut.mkv");
  put("in/cut.mkv", bytes.substr(0, bytes.size() / 2));
  put("in/none.mp4", "no video at all, though its name says so");
  const ProgramResult result = caption({"in", "--video-frames", "2", "-o", "x.jsonl", "--json"}, 3);
  const auto lines = by_path(content("x.jsonl"));
  EXPECT_TRUE(lines.contains("in/good.mkv"));
  EXPECT_EQ(lines.size(), 1u);
  EXPECT_NE(result.err.find("in/none.mp4"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("another kind of file"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("in/cut.mkv"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("stream"), std::string::npos) << result.err;
  // They are tried again when asked for.
  put_video("in/cut.mkv", {10});
  EXPECT_EQ(run(words({"in", "--video-frames", "2", "-o", "x.jsonl", "--retry-failed"})).exit_code,
            3);
  EXPECT_TRUE(by_path(content("x.jsonl")).contains("in/cut.mkv"));
}

// A method that cuts the prompts of several views inside the model, and drafts that cannot follow:
// an image of one view has its caption, the video says why it has none.
TEST_F(VideoCaption, DraftsThatBranchAndCutsOfAVideoAreOneFailedItem) {
  put_images("in", 1);
  put_video("in/a.mkv", {8});
  const ProgramResult result = caption({"in", "--video-frames", "2", "--prune", "flowcut",
                                        "--decode", "gumbel-tree", "-o", "x.jsonl"},
                                       3);
  const auto lines = by_path(content("x.jsonl"));
  EXPECT_TRUE(lines.contains("in/p1.png"));
  EXPECT_EQ(lines.size(), 1u);
  EXPECT_NE(result.err.find("in/a.mkv"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("--prune flowcut cuts prompts inside the model"), std::string::npos)
      << result.err;
}

TEST_F(VideoCaption, FlagsThatContradict) {
  put_images("in", 1);
  put_video("a.mkv", {4});
  caption({"--image", "in/p1.png", "--video", "a.mkv"}, 2);
  caption({"--image", "in/p1.png", "--fps", "2"}, 2);
  caption({"a.mkv", "--video-frames", "0"}, 2);
  caption({"a.mkv", "-o", "x.tar"}, 1);
}

// A pruner that sees a video as one set, and one that gives every frame its share.
TEST_F(VideoCaption, PruningOverFrames) {
  put_video("a.mkv", {24});
  for (const std::string method : {"divprune", "temporal", "uniform"}) {
    for (const std::string scope : {"all", "frame"}) {
      const std::string out = method + scope + ".jsonl";
      caption({"a.mkv", "--video-frames", "4", "--prune", method, "--keep-tokens", "40",
               "--prune-scope", scope, "-o", out});
      const Json line = by_path(content(out)).at("a.mkv");
      EXPECT_EQ(line.at("kept_tokens"), 40) << method << scope;
      EXPECT_EQ(line.at("visual_tokens"), 4 * 144);
    }
  }
}

// Of a scene that stands still nearly all that `temporal` keeps by itself is the first frame.
TEST_F(VideoCaption, AStillSceneIsKeptOnce) {
  put_video("a.mkv", {24});
  caption({"a.mkv", "--video-frames", "4", "--prune", "temporal", "--keep-tokens", "auto", "-o",
           "x.jsonl"});
  const Json line = by_path(content("x.jsonl")).at("a.mkv");
  EXPECT_GE(line.at("kept_tokens"), 144);
  EXPECT_LE(line.at("kept_tokens"), 200);
}

// The draft sees what the verifying model looked at; the text stays the model's own.
TEST_F(VideoCaption, AVerifierGuidedDraftChangesNoText) {
  put_video("a.mkv", {24});
  caption({"a.mkv", "--video-frames", "4", "-o", "plain.jsonl"});
  caption({"a.mkv", "--video-frames", "4", "--model-draft", model_.string(), "--decode", "draft",
           "--window", "4", "--draft-prune", "verifier", "--draft-keep", "10%", "-o", "d.jsonl"});
  const Json plain = by_path(content("plain.jsonl")).at("a.mkv");
  const Json draft = by_path(content("d.jsonl")).at("a.mkv");
  EXPECT_EQ(draft.at("caption"), plain.at("caption"));
  EXPECT_EQ(draft.at("draft_kept_tokens"), 57) << "a tenth of 576, rounded down";
  EXPECT_LT(draft.at("passes"), plain.at("passes"));
}

// Two hundred videos with bytes of bad luck in one job: each is one caption or one failed item.
TEST_F(VideoCaption, FlippedBytesCostOneItemEach) {
  constexpr int kSamples = 200;
  put_video("whole.mkv", {6});
  const std::string whole = content("whole.mkv");
  std::filesystem::remove(folder_ / "whole.mkv");
  std::mt19937 random(11);
  for (int i = 0; i < kSamples; ++i) {
    std::string bytes = whole;
    for (std::uint32_t flips = 1 + random() % 8; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    }
    put("in/c" + std::to_string(i) + ".mkv", bytes);
  }
  const ProgramResult result =
      caption({"in", "--scene-cut", "1", "--video-frames", "1", "-o", "x.jsonl"}, 3);
  const auto captions = by_path(content("x.jsonl"));
  int failed = 0, described = 0;
  for (int i = 0; i < kSamples; ++i) {
    const std::string name = "c" + std::to_string(i) + ".mkv";
    const bool has_caption = captions.contains("in/" + name);
    const bool has_error = result.err.find(name + ":") != std::string::npos;
    EXPECT_NE(has_caption, has_error) << name;
    described += has_caption ? 1 : 0;
    failed += has_error ? 1 : 0;
  }
  EXPECT_EQ(failed + described, kSamples);
  EXPECT_GE(failed, kSamples / 10);
  std::printf("%d videos with flipped bytes: %d failed items, %d captions\n", kSamples, failed,
              described);
}

// Ten seconds, a minute, ten minutes at one number of frames: 8 bytes a frame are all that grows.
TEST_F(VideoCaption, MemoryDoesNotGrowWithTheVideo) {
  std::vector<std::int64_t> peaks;
  for (const int frames : {80, 480, 4800}) {
    const std::string name = "c" + std::to_string(frames) + ".mkv";
    put_video(name, {frames});
    const ProgramResult result = caption(
        {name, "--scene-cut", "1", "--video-frames", "4", "-o", name + ".jsonl"}, 0, kHonestMalloc);
    EXPECT_EQ(by_path(content(name + ".jsonl")).at(name).at("frames").size(), 4u);
    peaks.push_back(result.peak_bytes);
  }
  for (const std::int64_t peak : peaks) {
    EXPECT_LT(peak - peaks[0], std::int64_t{2} << 20)
        << peaks[0] << " " << peaks[1] << " " << peaks[2];
  }
}

}  // namespace
}  // namespace tessera
