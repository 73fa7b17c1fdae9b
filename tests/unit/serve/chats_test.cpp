// Chats: the library's texts in OpenAI's form, what each field does, and where images may come from.
#include <fstream>
#include <set>

#include "apps/serve/chat_request.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/serve/service_run.h"

namespace tessera::chats_test {
namespace {

const std::string kJanus = TESSERA_SOURCE_DIR "/assets/models/tabletop-janus";
const std::string kLlava = TESSERA_SOURCE_DIR "/assets/models/tabletop-llava";
constexpr const char* kName = "tabletop-llava";
constexpr const char* kChats = "/v1/chat/completions";

using Pair = std::pair<std::string, std::string>;

// One server for all, as its model is read once.
class Chats : public ::testing::Test {
 protected:
  static DeskOptions options() { return DeskRun::tiny({kLlava}, 2); }
  static void SetUpTestSuite() { run_ = new ServiceRun({}, options()); }
  static void TearDownTestSuite() {
    delete run_;
    run_ = nullptr;
  }
  static Seen ask(const Json& body) {
    return run_->ask(ServiceRun::request("POST", kChats, body.dump()));
  }
  static Json post(const Json& body) {
    const Seen seen = ask(body);
    EXPECT_EQ(seen.status, 200) << seen.body.substr(0, 500);
    return seen.json();
  }
  static ServiceRun* run_;
};
ServiceRun* Chats::run_ = nullptr;

// A picture of the bundled captioner's world.
std::string data_url() {
  api::Runtime runtime;
  const auto made = runtime.generate(runtime.open({kJanus}), {.prompt = "a red cube", .seed = 7});
  return "data:image/png;base64," + to_base64(made.png());
}

Json image_part(const std::string& url) {
  return {{"type", "image_url"}, {"image_url", {{"url", url}}}};
}
Json about(const std::string& url) {
  return {{{"role", "user"},
           {"content", {image_part(url), {{"type", "text"}, {"text", "Describe the picture."}}}}}};
}

TEST_F(Chats, AreAnsweredAsTheLibraryDescribes) {
  static const std::string kUrl = data_url();
  api::Runtime runtime;
  const api::Model model = runtime.open({kLlava, api::Task::kDescribe});
  const std::string png = from_base64(kUrl.substr(kUrl.find(',') + 1), "");
  const std::string text = runtime.describe(model, {.encoded = {png}});
  const Json body = {{"model", kName}, {"messages", about(kUrl)}};
  Json made = post(body);
  EXPECT_EQ(made["choices"][0]["message"]["content"], text);
  EXPECT_EQ(made["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(made["object"], "chat.completion");
  EXPECT_GT(made["usage"]["prompt_tokens"], 100);
  EXPECT_GT(made["visual"]["tokens"], 0);

  Json more = body;
  more["max_tokens"] = 3;
  made = post(more);
  EXPECT_EQ(made["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(made["usage"]["completion_tokens"], 3);
  more = body;
  more["stop"] = "cube";
  made = post(more);
  EXPECT_EQ(made["choices"][0]["message"]["content"].get<std::string>().find("cube"),
            std::string::npos);
  EXPECT_EQ(made["choices"][0]["finish_reason"], "stop");
  more = body;
  more["temperature"] = 2;
  more["n"] = 4;
  more["seed"] = 5;
  std::set<std::string> texts;
  made = post(more);
  for (const Json& choice : made["choices"]) {
    texts.insert(choice["message"]["content"].get<std::string>());
  }
  EXPECT_GT(texts.size(), 1u);

  more = body;
  more["stream"] = true;
  more["stream_options"] = {{"include_usage", true}};
  // The last event is no JSON.
  const auto reply = run_->begin(ServiceRun::request("POST", kChats, more.dump()));
  ASSERT_TRUE(reply->wait());
  std::string streamed;
  const auto& events = reply->events();
  ASSERT_GT(events.size(), 4u);
  for (std::size_t i = 0; i + 2 < events.size(); ++i) {
    const Json chunk = Json::parse(events[i].second);
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    streamed += chunk["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(Json::parse(events[events.size() - 2].second)["usage"]["completion_tokens"],
            post(body)["usage"]["completion_tokens"]);
  EXPECT_EQ(events.back().second, "[DONE]");
}

// The second question about an image: what was read and encoded once is not again, and shows in
// nothing but the usage.
TEST_F(Chats, WhatWasReadIsNotReadAgain) {
  ServiceRun own({}, [] {
    DeskOptions out = options();
    out.open.image_cache = 1 << 20;
    return out;
  }());
  const auto ask_own = [&](const Json& messages) {
    const Seen seen = own.ask(ServiceRun::request(
        "POST", kChats, Json({{"model", kName}, {"messages", messages}}).dump()));
    EXPECT_EQ(seen.status, 200) << seen.body.substr(0, 500);
    return seen.json();
  };
  const std::string url = data_url();
  const Json first = ask_own(about(url));
  EXPECT_EQ(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(own.desk.stats().known_images, 0u);
  Json later = about(url);
  later.push_back({{"role", "assistant"}, {"content", "A cube."}});
  later.push_back({{"role", "user"}, {"content", "Describe the picture."}});
  Json second = ask_own(later);
  // All but the last row of the first prompt, at least.
  EXPECT_GE(second["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>() + 1,
            first["usage"]["prompt_tokens"].get<int>());
  EXPECT_EQ(own.desk.stats().known_images, 1u);
  EXPECT_GT(own.desk.stats().reused_tokens, 100u);
  // A server that remembers nothing says the same.
  ServiceRun fresh({}, options());
  const Json plain = fresh.ask(ServiceRun::request(
      "POST", kChats, Json({{"model", kName}, {"messages", later}}).dump())).json();
  EXPECT_EQ(plain["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(second["choices"], plain["choices"]);
  const std::string metrics = own.get("/metrics").body;
  EXPECT_NE(metrics.find("\ntessera_images_reused_total 1\n"), std::string::npos);
}

TEST_F(Chats, FieldsAreHonouredOrRefused) {
  static const std::string kUrl = data_url();
  const auto refused = [&](Json more) {
    if (!more.contains("messages")) more["messages"] = about(kUrl);
    more["model"] = kName;
    const Seen seen = ask(more);
    EXPECT_EQ(seen.status, 400) << seen.body;
    const Json error = seen.json()["error"];
    return Pair(error["code"], error["param"].is_null() ? "" : error["param"].get<std::string>());
  };
  const auto content = [](Json part) {
    return Json{{"messages", {{{"role", "user"}, {"content", {std::move(part)}}}}}};
  };
  EXPECT_EQ(refused({{"messages", Json::array()}}), Pair("E_FIELD", "messages"));
  EXPECT_EQ(refused({{"messages", {{{"content", "a"}}}}}), Pair("E_FIELD", "messages[0].role"));
  EXPECT_EQ(refused({{"messages", {{{"role", 3}, {"content", "a"}}}}}),
            Pair("E_FIELD", "messages[0].role"));
  EXPECT_EQ(refused({{"messages", {{{"role", "tool"}, {"content", "a"}}}}}),
            Pair("E_FIELD", "messages[0].role"));
  EXPECT_EQ(refused({{"messages", {{{"role", "user"}}}}}), Pair("E_FIELD", "messages[0].content"));
  EXPECT_EQ(refused(content({{"type", "input_audio"}})), Pair("E_FIELD", "messages[0].content[0].type"));
  const std::string url = "messages[0].content[0].image_url.url";
  EXPECT_EQ(refused(content(image_part("https://example.org/a.png"))), Pair("E_MEDIA", url));
  EXPECT_EQ(refused(content(image_part("/etc/passwd"))), Pair("E_MEDIA", url));
  EXPECT_EQ(refused(content(image_part("data:image/png,abc"))), Pair("E_MEDIA", url));
  EXPECT_EQ(refused(content(image_part("data:image/png;base64,a_b"))), Pair("E_FIELD", url));
  const std::string none = "data:image/png;base64,AAAA";
  EXPECT_EQ(refused(content(image_part(none))),
            Pair("E_PICTURE_FORMAT", "messages[0].content[0].image_url"));
  // Of several, the one that is at fault.
  Json two = about(kUrl);
  two.push_back({{"role", "user"}, {"content", {{{"type", "text"}, {"text", "And"}}, image_part(none)}}});
  EXPECT_EQ(refused({{"messages", two}}), Pair("E_PICTURE_FORMAT", "messages[1].content[1].image_url"));
  EXPECT_EQ(refused({{"tools", {{{"type", "function"}}}}}), Pair("E_FIELD", "tools"));
  EXPECT_EQ(refused({{"response_format", {{"type", "json_object"}}}}),
            Pair("E_FIELD", "response_format"));
  for (const Json& type : {Json(3), Json(nullptr), Json::array({"text"})}) {
    EXPECT_EQ(refused({{"response_format", {{"type", type}}}}), Pair("E_FIELD", "response_format"));
  }
  EXPECT_EQ(refused({{"presence_penalty", "much"}}), Pair("E_SETTING_VALUE", "presence_penalty"));
  EXPECT_EQ(refused({{"modalities", {"audio"}}}), Pair("E_FIELD", "modalities"));
  EXPECT_EQ(refused({{"modalities", {"text", "audio"}}}), Pair("E_FIELD", "modalities"));
  EXPECT_NE(refused({{"modalities", {"text", "image"}}}).first, "E_FIELD");
  EXPECT_EQ(refused({{"logprobs", 3}}), Pair("E_FIELD", "logprobs"));
  EXPECT_EQ(refused({{"top_logprobs", 2}}), Pair("E_FIELD", "top_logprobs"));
  EXPECT_EQ(refused({{"logprobs", true}, {"top_logprobs", 21}}), Pair("E_FIELD", "top_logprobs"));
  EXPECT_EQ(refused({{"max_tokens", 5}, {"max_completion_tokens", 6}}), Pair("E_FIELD", "max_tokens"));
  EXPECT_EQ(refused({{"max_tokens", 0}}), Pair("E_FIELD", "max_tokens"));
  EXPECT_EQ(refused({{"max_tokens", -2}}), Pair("E_FIELD", "max_tokens"));
  EXPECT_EQ(refused({{"top_k", -2}}), Pair("E_SETTING_VALUE", "top_k"));
  EXPECT_EQ(refused({{"tool_choice", "required"}}), Pair("E_FIELD", "tool_choice"));
  EXPECT_EQ(refused({{"function_call", {{"name", "f"}}}}), Pair("E_FIELD", "function_call"));
  EXPECT_EQ(refused({{"stop", {1}}}), Pair("E_FIELD", "stop"));
  EXPECT_EQ(refused({{"stop", std::string(300, 'a')}}), Pair("E_STOP_TEXT", "stop"));
  EXPECT_EQ(refused({{"temperature", -1}}), Pair("E_FIELD", "temperature"));
  // The same setting twice.
  EXPECT_EQ(refused({{"temperature", 1}, {"temp", 1}}), Pair("E_FIELD", "temp"));
  EXPECT_EQ(refused({{"presence_penalty", 1}, {"presence-penalty", 1}}), Pair("E_FIELD", "presence_penalty"));
  EXPECT_EQ(refused({{"max_tokens", 5}, {"max-tokens", 6}}), Pair("E_FIELD", "max_tokens"));
  EXPECT_EQ(refused({{"unknown", 1}}), Pair("E_FIELD", "unknown"));
  const Json made = post({{"messages", about(kUrl)},
                                  {"model", kName},
                                  {"tools", Json::array()},
                                  {"store", true},
                                  {"top_p", 1},
                                  {"frequency_penalty", 0}});
  EXPECT_EQ(made["notes"].size(), 1u) << made["notes"];
  const Json body = {{"messages", about(kUrl)}, {"model", kName}, {"max_tokens", 24}};
  Json penalised = body;
  penalised["presence_penalty"] = 2;
  penalised["frequency_penalty"] = 100;
  EXPECT_NE(post(penalised)["choices"][0]["message"], post(body)["choices"][0]["message"]);
}

// A text that cannot fit is not even tokenized.
TEST_F(Chats, TextsThatCannotFitAreRefusedByTheirBytes) {
  const auto asked = [](ServiceRun& run, const std::string& name) {
    const Json body = {{"model", name},
                       {"messages", {{{"role", "user"}, {"content", std::string(900000, 'a')}}}}};
    return run.ask(ServiceRun::request("POST", kChats, body.dump()));
  };
  Seen seen = asked(*run_, kName);
  EXPECT_EQ(seen.refusal(), "400 E_PROMPT_LENGTH messages");
  EXPECT_NE(seen.body.find(" bytes, "), std::string::npos) << seen.body;
  ServiceRun own({}, DeskRun::tiny({TESSERA_SOURCE_DIR "/tests/golden/gguf_text/qwen2_f16.gguf"}, 1));
  seen = asked(own, "");
  EXPECT_EQ(seen.refusal(), "400 E_TEXT_LENGTH messages");
  EXPECT_NE(seen.body.find(" bytes, "), std::string::npos) << seen.body;
}

TEST_F(Chats, WhatIsWrongWithTheTextsIsTheClients) {
  const auto said = [](const ChatOrder& order, api::ErrorFacts facts) {
    const Json error = error_object(chat_error(order, api::Error(std::move(facts))))["error"];
    return Pair(error["type"], error["param"].is_null() ? "" : error["param"].get<std::string>());
  };
  const std::string usage = "invalid_request_error";
  for (const char* code : {"E_TOK_TEXT_SIZE", "E_TOK_BUDGET", "E_TEMPLATE_LIMIT", "E_TEMPLATE_RAISED"}) {
    EXPECT_EQ(said({}, {.kind = api::ErrorKind::kModel, .code = code, .where = "text"}),
              Pair(usage, "messages"));
  }
  EXPECT_EQ(said({}, {.kind = api::ErrorKind::kUsage, .code = "E_TEXT_LENGTH", .where = "--max-tokens"}),
            Pair(usage, "max_tokens"));
  EXPECT_EQ(said({}, {.kind = api::ErrorKind::kModel, .code = "E_TOK_VOCABULARY", .where = "a"}),
            Pair("server_error", "a"));
}

// Each says what it does.
TEST_F(Chats, ModelsAreAskedForWhatTheyDo) {
  const Seen image = run_->image(R"(, "model": "tabletop-llava")");
  EXPECT_EQ(image.refusal(), "400 E_MODEL_TASK model");
  EXPECT_NE(image.body.find("describes images"), std::string::npos) << image.body;
  ServiceRun own({}, DeskRun::tiny({kJanus}));
  const Json body = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}}, {"model", "tabletop-janus"}};
  const Seen chat = own.ask(ServiceRun::request("POST", kChats, body.dump()));
  EXPECT_EQ(chat.refusal(), "400 E_MODEL_TASK model");
  EXPECT_NE(chat.body.find("writes texts, found 'tabletop-janus', which generates images"), std::string::npos)
      << chat.body;
}

// Fields that clients always send ask for nothing here: without a word, or with a note.
TEST_F(Chats, HarmlessFieldsFailNothing) {
  static const std::string kUrl = data_url();
  const auto notes = [&](const Json& more) {
    Json body = {{"model", kName}, {"messages", about(kUrl)}, {"max_tokens", 8}};
    body.update(more);
    const Json made = post(body);
    EXPECT_FALSE(made["choices"][0]["message"]["content"].get<std::string>().empty());
    return made.value("notes", Json::array());
  };
  for (const Json& more : std::initializer_list<Json>{
           {{"tools", Json::array()}, {"tool_choice", "none"}, {"function_call", "auto"}},
           {{"n", 1}, {"user", "ann"}, {"presence_penalty", 0}, {"logit_bias", Json::object()}},
           {{"response_format", {{"type", "text"}}}, {"stream_options", nullptr}, {"stop", Json::array()}},
           {{"top_k", -1}, {"min_p", 0}, {"repetition_penalty", 1.0}, {"modalities", {"text"}}},
           {{"max_tokens", -1}, {"max_completion_tokens", 8}},
           {{"service_tier", "auto"}, {"seed", nullptr}, {"logprobs", false}}}) {
    EXPECT_EQ(notes(more), Json::array()) << more;
  }
  for (const char* field : {"metadata", "store", "prediction", "verbosity", "reasoning_effort",
                            "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention"}) {
    EXPECT_EQ(notes({{field, "x"}}), Json::array({std::string(field) + " is without effect"}));
  }
  EXPECT_EQ(notes({{"stop", {"", "zzz", ""}}}), Json::array({"an empty stop is without effect"}));
  EXPECT_EQ(notes({{"stream_options", {{"include_obfuscation", false}}}}),
            Json::array({"stream_options.include_obfuscation is without effect"}));
  Json messages = about(kUrl);
  messages[0]["content"][0]["image_url"]["format"] = "image/png";
  messages[0]["content"][1]["cache_control"] = {{"type", "ephemeral"}};
  EXPECT_EQ(notes({{"messages", messages}}),
            Json::array({"messages[0].content[0].format is without effect",
                         "messages[0].content[1].cache_control is without effect"}));
}

// What a turn of the assistant leaves out is empty.
TEST_F(Chats, TurnsOfTheAssistantMayBeEmpty) {
  static const std::string kUrl = data_url();
  const auto text = [&](const Json& turn) {
    Json messages = about(kUrl);
    messages.push_back(turn);
    messages.push_back({{"role", "user"}, {"content", "Describe the picture."}});
    return post({{"model", kName}, {"messages", messages}, {"max_tokens", 8}})["choices"];
  };
  const Json empty = text({{"role", "assistant"}, {"content", ""}});
  EXPECT_EQ(text({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", nullptr}}), empty);
  EXPECT_EQ(text({{"role", "assistant"}}), empty);
}

// A text is as long as the server lets any be; its end and a note say so.
TEST_F(Chats, MoreTokensThanTheServersAreThoseOfTheServer) {
  static const std::string kUrl = data_url();
  DeskOptions few = options();
  few.texts = {{"max-tokens", 5}};
  ServiceRun own({}, few);
  const auto made = [&](ServiceRun& run, const Json& more) {
    Json body = {{"model", kName}, {"messages", about(kUrl)}};
    body.update(more);
    const Seen seen = run.ask(ServiceRun::request("POST", kChats, body.dump()));
    EXPECT_EQ(seen.status, 200) << seen.body.substr(0, 500);
    return seen.json();
  };
  const Json cut = made(own, {{"max_tokens", 1000}});
  EXPECT_EQ(cut["usage"]["completion_tokens"], 5);
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(cut["notes"], Json::array({"max_tokens is at most 5 here"}));
  EXPECT_FALSE(made(own, {{"max_tokens", 5}}).contains("notes"));
  const Json whole = made(*run_, {{"max_completion_tokens", 100000}});
  EXPECT_EQ(whole["notes"], Json::array({"max_tokens is at most 256 here"}));
  EXPECT_EQ(whole["choices"], made(*run_, Json::object())["choices"]);
}

// As images are: another one each time, with its seed. Greedy texts have none.
TEST_F(Chats, DrawnTextsWithoutASeedHaveOneOfTheirOwn) {
  static const std::string kUrl = data_url();
  const auto made = [&](Json more) {
    more["model"] = kName;
    more["messages"] = about(kUrl);
    more["max_tokens"] = 16;
    return post(more);
  };
  const Json first = made({{"temperature", 3}}), second = made({{"temp", 3}, {"seed", -1}});
  ASSERT_TRUE(first.contains("seed") && second.contains("seed"));
  EXPECT_NE(first["seed"], second["seed"]);
  EXPECT_EQ(made({{"temperature", 3}, {"seed", first["seed"]}})["choices"], first["choices"]);
  EXPECT_FALSE(made(Json::object()).contains("seed"));
  EXPECT_FALSE(made({{"temperature", 0}}).contains("seed"));
}

// Where no usage was asked for, the end of a choice has them.
TEST_F(Chats, StreamsHaveNotesAndSeed) {
  static const std::string kUrl = data_url();
  for (const bool usage : {false, true}) {
    const Json body = {{"model", kName},     {"messages", about(kUrl)},
                       {"max_tokens", 1000}, {"temperature", 1},
                       {"stream", true},     {"stream_options", {{"include_usage", usage}}}};
    const auto reply = run_->begin(ServiceRun::request("POST", kChats, body.dump()));
    ASSERT_TRUE(reply->wait());
    const auto& events = reply->events();
    ASSERT_GT(events.size(), 3u);
    const Json last = Json::parse(events[events.size() - 2].second);
    EXPECT_EQ(last["notes"], Json::array({"max_tokens is at most 256 here"}));
    EXPECT_TRUE(last["seed"].is_number());
    EXPECT_EQ(last["choices"].empty(), usage);
  }
}

// Biases on the logits of ids: the setting of sequences, of one id each.
TEST_F(Chats, LogitBiasIsThatOfSequencesOfOneId) {
  static const std::string kUrl = data_url();
  const auto body = [&](Json more) {
    more["model"] = kName;
    more["messages"] = about(kUrl);
    more["max_tokens"] = 6;
    return more;
  };
  const Json plain = post(body(Json::object()))["choices"];
  const Json one = post(body({{"logit_bias", {{"36", 100}}}, {"logprobs", true}}))["choices"][0];
  const Json& tokens = one["logprobs"]["content"];
  ASSERT_EQ(tokens.size(), 6u);
  for (const Json& token : tokens) EXPECT_EQ(token["token"], tokens[0]["token"]);
  EXPECT_NE(one["message"], plain[0]["message"]);
  // The likelier of two, as numbers of any kind; in draws as well.
  for (const Json& more : {Json{{"temperature", 0}}, Json{{"temperature", 3}, {"seed", 4}}}) {
    Json biased = body(more), listed = body(more);
    biased["logit_bias"] = {{"36", 4.5}, {"300", 5}, {"0", -100}};
    listed["sequence_bias"] = "36:4.5,300:5,0:-100";
    EXPECT_EQ(post(biased)["choices"], post(listed)["choices"]);
    listed["sequence_bias"] = "36:4.5,300:5";
    listed["logit_bias"] = {{"0", -100}};
    EXPECT_EQ(post(biased)["choices"], post(listed)["choices"]);
  }
  const auto refused = [&](const Json& bias) {
    const Seen seen = ask(body({{"logit_bias", bias}}));
    EXPECT_EQ(seen.status, 400) << seen.body;
    const Json error = seen.json()["error"];
    return Pair(error["code"], error["param"].is_null() ? "" : error["param"].get<std::string>());
  };
  for (const Json& bias : {Json{{"a", 1}}, Json{{"-1", 1}}, Json{{"07", 1}}, Json{{"", 1}}, Json{{"7", "1"}},
                           Json{{"7", 101}}, Json{{"7", nullptr}}, Json::array({{7, 1}}), Json("7:1"),
                           Json{{"99999999999", 1}}}) {
    EXPECT_EQ(refused(bias), Pair("E_FIELD", "logit_bias")) << bias;
  }
  EXPECT_EQ(refused({{"1000000", 1}}), Pair("E_TOKEN_ID", "logit_bias"));
  const Seen twice = ask(body({{"logit_bias", {{"7", 1}}}, {"sequence_bias", "1000000:1"}}));
  EXPECT_EQ(twice.json()["error"]["param"], "sequence_bias");
  EXPECT_EQ(ask(body({{"logit_bias", {{"7", 1}}}, {"sequence_bias", "7:1"}})).status, 400);
}

TEST_F(Chats, LogitBiasIsOfModelsOfTextsAsWell) {
  ServiceRun own({}, DeskRun::tiny({TESSERA_SOURCE_DIR "/tests/golden/gguf_text/qwen2_f16.gguf"}, 1));
  const auto tokens = [&](const Json& bias) {
    const Json body = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}},
                       {"max_tokens", 4},
                       {"logprobs", true},
                       {"logit_bias", bias}};
    const Seen seen = own.ask(ServiceRun::request("POST", kChats, body.dump()));
    EXPECT_EQ(seen.status, 200) << seen.body.substr(0, 500);
    return seen.json()["choices"][0]["logprobs"]["content"];
  };
  const Json plain = tokens(nullptr), biased = tokens({{"70", 100}});
  ASSERT_EQ(biased.size(), 4u);
  for (const Json& token : biased) EXPECT_EQ(token["token"], biased[0]["token"]);
  EXPECT_NE(plain, biased);
}

// Each token with its bytes, which are the text; as they come, the same.
TEST_F(Chats, LogprobsAreThoseOfTheTokensOfTheText) {
  static const std::string kUrl = data_url();
  Json body = {{"model", kName}, {"messages", about(kUrl)}};
  const Json plain = post(body);
  EXPECT_TRUE(plain["choices"][0]["logprobs"].is_null());
  body["logprobs"] = true;
  body["top_logprobs"] = 3;
  const auto text_of = [](const Json& content) {
    std::string out;
    for (const Json& token : content) {
      for (const Json& byte : token["bytes"]) out += static_cast<char>(byte.get<int>());
    }
    return out.substr(std::min(out.find_first_not_of(' '), out.size()));
  };
  const Json whole = post(body)["choices"][0];
  const Json& content = whole["logprobs"]["content"];
  EXPECT_EQ(whole["message"], plain["choices"][0]["message"]);
  EXPECT_EQ(text_of(content), whole["message"]["content"]);
  EXPECT_GT(content.size(), 5u);
  double sum = 0;
  for (const Json& token : content) {
    ASSERT_EQ(token["top_logprobs"].size(), 3u);
    const Json& first = token["top_logprobs"][0];
    EXPECT_EQ(first["token"], token["token"]) << "texts are greedy";
    EXPECT_EQ(first["logprob"], token["logprob"]);
    EXPECT_GE(first["logprob"], token["top_logprobs"][1]["logprob"]);
    EXPECT_LE(token["logprob"], 0);
    sum += token["logprob"].get<double>();
  }
  EXPECT_LT(sum, 0);

  body["stream"] = true;
  const auto reply = run_->begin(ServiceRun::request("POST", kChats, body.dump()));
  ASSERT_TRUE(reply->wait());
  Json streamed = Json::array();
  for (const auto& [name, data] : reply->events()) {
    if (data == "[DONE]") continue;
    const Json choice = Json::parse(data)["choices"][0];
    if (!choice["delta"].contains("content") || choice["logprobs"].is_null()) continue;
    EXPECT_FALSE(choice["logprobs"]["content"].empty()) << data;
    for (const Json& token : choice["logprobs"]["content"]) streamed.push_back(token);
  }
  EXPECT_EQ(streamed, content);

  // What a stop text leaves out has no tokens.
  body["stream"] = false;
  body["stop"] = "cube";
  body.erase("top_logprobs");
  const Json cut = post(body)["choices"][0];
  EXPECT_EQ(cut["message"]["content"], whole["message"]["content"].get<std::string>().substr(
      0, cut["message"]["content"].get<std::string>().size()));
  const Json& left = cut["logprobs"]["content"];
  EXPECT_LT(left.size(), content.size());
  const std::string listed = text_of(left);
  EXPECT_TRUE(listed.starts_with(cut["message"]["content"].get<std::string>())) << listed;
  EXPECT_EQ(listed.find("cube"), std::string::npos) << listed;
  EXPECT_TRUE(left[0]["top_logprobs"].empty());
}

// A request's own, over what the server is told to do by itself.
TEST_F(Chats, PatchesArePrunedAsIsAsked) {
  static const std::string kUrl = data_url();
  const auto body = [&](Json more) {
    more["model"] = kName;
    more["messages"] = about(kUrl);
    return more;
  };
  const Json whole = post(body(Json::object()))["visual"];
  EXPECT_EQ(whole["kept_tokens"], whole["tokens"]);
  EXPECT_FALSE(whole.contains("patches"));
  const Json half = post(body({{"prune", "divprune"}, {"prune_rate", 0.5}}))["visual"];
  EXPECT_EQ(half["tokens"], whole["tokens"]);
  ASSERT_EQ(half["patches"].size(), 1u);
  const Json& view = half["patches"][0];
  EXPECT_EQ(view["image"], 0);
  EXPECT_EQ(view["kept"].size(), half["kept_tokens"]);
  EXPECT_EQ(view["columns"].get<int>() * view["rows"].get<int>(), whole["tokens"]);
  EXPECT_EQ(view["box"], Json::array({0, 0, 1, 1}));
  const Seen refused = ask(body({{"keep_tokens", 5}}));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["error"]["param"], "keep_tokens");

  DeskOptions pruning = options();
  pruning.pruning = {{"prune", "uniform"}, {"prune-rate", 0.75}};
  ServiceRun own({}, pruning);
  const auto kept = [&](const Json& more) {
    return own.ask(ServiceRun::request("POST", kChats, body(more).dump())).json()["visual"]["kept_tokens"];
  };
  const int all = whole["tokens"];
  EXPECT_EQ(kept(Json::object()), all / 4);
  EXPECT_EQ(kept({{"keep_tokens", 20}}), 20);
  EXPECT_EQ(kept({{"prune_rate", 0.5}}), all / 2);
  EXPECT_EQ(kept({{"prune", "none"}}), all);
  EXPECT_EQ(kept({{"prune", "divprune"}, {"keep_tokens", 7}}), 7);
  EXPECT_EQ(kept({{"temp", 0.5}}), all / 4);
}

TEST_F(Chats, FilesAreTakenBelowTheMediaRootAlone) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.path() / "in");
  const std::string url = data_url();
  const std::string png = from_base64(url.substr(url.find(',') + 1), "");
  std::ofstream(folder.path() / "in/a.png", std::ios::binary) << png;
  std::ofstream(folder.path() / "secret.png", std::ios::binary) << png;
  std::filesystem::create_symlink(folder.path() / "secret.png", folder.path() / "in/link.png");
  std::filesystem::create_symlink("a.png", folder.path() / "in/own.png");
  ServiceRun own({.media_root = folder.path() / "in"}, options());
  const auto status = [&](const std::string& path) {
    return own.ask(ServiceRun::request("POST", kChats, Json({{"model", kName}, {"messages", about(path)}}).dump())).status;
  };
  EXPECT_EQ(status("a.png"), 200);
  EXPECT_EQ(status("file:///a.png"), 200);
  EXPECT_EQ(status("own.png"), 200);
  for (const char* path : {"../secret.png", "in/../../secret.png", "link.png", "missing.png", ".",
                           "file:///../secret.png", "/etc/passwd", "", "file://"}) {
    EXPECT_EQ(status(path), 400) << path;
  }
  EXPECT_EQ(status(std::string("a.png\0b", 7)), 400);
}

}  // namespace
}  // namespace tessera::chats_test
