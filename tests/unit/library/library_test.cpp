// What requests give through the public headers: the same for each whatever runs with it.
#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <utility>

namespace {

using tessera::DescribeRequest;
using tessera::Image;
using tessera::ImageRequest;
using tessera::Model;
using tessera::Runtime;
using tessera::Task;
using tessera::Ticket;
using tessera::VideoRequest;

constexpr const char* kPrompt = "a red cube";

ImageRequest image_request(std::uint64_t seed) { return {.prompt = kPrompt, .seed = seed}; }

Image chequered(std::int64_t width, std::int64_t height) {
  Image out{width, height, {}};
  for (std::int64_t i = 0; i < width * height; ++i) {
    for (int channel = 0; channel < 3; ++channel) {
      out.rgb.push_back(static_cast<std::uint8_t>((i * 37 + channel * 71) % 256));
    }
  }
  return out;
}

std::vector<std::uint8_t> alone(std::uint64_t seed, const tessera::OpenOptions& options = {}) {
  Runtime runtime;
  return runtime.generate(runtime.open({"test:tiny"}, options), image_request(seed)).image.rgb;
}

TEST(Library, VersionIsANumberInThreeParts) {
  EXPECT_EQ(tessera::version().find_first_not_of("0123456789."), std::string::npos);
}

TEST(Library, InfoSaysWhatTheModelGenerates) {
  Runtime runtime;
  const tessera::ModelInfo image = runtime.info(runtime.open({"test:tiny"}));
  EXPECT_EQ(image.task, Task::kImage);
  EXPECT_EQ(image.name, "test:tiny");
  EXPECT_EQ(image.width, 32);
  EXPECT_EQ(image.height, 32);
  EXPECT_EQ(image.method, "plain");
  EXPECT_EQ(image.frames, 0);
  const tessera::ModelInfo video = runtime.info(runtime.open({"test:clip", Task::kVideo}));
  EXPECT_EQ(video.task, Task::kVideo);
  EXPECT_GT(video.frames, 1);
  EXPECT_GT(video.rate, 0);
  EXPECT_EQ(runtime.stats().models, 2);
}

TEST(Library, EqualSeedsGiveEqualImages) {
  const std::vector<std::uint8_t> first = alone(5);
  EXPECT_EQ(first.size(), 32u * 32u * 3u);
  EXPECT_EQ(first, alone(5));
  EXPECT_NE(first, alone(6));
  EXPECT_EQ(first, alone(5, {.threads = 1, .slots = 4}));
}

TEST(Library, SettingsOfRequestsAndModelsHold) {
  Runtime runtime;
  const Model plain = runtime.open({"test:tiny"});
  const Model drafts = runtime.open({"test:tiny"}, {.settings = {{"decode", "gumbel"}}});
  EXPECT_EQ(runtime.info(drafts).method, "gumbel");
  ImageRequest greedy = image_request(1);
  greedy.settings = {{"temp", 0}, {"cfg-scale", 2.5}};
  const auto made = runtime.generate(plain, greedy);
  greedy.seed = 2;
  EXPECT_EQ(made.image.rgb, runtime.generate(plain, greedy).image.rgb);
  EXPECT_NE(made.record.find("2.5"), std::string::npos) << made.record;
  // Drafts are another way to the same tokens.
  const auto drafted = runtime.generate(drafts, image_request(5));
  EXPECT_EQ(drafted.image.rgb, alone(5));
  EXPECT_LT(drafted.passes, drafted.tokens);
}

TEST(Library, DescribesWithALanguageModelAndItsEncoderInTwoFiles) {
  Runtime runtime;
  const std::string pair = TESSERA_SOURCE_DIR "/tests/golden/gguf_vision/smolvlm/model.gguf";
  const Model texts =
      runtime.open({pair, Task::kDescribe}, {.threads = 1, .settings = {{"max-tokens", 8}}});
  EXPECT_EQ(runtime.info(texts).name, "model.gguf");
  EXPECT_FALSE(runtime.describe(texts, DescribeRequest{.images = {chequered(40, 30)}}).empty());
}

TEST(Library, RequestsAreWhatTheyAreAloneWhateverRunsWithThem) {
  Runtime runtime;
  const Model images = runtime.open({"test:tiny"}, {.slots = 2});
  const Model texts = runtime.open({"test:tiny", Task::kDescribe}, {.slots = 2});
  const DescribeRequest question{.images = {chequered(40, 30)}};
  const std::string text = runtime.describe(texts, question);
  std::map<std::uint64_t, std::vector<std::uint8_t>> made;
  std::vector<std::string> descriptions;
  std::vector<Ticket> tickets;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    tickets.push_back(runtime.submit(images, image_request(seed),
                                     {.on_image = [&made, seed](tessera::GeneratedImage&& image) {
                                       made[seed] = std::move(image.image.rgb);
                                     }}));
    tickets.push_back(runtime.submit(
        texts, question,
        {.on_description = [&](tessera::Description&& one) { descriptions.push_back(one.text); }}));
  }
  EXPECT_TRUE(made.empty()) << "nothing is written before step()";
  while (runtime.step()) {
  }
  for (const Ticket ticket : tickets) EXPECT_TRUE(runtime.over(ticket));
  ASSERT_EQ(made.size(), 4u);
  for (const auto& [seed, rgb] : made) EXPECT_EQ(rgb, alone(seed)) << seed;
  EXPECT_EQ(descriptions, std::vector<std::string>(4, text));
  EXPECT_EQ(runtime.stats().submitted, 9);
  EXPECT_EQ(runtime.stats().over, 9);
}

// Slots are there for requests that come while others are written.
TEST(Library, LaterRequestsAreWrittenWithTheFirst) {
  Runtime runtime;
  const Model model = runtime.open({"test:tiny"}, {.threads = 1, .slots = 4});
  int at_work = 0, most = 0, over = 0;
  std::map<std::uint64_t, Image> made;
  const auto submit = [&](std::uint64_t seed) {
    auto begun = std::make_shared<bool>(false);
    runtime.submit(model, image_request(seed),
                   {.on_progress =
                        [&, begun](const tessera::Progress& progress) {
                          if (progress.tokens_done > 0 && !std::exchange(*begun, true)) ++at_work;
                          most = std::max(most, at_work);
                          return true;
                        },
                    .on_image =
                        [&, seed](tessera::GeneratedImage&& image) {
                          --at_work;
                          ++over;
                          made[seed] = std::move(image.image);
                        }});
  };
  submit(1);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(runtime.step());
  for (const std::uint64_t seed : {2, 3, 4}) submit(seed);
  while (runtime.step()) {
  }
  EXPECT_EQ(over, 4);
  EXPECT_EQ(most, 4) << "at once";
  for (const auto& [seed, image] : made) EXPECT_EQ(image.rgb, alone(seed)) << seed;
}

TEST(Library, TextsAreHeardAsTheyAreWritten) {
  Runtime runtime;
  const Model model =
      runtime.open({"test:tiny", Task::kDescribe}, {.settings = {{"max-tokens", 12}}});
  std::string heard;
  tessera::Description whole;
  runtime.finish(runtime.submit(
      model, DescribeRequest{.question = "What is it?", .images = {chequered(40, 30)}},
      {.on_text = [&](std::string_view more) { heard += more; },
       .on_description = [&](tessera::Description&& made) { whole = std::move(made); }}));
  EXPECT_LE(whole.tokens, 12);
  EXPECT_GT(whole.visual_tokens, 0);
  EXPECT_EQ(whole.kept_tokens, whole.visual_tokens);
  EXPECT_NE(heard.find(whole.text), std::string::npos) << heard << "\n" << whole.text;
}

// Each request reads its images with a thread of its own; only as many do as there are slots.
TEST(Library, ManyQueuedTextsReadNoMoreAtOnceThanThereAreSlots) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  Runtime runtime;
  const Model model = runtime.open({"test:tiny", Task::kDescribe},
                                   {.threads = 1, .slots = 2, .settings = {{"max-tokens", 2}}});
  int made = 0;
  for (int i = 0; i < 60; ++i) {
    runtime.submit(model, DescribeRequest{.question = "What is it?", .images = {chequered(40, 30)}},
                   {.on_description = [&](tessera::Description&&) { ++made; }});
  }
  const auto before = threads();
  std::ptrdiff_t most = 0;
  while (runtime.step()) most = std::max(most, threads() - before);
  EXPECT_EQ(made, 60);
  EXPECT_GE(most, 1);
  EXPECT_LE(most, 2);
}

TEST(Library, PruningKeepsFewerTokens) {
  Runtime runtime;
  const Model model =
      runtime.open({"test:tiny", Task::kDescribe},
                   {.settings = {{"prune-rate", 0.5}, {"max-tokens", 4}}, .prune = "divprune"});
  tessera::Description whole;
  runtime.finish(runtime.submit(
      model, DescribeRequest{.images = {chequered(40, 30)}},
      {.on_description = [&](tessera::Description&& made) { whole = std::move(made); }}));
  EXPECT_GT(whole.kept_tokens, 0);
  EXPECT_LT(whole.kept_tokens, whole.visual_tokens);
}

TEST(Library, FramesOfVideosComeInOrder) {
  Runtime runtime;
  const Model model = runtime.open({"test:clip", Task::kVideo});
  const tessera::ModelInfo info = runtime.info(model);
  VideoRequest request{.prompt = kPrompt, .seed = 3};
  const std::vector<Image> frames = runtime.generate_video(model, request);
  ASSERT_EQ(static_cast<std::int64_t>(frames.size()), info.frames);
  EXPECT_EQ(frames[0].width, info.width);
  std::int64_t next = 0;
  tessera::GeneratedVideo whole;
  request.settings = {{"frames", 2 * info.frames}};
  runtime.finish(runtime.submit(model, request,
                                {.on_frame =
                                     [&](std::int64_t index, const Image& frame) {
                                       EXPECT_EQ(index, next++);
                                       if (index < info.frames) {
                                         const auto at = static_cast<std::size_t>(index);
                                         EXPECT_EQ(frame.rgb, frames[at].rgb) << index;
                                       }
                                     },
                                 .on_video = [&](const auto& made) { whole = made; }}));
  EXPECT_EQ(next, 2 * info.frames);
  EXPECT_EQ(whole.frames, next);
  EXPECT_EQ(whole.rate, info.rate);
  EXPECT_FALSE(whole.stopped);
}

TEST(Library, EndlessVideosGoOnUntilTheyAreStopped) {
  Runtime runtime;
  const Model model = runtime.open({"test:clip", Task::kVideo});
  tessera::GeneratedVideo whole;
  const std::int64_t enough = 3 * runtime.info(model).frames;
  runtime.finish(runtime.submit(
      model, VideoRequest{.prompt = kPrompt, .endless = true},
      {.on_progress = [&](const tessera::Progress& at) { return at.frames_done < enough; },
       .on_video = [&](const auto& made) { whole = made; }}));
  EXPECT_TRUE(whole.stopped);
  EXPECT_GE(whole.frames, enough);
}

// A model that reads a text encoder's rows, and the encoder in a folder of its own.
TEST(Library, PromptsAreReadByTheTextEncoderThatIsNamed) {
  Runtime runtime;
  const Model model =
      runtime.open({"test:cosmos-text", Task::kVideo},
                   {.threads = 2, .text_encoder = TESSERA_SOURCE_DIR "/tests/golden/t5/relu"});
  const tessera::ModelInfo info = runtime.info(model);
  std::string first, second;  // long, so that rows of zeros matter less
  for (int i = 0; i < 70; ++i) {
    first += "a red cube on the floor, ";
    second += "large shiny sphere, dog. ";
  }
  VideoRequest request{.first_frames = {chequered(info.width, info.height)}};
  std::string record;
  int differ = 0;
  for (request.seed = 1; request.seed <= 12 && differ == 0; ++request.seed) {
    std::vector<std::uint8_t> pixels[2];
    for (const bool other : {false, true}) {
      request.prompt = other ? second : first;
      runtime.finish(runtime.submit(
          model, request,
          {.on_frame =
               [&](std::int64_t, const Image& frame) {
                 pixels[other].insert(pixels[other].end(), frame.rgb.begin(), frame.rgb.end());
               },
           .on_video = [&](const tessera::GeneratedVideo& made) { record = made.record; }}));
    }
    EXPECT_FALSE(pixels[0].empty());
    differ += pixels[0] != pixels[1];
  }
  EXPECT_GT(differ, 0);
  EXPECT_NE(record.find("\"text_encoder\":\"relu\""), std::string::npos) << record;
  try {
    runtime.plan(runtime.open({"test:cosmos-text", Task::kVideo}), request);
    ADD_FAILURE() << "there is none next to the model";
  } catch (const tessera::Error& error) {
    EXPECT_EQ(error.code(), "E_TEXT_ENCODER");
  }
}

// The draft model changes passes, not texts.
TEST(Library, DescriptionsMayBeDrafted) {
  const auto described = [](tessera::Settings settings) {
    settings.push_back({"max-tokens", 12});
    Runtime runtime;
    const Model model =
        runtime.open({"test:tiny", Task::kDescribe}, {.threads = 1, .settings = settings});
    tessera::Description out;
    runtime.finish(runtime.submit(
        model, DescribeRequest{.images = {chequered(40, 30)}},
        {.on_description = [&](tessera::Description&& made) { out = std::move(made); }}));
    return out;
  };
  const tessera::Description plain = described({{"decode", "plain"}});
  const tessera::Description drafted =
      described({{"decode", "draft"}, {"model-draft", "test:tiny"}});
  EXPECT_EQ(drafted.text, plain.text);
  EXPECT_LT(drafted.passes, plain.passes);
}

TEST(Library, FirstFramesBeginTheVideo) {
  Runtime runtime;
  const Model model = runtime.open({"test:clip", Task::kVideo});
  const tessera::ModelInfo info = runtime.info(model);
  ASSERT_GT(info.max_first_frames, 0);
  VideoRequest request{.prompt = kPrompt, .seed = 3};
  const std::vector<Image> plain = runtime.generate_video(model, request);
  request.first_frames.assign(static_cast<std::size_t>(info.max_first_frames),
                              chequered(info.width, info.height));
  EXPECT_NE(runtime.generate_video(model, request).front().rgb, plain.front().rgb);
}

TEST(Library, PlansAreTheSumOfTheirParts) {
  Runtime runtime;
  const auto check = [](const tessera::MemoryPlan& plan) {
    EXPECT_GT(plan.weights, 0u);
    EXPECT_GT(plan.cache, 0u);
    EXPECT_TRUE(plan.fits);
    EXPECT_EQ(plan.on_host + plan.on_device,
              plan.weights + plan.cache + plan.buffers + plan.pixels + plan.drafts + plan.process);
  };
  const Model one = runtime.open({"test:tiny"}), four = runtime.open({"test:tiny"}, {.slots = 4});
  check(runtime.plan(one, image_request(1)));
  check(runtime.plan(four, image_request(1)));
  EXPECT_EQ(runtime.plan(four, image_request(1)).cache, 4 * runtime.plan(one, image_request(1)).cache);
  const VideoRequest video{.prompt = kPrompt};
  const tessera::ModelRef clip = {"test:clip", Task::kVideo};
  check(runtime.plan(runtime.open(clip), video));
  EXPECT_EQ(runtime.plan(runtime.open(clip, {.slots = 3}), video).cache,
            3 * runtime.plan(runtime.open(clip), video).cache);
  const Model texts = runtime.open({"test:tiny", Task::kDescribe});
  check(runtime.plan(texts, DescribeRequest{.images = {chequered(40, 30)}}));
  EXPECT_GT(
      runtime.plan(texts, DescribeRequest{.images = {chequered(40, 30), chequered(40, 30)}}).cache,
      runtime.plan(texts, DescribeRequest{.images = {chequered(40, 30)}}).cache);
}

TEST(Library, CancelledRequestsAreNotHeardOf) {
  Runtime runtime;
  const Model model = runtime.open({"test:tiny"});
  std::set<std::uint64_t> done;
  std::vector<Ticket> tickets;
  const auto submit = [&](std::uint64_t seed, tessera::OnProgress on_progress) {
    tickets.push_back(runtime.submit(
        model, image_request(seed),
        {.on_progress = std::move(on_progress),
         .on_image = [&done, seed](tessera::GeneratedImage&&) { done.insert(seed); }}));
  };
  submit(1, [&](const tessera::Progress&) {
    runtime.cancel(tickets[0]);  // out of its own callback
    return true;
  });
  submit(2, nullptr);
  submit(3, [](const tessera::Progress& at) { return at.tokens_done < 5; });
  submit(4, nullptr);
  runtime.cancel(tickets[1]);  // before it begins
  while (runtime.step()) {
  }
  EXPECT_EQ(done, (std::set<std::uint64_t>{4}));
  for (const Ticket ticket : tickets) EXPECT_TRUE(runtime.over(ticket));
}

TEST(Library, ClosedModelsDropTheirRequests) {
  Runtime runtime;
  const Model gone = runtime.open({"test:tiny"}), stays = runtime.open({"test:tiny"});
  int heard = 0;
  const Ticket ticket =
      runtime.submit(gone, image_request(1), {.on_image = [&](auto&&) { ++heard; }});
  runtime.close(gone);
  EXPECT_TRUE(runtime.over(ticket));
  EXPECT_EQ(runtime.generate(stays, image_request(5)).image.rgb, alone(5));
  EXPECT_EQ(heard, 0);
}

TEST(Library, RuntimesAreIndependentAndMove) {
  Runtime first, second;
  const Model a = first.open({"test:tiny"});
  second.open({"test:tiny"});
  Runtime moved = std::move(first);
  EXPECT_EQ(moved.generate(a, image_request(5)).image.rgb, alone(5));
  EXPECT_EQ(second.stats().submitted, 0);
}

}  // namespace
