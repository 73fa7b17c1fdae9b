// HTTP as clients of all kinds speak it: forms of requests, answers and connections.
#include "tests/unit/serve_http/http_run.h"

namespace tessera::http_server_test {
namespace {

TEST(HttpServer, EchoesMethodQueryAndBody) {
  const HttpRun run;
  const HttpSeen got = run.ask(get_request("/echo?a=1&b=%2F"));
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.body, "GET a=1&b=%2F ");
  EXPECT_EQ(got.fields.at("content-type"), "text/plain");
  EXPECT_EQ(got.fields.at("x-content-type-options"), "nosniff");
  EXPECT_TRUE(got.head.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(run.ask(post_request("/echo", "body")).body, "POST  body");
  EXPECT_EQ(run.ask(post_request("/echo", std::string("\0\r\n\xff", 4))).body,
            std::string("POST  \0\r\n\xff", 10));
}

TEST(HttpServer, HeadHasTheLengthAndNoBody) {
  const HttpRun run;
  RawClient client = run.client();
  const HttpSeen got = client.ask("HEAD /echo HTTP/1.1\r\nHost: localhost\r\n\r\n", true);
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.fields.at("content-length"), "6");
  EXPECT_EQ(client.ask(get_request("/echo")).body, "GET  ");  // nothing was between
}

TEST(HttpServer, OneConnectionServesManyRequests) {
  const HttpRun run;
  RawClient client = run.client();
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(client.ask(post_request("/echo", std::to_string(i))).body,
              "POST  " + std::to_string(i));
  }
  EXPECT_EQ(run.server->connections(), 1u);
}

TEST(HttpServer, RequestsSentTogetherAreAnsweredInOrder) {
  const HttpRun run;
  RawClient client = run.client();
  std::string all;
  for (int i = 0; i < 20; ++i) {
    all += i % 4 == 3 ? get_request("/events") : post_request("/echo", std::to_string(i));
  }
  client.send(all);
  for (int i = 0; i < 20; ++i) {
    const HttpSeen got = client.answer();
    ASSERT_TRUE(got.whole) << i;
    EXPECT_EQ(got.body, i % 4 == 3 ? "event: one\ndata: {\"a\":1}\n\ndata: 2\n\n"
                                   : "POST  " + std::to_string(i));
  }
}

TEST(HttpServer, RequestsMayComeByteByByte) {
  const HttpRun run;
  RawClient client = run.client();
  const std::string chunked =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n";
  const std::string empty =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
  for (const std::string& request : {post_request("/echo", "abcde"), chunked, empty}) {
    for (const char c : request) {
      ASSERT_TRUE(client.send(std::string(1, c)));
      ::usleep(500);  // so that each is read alone
    }
    EXPECT_EQ(client.answer().body, request == empty ? "POST  " : "POST  abcde");
  }
}

TEST(HttpServer, ContinueIsSentOnceWhereItIsAskedFor) {
  const HttpRun run;
  RawClient client = run.client();
  const std::string whole = post_request("/echo", "abc", "Expect: 100-continue\r\n");
  client.send(whole.substr(0, whole.size() - 3));
  EXPECT_EQ(client.answer().status, 100);
  client.send("abc");
  EXPECT_EQ(client.answer().body, "POST  abc");
  // A refusal comes instead of it, and ends the connection.
  client.send(post_request("/refused", "abc", "Expect: 100-continue\r\n").substr(0, 90));
  EXPECT_EQ(client.answer().status, 403);
  EXPECT_TRUE(client.ends());
  EXPECT_EQ(run.asked, 1);
}

TEST(HttpServer, OldClientsGetLengthsAndEnds) {
  const HttpRun run;
  RawClient plain = run.client();
  EXPECT_EQ(plain.ask("GET /echo HTTP/1.0\r\n\r\n").body, "GET  ");
  EXPECT_TRUE(plain.ends());
  RawClient kept = run.client();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(kept.ask("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").body, "GET  ");
  }
  // A stream without chunks ends with its connection.
  const HttpSeen events = kept.ask("GET /events HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_TRUE(events.whole);
  EXPECT_FALSE(events.fields.contains("transfer-encoding"));
  EXPECT_EQ(events.body, "event: one\ndata: {\"a\":1}\n\ndata: 2\n\n");
}

TEST(HttpServer, CloseIsHonoured) {
  const HttpRun run;
  RawClient client = run.client();
  const HttpSeen got = client.ask(get_request("/echo", "Connection: close\r\n"));
  EXPECT_EQ(got.fields.at("connection"), "close");
  EXPECT_TRUE(client.ends());
}

TEST(HttpServer, EventsHaveTheirForm) {
  const HttpRun run;
  const HttpSeen got = run.ask(get_request("/events"));
  EXPECT_TRUE(got.whole);
  EXPECT_EQ(got.fields.at("content-type"), "text/event-stream");
  EXPECT_EQ(got.fields.at("cache-control"), "no-store");
  EXPECT_EQ(got.fields.at("x-accel-buffering"), "no");
  EXPECT_EQ(got.fields.at("x-own"), "yes");
}

TEST(HttpServer, MalformedRequestsGet400AndEnd) {
  const HttpRun run;
  const std::string post = "POST /echo HTTP/1.1\r\nHost: localhost\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string bad[] = {
      "nonsense\r\n\r\n",
      "GET /echo\r\n\r\n",
      "GET /echo HTTP/2.0\r\n\r\n",
      "GET /echo HTTP/1.1\nHost: localhost\n\n",
      "GET /e cho HTTP/1.1\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost localhost\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost : localhost\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost: localhost\r\nhost: other.example\r\n\r\n",
      std::string("GET /echo HTTP/1.1\r\nA: \0\r\n\r\n", 29),
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),  // TLS
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      post + "Content-Length: -1\r\n\r\n",
      post + "Content-Length: 1x\r\n\r\n",
      post + "Content-Length: 18446744073709551616\r\n\r\n",
      post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
      chunked + "x\r\nabc\r\n0\r\n\r\n",
      chunked + "-1\r\nabc\r\n0\r\n\r\n",
      chunked + "3\r\nabcd\r\n0\r\n\r\n",
      chunked + "3 ;\r\nabc\r\n0\r\n\r\n",
      chunked + "10000000000000000\r\nabc\r\n0\r\n\r\n",
      chunked + "0\r\nno field\r\n\r\n",
  };
  for (const std::string& request : bad) {
    RawClient client = run.client();
    HttpSeen got = client.ask(request);
    EXPECT_EQ(got.status, 400) << request;
    EXPECT_TRUE(got.whole) << request;
    EXPECT_EQ(got.fields["connection"], "close") << request;
    EXPECT_TRUE(client.ends()) << request;
  }
  EXPECT_EQ(run.asked, 0);
  EXPECT_TRUE(run.alive());
}

// What a proxy may read as another request than this server does.
TEST(HttpServer, AmbiguousLengthsAreRefused) {
  const HttpRun run;
  const std::string post = "POST /echo HTTP/1.1\r\nHost: localhost\r\n";
  const std::string rest = "0\r\n\r\n" + get_request("/echo?smuggled");
  const std::string bad[] = {
      "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
      "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n",
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
      "Transfer-Encoding: gzip\r\n\r\n",
      "Transfer-Encoding: gzip, chunked\r\n\r\n",
      "Transfer-Encoding: chunked, gzip\r\n\r\n",
      "Transfer-Encoding: xchunked\r\nContent-Length: 4\r\n\r\n",
      "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n",
      "Content-Length: 4\r\nTransfer-Encoding:\r\n\r\n",
  };
  for (const std::string& fields : bad) {
    RawClient client = run.client();
    const HttpSeen got = client.ask(post + fields + rest);
    EXPECT_TRUE(got.status == 400 || got.status == 501) << got.status << " " << fields;
    EXPECT_TRUE(client.ends()) << fields;
  }
  // There were no chunks in HTTP/1.0.
  EXPECT_EQ(run.ask("POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + rest).status, 501);
  EXPECT_EQ(run.asked, 0);
}

TEST(HttpServer, HandlersThatFailGetA500WithoutTheirWords) {
  HttpRun run;
  for (const char* path : {"/throw", "/throw-number", "/drop"}) {
    RawClient client = run.client();
    const HttpSeen got = client.ask(get_request(path));
    EXPECT_EQ(got.status, 500) << path;
    EXPECT_EQ(got.body.find("secret"), std::string::npos);
    EXPECT_EQ(client.ask(get_request("/echo")).status, 200) << path;  // the connection goes on
  }
  for (const char* path : {"/begin-throw", "/begin-drop"}) {
    RawClient client = run.client();
    const HttpSeen got = client.ask(get_request(path));
    EXPECT_EQ(got.status, 200) << path;
    EXPECT_EQ(got.body, "event: one\ndata: 1\n\n");
    EXPECT_FALSE(got.whole) << path;  // a client sees that more was to come
    EXPECT_TRUE(client.ends()) << path;
  }
  RawClient client = run.client();
  EXPECT_EQ(client.ask(get_request("/send-throw")).body, "first");
  EXPECT_EQ(client.ask(get_request("/echo")).status, 200);
}

TEST(HttpServer, AGateThatThrowsRefuses) {
  const HttpServer server(
      "127.0.0.1", 0, {},
      [](const HttpRequest&) -> std::optional<HttpAnswer> { throw std::runtime_error("secret"); },
      [](HttpRequest&&, const std::shared_ptr<HttpReply>&) {});
  for (int i = 0; i < 3; ++i) {
    const HttpSeen got = RawClient(server.port()).ask(get_request("/"));
    EXPECT_EQ(got.status, 500);
    EXPECT_NE(got.body.find("\"code\":\"E_HTTP_FAILED\""), std::string::npos) << got.body;
  }
}

TEST(HttpServer, AnswersMayComeFromOtherThreads) {
  HttpRun run;
  RawClient client = run.client();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(client.ask(get_request("/thread")).body, "elsewhere");
}

TEST(HttpServer, LargeAnswersAreWhole) {
  const HttpRun run;
  RawClient client = run.client();
  client.send(get_request("/large?20000000") + get_request("/echo"));
  const HttpSeen got = client.answer();
  EXPECT_TRUE(got.whole);
  EXPECT_EQ(got.body, std::string(20000000, 'x'));
  EXPECT_EQ(client.answer().body, "GET  ");
}

// The bound is for streams that go on; an answer that is there already is no larger unsent.
TEST(HttpServer, AnAnswerLargerThanTheUnsentBoundArrives) {
  const HttpRun run({.unsent_bytes = 1 << 20});
  const HttpSeen got = run.ask(get_request("/large?4000000"));
  EXPECT_TRUE(got.whole);
  EXPECT_EQ(got.body.size(), 4000000u);
}

TEST(HttpServer, AnAddressThatIsTakenIsRefusedByName) {
  const HttpRun run;
  const auto found = [](const std::string& address, std::uint16_t port) {
    try {
      const HttpServer other(address, port, {}, nullptr, nullptr);
    } catch (const Error& error) {
      EXPECT_EQ(error.info().kind, ErrorKind::kUsage);
      return error.info().code + " " + error.info().where;
    }
    return std::string("none");
  };
  const std::uint16_t port = run.server->port();
  EXPECT_EQ(found("127.0.0.1", port), "E_SERVE_ADDRESS 127.0.0.1:" + std::to_string(port));
  EXPECT_EQ(found("nowhere.example", 0), "E_SERVE_ADDRESS nowhere.example:0");
  EXPECT_EQ(found("192.0.2.1", 0), "E_SERVE_ADDRESS 192.0.2.1:0");  // of no machine
}

}  // namespace
}  // namespace tessera::http_server_test
