// The whole server within one process: clients that leave at random moments take nothing with them
// and leave nothing behind, and those that stay get what they asked for.
#include <algorithm>
#include <fstream>
#include <random>
#include <thread>

#include "tests/support/http_client.h"
#include "tests/unit/serve_http/http_run.h"
#include "tests/unit/serve/service_run.h"

namespace tessera::disconnect_test {
namespace {

struct WholeServer {
  explicit WholeServer(DeskOptions options, const HttpLimits& limits = {})
      : desk(std::move(options)),
        service(desk, {}),
        server(
            "127.0.0.1", 0, limits, [&](const HttpRequest& head) { return service.admit(head); },
            [&](HttpRequest&& request, std::shared_ptr<HttpReply> reply) {
              service.handle(std::move(request), std::move(reply));
            }) {}
  Desk desk;
  Service service;
  HttpServer server;
};

std::string order(std::uint64_t seed, bool stream, int images) {
  return post_request("/v1/images/generations",
                      R"({"prompt": "a red cube", "seed": )" + std::to_string(seed) +
                          (stream ? R"(, "stream": true, "partial_images": 2)" : "") + R"(, "n": )" +
                          std::to_string(images) + "}",
                      "Content-Type: application/json\r\n");
}

std::int64_t resident_bytes() {
  std::int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(Disconnects, SlotsAndMemoryReturn) {
  constexpr std::uint64_t kSeeds = 8;
  constexpr int kRounds = 11;
  std::vector<std::string> alone;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) alone.push_back(to_base64(image_alone(seed, "test:null")));
  DeskOptions options = DeskRun::tiny({"test:null"}, 4);
  options.max_waiting = 6;
  WholeServer whole(options);
  std::atomic<int> left = 0, answered = 0, full = 0, wrong = 0;
  const auto client = [&](unsigned number, int count) {
    std::mt19937 random(number);
    for (int i = 0; i < count; ++i) {
      RawClient one(whole.server.port());
      const std::uint64_t seed = random() % kSeeds;
      const bool stream = random() % 2 == 0;
      const std::string bytes = order(seed, stream, 1 + static_cast<int>(random() % 3));
      if (random() % 8 == 0) {  // stays
        const HttpSeen got = one.ask(bytes);
        if (got.status == 429) {
          ++full;
          continue;
        }
        ++answered;
        if (got.status != 200 || !got.whole || got.body.find(alone[seed]) == std::string::npos) ++wrong;
        continue;
      }
      ++left;
      one.send(random() % 4 == 0 ? bytes.substr(0, random() % bytes.size()) : bytes);
      one.rest(random() % 2000, 0.001 * (random() % 10));
      if (random() % 2 == 0) one.reset();
    }
  };
  std::int64_t resident = 0;
  std::size_t files = 0;
  for (int round = 0; round <= kRounds; ++round) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 8; ++i) threads.emplace_back(client, static_cast<unsigned>(round) * 8 + i, 125);
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(comes([&] {
      const DeskStats stats = whole.desk.stats();
      return stats.waiting + stats.at_work == 0 && whole.server.connections() == 0;
    }));
    if (round == 0) {  // what is kept for good is there by now
      resident = resident_bytes();
      files = open_files();
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(answered, 100);
  EXPECT_GT(full, 0);
  EXPECT_GT(left, 10000);
  const DeskStats stats = whole.desk.stats();
  EXPECT_GT(stats.cancelled, 0u);
  EXPECT_EQ(stats.failed, 0u);
  EXPECT_EQ(stats.taken, stats.done + stats.cancelled);
  EXPECT_TRUE(comes([&] { return open_files() == files; })) << open_files() << " " << files;
  EXPECT_LT(resident_bytes() - resident, 24 << 20);
  std::printf("%d left, %d answered, %d refused; resident %+.1f MiB\n", left.load(), answered.load(),
              full.load(), static_cast<double>(resident_bytes() - resident) / 1048576);
  // All slots are free: so many at once are answered at once.
  std::vector<RawClient> again;
  for (int i = 0; i < 4; ++i) {
    again.emplace_back(whole.server.port());
    again.back().send(order(static_cast<std::uint64_t>(i), false, 1));
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NE(again[i].answer().body.find(alone[i]), std::string::npos);
  }
}

// Nobody who is answered waits for one who never reads.
TEST(Disconnects, AReaderThatNeverReadsHoldsUpNobody) {
  DeskOptions options = DeskRun::tiny({"test:tiny"}, 2);
  WholeServer whole(options, {.write_seconds = 1});
  std::vector<RawClient> silent;
  for (int i = 0; i < 4; ++i) {
    silent.emplace_back(whole.server.port(), 2048);
    silent.back().send(order(1, true, 10));
  }
  const std::string alone = to_base64(image_alone(5));
  for (int i = 0; i < 5; ++i) {
    EXPECT_NE(RawClient(whole.server.port()).ask(order(5, false, 1)).body.find(alone), std::string::npos);
  }
}

TEST(Disconnects, RefusalsComeThroughTheServer) {
  WholeServer whole(DeskRun::tiny({"test:null"}), {.body_bytes = 100000});
  const auto status = [&](const std::string& request) {
    return RawClient(whole.server.port()).ask(request).status;
  };
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 403);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\n\r\n"), 403);
  EXPECT_EQ(status(get_request("/../../etc/passwd")), 404);
  EXPECT_EQ(status(get_request("/health")), 200);
  EXPECT_EQ(status("HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), 200);
  EXPECT_EQ(status(post_request("/v1/images/generations", "{}")), 415);
  EXPECT_EQ(status(post_request("/v1/images/generations", std::string(100001, ' '),
                                "Content-Type: application/json\r\n")),
            413);
  EXPECT_EQ(status(post_request("/v1/images/generations", std::string(90000, '['),
                                "Content-Type: application/json\r\n")),
            400);
  // What is refused by its head is refused before its body comes.
  EXPECT_EQ(status("POST /v1/other HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n\r\n"), 404);
}

}  // namespace
}  // namespace tessera::disconnect_test
