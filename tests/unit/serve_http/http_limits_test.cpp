// Clients that send too much or too slowly, read nothing, or are too many.
#include <chrono>
#include <fstream>

#include "tests/unit/serve_http/http_run.h"

namespace tessera::http_limits_test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

HttpLimits small() {
  return {.header_bytes = 1024,
          .body_bytes = 4096,
          .bodies_bytes = 10000,
          .unsent_bytes = 1 << 20,
          .connections = 8};
}

std::string chunked_head(const std::string& path = "/size") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
}

std::int64_t resident_bytes() {
  std::int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(HttpLimits, HeadersThatAreTooLongGet431) {
  const HttpRun run(small());
  const std::string long_headers[] = {
      get_request("/echo?" + std::string(2000, 'a')),
      get_request("/echo", "A: " + std::string(2000, 'a') + "\r\n"),
      get_request("/echo", [] {
        std::string many;
        for (int i = 0; i < 400; ++i) many += "a:\r\n";
        return many;
      }()),
      "GET /echo HTTP/1.1\r\nA: " + std::string(200000, 'a'),  // and it never ends
      std::string(100000, 'G'),
  };
  for (const std::string& request : long_headers) {
    RawClient client = run.client();
    const HttpSeen got = client.ask(request);
    EXPECT_EQ(got.status, 431) << request.substr(0, 50);
    EXPECT_TRUE(client.ends());
  }
  RawClient lines = run.client();  // each taken before the next one comes
  lines.send("GET /echo HTTP/1.1\r\n");
  for (int i = 0; i < 200 && lines.send("A: aaaaaaaaaa\r\n") && lines.rest(1, 0.002).empty(); ++i) {
  }
  lines.send("\r\n");
  EXPECT_EQ(lines.answer().status, 431);
  // One that just fits.
  const std::string bare = get_request("/echo", "A: \r\n");
  EXPECT_EQ(run.ask(get_request("/echo", "A: " + std::string(1024 - bare.size(), 'a') + "\r\n")).status,
            200);
  EXPECT_EQ(run.asked, 1);
}

TEST(HttpLimits, BodiesThatAreTooLongGet413) {
  const HttpRun run(small());
  EXPECT_EQ(run.ask(post_request("/size", std::string(4096, 'x'))).body, "4096");
  HttpSeen long_one = run.ask(post_request("/size", std::string(4097, 'x')));
  EXPECT_EQ(long_one.status, 413);
  EXPECT_EQ(long_one.fields["x-of"], "/size") << "a page elsewhere reads refusals, too";
  EXPECT_EQ(run.ask("POST /size HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n").status, 413);
  EXPECT_EQ(run.ask("POST /size HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n").status, 413);
  std::string pieces = chunked_head();
  for (int i = 0; i < 4096; ++i) pieces += "1\r\nx\r\n";
  EXPECT_EQ(run.ask(pieces + "0\r\n\r\n").body, "4096");
  EXPECT_EQ(run.ask(pieces + "1\r\nx\r\n0\r\n\r\n").status, 413);
  EXPECT_EQ(run.ask(chunked_head() + "ffffffffffffffff\r\nx").status, 413);
  EXPECT_EQ(run.asked, 2);
}

// 1 GB that is sent whatever the server says: it is refused at once and not kept.
TEST(HttpLimits, AGigabyteIsNotKept) {
  const HttpRun run(small());
  const std::int64_t before = resident_bytes();
  RawClient client = run.client();
  client.send("POST /size HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n");
  EXPECT_EQ(client.answer().status, 413);
  const std::string part(1 << 20, 'x');
  const auto begin = Clock::now();
  for (int i = 0; i < 1000 && client.send(part, 5); ++i) {
  }
  EXPECT_TRUE(client.ends());
  EXPECT_LT(seconds_since(begin), 10);
  EXPECT_LT(resident_bytes() - before, 32 << 20);
  EXPECT_TRUE(run.alive());
}

// What is no byte of a body is bounded as a header is.
TEST(HttpLimits, ChunksWithoutEndAreNotKept) {
  const HttpRun run(small());
  const std::int64_t before = resident_bytes();
  const std::string part(1 << 20, 'x');
  for (const char* begin : {"1;", "1;a=\"", "0\r\nTrailer: ", "0;"}) {
    RawClient client = run.client();
    client.send(chunked_head() + begin);
    for (int i = 0; i < 64 && client.send(part, 5); ++i) {
    }
    const HttpSeen got = client.answer();
    EXPECT_TRUE(got.status == 431 || got.status == 400) << got.status << " " << begin;
    EXPECT_TRUE(client.ends());
  }
  EXPECT_LT(resident_bytes() - before, 48 << 20);
  EXPECT_EQ(run.asked, 0);
}

TEST(HttpLimits, SlowHeadersGet408) {
  HttpLimits limits = small();
  limits.header_seconds = 0.3;
  const HttpRun run(limits);
  RawClient drips = run.client();
  const auto begin = Clock::now();
  const std::string request = get_request("/echo", "A: " + std::string(500, 'a') + "\r\n");
  // Each byte is in time; all of them are not.
  for (std::size_t at = 0; at < request.size() && seconds_since(begin) < 5; ++at) {
    if (!drips.send(request.substr(at, 1)) || drips.rest(1, 0.02).size() > 0) break;
  }
  EXPECT_EQ(drips.answer().status, 408);
  EXPECT_TRUE(drips.ends());
  EXPECT_GE(seconds_since(begin), 0.3);
  EXPECT_LT(seconds_since(begin), 5);
  RawClient stops = run.client();
  EXPECT_EQ(stops.ask("GET /echo HT").status, 408);
  EXPECT_EQ(run.asked, 0);
}

TEST(HttpLimits, SlowBodiesGet408) {
  HttpLimits limits = small();
  limits.body_seconds = 0.3;
  const HttpRun run(limits);
  RawClient stops = run.client();
  EXPECT_EQ(stops.ask("POST /size HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc").status, 408);
  RawClient drips = run.client();
  drips.send("POST /size HTTP/1.1\r\nContent-Length: 4000\r\n\r\n");
  const auto begin = Clock::now();
  while (seconds_since(begin) < 5 && drips.send("x") && drips.rest(1, 0.02).empty()) {
  }
  EXPECT_EQ(drips.answer().status, 408);
  EXPECT_LT(seconds_since(begin), 5);
  RawClient chunks = run.client();
  chunks.send(chunked_head());
  const auto second = Clock::now();
  while (seconds_since(second) < 5 && chunks.send("1\r\nx\r\n") && chunks.rest(1, 0.02).empty()) {
  }
  EXPECT_EQ(chunks.answer().status, 408);
  EXPECT_LT(seconds_since(second), 5);
  EXPECT_EQ(run.asked, 0);
}

TEST(HttpLimits, IdleConnectionsEndWithoutAnAnswer) {
  HttpLimits limits = small();
  limits.idle_seconds = 0.3;
  const HttpRun run(limits);
  RawClient never = run.client(), once = run.client();
  EXPECT_EQ(once.ask(get_request("/echo")).status, 200);
  EXPECT_TRUE(never.ends());
  EXPECT_TRUE(once.ends());
  EXPECT_EQ(never.rest(), "");
  EXPECT_TRUE(comes([&] { return run.server->connections() == 0; }));
}

TEST(HttpLimits, WorkIsNotHurried) {
  HttpLimits limits = small();
  limits.idle_seconds = limits.header_seconds = limits.body_seconds = limits.write_seconds = 0.2;
  HttpRun run(limits);
  RawClient client = run.client();
  client.send(get_request("/hold"));
  ASSERT_TRUE(run.has_held(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  run.take_held()[0]->send({.type = "text/plain", .body = "late"});
  EXPECT_EQ(client.answer().body, "late");
  EXPECT_EQ(run.gone, 0);
}

// As clients of OpenAI read errors.
TEST(HttpLimits, RefusalsAreObjectsOfErrors) {
  HttpLimits limits = small();
  limits.header_seconds = 0.3;
  limits.connections = 1;
  const HttpRun run(limits);
  const auto said = [&](const std::string& request) {
    HttpSeen got;
    EXPECT_TRUE(comes([&] {  // once the one before has gone
      got = run.ask(request);
      return got.status != 503;
    }));
    EXPECT_EQ(got.fields["content-type"], "application/json");
    EXPECT_FALSE(got.fields.contains("retry-after"));
    return std::to_string(got.status) + " " + got.body;
  };
  const auto body = [](const std::string& message, const std::string& type, const std::string& code) {
    return R"({"error":{"message":")" + message + R"(","type":")" + type +
           R"(","param":null,"code":")" + code + R"("}})";
  };
  const std::string usage = "invalid_request_error";
  EXPECT_EQ(said("nonsense\r\n\r\n"), "400 " + body("no request of HTTP/1.1", usage, "E_HTTP_GRAMMAR"));
  EXPECT_EQ(said(get_request("/echo", "Host: b\r\n")),
            "400 " + body("more than one Host", usage, "E_HTTP_HOST"));
  EXPECT_EQ(said("GET /echo HT"), "408 " + body("the request came too slowly", usage, "E_HTTP_SLOW"));
  EXPECT_EQ(said(post_request("/size", std::string(4097, 'x'))),
            "413 " + body("the body is too long", usage, "E_HTTP_BODY"));
  EXPECT_EQ(said(get_request("/echo?" + std::string(2000, 'a'))),
            "431 " + body("the header is too long", usage, "E_HTTP_HEADER"));
  EXPECT_EQ(said(get_request("/throw")),
            "500 " + body("the request failed", "server_error", "E_HTTP_FAILED"));
  EXPECT_EQ(said("POST /size HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
            "501 " + body("of transfer codings only chunked is known", "server_error", "E_HTTP_CODING"));
  ASSERT_TRUE(comes([&] { return run.server->connections() == 0; }));
  RawClient first = run.client();
  EXPECT_EQ(first.ask(get_request("/echo")).status, 200);
  HttpSeen full = run.client().answer();
  EXPECT_EQ(full.body, body("too many connections", "server_error", "E_HTTP_CONNECTIONS"));
  EXPECT_EQ(full.fields["content-type"], "application/json");
  EXPECT_EQ(full.fields["retry-after"], "1");
}

TEST(HttpLimits, ConnectionsAboveTheLimitGet503) {
  HttpRun run(small());
  {
    std::vector<RawClient> all;
    for (int i = 0; i < 8; ++i) {
      all.push_back(run.client());
      EXPECT_EQ(all.back().ask(get_request("/echo")).status, 200);
    }
    RawClient more = run.client();
    EXPECT_EQ(more.answer().status, 503);
    EXPECT_TRUE(more.ends());
    EXPECT_EQ(run.server->connections(), 8u);
    EXPECT_EQ(all.front().ask(get_request("/echo")).status, 200);
  }
  EXPECT_TRUE(comes([&] { return run.server->connections() == 0; }));
  EXPECT_TRUE(run.alive());
}

TEST(HttpLimits, OneAddressLeavesRoomForOthers) {
  HttpLimits limits = small();
  limits.connections_each = 6;
  HttpRun run(limits);
  const auto ask = [](RawClient& client) { return client.ask(get_request("/echo")).status; };
  std::vector<RawClient> all;
  for (int i = 0; i < 6; ++i) {
    all.push_back(run.client());
    EXPECT_EQ(ask(all.back()), 200);
  }
  EXPECT_EQ(run.client().answer().status, 503);
  RawClient other(run.server->port(), 0, 2);
  EXPECT_EQ(ask(other), 200);
  all.pop_back();
  ASSERT_TRUE(comes([&] { return run.server->connections() == 6; }));
  RawClient again = run.client();
  EXPECT_EQ(ask(again), 200);
}

TEST(HttpLimits, BodiesOfAllRequestsHaveASum) {
  HttpRun run(small());
  const std::string body(4000, 'x');
  RawClient one = run.client(), two = run.client();
  one.send(post_request("/hold", body));
  two.send(post_request("/hold", body));
  ASSERT_TRUE(run.has_held(2));
  HttpSeen full = run.ask(post_request("/size", body));
  EXPECT_EQ(full.status, 503);
  EXPECT_EQ(full.fields["retry-after"], "1");
  EXPECT_NE(full.body.find("\"code\":\"E_HTTP_BODIES\""), std::string::npos) << full.body;
  EXPECT_EQ(run.ask(post_request("/size", std::string(1000, 'x'))).body, "1000");
  one.reset();  // its bytes come back
  ASSERT_TRUE(comes([&] { return run.gone == 1; }));
  EXPECT_EQ(run.ask(post_request("/size", body)).body, "4000");
  for (const auto& reply : run.take_held()) reply->send({.body = "x"});
  EXPECT_EQ(two.answer().body, "x");
  // Refused ones, and those that end within, give theirs back too.
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(run.ask(post_request("/size", std::string(4097, 'x'))).status, 413);
    RawClient leaves = run.client();
    leaves.send("POST /size HTTP/1.1\r\nContent-Length: 4000\r\n\r\n" + std::string(3000, 'x'));
    leaves.leave();
  }
  ASSERT_TRUE(comes([&] { return run.server->connections() <= 1; }));
  EXPECT_EQ(run.ask(post_request("/size", body)).body, "4000");
}

// A stream that nobody reads is cut once so much of it waits, not when the clock says so.
TEST(HttpLimits, AReaderThatNeverReadsIsCutAtTheBound) {
  HttpRun run(small());
  RawClient client = run.client(4096);
  client.send(get_request("/stream"));
  ASSERT_TRUE(run.has_held(1));
  const auto reply = run.take_held()[0];
  const std::string data(100000, 'x');
  const std::int64_t before = resident_bytes();
  const auto begin = Clock::now();
  int events = 0;
  while (events < 2000 && !reply->gone()) {
    reply->event("", data);
    ++events;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the kernel's buffers fill first
  }
  EXPECT_LT(events, 2000);
  EXPECT_LT(seconds_since(begin), 10);
  EXPECT_LT(resident_bytes() - before, 64 << 20);
  EXPECT_TRUE(comes([&] { return run.gone == 1; }));
  EXPECT_TRUE(comes([&] { return run.server->connections() == 0; }));
}

TEST(HttpLimits, AReaderThatStopsIsCutByTheClock) {
  HttpLimits limits = small();
  limits.unsent_bytes = std::size_t{1} << 30;
  limits.write_seconds = 0.5;
  HttpRun run(limits);
  RawClient client = run.client(4096);
  client.send(get_request("/large?50000000"));
  EXPECT_TRUE(comes([&] { return run.asked == 1 && run.server->connections() == 0; }));
}

// Requests beyond the one at work wait, as far as they are small.
TEST(HttpLimits, RequestsAheadAreBounded) {
  HttpRun run(small());
  RawClient client = run.client();
  client.send(get_request("/hold"));
  ASSERT_TRUE(run.has_held(1));
  const std::string part(1 << 16, 'x');
  int sent = 0;
  while (sent < 200 && client.send(part, 2)) ++sent;
  EXPECT_LT(sent, 200);
  EXPECT_TRUE(comes([&] { return run.gone == 1; }));
}

}  // namespace
}  // namespace tessera::http_limits_test
