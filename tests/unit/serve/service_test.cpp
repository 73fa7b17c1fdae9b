// The endpoints: what is let in, what each field does, what errors look like.
#include "apps/serve/service.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "tests/support/temp_folder.h"
#include "tests/unit/serve/fake_reply.h"

namespace tessera::service_test {
namespace {

using testing::FakeReply;

const std::string kJanus = TESSERA_SOURCE_DIR "/assets/models/tabletop-janus";
const std::string kLlava = TESSERA_SOURCE_DIR "/assets/models/tabletop-llava";
constexpr const char* kName = "tabletop-llava";
constexpr const char* kImages = "/v1/images/generations";
constexpr const char* kChats = "/v1/chat/completions";

HttpRequest request_of(const std::string& method, const std::string& path, const Json& body = {}) {
  HttpRequest out{.method = method, .path = path, .peer = "127.0.0.1"};
  out.fields = {{"host", "localhost:8080"}};
  if (method == "POST") {
    out.fields.emplace_back("content-type", "application/json");
    out.body = body.dump();
  }
  return out;
}

// One server for all, as models are read once.
class Services : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    desk_ = new Desk({.models = {"test:tiny", kLlava, "/nowhere/model"},
                      .open = {.threads = 1, .slots = 2}});
  }
  static void TearDownTestSuite() {
    delete desk_;
    desk_ = nullptr;
  }

  std::shared_ptr<FakeReply> ask(HttpRequest request) {
    auto reply = std::make_shared<FakeReply>();
    if (const auto refusal = service_->admit(request)) {
      reply->send(*refusal);
    } else {
      service_->handle(std::move(request), reply);
    }
    EXPECT_TRUE(reply->wait());
    check_text(reply->answer().body);
    return reply;
  }
  Json post(const std::string& path, const Json& body, int status = 200) {
    const auto reply = ask(request_of("POST", path, body));
    EXPECT_EQ(reply->status(), status) << reply->answer().body.substr(0, 500);
    return reply->json();
  }
  // The error's code and field.
  std::pair<std::string, std::string> refusal(const std::string& path, const Json& body,
                                              int status = 400) {
    const Json error = post(path, body, status)["error"];
    EXPECT_TRUE(error["message"].is_string() && error["type"].is_string()) << error;
    return {error.value("code", ""), error["param"].is_string() ? error["param"] : Json("")};
  }
  // Nothing of this machine leaves it.
  static void check_text(const std::string& text) {
    if (text.size() > 1 << 16) return;
    for (const char* secret : {TESSERA_SOURCE_DIR, "/nowhere/", "0x7f", "/tmp/"}) {
      EXPECT_EQ(text.find(secret), std::string::npos) << text.substr(0, 500);
    }
  }

  static Desk* desk_;
  std::unique_ptr<Service> service_ = std::make_unique<Service>(*desk_, ServiceOptions{});
};
Desk* Services::desk_ = nullptr;

using Pair = std::pair<std::string, std::string>;

TEST_F(Services, ImagesAreThoseOfTheLibrary) {
  const Json made = post(kImages, {{"prompt", "a cube"}, {"seed", 3}, {"n", 3}});
  ASSERT_EQ(made["data"].size(), 3u);
  api::Runtime runtime;
  const api::Model model = runtime.open({"test:tiny"});
  for (int i = 0; i < 3; ++i) {
    const Json& one = made["data"][i];
    EXPECT_EQ(one["seed"], 3 + i);
    const auto alone = runtime.generate(
        model, {.prompt = "a cube", .seed = static_cast<std::uint64_t>(3 + i)});
    EXPECT_TRUE(from_base64(one["b64_json"].get<std::string>(), "") == alone.png()) << i;
    EXPECT_EQ(one["record"], Json::parse(alone.record));
  }
  EXPECT_EQ(made["size"], "32x32");
  EXPECT_FALSE(made.contains("notes"));
}

TEST_F(Services, SettingsAreTakenByNameWithEitherStroke) {
  const auto image = [&](Json body) {
    body["prompt"] = "a cube";
    body["seed"] = 1;
    return post(kImages, body)["data"][0];
  };
  const Json plain = image({});
  EXPECT_NE(image({{"top_k", 3}, {"temp", 1.5}})["b64_json"], plain["b64_json"]);
  EXPECT_EQ(image({{"top-k", 3}, {"temp", "1.5"}})["record"]["top_k"], 3);
  const Json drafts = image({{"decode", "gumbel"}, {"window", 8}});
  EXPECT_EQ(drafts["record"]["decode"], "gumbel");
  EXPECT_LT(drafts["record"]["passes"], plain["record"]["passes"]);
  EXPECT_EQ(image({{"size", "32x32"}})["b64_json"], plain["b64_json"]);
  EXPECT_EQ(image({{"negative_prompt", nullptr}})["b64_json"], plain["b64_json"]);
}

TEST_F(Services, FieldsOfImagesAreHonouredRefusedOrNoted) {
  const auto refused = [&](Json more) {
    more["prompt"] = more.value("prompt", Json("a cube"));
    return refusal(kImages, more);
  };
  EXPECT_EQ(refused({{"n", 0}}), Pair("E_FIELD", "n"));
  EXPECT_EQ(refused({{"n", 11}}), Pair("E_FIELD", "n"));
  EXPECT_EQ(refused({{"n", 1.5}}), Pair("E_FIELD", "n"));
  EXPECT_EQ(refused({{"n", "2"}}), Pair("E_FIELD", "n"));
  EXPECT_EQ(refused({{"seed", -1}}), Pair("E_FIELD", "seed"));
  EXPECT_EQ(refused({{"seed", 18446744073709551615u}}), Pair("E_FIELD", "seed"));
  EXPECT_EQ(refused({{"size", "big"}}), Pair("E_FIELD", "size"));
  EXPECT_EQ(refused({{"size", "64x64"}}), Pair("E_GEOMETRY", "size"));
  EXPECT_EQ(refused({{"response_format", "pdf"}}), Pair("E_FIELD", "response_format"));
  EXPECT_EQ(refused({{"output_format", "webp"}}), Pair("E_FIELD", "output_format"));
  EXPECT_EQ(refused({{"background", "transparent"}}), Pair("E_FIELD", "background"));
  EXPECT_EQ(refused({{"partial_images", 2}}), Pair("E_FIELD", "partial_images"));
  EXPECT_EQ(refused({{"partial_images", 4}, {"stream", true}}), Pair("E_FIELD", "partial_images"));
  EXPECT_EQ(refused({{"prompt", 5}}), Pair("E_FIELD", "prompt"));
  EXPECT_EQ(refused({{"tempo", 1}}), Pair("E_FIELD", "tempo"));
  EXPECT_EQ(refused({{"temp", -1}}), Pair("E_SETTING_VALUE", "temp"));
  EXPECT_EQ(refused({{"temp", {1}}}), Pair("E_FIELD", "temp"));
  EXPECT_EQ(refused({{"width", 64}}), Pair("E_FIELD", "width"));
  EXPECT_EQ(refused({{"prompt", ""}}), Pair("E_PROMPT_EMPTY", "prompt"));
  EXPECT_EQ(refusal(kImages, {{"seed", 1}}), Pair("E_FIELD", "prompt"));
  EXPECT_EQ(refusal(kImages, Json::array()), Pair("E_FIELD", "body"));
  EXPECT_EQ(refusal(kImages, {{"prompt", "a"}, {"model", "none"}}, 404),
            Pair("E_SERVED_MODEL", "model"));
  const Json made = post(kImages, {{"prompt", "a cube"},
                                   {"quality", "hd"},
                                   {"style", "vivid"},
                                   {"moderation", "auto"},
                                   {"user", "somebody"},
                                   {"response_format", "url"}});
  EXPECT_EQ(made["notes"].size(), 2u) << made["notes"];
  EXPECT_TRUE(made["data"][0]["url"].get<std::string>().starts_with("data:image/png;base64,"));
}

TEST_F(Services, ImagesAreStreamedWithTheirPartials) {
  const auto reply = ask(request_of(
      "POST", kImages,
      {{"prompt", "a cube"}, {"seed", 3}, {"stream", true}, {"partial_images", 3}, {"n", 2}}));
  std::map<int, int> partials;
  std::set<int> whole;
  for (const auto& event : reply->events()) {
    const Json data = Json::parse(event.data);
    EXPECT_EQ(data["type"], event.name);
    const int index = data["index"];
    EXPECT_FALSE(whole.contains(index)) << "the whole image is the last";
    if (event.name == "image_generation.partial_image") {
      EXPECT_EQ(data["partial_image_index"], partials[index]++);
    } else {
      ASSERT_EQ(event.name, "image_generation.completed");
      whole.insert(index);
      EXPECT_EQ(data["seed"], 3 + index);
    }
  }
  EXPECT_EQ(whole.size(), 2u);
  EXPECT_EQ(partials[0], 3);
  EXPECT_EQ(partials[1], 3);
}

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

TEST_F(Services, ChatsAreAnsweredAsTheLibraryDescribes) {
  static const std::string kUrl = data_url();
  api::Runtime runtime;
  const api::Model model = runtime.open({kLlava, api::Task::kDescribe});
  const std::string png = from_base64(kUrl.substr(kUrl.find(',') + 1), "");
  const std::string text = runtime.describe(model, {.encoded = {png}});
  const Json body = {{"model", kName}, {"messages", about(kUrl)}};
  Json made = post(kChats, body);
  EXPECT_EQ(made["choices"][0]["message"]["content"], text);
  EXPECT_EQ(made["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(made["object"], "chat.completion");
  EXPECT_GT(made["usage"]["prompt_tokens"], 100);
  EXPECT_GT(made["visual"]["tokens"], 0);

  Json more = body;
  more["max_tokens"] = 3;
  made = post(kChats, more);
  EXPECT_EQ(made["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(made["usage"]["completion_tokens"], 3);
  more = body;
  more["stop"] = "cube";
  made = post(kChats, more);
  EXPECT_EQ(made["choices"][0]["message"]["content"].get<std::string>().find("cube"),
            std::string::npos);
  EXPECT_EQ(made["choices"][0]["finish_reason"], "stop");
  more = body;
  more["temperature"] = 2;
  more["n"] = 4;
  more["seed"] = 5;
  std::set<std::string> texts;
  made = post(kChats, more);
  for (const Json& choice : made["choices"]) {
    texts.insert(choice["message"]["content"].get<std::string>());
  }
  EXPECT_GT(texts.size(), 1u);

  more = body;
  more["stream"] = true;
  more["stream_options"] = {{"include_usage", true}};
  const auto reply = ask(request_of("POST", kChats, more));
  std::string streamed;
  const auto events = reply->events();
  ASSERT_GT(events.size(), 4u);
  for (std::size_t i = 0; i + 2 < events.size(); ++i) {
    const Json chunk = Json::parse(events[i].data);
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    streamed += chunk["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(Json::parse(events[events.size() - 2].data)["usage"]["completion_tokens"],
            post(kChats, body)["usage"]["completion_tokens"]);
  EXPECT_EQ(events.back().data, "[DONE]");
}

TEST_F(Services, FieldsOfChatsAreHonouredOrRefused) {
  static const std::string kUrl = data_url();
  const auto refused = [&](Json more, int status = 400) {
    if (!more.contains("messages")) more["messages"] = about(kUrl);
    more["model"] = kName;
    return refusal(kChats, more, status);
  };
  const auto content = [](Json part) {
    return Json{{"messages", {{{"role", "user"}, {"content", {std::move(part)}}}}}};
  };
  EXPECT_EQ(refused({{"messages", Json::array()}}), Pair("E_FIELD", "messages"));
  EXPECT_EQ(refused({{"messages", {{{"role", "tool"}, {"content", "a"}}}}}),
            Pair("E_FIELD", "messages[0].role"));
  EXPECT_EQ(refused({{"messages", {{{"role", "user"}}}}}), Pair("E_FIELD", "messages[0].content"));
  EXPECT_EQ(refused(content({{"type", "input_audio"}})), Pair("E_FIELD", "messages[0].content[0].type"));
  const std::string url = "messages[0].content[0].image_url.url";
  EXPECT_EQ(refused(content(image_part("https://example.org/a.png"))), Pair("E_MEDIA", url));
  EXPECT_EQ(refused(content(image_part("/etc/passwd"))), Pair("E_MEDIA", url));
  EXPECT_EQ(refused(content(image_part("data:image/png,abc"))), Pair("E_MEDIA", url));
  EXPECT_EQ(refused(content(image_part("data:image/png;base64,a_b"))), Pair("E_FIELD", url));
  EXPECT_EQ(refused(content(image_part("data:image/png;base64,AAAA"))).first, "E_PICTURE_FORMAT");
  EXPECT_EQ(refused({{"tools", {{{"type", "function"}}}}}), Pair("E_FIELD", "tools"));
  EXPECT_EQ(refused({{"response_format", {{"type", "json_object"}}}}),
            Pair("E_FIELD", "response_format"));
  EXPECT_EQ(refused({{"presence_penalty", 1}}), Pair("E_FIELD", "presence_penalty"));
  EXPECT_EQ(refused({{"logprobs", true}}), Pair("E_FIELD", "logprobs"));
  EXPECT_EQ(refused({{"max_tokens", 5}, {"max_completion_tokens", 6}}), Pair("E_FIELD", "max_tokens"));
  EXPECT_EQ(refused({{"max_tokens", 100000}}).first, "E_TEXT_LENGTH");
  EXPECT_EQ(refused({{"stop", {1}}}), Pair("E_FIELD", "stop"));
  EXPECT_EQ(refused({{"stop", ""}}), Pair("E_STOP_TEXT", "stop"));
  EXPECT_EQ(refused({{"temperature", -1}}), Pair("E_FIELD", "temperature"));
  EXPECT_EQ(refused({{"unknown", 1}}), Pair("E_FIELD", "unknown"));
  const Json made = post(kChats, {{"messages", about(kUrl)},
                                  {"model", kName},
                                  {"tools", Json::array()},
                                  {"store", true},
                                  {"top_p", 1},
                                  {"frequency_penalty", 0}});
  EXPECT_EQ(made["notes"].size(), 1u) << made["notes"];
}

TEST_F(Services, FilesAreTakenBelowTheMediaRootAlone) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.path() / "in");
  const std::string url = data_url();
  const std::string png = from_base64(url.substr(url.find(',') + 1), "");
  std::ofstream(folder.path() / "in/a.png", std::ios::binary) << png;
  std::ofstream(folder.path() / "secret.png", std::ios::binary) << png;
  std::filesystem::create_symlink(folder.path() / "secret.png", folder.path() / "in/link.png");
  std::filesystem::create_symlink("a.png", folder.path() / "in/own.png");
  service_ = std::make_unique<Service>(*desk_, ServiceOptions{.media_root = folder.path() / "in"});
  const auto status = [&](const std::string& path) {
    return ask(request_of("POST", kChats, {{"model", kName}, {"messages", about(path)}}))->status();
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

TEST_F(Services, WhoMayAskIsLookedAtBeforeTheBody) {
  const auto status = [&](HttpRequest request) {
    const auto refusal = service_->admit(request);
    return refusal ? refusal->status : 200;
  };
  EXPECT_EQ(status(request_of("GET", "/health")), 200);
  EXPECT_EQ(status(request_of("HEAD", "/health")), 200);
  EXPECT_EQ(status(request_of("GET", "/nowhere")), 404);
  EXPECT_EQ(status(request_of("GET", "/v1/models/")), 404);
  EXPECT_EQ(status(request_of("DELETE", "/v1/models")), 405);
  EXPECT_EQ(status(request_of("GET", kImages)), 405);
  EXPECT_EQ(status(request_of("GET", "/")), 404) << "no page was given";
  HttpRequest foreign = request_of("GET", "/health");
  foreign.fields = {{"host", "example.org"}};
  EXPECT_EQ(status(foreign), 403) << "a name that was bound to this machine";
  for (const char* host : {"127.0.0.1:8080", "localhost", "[::1]:8080"}) {
    foreign.fields = {{"host", host}};
    EXPECT_EQ(status(foreign), 200) << host;
  }
  foreign.fields.emplace_back("origin", "http://example.org");
  EXPECT_EQ(status(foreign), 403);
  HttpRequest form = request_of("POST", kImages, {});
  form.fields.back().second = "text/plain";
  EXPECT_EQ(status(form), 415) << "what pages send without asking";
  form.fields.back().second = "application/json; charset=utf-8";
  EXPECT_EQ(status(form), 200);

  const Service keyed(*desk_, {.keys = {{"a", "key-of-sixteen-1"}, {"b", "key-of-sixteen-2"}}});
  const auto with_key = [&](const std::string& path, const char* value) {
    HttpRequest request = request_of("GET", path);
    if (value != nullptr) request.fields.emplace_back("authorization", value);
    const auto refusal = keyed.admit(request);
    return refusal ? refusal->status : 200;
  };
  EXPECT_EQ(with_key("/v1/models", nullptr), 401);
  EXPECT_EQ(with_key("/v1/models", "Bearer key-of-sixteen-2"), 200);
  for (const char* wrong : {"Bearer ", "Bearer key-of-sixteen-", "Bearer key-of-sixteen-11",
                            "key-of-sixteen-1", "Basic key-of-sixteen-1", "Bearer  key-of-sixteen-1"}) {
    EXPECT_EQ(with_key("/v1/models", wrong), 401) << wrong;
  }
  EXPECT_EQ(with_key("/health", nullptr), 200);
  EXPECT_EQ(with_key("/metrics", nullptr), 401);

  const Service open(*desk_, {.cors = "https://a.example"});
  HttpRequest asks = request_of("OPTIONS", kImages);
  asks.fields.emplace_back("origin", "https://a.example");
  const auto allowed = open.admit(asks);
  ASSERT_TRUE(allowed);
  EXPECT_EQ(allowed->status, 204);
  asks.fields.back().second = "https://b.example";
  EXPECT_EQ(open.admit(asks)->status, 403);
}

TEST_F(Services, ModelsAreListedAndOneThatDoesNotOpenFailsItsRequestsAlone) {
  const auto list = ask(request_of("GET", "/v1/models"))->json()["data"];
  ASSERT_EQ(list.size(), 3u);
  EXPECT_TRUE(list[0]["tasks"].contains("image"));
  EXPECT_TRUE(list[0]["tasks"].contains("describe"));
  EXPECT_EQ(list[2]["error"]["code"], "E_MODEL_MISSING");
  EXPECT_EQ(ask(request_of("GET", "/v1/models/test:tiny"))->json()["id"], "test:tiny");
  EXPECT_EQ(ask(request_of("GET", "/v1/models/other"))->status(), 404);
  EXPECT_EQ(refusal(kImages, {{"prompt", "a"}, {"model", "model"}}, 500).first,
            "E_MODEL_MISSING");
  EXPECT_EQ(post(kImages, {{"prompt", "a"}, {"seed", 1}})["model"], "test:tiny");
}

TEST_F(Services, HealthAndMetricsCount) {
  const auto before = desk_->stats();
  post(kImages, {{"prompt", "a"}, {"seed", 1}});
  const std::string line =
      "\ntessera_requests_done_total " + std::to_string(before.done + 1) + "\n";
  std::string text;
  for (int i = 0; i < 500 && text.find(line) == std::string::npos; ++i) {  // it counts afterwards
    text = ask(request_of("GET", "/metrics"))->answer().body;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_NE(text.find(line), std::string::npos) << text;
  EXPECT_NE(text.find("# TYPE tessera_requests_waiting gauge\n"), std::string::npos);
  EXPECT_EQ(ask(request_of("GET", "/health"))->json()["status"], "ok");
}

TEST_F(Services, BodiesThatAreNoJsonAreRefused) {
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("{\"prompt\":\"a\",\"prompt\":\"b\"}"),
        std::string("{\"prompt\":\"\xff\"}"), std::string(100000, '['),
        std::string("{\"n\":1e999}"), "{\"prompt\":" + std::string(5000, '{')}) {
    HttpRequest request = request_of("POST", kImages);
    request.body = body;
    const auto reply = ask(std::move(request));
    EXPECT_EQ(reply->status(), 400) << body.substr(0, 60);
    EXPECT_TRUE(reply->json()["error"]["code"].get<std::string>().starts_with("E_JSON"));
  }
}

TEST(Base64, IsReadAndWritten) {
  for (const std::string& bytes : {std::string(), std::string("a"), std::string("\0\xff\x10", 3)}) {
    EXPECT_EQ(from_base64(to_base64(bytes), "f"), bytes);
  }
  EXPECT_EQ(to_base64("hello"), "aGVsbG8=");
  EXPECT_EQ(from_base64("aGVs\nbG8=", "f"), "hello") << "line breaks of older writers";
  for (const char* bad : {"a", "aGVsbG8", "aGVsbG8==", "aGVs?bG8="}) {
    EXPECT_THROW(from_base64(bad, "f"), api::Error) << bad;
  }
}

}  // namespace
}  // namespace tessera::service_test
