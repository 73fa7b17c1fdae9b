// Texts with settings, conversations and ends of their own, images on their way, files as bytes.
#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

namespace {

using tessera::ChatTurn;
using tessera::DescribeRequest;
using tessera::Description;
using tessera::Image;
using tessera::Model;
using tessera::Runtime;
using tessera::Task;

const tessera::ModelRef kCaptioner{TESSERA_SOURCE_DIR "/assets/models/tabletop-llava",
                                   Task::kDescribe};

std::string cube_png() {
  Runtime runtime;
  const Model janus = runtime.open({TESSERA_SOURCE_DIR "/assets/models/tabletop-janus"});
  return runtime.generate(janus, {.prompt = "a red cube", .seed = 7}).png();
}

DescribeRequest about_cube() {
  static const std::string kPng = cube_png();
  return {.encoded = {kPng}};
}

Description describe(Runtime& runtime, Model model, const DescribeRequest& request) {
  Description out;
  runtime.finish(runtime.submit(
      model, request, {.on_description = [&](Description&& made) { out = std::move(made); }}));
  return out;
}

std::string code_of(Runtime& runtime, Model model, const DescribeRequest& request) {
  try {
    describe(runtime, model, request);
  } catch (const tessera::Error& error) {
    return error.code();
  }
  return "";
}

TEST(LibraryChat, BytesOfAFileAreTheFile) {
  const auto path = std::filesystem::temp_directory_path() / "tessera-library-chat.png";
  const std::string png = cube_png();
  std::ofstream(path, std::ios::binary) << png;
  Runtime runtime;
  const Model model = runtime.open(kCaptioner);
  EXPECT_EQ(runtime.describe(model, {.files = {path}}), runtime.describe(model, {.encoded = {png}}));
  std::filesystem::remove(path);
  EXPECT_EQ(code_of(runtime, model, {.encoded = {"no image"}}), "E_PICTURE_FORMAT");
}

TEST(LibraryChat, PngIsWhatSavePngWrites) {
  Runtime runtime;
  const auto made = runtime.generate(runtime.open({"test:tiny"}), {.prompt = "a cube", .seed = 3});
  const auto path = std::filesystem::temp_directory_path() / "tessera-library-png.png";
  made.save_png(path);
  std::ifstream file(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), made.png());
  std::filesystem::remove(path);
}

TEST(LibraryChat, SettingsOfARequestAreItsOwnWhateverRunsWithIt) {
  std::vector<DescribeRequest> requests(6, about_cube());
  requests[1].settings = {{"temp", 2.0}};
  requests[1].seed = 5;
  requests[2].settings = {{"temp", 2.0}};
  requests[2].seed = 6;
  requests[3].max_tokens = 4;
  requests[4].stop = {"cube"};
  requests[5].settings = {{"cfg-scale", 2.0}};
  std::map<std::size_t, std::string> alone, together;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Runtime runtime;
    alone[i] = runtime.describe(runtime.open(kCaptioner), requests[i]);
  }
  Runtime runtime;
  const Model model = runtime.open(kCaptioner, {.slots = 4});
  for (std::size_t i = 0; i < requests.size(); ++i) {
    runtime.submit(model, requests[i], {.on_description = [&, i](Description&& made) {
                     together[i] = std::move(made.text);
                   }});
  }
  while (runtime.step()) {
  }
  EXPECT_EQ(together, alone);
  EXPECT_NE(alone[1], alone[2]) << "seeds tell them apart";
  EXPECT_TRUE(alone[0].starts_with(alone[3]));
  EXPECT_LT(alone[3].size(), alone[0].size());
}

TEST(LibraryChat, ManyAsOneAreWhatEachIsAloneAndAnErrorIsOfItsOwnRequest) {
  std::vector<DescribeRequest> requests(5, about_cube());
  requests[1].max_tokens = 4;
  requests[2].encoded = {"no image"};
  requests[3].stop = {"cube"};
  Runtime runtime;
  const Model model = runtime.open(kCaptioner, {.slots = 2});
  std::map<std::size_t, Description> made;
  std::map<std::size_t, std::string> heard, codes;
  const tessera::Ticket ticket = runtime.submit(
      model, requests,
      {.on_text = [&](std::size_t at, std::string_view more) { heard[at] += more; },
       .on_description = [&](std::size_t at, Description&& one) { made[at] = std::move(one); },
       .on_error = [&](std::size_t at, const tessera::Error& why) { codes[at] = why.code(); }});
  runtime.finish(ticket);
  EXPECT_EQ(codes, (std::map<std::size_t, std::string>{{2, "E_PICTURE_FORMAT"}}));
  ASSERT_EQ(made.size(), 4U);
  for (const auto& [at, one] : made) {
    EXPECT_EQ(one.text, runtime.describe(model, requests[at])) << at;
    EXPECT_EQ(heard[at], one.text) << at;
  }
  EXPECT_EQ(made.at(1).tokens, 4);
  EXPECT_TRUE(made.at(3).stopped_by_text);
  // One that cannot be refuses all, and false stops all that are left.
  requests[4].stop = {""};
  EXPECT_THROW(runtime.submit(model, requests, tessera::DescribeAllCallbacks{}), tessera::Error);
  requests[4].stop = {};
  int passes = 0;
  made.clear();
  runtime.finish(runtime.submit(
      model, requests,
      {.on_progress = [&] { return ++passes < 3; },
       .on_description = [&](std::size_t at, Description&& one) { made[at] = std::move(one); }}));
  EXPECT_TRUE(made.empty());
}

TEST(LibraryChat, AStopTextEndsTheTextBeforeItWithEveryMethod) {
  for (const char* decode : {"plain", "auto"}) {
    Runtime runtime;
    const Model model = runtime.open(kCaptioner, {.settings = {{"decode", decode}}});
    const Description whole = describe(runtime, model, about_cube());
    ASSERT_NE(whole.text.find("cube"), std::string::npos) << whole.text;
    EXPECT_FALSE(whole.stopped_by_text);
    DescribeRequest request = about_cube();
    request.stop = {"never", "cube"};
    std::string heard;
    Description made;
    runtime.finish(runtime.submit(
        model, request,
        {.on_text = [&](std::string_view more) { heard += more; },
         .on_description = [&](Description&& one) { made = std::move(one); }}));
    EXPECT_TRUE(made.stopped_by_text);
    EXPECT_FALSE(made.cut_short);
    EXPECT_EQ(heard, made.text);
    EXPECT_TRUE(whole.text.starts_with(made.text));
    EXPECT_EQ(made.text.find("cube"), std::string::npos);
    EXPECT_LT(made.tokens, whole.tokens);
    // The slot is free for the next.
    EXPECT_EQ(describe(runtime, model, about_cube()).text, whole.text);
  }
}

// Whatever drafts, and whatever is written at the same time; and nobody pays who does not ask.
TEST(LibraryChat, LogprobsAreTheSameWithEveryMethod) {
  std::vector<tessera::TextToken> plain;
  for (const char* decode : {"plain", "lookup", "gumbel-tree", "recycle"}) {
    Runtime runtime;
    const Model model = runtime.open(kCaptioner, {.slots = 2, .settings = {{"decode", decode}}});
    DescribeRequest request = about_cube();
    EXPECT_TRUE(describe(runtime, model, request).listed.empty());
    request.logprobs = 2;
    std::vector<tessera::TextToken> streamed;
    Description made;
    std::string bytes;
    runtime.submit(model, about_cube(), {});
    runtime.finish(runtime.submit(model, request,
                                  {.on_tokens =
                                       [&](std::vector<tessera::TextToken>&& more) {
                                         streamed.insert(streamed.end(), more.begin(), more.end());
                                       },
                                   .on_description = [&](Description&& one) { made = std::move(one); }}));
    if (plain.empty()) plain = made.listed;
    ASSERT_GT(made.listed.size(), 5u);
    ASSERT_EQ(streamed.size(), made.listed.size());
    ASSERT_EQ(plain.size(), made.listed.size());
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(streamed[i].token.id, made.listed[i].token.id);
      EXPECT_EQ(plain[i].token.id, made.listed[i].token.id);
      EXPECT_EQ(plain[i].token.logprob, made.listed[i].token.logprob) << decode << " " << i;
      EXPECT_EQ(made.listed[i].top[0].id, made.listed[i].token.id);
      EXPECT_EQ(plain[i].top[1].logprob, made.listed[i].top[1].logprob);
      bytes += made.listed[i].token.bytes;
    }
    EXPECT_TRUE(bytes.ends_with(made.text)) << bytes;
    request.logprobs = 21;
    EXPECT_EQ(code_of(runtime, model, request), "E_LOGPROBS");
    request.logprobs = -2;
    EXPECT_EQ(code_of(runtime, model, request), "E_LOGPROBS");
  }
}

TEST(LibraryChat, PatchesThatPruningKeepsAreListed) {
  Runtime runtime;
  const auto patches = [&](tessera::Settings settings) {
    const Model model = runtime.open(kCaptioner, {.settings = std::move(settings)});
    const Description made = describe(runtime, model, about_cube());
    EXPECT_EQ(made.patches.size(), 1u);
    const tessera::ViewPatches view = made.patches.at(0);
    EXPECT_EQ(view.image, 0);
    EXPECT_EQ(view.columns * view.rows, made.visual_tokens);
    EXPECT_EQ(std::ssize(view.kept), made.kept_tokens);
    EXPECT_TRUE(std::is_sorted(view.kept.begin(), view.kept.end()));
    EXPECT_LT(view.kept.back(), made.visual_tokens);
    EXPECT_EQ(view.left, 0);
    EXPECT_EQ(view.width, 1);
    runtime.close(model);
    return view.kept;
  };
  const std::vector<std::int64_t> all = patches({});
  EXPECT_EQ(patches({{"prune", "none"}}), all);
  EXPECT_EQ(patches({{"prune", "divprune"}, {"keep-tokens", 20}}).size(), 20u);
  const std::vector<std::int64_t> half = patches({{"prune", "divprune"}, {"prune-rate", 0.5}});
  EXPECT_EQ(half.size(), all.size() / 2);
  EXPECT_NE(half, patches({{"prune", "uniform"}, {"prune-rate", 0.5}}));
  const auto refused = [&](const tessera::OpenOptions& options) -> std::string {
    try {
      runtime.open(kCaptioner, options);
    } catch (const tessera::Error& error) {
      return error.code() + " " + error.where();
    }
    return "";
  };
  EXPECT_EQ(refused({.settings = {{"prune-rate", 0.5}}}), "E_SETTING_VALUE prune-rate");
  EXPECT_EQ(refused({.settings = {{"prune", "none"}, {"keep-tokens", 5}}}),
            "E_SETTING_VALUE keep-tokens");
  EXPECT_EQ(refused({.settings = {{"prune", "uniform"}, {"keep-tokens", 5}, {"prune-rate", 0.5}}}),
            "E_SETTING_VALUE keep-tokens");
  EXPECT_EQ(refused({.settings = {{"prune", "unknown"}}}), "E_SETTING_VALUE prune");
  EXPECT_EQ(refused({.settings = {{"prune", "uniform"}}, .prune = "uniform"}),
            "E_SETTING_VALUE prune");
}

TEST(LibraryChat, ATurnIsTheQuestion) {
  Runtime runtime;
  const Model model = runtime.open(kCaptioner);
  DescribeRequest turns = about_cube();
  turns.turns = {{.role = "user", .parts = {{.image = true}, {.text = turns.question}}}};
  EXPECT_EQ(runtime.describe(model, turns), runtime.describe(model, about_cube()));
}

TEST(LibraryChat, RequestsThatCannotBeAreRefused) {
  Runtime runtime;
  const Model model = runtime.open(kCaptioner);
  DescribeRequest request = about_cube();
  request.turns = {{.role = "user", .parts = {{.text = "no image"}}}};
  EXPECT_EQ(code_of(runtime, model, request), "E_CHAT_IMAGES");
  request.turns = {{.role = "robot", .parts = {{.image = true}}}};
  EXPECT_EQ(code_of(runtime, model, request), "E_CHAT_ROLE");
  request = about_cube();
  request.stop = {""};
  EXPECT_EQ(code_of(runtime, model, request), "E_STOP_TEXT");
  request = about_cube();
  request.max_tokens = 1000;
  EXPECT_EQ(code_of(runtime, model, request), "E_TEXT_LENGTH");
  request = about_cube();
  request.settings = {{"max-tokens", 4}};
  EXPECT_EQ(code_of(runtime, model, request), "E_SETTING_NAME");
}

TEST(LibraryChat, PartialImagesComeEvenlyAndChangeNothing) {
  Runtime runtime;
  const Model model = runtime.open({"test:tiny"});
  const tessera::ImageRequest plain{.prompt = "a cube", .seed = 3};
  const Image whole = runtime.generate(model, plain).image;
  for (const std::int64_t wanted : {0, 1, 3}) {
    tessera::ImageRequest request = plain;
    request.partial_images = wanted;
    std::vector<Image> partials;
    Image made;
    runtime.finish(runtime.submit(
        model, request,
        {.on_partial =
             [&](std::int64_t number, Image&& image) {
               EXPECT_EQ(number, static_cast<std::int64_t>(partials.size()));
               partials.push_back(std::move(image));
             },
         .on_image = [&](tessera::GeneratedImage&& image) { made = std::move(image.image); }}));
    EXPECT_EQ(made.rgb, whole.rgb);
    EXPECT_EQ(static_cast<std::int64_t>(partials.size()), wanted);
    for (const Image& image : partials) {
      EXPECT_EQ(image.width, whole.width);
      EXPECT_EQ(image.height, whole.height);
      EXPECT_NE(image.rgb, whole.rgb) << "rows are to come";
    }
  }
}

}  // namespace
