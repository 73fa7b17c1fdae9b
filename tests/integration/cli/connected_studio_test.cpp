// A studio as a client of the real `tessera serve`: the pixels, files and texts are those that the
// commands make, whoever else asks, and a server that ends takes nobody with it.
#include <algorithm>
#include <thread>

#include "apps/client/event_reader.h"
#include "apps/studio/event.h"
#include "apps/studio/server_images.h"
#include "tests/integration/cli/program.h"
#include "tests/support/http_client.h"
#include "tests/unit/studio/studio_run.h"
#include "vision/image/png.h"

namespace tessera::connected_studio_test {
namespace {

using Json = nlohmann::ordered_json;

class ConnectedStudio : public ProgramTest {
 protected:
  // Runs `program serve`, and `meanwhile` with its address and id; ends it then.
  ProgramResult serve(std::vector<std::string> more,
                      const std::function<void(const std::string&, pid_t)>& meanwhile,
                      const std::string& program = TESSERA_PROGRAM) {
    std::vector<std::string> args = {"serve"};
    if (std::find(more.begin(), more.end(), "--port") == more.end()) more.insert(more.end(), {"--port", "0"});
    args.insert(args.end(), more.begin(), more.end());
    return run_program(program, args, {}, [&](pid_t child) {
      const std::string line = first_line();
      const std::size_t at = line.find("http://");
      if (at != std::string::npos) meanwhile(line.substr(at), child);
      kill(child, SIGTERM);
    });
  }
  static StudioOptions connected(const std::string& url, const std::filesystem::path& key = {}) {
    StudioOptions options;
    options.server = {url, key};
    return options;
  }
  // `model`: of the server, where settings name none.
  struct Run : StudioRun {
    explicit Run(StudioOptions options, const std::string& model = "test:tiny")
        : StudioRun((options.model = model, options)) {}
  };
  static std::uint16_t port_of(const std::string& url) {
    return static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  }
  static Json health(const std::string& url) {
    return Json::parse(
        RawClient(port_of(url)).ask("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").body);
  }
};

std::vector<std::string> generate(const std::string& method) {
  return {"generate", "-m", "test:tiny", "-p",       "A red cube", "-s",   "5",
          "-b",       "3",  "--decode",  method,     "--json",     "-o",   method + "_%d.png"};
}

TEST_F(ConnectedStudio, ImagesAreThoseOfGenerate) {
  for (const std::string method : {"plain", "gumbel"}) {
    ASSERT_EQ(run(generate(method)).exit_code, 0);
  }
  serve({"-m", "test:tiny", "--slots", "2"}, [&](const std::string& url, pid_t) {
    Run one(connected(url)), other(connected(url));
    GenerateSettings settings = tiny_settings("A red cube", 5);
    ASSERT_TRUE(one.studio.post(GenerateCommand{settings, SeedMode::kPlusOne, 3}));
    settings.method = decode_method("gumbel");
    ASSERT_TRUE(other.studio.post(GenerateCommand{settings, SeedMode::kPlusOne, 3}));
    const std::pair<Run&, std::string> runs[] = {{one, "plain"}, {other, "gumbel"}};
    for (const auto& [run, method] : runs) {
      for (std::uint64_t i = 0; i < 3; ++i) {
        const Generation got = run.finished(i + 1);
        ASSERT_EQ(got.state, GenerateState::kDone) << format_error(got.error);
        const std::string name = method + "_" + std::to_string(i + 1) + ".png";
        EXPECT_EQ(get_file(got.file), content(name)) << "byte for byte";
        EXPECT_EQ(got.image->rgb, read_own_png(folder_ / name).rgb);
        EXPECT_EQ(got.file.filename(), "a-red-cube_" + std::to_string(5 + i) + ".png");
        EXPECT_EQ(got.settings.seed, 5 + i);
        EXPECT_EQ(got.facts.seed, 5 + i);
        EXPECT_EQ(got.facts.method.name, method);
        EXPECT_GT(got.facts.tokens, 0);
        EXPECT_GT(got.facts.passes, 0);
        EXPECT_GT(got.seconds, 0);
        EXPECT_EQ(got.from, url);
      }
    }
    EXPECT_EQ(one.studio.update().models.size(), 1u);
    EXPECT_EQ(one.studio.snapshot().models[0].reference.shown_name, "test:tiny");
  });
}

TEST_F(ConnectedStudio, PartialImagesComeBeforeTheWhole) {
  serve(
      {},
      [&](const std::string& url, pid_t) {
        Run run(connected(url), "tabletop-janus");
        GenerateSettings settings = tiny_settings("a red cube", 7);
        ASSERT_TRUE(run.studio.post(GenerateCommand{settings}));
        std::vector<double> shares;
        std::vector<std::shared_ptr<const Image>> shown;
        run.until([&](const Snapshot& now) {
          const Generation& one = now.generations.front();
          if (one.image != nullptr && (shares.empty() || shares.back() != one.share_done)) {
            shares.push_back(one.share_done);
            shown.push_back(one.image);
          }
          return is_final(one.state);
        });
        const Generation got = run.finished(1);
        EXPECT_EQ(got.state, GenerateState::kDone) << format_error(got.error);
        ASSERT_GE(shown.size(), 2u) << "at least one on the way";
        EXPECT_NE(shown.front()->rgb, shown.back()->rgb);
        // Each is what a plain client gets.
        const std::string body = image_request(settings, "tabletop-janus").dump();
        const HttpSeen seen = RawClient(port_of(url)).ask(
            "POST /v1/images/generations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
        std::vector<ServerEvent> events;
        EXPECT_TRUE(EventReader(1 << 24).feed(seen.body, events));
        ASSERT_EQ(events.size(), 4u) << seen.body.substr(0, 200);
        for (std::size_t i = 0; i < shown.size(); ++i) {
          const auto number = static_cast<std::size_t>(shares[i] * 4 - 0.5);
          put_file(folder_ / "part.png", read_image_event(events[number], url).png);
          EXPECT_EQ(shown[i]->rgb, read_own_png(folder_ / "part.png").rgb) << number;
        }
        EXPECT_EQ(run.studio.update().default_model, "tabletop-janus");
      },
      TESSERA_ALONE);
}

// The server is held still meanwhile, so that it is in the middle; an image may be faster, some times.
TEST_F(ConnectedStudio, AStopFreesTheServersSlot) {
  const ProgramResult served = serve(
      {"--slots", "1"},
      [&](const std::string& url, pid_t child) {
        Run run(connected(url), "tabletop-janus");
        Generation got;
        for (std::uint64_t number = 1; number <= 30 && got.state != GenerateState::kStopped; ++number) {
          ASSERT_TRUE(run.studio.post(GenerateCommand{tiny_settings("a", number)}));
          run.until([&](const Snapshot& now) { return now.generation(number)->image != nullptr; });
          kill(child, SIGSTOP);
          run.studio.post(StopCommand{});
          got = run.finished(number);
          kill(child, SIGCONT);
        }
        ASSERT_EQ(got.state, GenerateState::kStopped);
        EXPECT_TRUE(got.file.filename().string().ends_with("_partial.png"));
        EXPECT_TRUE(comes([&] {
          const Json now = health(url);
          return now["at_work"] == 0 && now["waiting"] == 0;
        }));
        const HttpSeen metrics =
            RawClient(port_of(url)).ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        EXPECT_NE(metrics.body.find("tessera_requests_cancelled_total 1\n"), std::string::npos)
            << metrics.body;
      },
      TESSERA_ALONE);
  EXPECT_EQ(served.exit_code, 75) << served.err;
}

TEST_F(ConnectedStudio, AKilledServerFailsItsImagesAndTheStudioLives) {
  std::unique_ptr<Run> run;
  std::string url;
  serve(
      {},
      [&](const std::string& at, pid_t child) {
        url = at;
        run = std::make_unique<Run>(connected(url), "tabletop-janus");
        ASSERT_TRUE(run->studio.post(GenerateCommand{tiny_settings("a", 1), SeedMode::kPlusOne, 2}));
        run->until([](const Snapshot& now) { return now.generations.front().image != nullptr; });
        kill(child, SIGKILL);
      },
      TESSERA_ALONE);
  for (std::uint64_t number = 1; number <= 2; ++number) {
    const Generation got = run->finished(number);
    if (got.state == GenerateState::kDone) continue;  // it was faster
    EXPECT_EQ(got.state, GenerateState::kFailed);
    EXPECT_EQ(got.error.code, "E_SERVER_GONE") << format_error(got.error);
  }
  run->until([](const Snapshot& now) { return now.status.server_problem == "not there"; });
  run->studio.post(GenerateCommand{tiny_settings("b", 3)});
  EXPECT_EQ(run->finished(3).error.code, "E_SERVER_GONE");
  // Another one in its place is asked as if nothing had been.
  serve({"--port", std::to_string(port_of(url)), "-m", "test:tiny"},
        [&](const std::string& again, pid_t) {
          EXPECT_EQ(again, url);
          run->until([](const Snapshot& now) { return now.status.server_problem.empty(); });
          GenerateSettings settings = tiny_settings("b", 3);
          settings.model = "test:tiny";
          run->studio.post(GenerateCommand{settings});
          EXPECT_EQ(run->finished(4).state, GenerateState::kDone);
        });
}

TEST_F(ConnectedStudio, RefusalsAreTheServersWords) {
  put_file(folder_ / "keys.txt", "me key-of-mine-0123456789\n");
  put_file(folder_ / "mine", "key-of-mine-0123456789\n");
  serve({"-m", "test:tiny", "--keys", "keys.txt"}, [&](const std::string& url, pid_t) {
    Run stranger(connected(url));
    stranger.until([](const Snapshot& now) { return now.models_known; });
    EXPECT_NE(stranger.studio.snapshot().status.server_problem.find("authorization"), std::string::npos);
    stranger.studio.post(GenerateCommand{tiny_settings("x", 1)});
    EXPECT_EQ(stranger.finished(1).error.code, "E_KEY");
    Run known(connected(url, folder_ / "mine"));
    GenerateSettings settings = tiny_settings("x", 1);
    settings.model = "no-such-model";
    known.studio.post(GenerateCommand{settings});
    ErrorInfo error = known.finished(1).error;
    EXPECT_EQ(error.code, "E_SERVED_MODEL");
    EXPECT_EQ(error.where, "model");
    EXPECT_EQ(error.expected, "one of test:tiny");
    EXPECT_EQ(error.found, "'no-such-model'");
    settings.model = "";
    settings.width = 48;
    settings.height = 7;
    known.studio.post(GenerateCommand{settings});
    EXPECT_EQ(known.finished(2).state, GenerateState::kFailed);
    known.studio.post(GenerateCommand{tiny_settings("x", 1)});
    EXPECT_EQ(known.finished(3).state, GenerateState::kDone);
  });
}

TEST_F(ConnectedStudio, TextsAreThoseOfTheStudiosOwnModel) {
  Image image(48, 40);
  for (std::size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<std::uint8_t>(i * 7);
  save_png(folder_ / "a.png", image);
  put_file(folder_ / "broken.png", "no image");
  const auto described = [&](StudioRun& run, const std::string& name) {
    CaptionEntry out;
    run.studio.post(CaptionCommand{{folder_ / name}, "", "", "", 0});
    run.until([&](const Snapshot& now) {
      for (const CaptionEntry& one : now.captions) {
        if (one.path == folder_ / name && is_final(one.state)) out = one;
      }
      return !out.path.empty();
    });
    return out;
  };
  StudioOptions own;
  own.captioner = "test:tiny";
  StudioRun local(own);
  const CaptionEntry truth = described(local, "a.png");
  ASSERT_EQ(truth.state, CaptionState::kDone) << format_error(truth.error);
  serve({"-m", "test:tiny"}, [&](const std::string& url, pid_t) {
    Run run(connected(url));
    EXPECT_EQ(described(run, "broken.png").state, CaptionState::kFailed);
    const CaptionEntry got = described(run, "a.png");
    ASSERT_EQ(got.state, CaptionState::kDone) << format_error(got.error);
    EXPECT_EQ(got.text, truth.text);
    EXPECT_EQ(got.visual_tokens, truth.visual_tokens);
    EXPECT_EQ(got.kept_tokens, truth.kept_tokens);
  });
}

TEST_F(ConnectedStudio, FlagsAreSettledBeforeTheViewerStarts) {
  const auto refusal = [&](std::vector<std::string> args) {
    args.insert(args.begin(), "view");
    args.push_back("--json");
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    return result.out + result.err;
  };
  const std::string url = "http://127.0.0.1:1";
  EXPECT_NE(refusal({"--connect", "https://a:1"}).find("TLS"), std::string::npos);
  EXPECT_NE(refusal({"--connect", "127.0.0.1:8080"}).find("E_CONNECT_URL"), std::string::npos);
  EXPECT_NE(refusal({"--key-file", "k"}).find("--connect with it"), std::string::npos);
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--device", "cpu"}, {"-t", "2"}, {"--dtype", "q8"}, {"--deterministic"}, {"--tf32"}}) {
    std::vector<std::string> args = {"--connect", url};
    args.insert(args.end(), flags.begin(), flags.end());
    EXPECT_NE(refusal(args).find("no such flag with --connect"), std::string::npos) << flags[0];
  }
}

}  // namespace
}  // namespace tessera::connected_studio_test
