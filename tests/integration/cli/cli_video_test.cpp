// `tessera video` on the seeded video model: same seed same bytes, frames and times as asked, plain
// equals gumbel frame by frame, first frames, signals, sequences of images, refusals.
#include <chrono>
#include <thread>

#include "apps/runtime/sha256.h"
#include "tests/integration/cli/program.h"
#include "video/frame_reader.h"
#include "vision/image/png.h"
#include "vision/image/xmp.h"

namespace tessera::cli_video_test {
namespace {

using Json = nlohmann::ordered_json;

class CliVideo : public ProgramTest {
 protected:
  ProgramResult video(std::vector<std::string> more, int code = 0) {
    std::vector<std::string> args = {"video", "-m", model_};
    args.insert(args.end(), more.begin(), more.end());
    ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, code) << result.err;
    return result;
  }

  // Whether the running program told of frames on stderr.
  bool frames_reported() const {
    const std::string text = get_file(logs_ / "stderr"), key = "\"frames_done\":";
    for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
      const std::size_t digit = at + key.size();
      if (digit < text.size() && text[digit] >= '1' && text[digit] <= '9') return true;
    }
    return false;
  }

  std::string model_ = "test:clip";

  struct Video {
    VideoInfo info;
    std::vector<std::vector<std::uint8_t>> frames;
    std::vector<double> times;  // seconds
  };
  Video read(const std::string& name) const {
    FrameReader reader(folder_ / name, {.process = {.program = VIDEO_HELPER}});
    Video whole_video{reader.info(), {}, {}};
    while (auto frame = reader.next()) {
      whole_video.times.push_back(static_cast<double>(frame->ticks) * whole_video.info.tick.value());
      whole_video.frames.push_back(std::move(frame->rgb));
    }
    return whole_video;
  }
};

TEST_F(CliVideo, SameSeedSameBytes) {
  for (const char* ending : {".mkv", ".mp4", ".webm"}) {
    const std::string a = std::string("a") + ending, b = std::string("b") + ending;
    video({"-p", "a red cube", "-s", "7", "-o", a});
    video({"-p", "a red cube", "-s", "7", "-o", b, "-t", "1"});
    EXPECT_EQ(content(a), content(b)) << ending;
    video({"-p", "a red cube", "-s", "8", "-o", std::string("c") + ending});
    EXPECT_NE(content(a), content(std::string("c") + ending));
  }
}

TEST_F(CliVideo, FramesTimesAndTheResultLineAreAsAsked) {
  const Json line =
      video({"-p", "x", "-s", "1", "--frames", "11", "--fps", "5", "-o", "a.mkv", "--json"})
          .json_lines()
          .at(0);
  std::size_t at = 0;
  for (const auto& [name, value] : line.items()) {
    if (at < std::size(kImageLine)) {
      EXPECT_EQ(name, kImageLine[at]);
    }
    ++at;
  }
  EXPECT_EQ(line["frames"], 11);
  EXPECT_EQ(line["fps"], 5);
  EXPECT_DOUBLE_EQ(line["duration"], 2.2);
  EXPECT_EQ(line["codec"], "ffv1");
  EXPECT_EQ(line["finished"], true);
  EXPECT_EQ(line["sha256"].get<std::string>().size(), 64u);
  EXPECT_EQ(line["meters"]["passes"], line["passes"]);
  const Video whole_video = read("a.mkv");
  ASSERT_EQ(whole_video.frames.size(), 11u);
  EXPECT_EQ(whole_video.info.width, 24);
  EXPECT_EQ(whole_video.info.height, 16);
  for (std::size_t i = 0; i < whole_video.times.size(); ++i) {
    EXPECT_NEAR(whole_video.times[i], static_cast<double>(i) / 5, 1e-3);
  }
  video({"-p", "x", "-s", "1", "-o", "own.mkv"});
  EXPECT_EQ(read("own.mkv").frames.size(), 16u);
  EXPECT_NEAR(read("own.mkv").times[8], 1.0, 1e-3);
}

TEST_F(CliVideo, GumbelAndFramesWriteThePlainVideo) {
  const auto frames = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"-p", "a red cube", "-s", "5", "--frames", "24", "-o", name});
    video(more);
    return read(name).frames;
  };
  const auto plain = frames("plain.mkv", {});
  EXPECT_EQ(plain.size(), 24u);
  EXPECT_EQ(frames("gumbel.mkv", {"--decode", "gumbel"}), plain);
  EXPECT_EQ(frames("frames.mkv", {"--decode", "frames", "--window", "7"}), plain);
  EXPECT_EQ(frames("auto.mkv", {"--decode", "auto"}), plain);
  EXPECT_NE(frames("sjd.mkv", {"--decode", "frames-coupled"}), plain) << "another draw";
  EXPECT_EQ(frames("draft.mkv", {"--decode", "gumbel", "--drafter", "model", "--model-draft",
                                 "test:clip", "--json"}),
            plain);
}

TEST_F(CliVideo, APreviewShowsTheNewestFrameInTheEnd) {
  const std::vector<std::string> how = {"-p", "x", "-s", "3", "--frames", "12"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), how.begin(), how.end());
    video(more);
  };
  with({"-o", "truth.mkv"});
  with({"-o", "seen.mkv", "--preview", "now/seen.png", "--preview-interval", "2"});
  EXPECT_EQ(content("seen.mkv"), content("truth.mkv"));
  const Image shown = read_own_png(folder_ / "now/seen.png");
  EXPECT_EQ(shown.rgb, read("truth.mkv").frames.back());
}

TEST_F(CliVideo, FirstFramesBeginTheVideo) {
  video({"-p", "x", "-s", "1", "-o", "first.mkv", "--frames", "8"});
  const Json line =
      video({"-p", "x", "-s", "2", "-o", "on.mkv", "--first-frames", "first.mkv", "--json"})
          .json_lines()
          .at(0);
  EXPECT_EQ(line["frames"], 16);
  EXPECT_EQ(line["first_frames"], 8);
  const auto on = read("on.mkv").frames;
  video({"-p", "x", "-s", "2", "-o", "alone.mkv"});
  EXPECT_NE(read("alone.mkv").frames, on);
  video({"-p", "x", "-s", "2", "-o", "again.mkv", "--first-frames", "first.mkv"});
  video({"-p", "x", "-s", "1", "-o", "moving.webp"});
  const ProgramResult moving =
      video({"-p", "x", "-o", "none.mkv", "--first-frames", "moving.webp"}, 1);
  EXPECT_NE(moving.err.find("an animated image"), std::string::npos) << moving.err;
  EXPECT_EQ(content("on.mkv"), content("again.mkv"));
}

TEST_F(CliVideo, TheRecordHoldsNoPathAndCanBeLeftOut) {
  video({"-p", "a secret prompt", "-s", "1", "--sidecar", "-o", "a.mkv"});
  EXPECT_NE(content("a.mkv").find("a secret prompt"), std::string::npos);
  EXPECT_NE(content("a.mkv").find("trainedAlgorithmicMedia"), std::string::npos);
  EXPECT_EQ(content("a.mkv").find(folder_.path().string()), std::string::npos);
  const Json sidecar = Json::parse(content("a.mkv.json"));
  EXPECT_EQ(sidecar["facts"]["prompt"], "a secret prompt");
  EXPECT_EQ(sidecar["clip"]["frames"], 16);
  video({"-p", "a secret prompt", "-s", "1", "--disable-metadata", "-o", "b.mkv"});
  EXPECT_EQ(content("b.mkv").find("secret"), std::string::npos);
  EXPECT_NE(content("b.mkv").find("trainedAlgorithmicMedia"), std::string::npos);
}

// Numbered PNG files are the frames of the lossless video, each with the record and its time.
TEST_F(CliVideo, SequencesOfImagesAreTheSameFrames) {
  video({"-p", "a red cube", "-s", "7", "--frames", "6", "-o", "clip.mkv"});
  const auto frames = read("clip.mkv").frames;
  const Json line = video({"-p", "a red cube", "-s", "7", "--frames", "6", "-o", "shots/s-%03d.png",
                           "--sidecar", "--json"})
                        .json_lines()
                        .at(0);
  EXPECT_EQ(line["codec"], "png");
  EXPECT_EQ(line["frames"], 6);
  EXPECT_EQ(line["path"], "shots/s-%03d.png");
  std::string sums;
  for (int i = 1; i <= 6; ++i) {
    const std::string name = "s-00" + std::to_string(i) + ".png", bytes = content("shots/" + name);
    EXPECT_EQ(read_own_png(folder_ / ("shots/" + name)).rgb,
              frames.at(static_cast<std::size_t>(i - 1)));
    const PngTexts texts = parse_png_texts(bytes, name);
    ASSERT_EQ(texts.texts.size(), 2u);
    EXPECT_EQ(texts.texts[0].text,
              std::vector<std::string>({"0/1 s", "1/8 s", "1/4 s", "3/8 s", "1/2 s", "5/8 s"})
                  .at(static_cast<std::size_t>(i - 1)));
    EXPECT_EQ(Json::parse(texts.texts[1].text)["prompt"], "a red cube");
    sums += sha256_hex(bytes) + "  " + name + "\n";
  }
  EXPECT_EQ(line["sha256"], sha256_hex(sums));
  EXPECT_EQ(Json::parse(content("shots/s-%03d.json"))["clip"]["path"], "s-%03d.png");
  // A folder of its own, new; it is not filled twice.
  video({"-p", "a red cube", "-s", "7", "--frames", "6", "-o", "frames/"});
  EXPECT_EQ(content("frames/0006.png"), content("shots/s-006.png"));
  video({"-p", "x", "-s", "8", "--frames", "6", "-o", "frames/"}, 6);
  video({"-p", "x", "-s", "8", "--frames", "6", "-o", "shots/s-%03d.png"}, 6);
  EXPECT_EQ(content("frames/0006.png"), content("shots/s-006.png"));
  video({"-p", "x", "-s", "8", "--frames", "4", "-o", "frames/", "--overwrite"});
  EXPECT_NE(content("frames/0001.png"), content("shots/s-001.png"));
  EXPECT_EQ(files().size(), 1u + 6 + 2 + 6);
}

// The packet next to a video says what the video's comment says.
TEST_F(CliVideo, TheXmpSidecarHoldsTheComment) {
  for (const char* ending : {"mkv", "mp4"}) {
    const std::string stem = std::string("a-") + ending;
    video({"-p", "a secret prompt", "-s", "1", "--sidecar", "-o", stem + "." + ending});
    const std::string xmp = content(stem + ".xmp");
    EXPECT_EQ(digital_source_type(xmp), "trainedAlgorithmicMedia");
    const std::string comment = description_of(xmp);
    EXPECT_EQ(Json::parse(comment)["prompt"], "a secret prompt");
    EXPECT_EQ(Json::parse(comment)["fps"], 8);
    EXPECT_NE(content(stem + "." + ending).find(comment), std::string::npos);
  }
  video({"-p", "a secret prompt", "-s", "1", "--sidecar", "--disable-metadata", "-o", "b.mkv"});
  EXPECT_EQ(content("b.xmp").find("secret"), std::string::npos);
  EXPECT_EQ(digital_source_type(content("b.xmp")), "trainedAlgorithmicMedia");
  put_file(folder_ / "d.mkv.json", "mine");
  video({"-p", "x", "-s", "1", "--sidecar", "-o", "d.mkv"}, 6);
  EXPECT_EQ(content("d.mkv.json"), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "d.mkv"));
  put_file(folder_ / "c.xmp", "mine");
  video({"-p", "x", "-s", "1", "--sidecar", "-o", "c.mkv"}, 6);
  EXPECT_EQ(content("c.xmp"), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "c.mkv"));
}

TEST_F(CliVideo, WindowsSlideWhenAsked) {
  const auto generate = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"-p", "x", "-s", "3", "--frames", "32", "-o", name, "--json"});
    return video(more).json_lines().at(0);
  };
  const Json anew = generate("anew.mkv", {});
  const Json slid = generate("slid.mkv", {"--continue", "sinks"});
  generate("frames.mkv", {"--continue", "sinks", "--decode", "frames"});
  EXPECT_EQ(anew["continue"], "recompute");
  EXPECT_EQ(slid["continue"], "sinks");
  EXPECT_EQ(slid["windows"], 3);
  EXPECT_LT(slid["prefilled"].get<int>() + 2 * 2 * 48 - 1, anew["prefilled"].get<int>());
  EXPECT_NE(read("slid.mkv").frames, read("anew.mkv").frames);
  EXPECT_EQ(read("slid.mkv").frames, read("frames.mkv").frames);
  EXPECT_NE(content("slid.mkv").find("sinks"), std::string::npos) << "the record says so";
}

TEST_F(CliVideo, BlocksAreAPassEach) {
  model_ = "test:nbp";
  const Json line = video({"-p", "x", "-s", "1", "-o", "a.mkv", "--json"}).json_lines().at(0);
  EXPECT_EQ(line["tokens"], 96);
  EXPECT_EQ(line["passes"], 6 + 96 / 6 - 1);
  EXPECT_EQ(read("a.mkv").frames.size(), 16u);
  model_ = "test:nbp-frames";
  const Json on =
      video({"--first-frames", "a.mkv", "-s", "1", "-o", "b.mkv", "--json"}).json_lines().at(0);
  EXPECT_EQ(on["first_frames"], 12);
  EXPECT_EQ(on["passes"], 24 / 6);
  const ProgramResult look = run({"inspect", "-m", "test:nbp", "--memory", "--json"});
  EXPECT_EQ(look.exit_code, 0) << look.err;
}

// An endless video ends with a signal; what stood is a video.
TEST_F(CliVideo, ASignalLeavesAPlayableVideo) {
  for (const auto& [number, code] : {std::pair{SIGINT, 130}, {SIGTERM, 143}}) {
    const std::string name = "s" + std::to_string(number) + ".mkv";
    const std::string how = number == SIGINT ? "sinks" : "recompute";
    put_file(logs_ / "stderr", "");  // of the program before, which reported frames too
    const ProgramResult result =
        run({"video", "-m", "test:clip", "-p", "x", "-s", "1", "--endless", "--continue", how, "-o",
             name, "--json", "--progress", "json"},
            {}, [&, number = number](pid_t child) {
              // Until some frames are reported.
              for (int i = 0; i < 3000; ++i) {
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
                if (frames_reported()) break;
              }
              kill(child, number);
            });
    EXPECT_EQ(result.exit_code, code) << result.err;
    const Json line = result.json_lines().at(0);
    EXPECT_EQ(line["finished"], false);
    const Video whole_video = read(name);
    EXPECT_EQ(whole_video.frames.size(), line["frames"].get<std::size_t>());
    EXPECT_GE(whole_video.frames.size(), 4u);
    EXPECT_EQ(whole_video.frames.size() % 4, 0u);
  }
  EXPECT_EQ(files(), (std::vector<std::string>{"s15.mkv", "s2.mkv"}));
}

TEST_F(CliVideo, RefusalsNameThePlaceAndLeaveNothing) {
  put_file(folder_ / "taken.mkv", "x");
  const auto refused = [&](std::vector<std::string> more, int code, const char* error) {
    const ProgramResult result = video(more, code);
    EXPECT_NE(result.err.find(error), std::string::npos) << result.err;
    EXPECT_EQ(files(), std::vector<std::string>{"taken.mkv"});
  };
  refused({"-p", "x", "-o", "a.flv"}, 2, ".mp4, .webm, .mkv, .webp or .gif");
  refused({"-p", "x", "-o", "taken.mkv"}, 6, "taken.mkv");
  refused({"-o", "a.mkv"}, 2, "--prompt");
  refused({"-p", "x", "-o", "a.mkv", "--frames", "0"}, 2, "--frames");
  refused({"-p", "x", "-o", "a.mkv", "--frames", "4", "--endless"}, 2, "--endless");
  refused({"-p", "x", "-o", "a.mkv", "--decode", "rows"}, 2, "--decode rows");
  refused({"-p", "x", "-o", "a.mkv", "--decode", "draft"}, 2, "--model-draft");
  refused({"-p", "x", "-o", "a.mkv", "--decode", "draft", "--model-draft", "test:clip-rows"}, 2,
          "test:clip-rows");
  refused({"-p", "x", "-o", "a.mkv", "--preview", "a.jpg"}, 2, "a.jpg");
  refused({"-p", "x", "-o", "a.mkv", "--first-frames", "taken.mkv"}, 1, "taken.mkv");
  refused({"-p", "x", "-o", "a.gif", "--fps", "60"}, 2, "at most 50");
  model_ = "test:tiny";
  refused({"-p", "x", "-o", "a.mkv"}, 2, "tessera generate");
  const ProgramResult image = run({"generate", "-m", "test:clip", "-p", "x"});
  EXPECT_EQ(image.exit_code, 2);
  EXPECT_NE(image.err.find("tessera video"), std::string::npos);
}

}  // namespace
}  // namespace tessera::cli_video_test
