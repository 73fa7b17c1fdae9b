// Chats whose answers have texts and images: those of the library, in the form that clients of
// OpenRouter and Open WebUI read.
#include "tests/golden/chameleon/chameleon_folder.h"
#include "tests/unit/serve/service_run.h"

namespace tessera::answers_test {
namespace {

constexpr const char* kChats = "/v1/chat/completions";

class Answers : public ::testing::Test {
 protected:
  Answers() {
    Json config = chameleon_config("plain");
    config["max_position_embeddings"] = 1024;  // texts of the usual length
    write_chameleon(folder_, "plain", config);
    for (const std::int32_t byte : ChameleonRecord("plain").ints("mixed.question")) {
      prompt_ += static_cast<char>(byte);
    }
    run_.emplace(ServiceOptions{}, DeskRun::tiny({folder_.path().string()}, 2));
  }
  Json body(Json more = Json::object()) const {
    const Json base = {{"messages", {{{"role", "user"}, {"content", prompt_}}}},
                       {"modalities", {"text", "image"}},
                       {"temperature", 0},
                       {"max_tokens", 24},
                       {"max_images", 1},
                       {"seed", 3}};
    for (const auto& [key, value] : base.items()) {
      if (!more.contains(key)) more[key] = value;
    }
    return more;
  }
  Seen ask(const Json& asked) {
    return run_->ask(ServiceRun::request("POST", kChats, asked.dump()));
  }

  TempFolder folder_;
  std::string prompt_;
  std::optional<ServiceRun> run_;
};

TEST_F(Answers, AreThoseOfTheLibrary) {
  api::Runtime runtime;
  const api::Model model =
      runtime.open({folder_.path().string(), api::Task::kAnswer},
                   {.settings = {{"max-tokens", 24}, {"max-images", 1}}});
  std::vector<std::string> urls;
  api::Answer made;
  runtime.finish(runtime.submit(
      model, api::AnswerRequest{.prompt = prompt_, .seed = 3, .settings = {{"temp", 0}}},
      {.on_image =
           [&](api::GeneratedImage&& one) {
             urls.push_back("data:image/png;base64," + to_base64(one.png()));
           },
       .on_answer = [&](api::Answer&& one) { made = std::move(one); }}));
  ASSERT_EQ(urls.size(), 1u) << made.text;

  const Seen seen = ask(body());
  ASSERT_EQ(seen.status, 200) << seen.body;
  const Json message = seen.json()["choices"][0]["message"];
  EXPECT_EQ(message["content"], made.text);
  ASSERT_EQ(message["images"].size(), 1u);
  EXPECT_EQ(message["images"][0]["type"], "image_url");
  EXPECT_EQ(message["images"][0]["image_url"]["url"], urls[0]);
  const Json usage = seen.json()["usage"];
  EXPECT_GT(usage["prompt_tokens"], 0);
  EXPECT_EQ(usage["completion_tokens_details"]["text_tokens"], made.tokens);
  EXPECT_GT(usage["completion_tokens"], made.tokens);

  // In parts, each image between the texts that it stands between.
  const auto reply = run_->begin(
      ServiceRun::request("POST", kChats, body({{"stream", true}}).dump()));
  ASSERT_TRUE(reply->wait());
  std::string text;
  std::vector<std::string> streamed;
  for (const auto& [name, data] : reply->events()) {
    if (data == "[DONE]") continue;
    const Json delta = Json::parse(data)["choices"][0]["delta"];
    text += delta.value("content", "");
    if (delta.contains("images")) streamed.push_back(delta["images"][0]["image_url"]["url"]);
  }
  EXPECT_EQ(text, made.text);
  EXPECT_EQ(streamed, urls);
}

TEST_F(Answers, WhatTheyCannotDoIsRefused) {
  const auto refused = [&](const Json& more) { return ask(body(more)).refusal(); };
  EXPECT_EQ(refused({{"stop", "a"}}), "400 E_FIELD stop");
  EXPECT_EQ(refused({{"logprobs", true}}), "400 E_FIELD logprobs");
  EXPECT_EQ(refused({{"logit_bias", {{"5", 1}}}}), "400 E_FIELD logit_bias");
  const Json user = {{"role", "user"}, {"content", "a"}};
  EXPECT_EQ(refused({{"messages", {user, {{"role", "assistant"}, {"content", "b"}}, user}}}),
            "400 E_FIELD messages");
  EXPECT_EQ(refused({{"messages", {{{"role", "system"}, {"content", "a"}}}}}),
            "400 E_FIELD messages");
}

}  // namespace
}  // namespace tessera::answers_test
