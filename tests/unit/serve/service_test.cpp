// Who may ask for what, and how refusals read.
#include <set>

#include "tests/support/temp_folder.h"
#include "tests/unit/serve/service_run.h"

namespace tessera::service_test {
namespace {

constexpr const char* kKey = "tessera-0123456789-key";

TEST(Service, PathsAndMethodsThatAreNotThereAreRefused) {
  ServiceRun run;
  EXPECT_EQ(run.get("/health").status, 200);
  EXPECT_EQ(run.get("/v1/models").status, 200);
  EXPECT_EQ(run.get("/v1/models/test:tiny").status, 200);
  EXPECT_EQ(run.get("/metrics").status, 200);
  EXPECT_EQ(run.ask(ServiceRun::request("HEAD", "/health")).status, 200);
  for (const char* path : {"/", "/v1", "/v1/", "/v1/models/", "/health/", "/Health", "//health",
                           "/v1/images", "/../health", "/v1/images/generations/x", "*", "",
                           "http://localhost/health", "/%68ealth", "/v1/models\x01"}) {
    EXPECT_EQ(run.get(path).refusal(), "404 E_ROUTE path") << path;
  }
  for (const char* path : {"/v1/models/other", "/v1/models/test:tiny/x", "/v1/models/../../etc/passwd",
                           "/v1/models/%2e%2e", "/v1/models//"}) {
    EXPECT_EQ(run.get(path).refusal(), "404 E_SERVED_MODEL model") << path;
  }
  EXPECT_EQ(run.get("/v1/images/generations").refusal(), "405 E_METHOD method");
  EXPECT_EQ(run.get("/v1/images/generations").field("Allow"), "POST");
  EXPECT_EQ(run.ask(ServiceRun::request("PUT", "/v1/jobs/x")).field("Allow"), "GET, HEAD, DELETE");
  EXPECT_EQ(run.ask(ServiceRun::request("POST", "/health", "{}")).refusal(), "405 E_METHOD method");
  EXPECT_EQ(run.ask(ServiceRun::request("DELETE", "/v1/models/test:tiny")).refusal(),
            "405 E_METHOD method");
  EXPECT_EQ(run.ask(ServiceRun::request("HEAD", "/v1/images/generations")).refusal(),
            "405 E_METHOD method");
  EXPECT_EQ(run.ask(ServiceRun::request("OPTIONS", "/health")).refusal(), "405 E_METHOD method");
  EXPECT_EQ(run.ask(ServiceRun::request("get", "/health")).refusal(), "405 E_METHOD method");
}

TEST(Service, APageIsServedWhereThereIsOne) {
  ServiceRun run({.page = "<p>hello"});
  const Seen got = run.get("/");
  EXPECT_EQ(got.body, "<p>hello");
  EXPECT_NE(got.field("Content-Security-Policy"), "");
  EXPECT_EQ(run.get("/x").refusal(), "404 E_ROUTE path");
}

TEST(Service, KeysSayWhoMayAsk) {
  ServiceRun run({.keys = {{"ann", kKey}, {"ben", "another-key-of-16"}}});
  const auto with = [&](const std::string& value) {
    return run.get("/v1/models", {{"authorization", value}}).refusal();
  };
  const std::string right = kKey;
  EXPECT_EQ(with("Bearer " + right), "200");
  EXPECT_EQ(with("Bearer another-key-of-16"), "200");
  EXPECT_EQ(with("bearer another-key-of-16"), "200");
  EXPECT_EQ(with("BEARER " + right), "200");
  EXPECT_EQ(run.get("/health").status, 200);
  std::string wrong = right;
  wrong.back() ^= 1;
  for (const std::string& value :
       std::vector<std::string>{"", right, "Basic " + right, "Bearer", "Bearer ", "Bearer " + wrong,
        "Bearer " + right + "x", "Bearer " + right.substr(1), "Bearer  " + right, "Bearer ann",
        "Bearer " + right + std::string(1, '\0'), "Bearer " + right + " another-key-of-16"}) {
    EXPECT_EQ(with(value), "401 E_KEY authorization") << value;
  }
  EXPECT_EQ(run.get("/v1/models").field("WWW-Authenticate"), "Bearer");
  EXPECT_EQ(run.get("/metrics").refusal(), "401 E_KEY authorization");
  EXPECT_EQ(run.ask(ServiceRun::images("{")).refusal(), "401 E_KEY authorization");
  // What is not there is said before keys are asked for, as of any path.
  EXPECT_EQ(run.get("/v1/other").refusal(), "404 E_ROUTE path");
}

// A page elsewhere that gives this machine a name of its own reaches nothing.
TEST(Service, OtherHostsAreRefusedOnLoopback) {
  ServiceRun run;
  for (const char* host : {"localhost", "localhost:1", "127.0.0.1", "127.0.0.1:8080", "[::1]",
                           "[::1]:8080"}) {
    EXPECT_EQ(run.get("/health", {{"host", host}}).refusal(), "200") << host;
  }
  for (const char* host : {"evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example",
                           "[::1", "[::2]", "evil.example@localhost", " localhost", "0.0.0.0"}) {
    EXPECT_EQ(run.get("/health", {{"host", host}}).refusal(), "403 E_HOST host") << host;
  }
  HttpRequest none = ServiceRun::request("GET", "/health");
  none.fields.clear();
  EXPECT_EQ(run.ask(none).refusal(), "403 E_HOST host");
  ServiceRun open({.loopback = false});
  EXPECT_EQ(open.get("/health", {{"host", "any.example"}}).refusal(), "200");
}

TEST(Service, PagesElsewhereAskOnlyWhereTheyMay) {
  const auto asked = [](const std::string& cors, const std::string& origin) {
    ServiceRun run({.cors = cors});
    const Seen got = run.get("/health", {{"origin", origin}});
    return got.refusal() + " " + got.field("Access-Control-Allow-Origin");
  };
  EXPECT_EQ(asked("", "http://evil.example"), "403 E_ORIGIN origin ");
  EXPECT_EQ(asked("", "null"), "403 E_ORIGIN origin ");
  EXPECT_EQ(asked("", "http://localhost:8080"), "200 ");
  EXPECT_EQ(asked("http://a.example", "http://a.example"), "200 http://a.example");
  EXPECT_EQ(asked("http://a.example", "http://a.example.evil"), "403 E_ORIGIN origin ");
  EXPECT_EQ(asked("*", "http://evil.example"), "200 *");
  ServiceRun run({.cors = "http://a.example"});
  const auto refused = [&](const std::string& path, const std::string& origin) {
    return run.get(path, {{"origin", origin}}).field("Access-Control-Allow-Origin");
  };
  EXPECT_EQ(refused("/none", "http://a.example"), "http://a.example");
  EXPECT_EQ(refused("/v1/images/generations", "http://a.example"), "http://a.example");
  EXPECT_EQ(refused("/none", "http://b.example"), "");
  const Seen before = run.ask(ServiceRun::request("OPTIONS", "/v1/images/generations", "",
                                                  {{"origin", "http://a.example"}}));
  EXPECT_EQ(before.status, 204);
  EXPECT_EQ(before.field("Access-Control-Allow-Origin"), "http://a.example");
  // A page may send the fields that it asks for: clients have names of their own.
  const auto fields = [&](const std::string& names) {
    return run.ask(ServiceRun::request("OPTIONS", "/v1/models", "",
                                       {{"origin", "http://a.example"},
                                        {"access-control-request-headers", names}}))
        .field("Access-Control-Allow-Headers");
  };
  EXPECT_EQ(before.field("Access-Control-Allow-Headers"), "authorization, content-type");
  EXPECT_EQ(fields("authorization,content-type,x-stainless-os"), "authorization,content-type,x-stainless-os");
  EXPECT_EQ(fields("a\r\nb: c"), "authorization, content-type");
  EXPECT_EQ(run.ask(ServiceRun::request("OPTIONS", "/health", "", {{"origin", "http://b"}})).refusal(),
            "403 E_ORIGIN origin");
}

// What a store on the way keeps for one origin is not given to another.
TEST(Service, AnswersVaryByOrigin) {
  ServiceRun run({.cors = "http://a.example"});
  for (const char* origin : {"http://a.example", "http://b.example", ""}) {
    EXPECT_EQ(run.get("/health", {{"origin", origin}}).field("Vary"), "Origin") << origin;
  }
  ServiceRun closed;
  EXPECT_EQ(closed.get("/health").field("Vary"), "");
}

TEST(Service, APageBehindAProxyIsThisServers) {
  ServiceRun run({.loopback = false});
  const auto asked = [&](const std::string& origin) {
    return run.get("/health", {{"host", "a.example"}, {"origin", origin}}).refusal();
  };
  EXPECT_EQ(asked("https://a.example"), "200");
  EXPECT_EQ(asked("https://b.example"), "403 E_ORIGIN origin");
  EXPECT_EQ(asked("https://a.example:444"), "403 E_ORIGIN origin");
  EXPECT_EQ(asked("httpss://a.example"), "403 E_ORIGIN origin");
}

TEST(Service, WhatIsNoOriginIsNamed) {
  for (const char* origin : {"", "*", "http://a.example", "https://a.example:8080", "http://[::1]:80801",
                             "app://obsidian.md"}) {
    EXPECT_NO_THROW(check_cors(origin)) << origin;
  }
  for (const char* origin : {"https://a/", "https://a.example/b", "a.example", "https://", "://a",
                             "https://A.example", "null", "http://a:80", "https://a:443", "http://a, http://b",
                             "http://a?b", "http://u@a"}) {
    try {
      check_cors(origin);
      ADD_FAILURE() << origin;
    } catch (const api::Error& error) {
      EXPECT_EQ(error.code(), "E_CORS");
      EXPECT_NE(error.found().find(origin), std::string::npos);
    }
  }
}

// Values cost far more than their bytes.
TEST(Service, BodiesOfVeryManyValuesAreRefused) {
  ServiceRun run;
  const auto zeros = [](std::size_t count, const std::string& each = "0,") {
    std::string out = R"({"messages":[)";
    for (std::size_t i = 0; i + 1 < count; ++i) out += each;
    return out + "0]}";
  };
  const auto chat = [&](const std::string& body) {
    return run.ask(ServiceRun::request("POST", "/v1/chat/completions", body)).refusal();
  };
  EXPECT_EQ(chat(zeros(200001)), "400 E_JSON_VALUES body");
  EXPECT_EQ(chat(zeros(100001, "[0],")), "400 E_JSON_VALUES body");
  EXPECT_EQ(chat(zeros(199000)), "400 E_FIELD messages");
  // Those within strings are none.
  const std::string text(300000, ',');
  EXPECT_EQ(chat(R"({"messages":[0],"a":"\\\"[)" + text + R"(\"","b\\":"{"})"), "400 E_FIELD messages[0]");
  EXPECT_EQ(chat(R"({"messages":")" + text), "400 E_JSON -");
  // A list of requests has as many as its requests need.
  const auto listed = [&](std::size_t count) {
    Body(ServiceRun::request("POST", "/v1/jobs", zeros(count)));
  };
  EXPECT_NO_THROW(listed(1900000));
  EXPECT_THROW(listed(2000001), api::Error);
}

TEST(Service, OnlyJsonIsTaken) {
  ServiceRun run;
  const auto typed = [&](const std::string& type) {
    return run.ask(ServiceRun::request("POST", "/v1/images/generations", R"({"prompt": "x"})",
                                       {{"content-type", type}}))
        .refusal();
  };
  EXPECT_EQ(typed("application/json"), "200");
  EXPECT_EQ(typed("application/json; charset=utf-8"), "200");
  EXPECT_EQ(typed("Application/JSON ;charset=UTF-8"), "200");
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "application/jsonx",
                           "multipart/form-data; boundary=x", " application/json"}) {
    EXPECT_EQ(typed(type), "415 E_CONTENT_TYPE content-type") << type;
  }
  HttpRequest none = ServiceRun::images("{}");
  std::erase_if(none.fields, [](const auto& field) { return field.first == "content-type"; });
  EXPECT_EQ(run.ask(none).refusal(), "415 E_CONTENT_TYPE content-type");
}

TEST(Service, ModelsAreListedWithWhatTheyDo) {
  ServiceRun run({}, DeskRun::tiny({"test:none", "test:tiny", "test:clip"}));
  const Json list = run.get("/v1/models").json();
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 3u);
  EXPECT_EQ(list["data"][0]["id"], "test:none");
  EXPECT_TRUE(list["data"][0]["tasks"].empty());
  EXPECT_EQ(list["data"][0]["error"]["code"], "E_MODEL_MISSING");
  EXPECT_EQ(list["data"][1]["tasks"]["image"]["size"], "32x32");
  EXPECT_EQ(list["data"][1]["object"], "model");
  EXPECT_EQ(list["data"][1]["owned_by"], "tessera");
  EXPECT_GT(list["data"][1]["created"], 1700000000);
  EXPECT_TRUE(list["data"][2]["tasks"].contains("video"));
  EXPECT_EQ(run.get("/v1/models/test:tiny").json(), list["data"][1]);
}

// A model is named by its folder's own name; where that lies is nobody's business.
TEST(Service, FoldersAreServedWithoutTheirPlace) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "one/model");
  std::filesystem::create_directories(folder / "two/model");
  put_file(folder / "one/model/config.json", "{");
  ServiceRun run({}, DeskRun::tiny({(folder / "one/model/").string(), (folder / "two/model").string(),
                                    (folder / "missing").string(), "test:tiny"}));
  const Seen got = run.get("/v1/models");  // scanned for /tmp/
  std::vector<std::string> names;
  const Json list = got.json();
  for (const Json& model : list["data"]) names.push_back(model["id"]);
  EXPECT_EQ(names, (std::vector<std::string>{"model", "model-2", "missing", "test:tiny"}));
  for (const char* name : {"model", "model-2", "missing"}) {
    const Seen refused = run.image(R"(, "model": ")" + std::string(name) + "\"");
    EXPECT_EQ(refused.status, 500) << refused.body;
    EXPECT_EQ(run.get("/v1/models/" + std::string(name)).json()["id"], name);
  }
  EXPECT_EQ(run.image(R"(, "model": ")" + (folder / "one/model").string() + "\"").refusal(),
            "404 E_SERVED_MODEL model");
  EXPECT_EQ(run.image().status, 200);
}

// What fails when weights are read fails its requests, and they alone.
TEST(Service, AModelWhoseWeightsGoFailsItsRequests) {
  const TempFolder folder;
  const auto model = folder / "tabletop";
  std::filesystem::copy(std::filesystem::path(TESSERA_SOURCE_DIR) / "assets/models/tabletop-janus", model,
                        std::filesystem::copy_options::recursive);
  ServiceRun run({}, DeskRun::tiny({model.string(), "test:tiny"}));
  ASSERT_EQ(run.desk.models()[0].tasks.size(), 1u) << run.get("/v1/models").body;
  for (const auto& file : std::filesystem::directory_iterator(model)) {
    if (file.path().extension() == ".safetensors") std::filesystem::resize_file(file.path(), 1000);
  }
  for (int i = 0; i < 2; ++i) {
    const Seen got = run.image(R"(, "n": 2)");
    EXPECT_EQ(got.status, 500);
    EXPECT_NE(got.refusal().find(" E_"), std::string::npos) << got.body;
    EXPECT_EQ(run.image(R"(, "model": "test:tiny")").status, 200);
  }
  EXPECT_TRUE(comes([&] { return run.get("/health").json()["at_work"] == 0; }));
}

TEST(Service, HealthAndMetricsCount) {
  ServiceRun run;
  EXPECT_EQ(run.get("/health").json()["status"], "ok");
  EXPECT_EQ(run.image(R"(, "n": 2)").status, 200);
  EXPECT_EQ(run.image(R"(, "decode": "nonsense")").status, 400);
  ASSERT_TRUE(comes([&] { return run.desk.stats().done + run.desk.stats().failed == 3; }));
  const std::string text = run.get("/metrics").body;
  for (const char* line :
       {"tessera_requests_total 3", "tessera_requests_done_total 2", "tessera_requests_failed_total 1",
        "tessera_image_tokens_total 128", "tessera_requests_waiting 0", "tessera_models_open 1"}) {
    EXPECT_NE(text.find("\n" + std::string(line) + "\n"), std::string::npos) << line << "\n" << text;
  }
  // Each has its help and its type, once.
  std::set<std::string> names;
  for (std::size_t at = text.find("# TYPE "); at != std::string::npos; at = text.find("# TYPE ", at + 1)) {
    const std::string name = text.substr(at + 7, text.find(' ', at + 7) - at - 7);
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_NE(text.find("# HELP " + name + " "), std::string::npos);
    EXPECT_NE(text.find("\n" + name + " "), std::string::npos);
  }
  EXPECT_GE(names.size(), 12u);
}

TEST(Service, ErrorsSayNothingOfThisMachine) {
  const auto message = [](api::ErrorFacts facts) {
    return error_object(api::Error(std::move(facts)))["error"]["message"].get<std::string>();
  };
  for (const char* path :
       {"/secret/place/model", "'/secret/place/model'", "\"/secret/place/model\"", "(/secret/place/model)",
        "file=/secret/place/model", "[/secret/place/model]", "</secret/place/model>", "x:/secret/place/model",
        "`/secret/place/model`", "/secret/place/", "file:///secret/place/model", "//secret/place/x",
        "a\t/secret/place/x", "/secret/a b/place/x"}) {
    const std::string text = message({.code = "E_X", .file = "/secret/file", .where = path,
                                      .expected = path, .found = path, .hint = path});
    EXPECT_EQ(text.find("secret"), std::string::npos) << text;
  }
  // What is no path of a machine stays.
  EXPECT_EQ(message({.code = "E_X", .where = "a/b", .expected = "1/2 or org/name", .found = "and/or"}),
            "a/b: expected 1/2 or org/name, found and/or");
  EXPECT_EQ(message({.code = "E_X", .expected = "POST /v1/images/generations"}),
            "expected POST /v1/images/generations");
  EXPECT_EQ(message({.code = "E_X", .found = "'/secret/place/model'"}), ", found 'model'");
  EXPECT_EQ(message({.code = "E_X", .found = "\x1b[31m\r\n\xff"}).find_first_of("\x1b\r\n\xff"), std::string::npos);
}

}  // namespace
}  // namespace tessera::service_test
