// Models of videos that are none of the usual: those that write blocks (test:nbp), and those that
// go on with frames alone (test:cosmos).
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/checkpoint/checkpoint.h"
#include "engine/families/text_encoder.h"
#include "tests/support/temp_folder.h"
#include "tests/support/video_listeners.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera::video_kinds_test {
namespace {

TEST(BlockVideos, AreWrittenABlockAPass) {
  OwnVideoTask pipeline(options_for("test:nbp")), other(options_for("test:nbp", "plain", 1));
  Frames frames, same, longer;
  const GeneratedVideo made = pipeline.run(pipeline.prepare(request()), frames);
  EXPECT_EQ(made.status, ImageStatus::kDone);
  EXPECT_EQ(made.frames, 16);
  EXPECT_EQ(made.facts.tokens, 4 * 24);
  // A block is a row of six codes; the first one comes code by code.
  EXPECT_EQ(made.facts.passes, 6 + (4 * 24 - 6) / 6);
  EXPECT_EQ(frames.first_at, 6 + (24 - 6) / 6);
  other.run(other.prepare(request()), same);
  EXPECT_EQ(same.bytes(), frames.bytes());
  VideoRequest more = request();
  more.frames = 24;
  const GeneratedVideo on = pipeline.run(pipeline.prepare(more), longer);
  EXPECT_EQ(on.windows, 2);
  EXPECT_EQ(on.facts.passes, made.facts.passes + 2 * 24 / 6);
  const auto all = longer.bytes(), first = frames.bytes();
  EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
}

TEST(BlockVideos, GoOnFromFirstFramesWithoutAPrompt) {
  OwnVideoTask pipeline(options_for("test:nbp-frames"));
  EXPECT_FALSE(pipeline.takes_prompts());
  const auto generate = [&](int shift) {
    VideoRequest wanted{.prompt = "", .seed = 5, .first_frames = drawn(8, shift)};
    Frames frames;
    const GeneratedVideo made = pipeline.run(pipeline.prepare(wanted), frames);
    EXPECT_EQ(made.frames, 16);
    EXPECT_EQ(made.facts.passes, 2 * 24 / 6);
    return frames.bytes();
  };
  const auto video = generate(0);
  EXPECT_EQ(generate(0), video);
  const auto other = generate(90);
  EXPECT_NE(std::vector(video.begin() + 8, video.end()), std::vector(other.begin() + 8, other.end()));
}

// What stands is given to a window in whole grids, of which each is whole blocks.
TEST(BlockVideos, GoOnAfterAnyGridAsTheyWouldHave) {
  for (const char* model : {"test:nbp", "test:nbp-frames"}) {
    OwnVideoTask pipeline(options_for(model));
    for (const std::size_t first_frames : {0u, 8u}) {
      if (first_frames == 0 && !pipeline.takes_prompts()) continue;
      VideoRequest wanted = request();
      wanted.frames = 30;
      wanted.first_frames = drawn(first_frames);
      if (!pipeline.takes_prompts()) wanted.prompt.clear();
      const PreparedVideo video = pipeline.prepare(wanted);
      Grids truth;
      EXPECT_EQ(pipeline.run(video, truth, {.frames = false}).windows, 3);
      ASSERT_EQ(truth.codes.size(), 8 * pipeline.grid_codes());
      for (std::int64_t grids = pipeline.given_grids(video) + 1; grids < 8; ++grids) {
        SCOPED_TRACE(std::string(model) + " " + std::to_string(grids));
        ASSERT_TRUE(pipeline.can_go_on_at(video, grids));
        Grids after;
        after.first = grids;
        std::vector<std::int32_t> codes(truth.codes.begin(), truth.codes.begin() + grids * 24);
        pipeline.run(video, after, {.committed = codes, .frames = false});
        codes.insert(codes.end(), after.codes.begin(), after.codes.end());
        ASSERT_EQ(codes, truth.codes);
        EXPECT_EQ(after.passes.back(), (8 - grids) * 24 / 6) << "only the rest is written";
      }
    }
  }
}

TEST(BlockVideos, RefuseWhatBlocksDoNot) {
  expect_refused(options_for("test:nbp", "frames"), request(), "E_DECODE_CONFLICT");
  expect_refused(options_for("test:nbp"), sliding(40), "E_VIDEO_CONTINUE");
  VideoRequest guided = request();
  guided.sampling.set(setting::kGuidance, 3);
  expect_refused(options_for("test:nbp"), guided, "E_GUIDANCE");
  expect_refused(options_for("test:nbp-frames"), request(), "E_VIDEO_FIRST");
  VideoRequest text = request();
  text.first_frames = drawn(4);
  expect_refused(options_for("test:nbp-frames"), text, "E_PROMPT_TEXT");
}

// The published models' own video tokenizer is not read.
TEST(BlockVideos, WithoutAVideoTokenizerAreRefused) {
  OpenedModel model = open_model("test:nbp");
  model.spec.movq.reset();
  try {
    OwnVideoTask pipeline(options_for("nbp"), std::move(model), "nbp");
    FAIL() << "videos without pixels";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_NBP_TOKENIZER");
    EXPECT_EQ(error.exit_code(), 4);
  }
}

std::vector<Image> wide_frames(std::size_t count, int shift = 0) {
  std::vector<Image> out;
  for (std::size_t i = 0; i < count; ++i) {
    Image image(48, 32);
    for (std::size_t at = 0; at < image.rgb.size(); ++at) {
      image.rgb[at] =
          static_cast<std::uint8_t>((at * at / 5 + i * 37 + static_cast<std::size_t>(shift)) % 253);
    }
    out.push_back(std::move(image));
  }
  return out;
}

VideoRequest going_on(std::size_t first, int shift = 0) {
  VideoRequest out;
  out.seed = 3;
  out.first_frames = wide_frames(first, shift);
  return out;
}

// A file of features: `rows` of width 24.
std::string write_features(const TempFolder& folder, std::int64_t rows, float factor = 1.0f,
                           std::int64_t width = 24) {
  Tensor text = Tensor::host(DType::kF32, {1, rows, width});
  for (std::int64_t i = 0; i < rows * width; ++i) {
    text.f32()[i] = factor * static_cast<float>(i % 11 - 5);
  }
  const std::filesystem::path path =
      folder / ("text" + std::to_string(rows) + "x" + std::to_string(width) + "_" +
                std::to_string(factor) + ".safetensors");
  write_safetensors(path, {{"context", std::as_const(text).view()}});
  return path.string();
}

GeneratedVideo generate(OwnVideoTask& with, VideoRequest wanted, Frames& frames) {
  return with.run(with.prepare(std::move(wanted)), frames);
}

TEST(VideoFromFrames, OneGridIsOneFrameAndEachFurtherOneEight) {
  OwnVideoTask plain(options_for("test:cosmos"));
  EXPECT_EQ(plain.own_frames(), 17);
  EXPECT_EQ(plain.max_first_frames(), 9);
  EXPECT_EQ(plain.rate(), 25);
  Frames nine;
  const GeneratedVideo made = generate(plain, going_on(9), nine);
  EXPECT_EQ(made.status, ImageStatus::kDone);
  EXPECT_EQ(made.frames, 17);
  EXPECT_EQ(made.first_frames, 9);
  EXPECT_EQ(made.facts.tokens, 6);
  EXPECT_EQ(made.windows, 1);
  EXPECT_EQ(nine.images[0].width, 48);
  EXPECT_EQ(nine.images[16].height, 32);
  Frames one;
  EXPECT_EQ(generate(plain, going_on(1), one).first_frames, 1);
  ASSERT_EQ(one.images.size(), 17u);
  EXPECT_EQ(one.bytes()[0], nine.bytes()[0]) << "nothing looks ahead";
  EXPECT_NE(one.bytes()[16], nine.bytes()[16]);
  // Of 12 frames the last 9 are whole grids.
  std::vector<Image> twelve = wide_frames(3, 40);
  for (Image& frame : wide_frames(9)) twelve.push_back(std::move(frame));
  VideoRequest more = going_on(0);
  more.first_frames = twelve;
  Frames same;
  generate(plain, more, same);
  EXPECT_EQ(same.bytes(), nine.bytes());
}

TEST(VideoFromFrames, MethodsAndThreadsGiveOneVideo) {
  OwnVideoTask plain(options_for("test:cosmos"));
  Frames truth, another;
  generate(plain, going_on(1), truth);
  generate(plain, going_on(1, 77), another);
  EXPECT_NE(truth.bytes(), another.bytes());
  for (const char* method : {"frames", "gumbel", "auto", "gumbel-tree"}) {
    OwnVideoTask other(options_for("test:cosmos", method, 1));
    Frames frames;
    generate(other, going_on(1), frames);
    EXPECT_EQ(frames.bytes(), truth.bytes()) << method;
  }
}

TEST(VideoFromFrames, AFewFramesAreTheFirstOnes) {
  OwnVideoTask plain(options_for("test:cosmos"));
  Frames whole, some;
  generate(plain, going_on(1), whole);
  VideoRequest shorter = going_on(1);
  shorter.frames = 5;
  EXPECT_EQ(generate(plain, shorter, some).frames, 5);
  const auto all = whole.bytes(), few = some.bytes();
  ASSERT_EQ(few.size(), 5u);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), all.begin()));
}

TEST(VideoFromFrames, RowsOfATextLeadTheVideo) {
  const TempFolder folder;
  OwnVideoTask pipeline(options_for("test:cosmos-text"));
  const auto with = [&](const std::string& file) {
    VideoRequest wanted = going_on(1);
    wanted.text_features = file;
    Frames frames;
    EXPECT_EQ(generate(pipeline, wanted, frames).frames, 17);
    return frames.bytes();
  };
  const auto first = with(write_features(folder, 400));
  EXPECT_EQ(with(write_features(folder, 400)), first);
  EXPECT_NE(with(write_features(folder, 400, -1.0f)), first);
}

// The rows that the encoder makes of a prompt, as a file has them. Rows of zeros are seen too: the
// prompts are long, so that they matter.
TEST(VideoFromFrames, APromptIsReadByItsEncoder) {
  const TempFolder folder;
  std::string first, second;
  for (int i = 0; i < 70; ++i) {
    first += "a red cube on the floor, ";
    second += "large shiny sphere, dog. ";
  }
  const std::filesystem::path t5 =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "tests" / "golden" / "t5" / "relu";
  const auto backend = make_backend("cpu", {.threads = 2});
  const TextEncoder encoder = load_text_encoder(open_text_encoder(t5, 24), *backend, DType::kF32);
  const Tensor rows = encoder.encode(TextTokenizer::from_folder(t5).encode(first));
  write_safetensors(folder / "rows.safetensors", {{"context", rows.view()}});
  GenerateOptions options = options_for("test:cosmos-text");
  options.text_encoder = t5.string();
  OwnVideoTask pipeline(options);
  Frames given, read;
  VideoRequest file = going_on(1);
  file.text_features = (folder / "rows.safetensors").string();
  generate(pipeline, file, given);
  VideoRequest spoken = going_on(1);
  spoken.prompt = first;
  const GeneratedVideo made = generate(pipeline, spoken, read);
  EXPECT_EQ(made.facts.prompt, first);
  EXPECT_EQ(made.facts.text_encoder, "relu");
  EXPECT_TRUE(read.bytes() == given.bytes());
  int differ = 0;
  for (spoken.seed = 1; spoken.seed <= 12; ++spoken.seed) {
    Frames one, other;
    spoken.prompt = first;
    generate(pipeline, spoken, one);
    spoken.prompt = second;
    generate(pipeline, spoken, other);
    differ += one.bytes() != other.bytes();
  }
  EXPECT_GT(differ, 0);
  spoken.text_features = file.text_features;
  expect_refused(options, spoken, "E_VIDEO_TEXT");
  spoken.text_features.clear();
  expect_refused(options_for("test:cosmos-text"), spoken, "E_TEXT_ENCODER");
  OwnVideoTask bare(options_for("test:cosmos-text"));
  EXPECT_GT(pipeline.plan(pipeline.prepare(file)).weights, bare.plan(bare.prepare(file)).weights);
}

TEST(VideoFromFrames, RefusesWhatItCannotDo) {
  const TempFolder folder;
  const auto cosmos = options_for("test:cosmos"), text = options_for("test:cosmos-text");
  expect_refused(cosmos, going_on(0), "E_VIDEO_FIRST");
  VideoRequest spoken = going_on(1);
  spoken.prompt = "a red cube";
  expect_refused(cosmos, spoken, "E_PROMPT_TEXT");
  VideoRequest guided = going_on(1);
  guided.sampling.set(setting::kGuidance, 3);
  expect_refused(cosmos, guided, "E_NEGATIVE_PROMPT");
  VideoRequest longer = going_on(1);
  longer.frames = 18;
  expect_refused(cosmos, longer, "E_VIDEO_FRAMES");
  VideoRequest endless = going_on(1);
  endless.endless = true;
  expect_refused(cosmos, endless, "E_VIDEO_FRAMES");
  VideoRequest slides = going_on(1);
  slides.continuation = Continuation::kSinks;
  expect_refused(cosmos, slides, "E_VIDEO_CONTINUE");
  VideoRequest read = going_on(1);
  read.text_features = write_features(folder, 4);
  expect_refused(cosmos, read, "E_VIDEO_TEXT");
  expect_refused(text, going_on(1), "E_VIDEO_TEXT");
  for (const auto& [rows, width] : {std::pair(513, 24), std::pair(4, 25)}) {
    OwnVideoTask pipeline(text);
    VideoRequest wrong = going_on(1);
    wrong.text_features = write_features(folder, rows, 1.0f, width);
    try {
      pipeline.prepare(wrong);
      ADD_FAILURE() << rows << " rows of " << width << " were accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_VIDEO_TEXT");
      EXPECT_EQ(error.exit_code(), 4);
    }
  }
}

}  // namespace
}  // namespace tessera::video_kinds_test
