// Texts through the public headers: those of transformers, whatever runs with them; what is
// refused.
#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace {

using tessera::CompleteRequest;
using tessera::Completion;
using tessera::Error;
using tessera::ErrorKind;
using tessera::ImageRequest;
using tessera::Model;
using tessera::OpenOptions;
using tessera::Runtime;
using tessera::Task;
using tessera::Ticket;

const std::filesystem::path kTexts =
    std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/gguf_text";
const std::string kLlama = kTexts / "llama_f32.gguf";
const std::string kQwen = kTexts / "qwen2_f16.gguf";

Model open_texts(Runtime& runtime, OpenOptions options = {}, const std::string& model = kLlama) {
  options.threads = 2;
  options.dtype = "f32";  // as the reference computes
  options.settings.insert(options.settings.begin(), {"max-tokens", 24});
  return runtime.open({model, Task::kComplete}, options);
}

Completion completed(Runtime& runtime, Model model, const CompleteRequest& request) {
  Completion out;
  runtime.finish(runtime.submit(
      model, request, {.on_completion = [&](Completion&& made) { out = std::move(made); }}));
  return out;
}

CompleteRequest drawn(std::uint64_t seed) {
  return {.prompt = "a", .seed = seed, .settings = {{"temp", 1}}};
}

std::string alone(const CompleteRequest& request) {
  Runtime runtime;
  return runtime.complete(open_texts(runtime), request);
}

template <typename Call>
Error completion_error(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error({});
}

Error refused(const CompleteRequest& request, const OpenOptions& options = {}) {
  return completion_error([&] {
    Runtime runtime;
    const Model model = open_texts(runtime, options);
    runtime.submit(model, request, tessera::CompleteCallbacks{});
  });
}

// The rows of a model in texts.json.
nlohmann::json golden_rows(const std::string& model) {
  std::ifstream in(kTexts / "texts.json");
  for (const nlohmann::json& one : nlohmann::json::parse(in)) {
    if (kTexts / one.at("file").get<std::string>() == model) return one.at("rows");
  }
  ADD_FAILURE() << model;
  return {};
}

TEST(LibraryComplete, GreedyTextsAreThoseOfTransformers) {
  std::set<bool> chats;
  int streamed = 0;
  for (const std::string& file : {kLlama, kQwen, (kTexts / "gemma3_f32.gguf").string()}) {
    Runtime runtime;
    const Model model = open_texts(runtime, {.slots = 3}, file);
    const nlohmann::json rows = golden_rows(file);
    std::vector<std::string> made(rows.size()), heard(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool chat = rows[i].at("chat");
      chats.insert(chat);
      runtime.submit(
          model, CompleteRequest{.prompt = rows[i].at("prompt"), .chat = chat},
          {.on_text = [&, i](std::string_view more) { heard[i] += more; },
           .on_completion = [&, i](Completion&& one) { made[i] = std::move(one.text); }});
    }
    while (runtime.step()) {
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(made[i], rows[i].at("text").get<std::string>()) << file << " " << i;
      EXPECT_EQ(heard[i].back(), made[i].back());
      if (made[i].find("\xef\xbf\xbd") != std::string::npos) continue;  // of broken characters
      EXPECT_EQ(heard[i], made[i]);
      ++streamed;
    }
  }
  EXPECT_EQ(chats.size(), 2u);
  EXPECT_EQ(streamed, 2);
}

TEST(LibraryComplete, ADraftModelChangesPassesAlone) {
  const auto write = [](tessera::Settings settings) {
    Runtime runtime;
    const Model model = open_texts(runtime, {.settings = std::move(settings)});
    return completed(runtime, model, {.prompt = "The cat sat on"});
  };
  const Completion plain = write({{"decode", "plain"}});
  EXPECT_EQ(plain.passes, plain.tokens);
  const auto drafted = [&](const char* decode) {
    return write({{"decode", decode}, {"model-draft", (kTexts / "llama_f32").string()}});
  };
  EXPECT_EQ(drafted("auto").text, plain.text) << "as wide as the clock says";
  EXPECT_EQ(drafted("draft").text, plain.text);
  EXPECT_LT(2 * drafted("draft").passes, plain.passes) << "the same model drafts";
}

TEST(LibraryComplete, SeedsAndSettingsAreThoseOfARequest) {
  Runtime runtime;
  const Model model = open_texts(runtime);
  const std::string first = runtime.complete(model, drawn(3));
  EXPECT_EQ(runtime.complete(model, drawn(3)), first);
  EXPECT_NE(runtime.complete(model, drawn(4)), first);
  CompleteRequest greedy = drawn(4);
  greedy.settings = {};
  EXPECT_EQ(runtime.complete(model, greedy), alone({.prompt = "a"}));
}

TEST(LibraryComplete, ShorterTextsAreBeginningsOfLongerOnes) {
  Runtime runtime;
  const Model model = open_texts(runtime);
  const CompleteRequest whole{.prompt = "The cat sat on"};
  CompleteRequest shorter = whole;
  shorter.max_tokens = 20;
  const Completion most = completed(runtime, model, whole),
                   fewer = completed(runtime, model, shorter);
  EXPECT_EQ(most.tokens, 24);
  EXPECT_EQ(fewer.tokens, 20);
  EXPECT_TRUE(fewer.cut_short);
  EXPECT_GT(fewer.prompt_tokens, 0);
  EXPECT_TRUE(
      most.text.starts_with(fewer.text.substr(0, fewer.text.find_last_not_of("\xef\xbf\xbd"))));
  shorter.max_tokens = 25;
  const Error error = refused(shorter);
  EXPECT_EQ(error.code(), "E_TEXT_LENGTH");
  EXPECT_EQ(error.found(), "25");
}

TEST(LibraryComplete, LogprobsAreListedOfTheTokensOfTheText) {
  Runtime runtime;
  const Model model = open_texts(runtime);
  CompleteRequest request{.prompt = "The cat sat on"};
  EXPECT_TRUE(completed(runtime, model, request).listed.empty());
  request.logprobs = 0;
  const Completion made = completed(runtime, model, request);
  for (const tessera::TextToken& one : made.listed) {
    EXPECT_FALSE(one.token.bytes.empty());
    EXPECT_LT(one.token.logprob, 0);
    EXPECT_TRUE(one.top.empty());
  }
  // What ends a text is none of its tokens.
  EXPECT_EQ(std::ssize(made.listed), made.cut_short ? made.tokens : made.tokens - 1);
  EXPECT_GT(made.listed.size(), 3u);
}

TEST(LibraryComplete, GuidanceLeadsAwayFromTheNegativePrompt) {
  CompleteRequest guided{.prompt = "The cat sat on",
                         .negative_prompt = "Hello, world! 12345",
                         .settings = {{"cfg-scale", 3}}};
  const std::string text = alone(guided);
  EXPECT_NE(text, alone({.prompt = guided.prompt}));
  guided.negative_prompt = guided.prompt;  // no way off
  EXPECT_EQ(alone(guided), alone({.prompt = guided.prompt}));
  guided.negative_prompt.reset();
  EXPECT_EQ(refused(guided).where(), "--cfg-scale");
  EXPECT_EQ(refused({.prompt = "a", .negative_prompt = "b"}).where(), "--negative-prompt");
}

// One runtime, two tasks, each request as it is alone.
TEST(LibraryComplete, TextsAndImagesTogetherAreWhatTheyAreAlone) {
  const auto image = [](std::uint64_t seed) {
    return ImageRequest{.prompt = "a red cube", .seed = seed};
  };
  Runtime runtime;
  const Model images = runtime.open({"test:tiny"}, {.slots = 2});
  const Model texts = open_texts(runtime, {.slots = 2});
  std::map<std::uint64_t, std::vector<std::uint8_t>> pixels;
  std::map<std::uint64_t, std::string> written;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    runtime.submit(images, image(seed), {.on_image = [&, seed](tessera::GeneratedImage&& made) {
                     pixels[seed] = std::move(made.image.rgb);
                   }});
    runtime.submit(texts, drawn(seed), {.on_completion = [&, seed](Completion&& made) {
                     written[seed] = std::move(made.text);
                   }});
  }
  EXPECT_TRUE(runtime.step());
  EXPECT_TRUE(runtime.step());
  while (runtime.step()) {
  }
  ASSERT_EQ(pixels.size(), 3u);
  ASSERT_EQ(written.size(), 3u);
  for (const auto& [seed, text] : written) {
    EXPECT_EQ(text, alone(drawn(seed))) << seed;
    Runtime other;
    EXPECT_EQ(pixels[seed], other.generate(other.open({"test:tiny"}), image(seed)).image.rgb);
  }
}

TEST(LibraryComplete, CancelledAndStoppedTextsAreNotHeardOf) {
  Runtime runtime;
  const Model model = open_texts(runtime, {.slots = 2});
  std::map<std::uint64_t, std::string> done, heard;
  std::vector<Ticket> tickets;
  const auto submit = [&](std::uint64_t seed, std::function<bool()> on_progress) {
    tickets.push_back(runtime.submit(
        model, drawn(seed),
        {.on_progress = std::move(on_progress),
         .on_text = [&, seed](std::string_view more) { heard[seed] += more; },
         .on_completion = [&done, seed](Completion&& made) { done[seed] = made.text; }}));
  };
  int asked = 0;
  submit(1, [&] {
    runtime.cancel(tickets[0]);  // out of its own callback
    return true;
  });
  submit(2, nullptr);
  submit(3, [&] { return ++asked < 5; });
  submit(4, nullptr);
  runtime.cancel(tickets[1]);  // before it begins
  while (runtime.step()) {
  }
  EXPECT_EQ(done, (std::map<std::uint64_t, std::string>{{4, alone(drawn(4))}}));
  EXPECT_EQ(asked, 5);
  EXPECT_FALSE(heard.contains(2));
  for (const Ticket ticket : tickets) EXPECT_TRUE(runtime.over(ticket));
}

TEST(LibraryComplete, ChatTemplatesMayBeGiven) {
  EXPECT_EQ(refused({.prompt = "a", .chat = true}).code(), "E_CHAT_TEMPLATE");
  const std::filesystem::path file =
      std::filesystem::path(::testing::TempDir()) / "library_chat.jinja";
  std::ofstream(file) << "{% for m in messages %}{{ m['content'] }} sat on{% endfor %}";
  Runtime runtime;
  const Model model = open_texts(runtime, {.chat_template = file});
  const Completion asked = completed(runtime, model, {.prompt = "The cat", .chat = true});
  const Completion plain = completed(runtime, model, {.prompt = "The cat sat on"});
  // The template alone says what stands around the text: no beginning here.
  EXPECT_EQ(asked.prompt_tokens + 1, plain.prompt_tokens);
  std::filesystem::remove(file);
}

TEST(LibraryComplete, InfoSaysWhatOfAFolderIsNotFollowed) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "library_texts_notes";
  fs::remove_all(folder);
  fs::copy(kTexts / "llama_f32", folder);
  Runtime runtime;
  const auto notes = [&] {
    const tessera::ModelInfo info = runtime.info(open_texts(runtime, {}, folder));
    EXPECT_EQ(info.task, Task::kComplete);
    EXPECT_EQ(info.family, "llama");
    return info.notes;
  };
  const std::vector<std::string> before = notes();
  std::ifstream in(folder / "config.json");
  nlohmann::json config = nlohmann::json::parse(in);
  config["colour_of_the_box"] = "blue";
  std::ofstream(folder / "config.json") << config;
  const std::vector<std::string> after = notes();
  EXPECT_EQ(std::ranges::count(before, "1 key of config.json is not known: colour_of_the_box"), 0);
  EXPECT_EQ(std::ranges::count(after, "1 key of config.json is not known: colour_of_the_box"), 1);
  EXPECT_EQ(after.size(), before.size() + 1);
  fs::remove_all(folder);
}

TEST(LibraryComplete, PlansAreTheSumOfTheirParts) {
  Runtime runtime;
  const auto plan = [&](const OpenOptions& options, const CompleteRequest& request) {
    const tessera::MemoryPlan out = runtime.plan(open_texts(runtime, options), request);
    EXPECT_TRUE(out.fits);
    EXPECT_EQ(out.on_host + out.on_device,
              out.weights + out.cache + out.buffers + out.pixels + out.drafts + out.process);
    return out;
  };
  const CompleteRequest request{.prompt = "The cat sat on"};
  const tessera::MemoryPlan one = plan({}, request), four = plan({.slots = 4}, request);
  EXPECT_GT(one.weights, 100'000u);
  EXPECT_GT(four.cache, 2 * one.cache);
  EXPECT_EQ(one.drafts, 0u);
  CompleteRequest guided = request;
  guided.negative_prompt = "a";
  guided.settings = {{"cfg-scale", 2}};
  EXPECT_GT(plan({}, guided).cache, one.cache);
  const tessera::MemoryPlan drafted =
      plan({.settings = {{"model-draft", (kTexts / "llama_f32").string()}}}, request);
  EXPECT_GT(drafted.drafts, one.weights);
}

TEST(LibraryComplete, RequestsThatCannotBeAreRefusedWhenSubmitted) {
  std::string longest;
  for (int i = 0; i < 600; ++i) longest += " cat";
  EXPECT_EQ(refused({.prompt = longest}).code(), "E_TEXT_LENGTH");
  EXPECT_EQ(refused({.prompt = "a", .seed = ~std::uint64_t{0}}).where(), "seed");
  EXPECT_EQ(refused({.prompt = "a", .settings = {{"temp", -1}}}).code(), "E_SETTING_VALUE");
  const Error misplaced = refused({.prompt = "a", .settings = {{"decode", "plain"}}});
  EXPECT_EQ(misplaced.code(), "E_SETTING_NAME");
  EXPECT_EQ(misplaced.hint(), "it is given to Runtime::open()");
  EXPECT_EQ(refused({.prompt = "a", .settings = {{"frames", 3}}}).code(), "E_SETTING_NAME");
  Runtime runtime;
  EXPECT_EQ(completion_error([&] {
              runtime.complete(runtime.open({"test:tiny"}), {.prompt = "a"});
            }).found(),
            "one that generates images");
  EXPECT_EQ(completion_error([&] {
              runtime.generate(open_texts(runtime), ImageRequest{.prompt = "a"});
            }).found(),
            "one that completes texts");
}

TEST(LibraryComplete, OptionsOfOpeningAreRefusedByName) {
  const auto where = [](const OpenOptions& options) {
    return refused({.prompt = "a"}, options).where();
  };
  EXPECT_EQ(where({.seed = 7}), "seed");
  EXPECT_EQ(where({.prune = "divprune"}), "prune");
  EXPECT_EQ(where({.text_encoder = "t5"}), "text_encoder");
  EXPECT_EQ(where({.mmproj = "m.gguf"}), "mmproj");
  EXPECT_EQ(where({.settings = {{"max-tokens", 600}}}), "--max-tokens");
  EXPECT_EQ(where({.settings = {{"decode", "draft"}}}), "--model-draft");
  EXPECT_EQ(where({.settings = {{"decode", "plain"}, {"window", 4}}}), "--window");
  const Error draft = refused({.prompt = "a"}, {.settings = {{"model-draft", kQwen}}});
  EXPECT_EQ(draft.code(), "E_DRAFT_VOCABULARY");
  EXPECT_EQ(draft.kind(), ErrorKind::kUsage);
  Runtime runtime;
  EXPECT_EQ(completion_error([&] { runtime.open({"", Task::kComplete}); }).where(), "name");
  EXPECT_EQ(completion_error([&] { runtime.open({"x", Task{99}}); }).code(), "E_TASK");
  EXPECT_EQ(completion_error([&] { tessera::setting_table(Task{99}); }).code(), "E_TASK");
}

TEST(LibraryComplete, TablesSayWhereASettingIsGiven) {
  std::map<std::string, tessera::SettingPlace> places;
  for (const tessera::SettingInfo& info : tessera::setting_table(Task::kComplete)) {
    EXPECT_TRUE(places.emplace(info.name, info.place).second) << info.name;
  }
  for (const char* name : {"decode", "window", "model-draft", "kv", "precise", "max-tokens"}) {
    EXPECT_EQ(places.at(name), tessera::SettingPlace::kOpen) << name;
  }
  for (const char* name : {"temp", "top-k", "cfg-scale"}) {
    EXPECT_EQ(places.at(name), tessera::SettingPlace::kRequest) << name;
  }
}

}  // namespace
