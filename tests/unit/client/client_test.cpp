// Answers and events as bytes come in, addresses, and servers that are slow, silent, gone or speak
// nonsense: each ends in its own error, in time.
#include "apps/client/client.h"

#include "apps/client/answer_reader.h"
#include "apps/client/event_reader.h"
#include "engine/core/io.h"
#include "tests/support/fake_server.h"

namespace tessera::client_test {
namespace {

using State = AnswerReader::State;

std::string code_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& error) {
    EXPECT_FALSE(error.info().expected.empty());
    EXPECT_FALSE(error.info().found.empty());
    EXPECT_FALSE(error.info().where.empty());
    return error.info().code;
  }
  return "";
}

TEST(ServerAddress, HostsAndPorts) {
  const auto read = [](const char* url) { return parse_server_address(url, "--connect").url(); };
  EXPECT_EQ(read("http://127.0.0.1:8080"), "http://127.0.0.1:8080");
  EXPECT_EQ(read("http://localhost:1/"), "http://localhost:1");
  EXPECT_EQ(read("http://a-b_c.example"), "http://a-b_c.example:80");
  EXPECT_EQ(read("http://[::1]:65535"), "http://[::1]:65535");
  EXPECT_EQ(parse_server_address("http://[::1]", "").host, "::1");
  for (const char* bad :
       {"", "127.0.0.1:8080", "http://", "http://:80", "http://a:", "http://a:0", "http://a:65536",
        "http://a:8x", "http://a:-1", "http://a/b", "http://u@a:80", "http://[::1", "http://[::1]8",
        "http://a b:80", "http://a\r\nb", "ftp://a:80", "HTTP://a:80"}) {
    EXPECT_EQ(code_of([&] { read(bad); }), "E_CONNECT_URL") << bad;
  }
}

TEST(ServerAddress, HttpsIsRefusedByName) {
  try {
    parse_server_address("https://a:443", "--connect");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.info().kind, ErrorKind::kUsage);
    EXPECT_NE(error.info().hint.find("TLS"), std::string::npos);
  }
}

struct Read {
  State state = State::kHead;
  int status = 0;
  std::string type, body, refusal;
};
Read read_answer(std::string_view text, std::size_t piece, std::uint64_t most = 1000) {
  AnswerReader reader(most);
  Read out;
  std::string waiting;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    waiting += text.substr(at, piece);
    for (std::size_t used = 1; used > 0;) {
      used = reader.take(waiting);
      waiting.erase(0, used);
      if (reader.state() == State::kBody || reader.state() == State::kWhole) out.body += reader.take_body();
    }
  }
  reader.end();
  out.state = reader.state();
  out.refusal = reader.refusal();
  if (out.state == State::kWhole) {
    out.status = reader.status();
    out.type = reader.type();
  }
  return out;
}

TEST(AnswerReader, BodiesEndByLengthChunksOrTheConnection) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; x=y\r\n";
  for (const std::size_t piece : {1, 2, 7, 1000}) {
    for (const std::string& text :
         {head + "Content-Length: 6\r\n\r\nabcdef",
          head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n4;x=1\r\ncdef\r\n0\r\nT: 1\r\n\r\n",
          head + "\r\nabcdef"}) {
      const Read got = read_answer(text, piece);
      EXPECT_EQ(got.state, State::kWhole) << got.refusal;
      EXPECT_EQ(got.status, 200);
      EXPECT_EQ(got.type, "text/event-stream");
      EXPECT_EQ(got.body, "abcdef");
    }
  }
}

TEST(AnswerReader, RefusesWhatIsNoneOrTooLong) {
  const std::string head = "HTTP/1.1 200 OK\r\n";
  for (const std::string& text :
       {std::string(), std::string("SSH-2.0-x\r\n\r\n"), head, head + "Content-Length: 3\r\n\r\nab",
        head + "Content-Length: 1001\r\n\r\n", head + "Content-Length: 99999999999999999999\r\n\r\n",
        head + "\r\n" + std::string(1001, 'x'), head + "Content-Length: x\r\n\r\n",
        head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        head + "Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + std::string(1001, 'x') + "\r\n0\r\n\r\n",
        head + "A: " + std::string(20000, 'a'), "HTTP/1.1 103 Early\r\n\r\n" + head + "\r\n",
        head + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(20000, 'x')}) {
    for (const std::size_t piece : {std::size_t{1}, std::size_t{100000}}) {
      const Read got = read_answer(text, piece);
      EXPECT_EQ(got.state, State::kRefused) << text.substr(0, 60);
      EXPECT_FALSE(got.refusal.empty());
    }
  }
}

std::vector<ServerEvent> read_events(std::string_view text, std::size_t piece) {
  EventReader reader(1000);
  std::vector<ServerEvent> out;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    EXPECT_TRUE(reader.feed(text.substr(at, piece), out));
  }
  return out;
}

TEST(EventReader, ReadsAsTheStandardSays) {
  const std::vector<ServerEvent> expected = {
      {"", "a"}, {"x", "1\n2"}, {"", ""}, {"y", " b: c"}, {"", "z"}};
  const std::string text =
      "\xef\xbb\xbf: comment\ndata: a\n\nevent: x\r\ndata:1\r\ndata: 2\r\n\r\ndata\n\nid: 7\rretry: 5\r"
      "event:y\rdata:  b: c\r\revent: nothing\n\ndata:z\n\ndata: unended";
  for (const std::size_t piece : {1, 2, 3, 1000}) EXPECT_EQ(read_events(text, piece), expected);
}

TEST(EventReader, AnEventOfMoreBytesIsRefused) {
  std::vector<ServerEvent> out;
  EventReader fits(14);
  EXPECT_TRUE(fits.feed("data:123456789\n\ndata:123456789\n\n", out));
  EXPECT_EQ(out.size(), 2u);
  EventReader line(14);
  EXPECT_FALSE(line.feed("data:1234567890\n\n", out));
  EXPECT_FALSE(line.feed("\n", out)) << "nothing more is read";
  EventReader lines(14);
  EXPECT_TRUE(lines.feed("data:1234\n", out));
  EXPECT_FALSE(lines.feed(std::string(20, 'd'), out));
  EXPECT_LE(lines.held(), 14u);
  EXPECT_EQ(out.size(), 2u);
}

// ---- over sockets

struct Answer {
  bool whole = false;
  int status = 0;
  std::string body;
};
Answer ask(const std::string& url, const ClientRequest& request = {}, const ClientLimits& limits = {},
           const std::function<bool()>& cancelled = nullptr, const std::string& key = "") {
  Answer out;
  out.whole = ask_server(parse_server_address(url, ""), key, request, limits,
                         {.cancelled = cancelled,
                          .on_head = [&](const AnswerHead& head) { out.status = head.status; },
                          .on_body = [&](std::string_view more) { out.body += more; }});
  return out;
}

TEST(Client, SendsARequestAndReadsItsAnswer) {
  FakeServer server([](FakeConnection& to, const std::string& request) {
    EXPECT_TRUE(request.starts_with("POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1:")) << request;
    EXPECT_NE(request.find("\r\nAuthorization: Bearer k-1\r\n"), std::string::npos);
    EXPECT_NE(request.find("\r\nContent-Length: 3000000\r\n"), std::string::npos);
    to.answer(201, "a/b", request.substr(request.size() - 4));
  });
  const std::string body = std::string(2999996, 'x') + "last";
  const Answer got =
      ask(server.url(), {.method = "POST", .path = "/v1/x", .body = body}, {}, nullptr, "k-1");
  EXPECT_TRUE(got.whole);
  EXPECT_EQ(got.status, 201);
  EXPECT_EQ(got.body, "last");
}

// Pieces are handed on before the answer ends.
TEST(Client, PiecesComeAsTheyAreSent) {
  std::atomic<int> seen = 0;
  FakeServer server([&](FakeConnection& to, const std::string&) {
    to.begin_events();
    for (int i = 0; i < 3; ++i) {
      to.chunk("piece " + std::to_string(i));
      while (seen <= i && !to.over()) ::usleep(1000);
    }
    to.end_events();
  });
  const bool whole = ask_server(parse_server_address(server.url(), ""), "", {}, {},
                                {.on_body = [&](std::string_view more) {
                                  EXPECT_EQ(more, "piece " + std::to_string(seen));
                                  ++seen;
                                }});
  EXPECT_TRUE(whole);
  EXPECT_EQ(seen, 3);
}

// A server that refuses before it has the whole request is understood.
TEST(Client, AnEarlyRefusalIsHeard) {
  std::atomic<bool> served = false;
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place = {};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof place;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&place), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&place), &size);
  std::thread server([&] {
    const int fd = ::accept(listener, nullptr, nullptr);
    char part[1000];
    EXPECT_GT(::recv(fd, part, sizeof part, 0), 0);
    const std::string answer = "HTTP/1.1 413 Too Long\r\nContent-Length: 2\r\n\r\nno";
    EXPECT_GT(::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL), 0);
    while (!served) ::usleep(1000);
    ::close(fd);
  });
  const Answer got = ask("http://127.0.0.1:" + std::to_string(ntohs(place.sin_port)),
                         {.method = "POST", .body = std::string(16 << 20, 'x')});
  served = true;
  server.join();
  ::close(listener);
  EXPECT_EQ(got.status, 413);
  EXPECT_EQ(got.body, "no");
}

TEST(Client, TroublesHaveNames) {
  std::string gone;
  {
    FakeServer nobody([](FakeConnection&, const std::string&) {});
    gone = nobody.url();
  }
  EXPECT_EQ(code_of([&] { ask(gone); }), "E_SERVER_GONE");
  FakeServer leaves([](FakeConnection&, const std::string&) {});
  EXPECT_EQ(code_of([&] { ask(leaves.url()); }), "E_SERVER_GONE");
  FakeServer half([](FakeConnection& to, const std::string&) {
    to.begin_events();
    to.chunk("abc");
  });
  EXPECT_EQ(code_of([&] { ask(half.url()); }), "E_SERVER_GONE");
  FakeServer resets([](FakeConnection& to, const std::string&) {
    to.send("HTTP/1.1 200 OK\r\n\r\nabc");
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    ::setsockopt(to.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  });
  EXPECT_EQ(code_of([&] { ask(resets.url()); }), "E_SERVER_GONE") << "a reset is no end of a body";
  FakeServer other([](FakeConnection& to, const std::string&) { to.send("+OK POP3\r\n\r\n"); });
  EXPECT_EQ(code_of([&] { ask(other.url()); }), "E_SERVER_ANSWER");
  FakeServer silent([](FakeConnection& to, const std::string&) { to.wait_for_end(); });
  EXPECT_EQ(code_of([&] { ask(silent.url(), {}, {.silent_seconds = 0.2}); }), "E_SERVER_SLOW");
  FakeServer drips([](FakeConnection& to, const std::string&) {
    to.begin_events();
    while (!to.over() && to.chunk(":\n")) ::usleep(20000);
  });
  EXPECT_EQ(code_of([&] { ask(drips.url(), {}, {.silent_seconds = 5, .whole_seconds = 0.5}); }),
            "E_SERVER_SLOW");
  FakeServer long_body([](FakeConnection& to, const std::string&) {
    to.send("HTTP/1.1 200 OK\r\n\r\n");
    while (!to.over() && to.send(std::string(1 << 16, 'x'))) {
    }
  });
  EXPECT_EQ(code_of([&] { ask(long_body.url(), {}, {.body_bytes = 1 << 20}); }), "E_SERVER_ANSWER");
  EXPECT_EQ(code_of([&] { ask("http://no-such-name.invalid:80"); }), "E_SERVER_GONE");
}

// The server sees the connection end, and the call returns within moments.
TEST(Client, CancelEndsTheConnection) {
  std::atomic<bool> here = false, left = false;
  FakeServer server([&](FakeConnection& to, const std::string&) {
    to.begin_events();
    here = true;
    left = to.wait_for_end();
  });
  const auto from = monotonic_seconds();
  const Answer got = ask(server.url(), {}, {}, [&] { return here.load(); });
  EXPECT_FALSE(got.whole);
  EXPECT_LT(monotonic_seconds() - from, 10);
  for (int i = 0; i < 5000 && !left; ++i) ::usleep(1000);
  EXPECT_TRUE(left);
}

TEST(Client, WhatACallThrowsIsThrownOn) {
  FakeServer server([](FakeConnection& to, const std::string&) { to.answer(200, "a/b", "body"); });
  EXPECT_THROW(ask_server(parse_server_address(server.url(), ""), "", {}, {},
                          {.on_body = [](std::string_view) { throw std::bad_alloc(); }}),
               std::bad_alloc);
}

}  // namespace
}  // namespace tessera::client_test
