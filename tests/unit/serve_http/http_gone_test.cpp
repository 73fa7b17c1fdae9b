// Clients that vanish, servers that end: each request hears of it once, and nothing is left over.
#include <random>

#include "tests/unit/serve_http/http_run.h"

namespace tessera::http_gone_test {
namespace {

TEST(HttpGone, AClientThatLeavesAtWorkIsHeardOfOnce) {
  for (const bool resets : {false, true}) {
    for (const char* path : {"/hold", "/stream"}) {
      HttpRun run;
      RawClient client = run.client();
      client.send(get_request(path));
      ASSERT_TRUE(run.has_held(1));
      EXPECT_EQ(run.gone, 0);
      if (resets) {
        client.reset();
      } else {
        client.leave();
      }
      ASSERT_TRUE(comes([&] { return run.gone == 1; })) << path << resets;
      const auto reply = run.take_held()[0];
      EXPECT_TRUE(reply->gone());
      if (std::string(path) == "/hold") reply->send({.body = "x"});  // nobody's
      reply->event("", "x");
      reply->end();
      bool at_once = false;
      reply->on_gone([&] { at_once = true; });
      EXPECT_TRUE(at_once);
      EXPECT_EQ(run.gone, 1);
      EXPECT_TRUE(comes([&] { return run.server->connections() == 0; }));
    }
  }
}

// A client that ends its own direction can't be told from one that left: it is one.
TEST(HttpGone, AClientThatEndsItsDirectionHasGone) {
  HttpRun run;
  RawClient client = run.client();
  client.send(get_request("/hold"));
  ASSERT_TRUE(run.has_held(1));
  client.half_close();
  EXPECT_TRUE(comes([&] { return run.gone == 1; }));
  EXPECT_TRUE(client.ends());
}

TEST(HttpGone, NobodyHearsOfAnEndAfterTheAnswer) {
  HttpRun run;
  RawClient client = run.client();
  for (const char* path : {"/hold", "/stream"}) {
    client.send(get_request(path));
    ASSERT_TRUE(run.has_held(1));
    const auto reply = run.take_held()[0];
    if (std::string(path) == "/hold") reply->send({.body = "x"});
    reply->end();
    EXPECT_TRUE(client.answer().whole);
  }
  client.leave();
  EXPECT_TRUE(comes([&] { return run.server->connections() == 0; }));
  EXPECT_EQ(run.gone, 0);
}

TEST(HttpGone, AClientThatEndsItsDirectionReadsWhatWasAnswered) {
  HttpRun run;
  RawClient client = run.client();
  client.send(get_request("/hold"));
  ASSERT_TRUE(run.has_held(1));
  const std::string much(8 << 20, 'x');  // more than sockets hold
  run.take_held()[0]->send({.body = much});
  client.half_close();
  const HttpSeen seen = client.answer();
  EXPECT_TRUE(seen.whole && seen.body == much);
  EXPECT_EQ(run.gone, 0);
}

// At each byte of a request and of its answer, by an end and by an error.
TEST(HttpGone, ClientsVanishAtEachPhase) {
  HttpRun run;
  const std::string requests[] = {
      post_request("/echo", "abc"),
      "POST /hold HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
      post_request("/stream", "abc", "Expect: 100-continue\r\n"),
      get_request("/refused"),
      get_request("/large?3000000"),
  };
  ASSERT_TRUE(run.alive());
  ASSERT_TRUE(comes([&] { return run.server->connections() == 0; }));
  const std::size_t files = open_files();
  int held = 0;
  for (const std::string& request : requests) {
    for (std::size_t at = 0; at <= request.size(); ++at) {
      RawClient client = run.client();
      client.send(request.substr(0, at));
      const bool holds = at == request.size() && (request.find("/hold") != std::string::npos ||
                                                  request.find("/stream") != std::string::npos);
      held += holds ? 1 : 0;
      ASSERT_TRUE(!holds || run.has_held(static_cast<std::size_t>(held)));
      if (at % 2 == 0) client.reset();
    }
  }
  EXPECT_TRUE(comes([&] { return run.server->connections() == 0; }));
  EXPECT_EQ(run.gone, held);
  run.take_held();
  EXPECT_TRUE(comes([&] { return open_files() == files; })) << open_files() << " " << files;
  EXPECT_TRUE(run.alive());
}

// Random clients at random moments; every reply that was held hears of its client once.
TEST(HttpGone, ManyClientsVanishAtRandom) {
  HttpRun run;
  ASSERT_TRUE(run.alive());
  ASSERT_TRUE(comes([&] { return run.server->connections() == 0; }));
  const std::size_t files = open_files();
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0;
  for (unsigned number = 0; number < 8; ++number) {
    clients.emplace_back([&, number] {
      std::mt19937 random(number);
      const char* const kPaths[] = {"/hold", "/stream", "/echo", "/events", "/large?300000"};
      for (int i = 0; i < 250; ++i) {
        RawClient client = run.client();
        const std::string request = post_request(kPaths[random() % 5], std::string(random() % 9000, 'x'));
        client.send(random() % 4 == 0 ? request.substr(0, random() % request.size()) : request);
        if (random() % 2 == 0) answered += client.answer(false, 0.001 * (random() % 8)).whole ? 1 : 0;
        if (random() % 2 == 0) client.reset();
      }
    });
  }
  for (std::thread& one : clients) one.join();
  EXPECT_GT(answered, 0);
  EXPECT_TRUE(comes([&] { return run.server->connections() == 0; }));
  const std::size_t held = run.take_held().size();
  EXPECT_GT(held, 0u);
  EXPECT_EQ(static_cast<std::size_t>(run.gone), held);
  EXPECT_TRUE(comes([&] { return open_files() == files; })) << open_files() << " " << files;
  EXPECT_TRUE(run.alive());
}

TEST(HttpGone, DrainEndsIdleConnectionsAndLetsWorkFinish) {
  HttpRun run;
  RawClient idle = run.client(), partly = run.client(), works = run.client(), streams = run.client();
  EXPECT_EQ(idle.ask(get_request("/echo")).status, 200);
  partly.send("POST /echo HTTP/1.1\r\nContent-Le");
  works.send(get_request("/hold"));
  ASSERT_TRUE(run.has_held(1));
  streams.send(get_request("/stream"));
  ASSERT_TRUE(run.has_held(2));
  ASSERT_TRUE(comes([&] { return run.server->connections() == 4; }));
  run.server->drain();
  EXPECT_TRUE(idle.ends());
  EXPECT_TRUE(partly.ends());
  EXPECT_FALSE(run.client().connected());
  EXPECT_TRUE(comes([&] { return run.server->connections() == 2; }));
  EXPECT_EQ(run.gone, 0);
  const auto held = run.take_held();
  held[0]->send({.body = "x"});
  held[1]->event("", "x");
  held[1]->end();
  const HttpSeen got = works.answer();
  EXPECT_TRUE(got.whole);
  EXPECT_TRUE(works.ends());
  EXPECT_TRUE(streams.answer().whole);
  EXPECT_TRUE(streams.ends());
  EXPECT_TRUE(comes([&] { return run.server->connections() == 0; }));
}

TEST(HttpGone, AServerEndsWithAllKindsOfConnections) {
  const std::size_t files = open_files();
  std::vector<RawClient> clients;
  std::vector<std::shared_ptr<HttpReply>> late;
  std::atomic<int> gone = 0;
  {
    HttpRun run({.connections = 16});
    const std::string requests[] = {
        "",
        "GET /ec",
        "POST /echo HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc",
        "POST /echo HTTP/1.1\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n",
        get_request("/echo"),
        get_request("/hold"),
        get_request("/stream") + get_request("/echo"),
        get_request("/refused"),
        get_request("/large?30000000"),
        "nonsense\r\n\r\n",
    };
    for (const std::string& request : requests) {
      clients.push_back(run.client(4096));
      clients.back().send(request);
    }
    ASSERT_TRUE(run.has_held(2));
    ASSERT_TRUE(comes([&] { return run.asked == 4; }));
    late = run.take_held();
    late[0]->on_gone([&] { ++gone; });
    run.server.reset();
    EXPECT_EQ(run.gone + gone, 2);
  }
  for (RawClient& client : clients) EXPECT_TRUE(client.ends());
  for (const auto& reply : late) EXPECT_TRUE(reply->gone());
  late[0]->send({.body = "after the end"});
  late.clear();
  clients.clear();
  EXPECT_EQ(open_files(), files);
}

// What a handler is at when the server ends is waited for.
TEST(HttpGone, AServerWaitsForItsHandlers) {
  std::atomic<bool> begun = false, over = false;
  {
    const HttpServer server(
        "127.0.0.1", 0, {}, [](const HttpRequest&) { return std::nullopt; },
        [&](HttpRequest&&, const std::shared_ptr<HttpReply>& reply) {
          begun = true;
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          reply->send({.body = "x"});
          over = true;
        });
    RawClient client(server.port());
    client.send(get_request("/"));
    ASSERT_TRUE(comes([&] { return begun.load(); }));
  }
  EXPECT_TRUE(over);
}

}  // namespace
}  // namespace tessera::http_gone_test
