// `tessera serve` as it is started: it listens, answers as the other commands do, and ends politely.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/core/json.h"
#include "tests/support/raw_client.h"
#include "tests/support/run_shell.h"
#include "tests/support/temp_folder.h"

namespace tessera::serve_test {
namespace {

using namespace std::chrono_literals;
using testing::RawClient;
using testing::status_of;

// The program with these flags; it is ended with the object.
class Program {
 public:
  explicit Program(const std::vector<std::string>& flags) {
    int out[2];
    if (pipe(out) != 0) return;
    number_ = fork();
    if (number_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      close(out[0]);
      close(out[1]);
      std::vector<std::string> words = {TESSERA_ALONE, "serve", "--json", "--port", "0"};
      words.insert(words.end(), flags.begin(), flags.end());
      std::vector<char*> pointers;
      for (std::string& word : words) pointers.push_back(word.data());
      pointers.push_back(nullptr);
      execv(pointers[0], pointers.data());
      _exit(99);
    }
    close(out[1]);
    std::string line;
    char c = 0;
    while (read(out[0], &c, 1) == 1 && c != '\n') line += c;
    close(out[0]);
    const Json said = Json::parse(line, nullptr, false);
    if (!said.is_object() || !said.contains("url")) return;
    const std::string url = said["url"];
    port_ = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  }
  ~Program() {
    if (number_ > 0) {
      kill(number_, SIGKILL);
      wait_end();
    }
  }
  Program(const Program&) = delete;

  std::uint16_t port() const { return port_; }
  void signal(int number) const { kill(number_, number); }
  // Its exit code; -1: it did not end by itself.
  int wait_end() {
    int status = 0;
    waitpid(number_, &status, 0);
    number_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string ask(const std::string& method, const std::string& path, const std::string& body,
                  const std::string& more = "") const {
    RawClient client(port_);
    client.send(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + more +
                "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body);
    return client.read("\x01\x02", 60);
  }
  Json json(const std::string& method, const std::string& path, const std::string& body = "") const {
    const std::string answer = ask(method, path, body);
    return Json::parse(answer.substr(answer.find("\r\n\r\n") + 4), nullptr, false);
  }

 private:
  pid_t number_ = -1;
  std::uint16_t port_ = 0;
};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

constexpr const char* kImages = "/v1/images/generations";

TEST(Serve, ImagesAreTheFilesOfGenerate) {
  const TempFolder folder;
  const std::string file = (folder.path() / "a.png").string();
  ASSERT_EQ(run_shell(std::string(TESSERA_ALONE) + " generate -p 'a red cube' --seed 7 -o " + file +
                      " 2>/dev/null >/dev/null")
                .code,
            0);
  const Program program({});
  ASSERT_GT(program.port(), 0);
  EXPECT_EQ(program.json("GET", "/health")["status"], "ok");
  EXPECT_EQ(program.json("GET", "/v1/models")["data"].size(), 3u);
  const Json made = program.json("POST", kImages, R"({"prompt":"a red cube","seed":7})");
  const std::string base64 = made["data"][0]["b64_json"];
  std::ofstream(folder.path() / "b64") << base64;
  run_shell("base64 -d " + (folder.path() / "b64").string() + " > " +
            (folder.path() / "b.png").string());
  EXPECT_TRUE(read_file(folder.path() / "b.png") == read_file(file));
}

TEST(Serve, ASignalLetsWorkFinishAndIsToldByTheExitCode) {
  Program program({});
  ASSERT_GT(program.port(), 0);
  RawClient client(program.port());
  const std::string body = R"({"prompt":"a red cube","n":6,"seed":1,"stream":true})";
  client.send("POST " + std::string(kImages) +
              " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_EQ(status_of(client.read("completed", 60)), 200);
  program.signal(SIGTERM);
  const std::string rest = client.read("0\r\n\r\n", 60);
  EXPECT_NE(rest.find("\"index\":5"), std::string::npos) << "all six are whole";
  EXPECT_EQ(program.wait_end(), 75);
}

TEST(Serve, ASecondSignalEndsItAtOnce) {
  Program program({"--drain", "600"});
  ASSERT_GT(program.port(), 0);
  RawClient client(program.port());
  const std::string body = R"({"prompt":"a red cube","n":10})";
  client.send("POST " + std::string(kImages) +
              " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  std::this_thread::sleep_for(100ms);
  program.signal(SIGTERM);
  std::this_thread::sleep_for(100ms);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait_end(), 128 + SIGTERM);
}

TEST(Serve, JobsGoOnAfterAKill) {
  const TempFolder folder;
  const std::vector<std::string> flags = {"--jobs", (folder.path() / "jobs").string()};
  std::string job;
  {
    const Program program(flags);
    ASSERT_GT(program.port(), 0);
    std::string list;
    for (int i = 0; i < 12; ++i) {
      list += std::string(i > 0 ? "," : "") +
              R"({"url":"/v1/images/generations","body":{"prompt":"a red cube"}})";
    }
    job = program.json("POST", "/v1/jobs", "{\"requests\":[" + list + "]}")["id"];
    for (int i = 0; i < 1000 && program.json("GET", "/v1/jobs/" + job)["done"] < 2; ++i) {
      std::this_thread::sleep_for(10ms);
    }
  }
  const Program program(flags);
  ASSERT_GT(program.port(), 0);
  Json state;
  for (int i = 0; i < 3000; ++i) {
    state = program.json("GET", "/v1/jobs/" + job);
    if (state["status"] == "completed") break;
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(state["done"], 12) << state;
}

TEST(Serve, KeysSayWhoMayAsk) {
  const TempFolder folder;
  const std::string keys = (folder.path() / "keys").string();
  std::ofstream(keys) << "# name key\nsomebody a-key-of-some-length\n";
  const Program program({"--keys", keys});
  ASSERT_GT(program.port(), 0);
  EXPECT_EQ(status_of(program.ask("GET", "/v1/models", "")), 401);
  EXPECT_EQ(status_of(program.ask("GET", "/v1/models", "",
                                  "Authorization: Bearer a-key-of-some-length\r\n")),
            200);
}

TEST(Serve, WhatCannotBeServedIsRefusedAtOnce) {
  const TempFolder folder;
  const std::string keys = (folder.path() / "keys").string();
  const auto outcome = [&](const std::string& flags) {
    const ShellOutcome made = run_shell("timeout 60 " + std::string(TESSERA_ALONE) +
                                        " serve --json --port 0 " + flags + " 2>/dev/null");
    const Json said = Json::parse(made.out, nullptr, false);
    return std::pair(made.code, said.is_object() && said.contains("error")
                                    ? said["error"]["code"].get<std::string>()
                                    : made.out);
  };
  const auto refused = [](const char* code) { return std::pair(2, std::string(code)); };
  for (const char* text : {"somebody short\n", "somebody\n", " key-of-some-length\n", "# none\n"}) {
    std::ofstream(keys) << text;
    EXPECT_EQ(outcome("--keys " + keys), refused("E_KEYS")) << text;
  }
  EXPECT_EQ(outcome("--keys /nowhere").first, 2);
  EXPECT_EQ(outcome("--host 192.0.2.1"), refused("E_SERVE_ADDRESS"));
  EXPECT_EQ(outcome("--host nowhere"), refused("E_SERVE_ADDRESS"));
  EXPECT_EQ(outcome("-m tabletop-janus -m tabletop-janus"), refused("E_SERVE_NAMES"));
  EXPECT_EQ(outcome("--slots 0").first, 2);
}

}  // namespace
}  // namespace tessera::serve_test
