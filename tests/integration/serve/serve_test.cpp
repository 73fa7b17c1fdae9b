// `tessera serve` as it is started and ended: what it prints, the bytes of its answers, signals,
// and what it refuses to start with.
#include <thread>

#include "apps/runtime/base64.h"
#include "tests/integration/serve/serve_program.h"

namespace tessera::serve_program_test {
namespace {

using Json = nlohmann::ordered_json;

class Serve : public ServeProgram {};

TEST_F(Serve, SaysWhereItListensAndEndsWith75) {
  const ProgramResult plain = serve_and_end({"-m", "test:tiny"}, [](std::uint16_t port) {
    EXPECT_EQ(RawClient(port).ask(get("/health")).status, 200);
  });
  EXPECT_EQ(plain.exit_code, 75) << plain.err;
  EXPECT_TRUE(plain.out.starts_with("listening on http://127.0.0.1:")) << plain.out;
  EXPECT_EQ(plain.error_lines(), 1u) << plain.err;
  const ProgramResult json = serve_and_end({"-m", "test:tiny", "--json"}, [](std::uint16_t) {});
  EXPECT_EQ(json.exit_code, 75);
  ASSERT_EQ(json.json_lines().size(), 1u);
  EXPECT_TRUE(json.json_lines()[0]["url"].get<std::string>().starts_with("http://127.0.0.1:"));
}

// Each image is that of `generate` with its seed, whatever comes at once.
TEST_F(Serve, TheBytesAreThoseOfGenerate) {
  const ProgramResult made =
      run({"generate", "-m", "test:tiny", "-p", "a red cube", "-s", "5", "-b", "6", "-o", "i%d.png"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  std::vector<std::string> images;
  for (int i = 0; i < 6; ++i) images.push_back(to_base64(content("i" + std::to_string(i + 1) + ".png")));
  serve_and_end({"-m", "test:tiny", "--slots", "3"}, [&](std::uint16_t port) {
    std::vector<std::thread> clients;
    for (int number = 0; number < 4; ++number) {
      clients.emplace_back([&, number] {
        for (int i = 0; i < 6; ++i) {
          const int at = (i + number) % 6;
          const HttpSeen got = RawClient(port).ask(
              post(R"({"prompt": "a red cube", "seed": )" + std::to_string(5 + at) + "}"));
          EXPECT_EQ(got.status, 200) << got.body;
          EXPECT_TRUE(Json::parse(got.body)["data"][0]["b64_json"] == images[static_cast<std::size_t>(at)]);
        }
      });
    }
    for (std::thread& one : clients) one.join();
  });
}

TEST_F(Serve, BundledModelsAreServedByDefault) {
  const ProgramResult made =
      run_program(TESSERA_ALONE, {"generate", "-p", "a red cube", "-s", "7", "-o", "a.png"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const ProgramResult served = serve_and_end(
      {},
      [&](std::uint16_t port) {
        const Json models = Json::parse(RawClient(port).ask(get("/v1/models")).body)["data"];
        ASSERT_EQ(models.size(), 3u);
        for (const Json& model : models) EXPECT_FALSE(model["tasks"].empty()) << model;
        const HttpSeen got = RawClient(port).ask(post(R"({"prompt": "a red cube", "seed": 7})"));
        ASSERT_EQ(got.status, 200) << got.body;
        EXPECT_TRUE(Json::parse(got.body)["data"][0]["b64_json"] == to_base64(content("a.png")));
      },
      TESSERA_ALONE);
  EXPECT_EQ(served.exit_code, 75) << served.err;
}

TEST_F(Serve, WhatIsAtWorkFinishesAfterSigterm) {
  const ProgramResult served = serve(
      {"--slots", "2"},
      [&](std::uint16_t port, pid_t child) {
        RawClient works(port), streams(port), idle(port);
        EXPECT_EQ(idle.ask(get("/health")).status, 200);
        works.send(post(R"({"prompt": "a red cube", "seed": 1, "n": 6})"));
        streams.send(post(R"({"prompt": "a red cube", "seed": 1, "n": 2, "stream": true})"));
        ASSERT_TRUE(is_at_work(port));
        kill(child, SIGTERM);
        EXPECT_TRUE(idle.ends());
        EXPECT_TRUE(comes([&] { return !RawClient(port).connected(); }));
        const HttpSeen got = works.answer();
        EXPECT_EQ(got.status, 200);
        EXPECT_TRUE(got.whole);
        EXPECT_EQ(Json::parse(got.body)["data"].size(), 6u);
        EXPECT_TRUE(works.ends());
        const HttpSeen events = streams.answer();
        EXPECT_TRUE(events.whole);
        EXPECT_NE(events.body.find("\"index\":1"), std::string::npos);
      },
      TESSERA_ALONE);
  EXPECT_EQ(served.exit_code, 75) << served.err;
}

// Who is cut off hears why.
TEST_F(Serve, WhatDoesNotFinishInTimeIsRefused) {
  const ProgramResult served = serve(
      {"--slots", "1", "--drain", "0.3"},
      [&](std::uint16_t port, pid_t child) {
        RawClient works(port), waits(port);
        works.send(post(R"({"prompt": "a red cube", "n": 10, "stream": true, "partial_images": 3})"));
        ASSERT_TRUE(is_at_work(port));
        waits.send(post(R"({"prompt": "a red cube", "n": 10})"));
        ASSERT_TRUE(comes([&] {
          return Json::parse(RawClient(port).ask(get("/health")).body).at("waiting") > 10;
        }));
        kill(child, SIGTERM);
        const HttpSeen events = works.answer();
        EXPECT_EQ(events.status, 200);
        EXPECT_NE(events.body.find("\"code\":\"E_DRAINING\""), std::string::npos);
        const HttpSeen got = waits.answer();
        EXPECT_EQ(got.status, 503);
        EXPECT_NE(got.body.find("\"code\":\"E_DRAINING\""), std::string::npos) << got.body;
      },
      TESSERA_ALONE);
  EXPECT_EQ(served.exit_code, 75) << served.err;
  EXPECT_NE(served.err.find("not finished"), std::string::npos);
}

// A scheduler's warning and a terminal that closes are asked for an end as TERM is.
TEST_F(Serve, OtherSignalsDrainItToo) {
  for (const int number : {SIGUSR1, SIGHUP, SIGINT}) {
    const ProgramResult served = serve(
        {"--slots", "1"},
        [&](std::uint16_t port, pid_t child) {
          RawClient works(port);
          works.send(post(R"({"prompt": "a red cube", "n": 2})"));
          ASSERT_TRUE(is_at_work(port));
          kill(child, number);
          EXPECT_EQ(works.answer().status, 200);
        },
        TESSERA_ALONE);
    EXPECT_EQ(served.exit_code, 75) << number << served.err;
  }
}

TEST_F(Serve, ASecondSignalEndsItAtOnce) {
  const ProgramResult served = serve(
      {"--slots", "1"},
      [&](std::uint16_t port, pid_t child) {
        RawClient works(port);
        works.send(post(R"({"prompt": "a red cube", "n": 10})"));
        ASSERT_TRUE(is_at_work(port));
        kill(child, SIGINT);
        EXPECT_TRUE(comes([&] { return !RawClient(port).connected(); }));
        kill(child, SIGTERM);
        EXPECT_TRUE(works.ends(5));
      },
      TESSERA_ALONE);
  EXPECT_EQ(served.exit_code, 143) << served.err;
}

// A list of requests is in its folder: who kills the server loses what was not done yet alone.
TEST_F(Serve, JobsGoOnAfterAKill) {
  const std::vector<std::string> flags = {"--jobs", "jobs"};
  const auto ask = [](std::uint16_t port, const std::string& request) {
    return Json::parse(RawClient(port).ask(request).body, nullptr, false);
  };
  std::string job;
  serve(
      flags,
      [&](std::uint16_t port, pid_t child) {
        std::string list;
        for (int i = 0; i < 12; ++i) {
          list += std::string(i > 0 ? "," : "") +
                  R"({"url":"/v1/images/generations","body":{"prompt":"a red cube"}})";
        }
        job = ask(port, post("{\"requests\":[" + list + "]}", "/v1/jobs"))["id"];
        EXPECT_TRUE(comes([&] { return ask(port, get("/v1/jobs/" + job))["done"] >= 2; }));
        kill(child, SIGKILL);
      },
      TESSERA_ALONE);
  serve_and_end(
      flags,
      [&](std::uint16_t port) {
        Json state;
        EXPECT_TRUE(comes([&] {
          state = ask(port, get("/v1/jobs/" + job));
          return state["status"] == "completed";
        })) << state;
        EXPECT_EQ(state["done"], 12) << state;
      },
      TESSERA_ALONE);
}

class Second : public ProgramTest {
 public:
  using ProgramTest::run;
  void TestBody() override {}
};

TEST_F(Serve, APortThatIsTakenIsNamed) {
  serve_and_end({"-m", "test:tiny"}, [&](std::uint16_t port) {
    Second other;  // with logs of its own
    const ProgramResult second =
        other.run({"serve", "-m", "test:tiny", "--port", std::to_string(port), "--json"});
    EXPECT_EQ(second.exit_code, 2);
    EXPECT_NE((second.out + second.err).find("E_SERVE_ADDRESS"), std::string::npos)
        << second.out << second.err;
    EXPECT_NE((second.out + second.err).find(std::to_string(port)), std::string::npos);
    EXPECT_EQ(RawClient(port).ask(get("/health")).status, 200);  // the first one goes on
  });
}

TEST_F(Serve, WhatItCannotStartWithIsRefused) {
  put_file(folder_ / "short", "ann 0123456789\n");
  put_file(folder_ / "blank", "ann  0123456789abcdef\n");
  put_file(folder_ / "name", "# keys\n\n0123456789abcdef\n");
  put_file(folder_ / "none", "# keys\n");
  put_file(folder_ / "file", "");
  const std::pair<std::vector<std::string>, const char*> wrong[] = {
      {{"--keys", "short"}, "line 1"},       {{"--keys", "blank"}, "line 1"},
      {{"--keys", "name"}, "line 3"},        {{"--keys", "none"}, "E_KEYS"},
      {{"--keys", "missing"}, "missing"},    {{"--host", "nowhere.example"}, "E_SERVE_ADDRESS"},
      {{"--host", "192.0.2.1"}, "192.0.2.1"}, {{"--port", "65536"}, "65536"},
      {{"--slots", "0"}, "slots"},           {{"--queue", "-1"}, "queue"},
      {{"--dtype", "q7"}, "q7"},             {{"more"}, "more"},
      {{"-m", "test:tiny"}, "E_SERVE_NAMES"},
      {{"--alias", "gpt-image-1"}, "E_SERVE_NAMES"},
      {{"--alias", "gpt-image-1=nobody"}, "E_SERVE_NAMES"},
      {{"--cors", "https://a.example/"}, "https://a.example/"},
      {{"--media-root", "missing"}, "E_MEDIA_ROOT"},
      {{"--media-root", "file"}, "E_MEDIA_ROOT"},
  };
  for (const auto& [more, found] : wrong) {
    std::vector<std::string> args = {"serve", "-m", "test:tiny", "--json"};
    if (more[0] != "--port") args.insert(args.end(), {"--port", "0"});
    args.insert(args.end(), more.begin(), more.end());
    const ProgramResult got = run(args);
    EXPECT_EQ(got.exit_code, 2) << more[0] << got.out << got.err;
    EXPECT_NE((got.out + got.err).find(found), std::string::npos) << found << got.out << got.err;
    EXPECT_EQ((got.out + got.err).find("0123456789abcdef"), std::string::npos) << "a key is shown";
  }
}

TEST_F(Serve, KeysAreAskedForAndAModelThatIsMissingIsNamed) {
  put_file(folder_ / "keys", "# who may ask\nann 0123456789abcdef\r\nben fedcba9876543210\n");
  const ProgramResult served = serve_and_end(
      {"-m", "test:tiny", "-m", "test:none", "--keys", "keys"}, [](std::uint16_t port) {
        const auto status = [&](const std::string& key) {
          return RawClient(port).ask(get("/v1/models", "Authorization: Bearer " + key + "\r\n")).status;
        };
        EXPECT_EQ(status("0123456789abcdef"), 200);
        EXPECT_EQ(status("fedcba9876543210"), 200);
        EXPECT_EQ(status("0123456789abcdee"), 401);
        EXPECT_EQ(RawClient(port).ask(get("/v1/models")).status, 401);
      });
  EXPECT_EQ(served.exit_code, 75);
  EXPECT_NE(served.err.find("test:none"), std::string::npos) << served.err;
}

TEST_F(Serve, AnOpenAddressWithoutKeysIsWarnedOf) {
  const ProgramResult served =
      serve_and_end({"-m", "test:tiny", "--host", "0.0.0.0"}, [](std::uint16_t port) {
        EXPECT_EQ(RawClient(port).ask("GET /health HTTP/1.1\r\nHost: any.example\r\n\r\n").status, 200);
      });
  EXPECT_NE(served.err.find("--keys"), std::string::npos) << served.err;
}

}  // namespace
}  // namespace tessera::serve_program_test
