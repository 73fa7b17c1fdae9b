// Images from one program to another over the loopback: the frames, what a stranger may send, and
// senders and viewers that are slow, silent or gone.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "apps/studio/preview_desk.h"
#include "apps/studio/preview_listener.h"
#include "apps/studio/preview_receiver.h"
#include "apps/studio/preview_sender.h"
#include "engine/core/io.h"
#include "tests/unit/studio/studio_run.h"
#include "vision/image/png.h"

namespace tessera::preview_test {
namespace {

PreviewBegin a_image(std::uint64_t id = 1) {
  return {.image = id,
          .seed = 77,
          .width = 8,
          .height = 6,
          .grid_rows = 3,
          .grid_columns = 4,
          .model = "m",
          .prompt = "a \xc3\xa9 prompt"};
}

PreviewRows some_rows(std::uint32_t first, std::uint32_t rows, bool last, std::uint64_t id = 1) {
  PreviewRows out{.image = id,
                  .first = first,
                  .rows = rows,
                  .last = last,
                  .rows_done = 2,
                  .passes = 5,
                  .tokens = 8,
                  .seconds = 0.25};
  for (std::uint32_t i = 0; i < rows * 8 * 3; ++i) {
    out.rgb.push_back(static_cast<std::uint8_t>(first * 50 + i));
  }
  return out;
}

std::vector<PreviewMessage> read_all(PreviewReader& reader) {
  std::vector<PreviewMessage> out;
  while (auto message = reader.next()) out.push_back(std::move(*message));
  return out;
}

std::string code_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& error) {
    EXPECT_EQ(error.info().kind == ErrorKind::kGeneral || error.info().kind == ErrorKind::kUsage,
              true);
    EXPECT_FALSE(error.info().expected.empty());
    EXPECT_FALSE(error.info().found.empty());
    return error.info().code;
  }
  return "";
}
std::string refusal_of(const std::string& bytes) {
  return code_of([&] {
    PreviewReader reader;
    reader.feed(bytes);
  });
}

TEST(PreviewWire, MessagesComeThroughInPiecesOfAnySize) {
  const std::vector<PreviewMessage> sent = {
      a_image(), some_rows(0, 2, false), some_rows(2, 4, true),
      PreviewRows{.image = 1, .rows_done = 3, .passes = 9},
      PreviewEnd{.image = 1, .state = PreviewState::kStopped}};
  std::string bytes;
  for (const PreviewMessage& message : sent) bytes += encode_preview(message);
  for (const std::size_t piece :
       {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{64}, bytes.size()}) {
    PreviewReader reader;
    std::vector<PreviewMessage> got;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.feed(std::string_view(bytes).substr(at, piece));
      for (PreviewMessage& message : read_all(reader)) got.push_back(std::move(message));
    }
    EXPECT_EQ(got, sent) << piece;
    EXPECT_FALSE(reader.midway());
  }
}

TEST(PreviewWire, AFrameThatIsCutIsNoMessage) {
  const std::string bytes = encode_preview(some_rows(0, 2, true));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    PreviewReader reader;
    reader.feed(std::string_view(bytes).substr(0, size));
    EXPECT_FALSE(reader.next()) << size;
    EXPECT_EQ(reader.midway(), size > 0);
  }
}

// Another number in one field of a good frame.
std::string changed(std::string bytes, std::size_t at, std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    bytes[kPreviewHeadBytes + at + i] = static_cast<char>(value >> (8 * i));
  }
  return bytes;
}

TEST(PreviewWire, GarbageIsRefused) {
  EXPECT_EQ(refusal_of("GET / HTTP/1.1\r\n\r\n"), "E_PREVIEW_FRAME");
  EXPECT_EQ(refusal_of("T"), "") << "may still become one";
  EXPECT_EQ(refusal_of("TSV2"), "E_PREVIEW_FRAME") << "another version";
  EXPECT_EQ(refusal_of(std::string("TSV1\x07\0\0\0\0", 9)), "E_PREVIEW_FRAME") << "another type";
  // As soon as the head names too much, not when so much has come.
  EXPECT_EQ(refusal_of(std::string("TSV1\x02\x01\0\x10\0", 9)), "E_PREVIEW_FRAME");
  EXPECT_EQ(refusal_of(std::string("TSV1\x02\0\0\x10\0", 9)), "");
  EXPECT_EQ(refusal_of(std::string("TSV1\x02\xff\xff\xff\xff", 9)), "E_PREVIEW_FRAME");
  const std::string begin = encode_preview(a_image());
  const std::size_t width = 16, height = 20, rows = 24, model = 32;
  EXPECT_EQ(refusal_of(changed(begin, width, 0, 4)), "E_PREVIEW_FRAME");
  EXPECT_EQ(refusal_of(changed(begin, width, 16385, 4)), "E_PREVIEW_FRAME");
  EXPECT_EQ(refusal_of(changed(changed(begin, width, 4096, 4), height, 4096, 4)), "");
  EXPECT_EQ(refusal_of(changed(changed(begin, width, 4096, 4), height, 4097, 4)),
            "E_PREVIEW_FRAME");
  EXPECT_EQ(refusal_of(changed(begin, rows, 4097, 4)), "E_PREVIEW_FRAME");
  EXPECT_EQ(refusal_of(changed(begin, model, 0xffff, 2)), "E_PREVIEW_FRAME");
  EXPECT_EQ(refusal_of(changed(begin, model + 2, 0xff, 1)), "E_PREVIEW_FRAME") << "no UTF-8";
  EXPECT_EQ(refusal_of(changed(begin, model + 3, 0xffffffff, 4)), "E_PREVIEW_FRAME");
  const std::string part = encode_preview(some_rows(0, 2, true));
  EXPECT_EQ(refusal_of(changed(part, 8, 16384, 4)), "E_PREVIEW_FRAME") << "past the last row";
  EXPECT_EQ(refusal_of(changed(part, 12, 5, 4)), "E_PREVIEW_FRAME") << "48 bytes in 5 rows";
  EXPECT_EQ(refusal_of(changed(part, 16, 2, 1)), "E_PREVIEW_FRAME");
  EXPECT_EQ(refusal_of(changed(part, 29, std::bit_cast<std::uint64_t>(0.0 / 0.0), 8)),
            "E_PREVIEW_FRAME");
  EXPECT_EQ(refusal_of(changed(encode_preview(PreviewEnd{1}), 8, 3, 1)), "E_PREVIEW_FRAME");
}

TEST(PreviewDesk, PutsAnImageTogether) {
  PreviewDesk desk("someone");
  Generation now = desk.take(a_image(), 40);
  EXPECT_EQ(now.number, 40u);
  EXPECT_EQ(now.from, "someone");
  EXPECT_EQ(now.settings.seed, 77u);
  EXPECT_FALSE(now.image);
  now = desk.take(some_rows(0, 2, false), 41);
  EXPECT_FALSE(now.image) << "not whole yet";
  EXPECT_EQ(now.number, 40u);
  now = desk.take(some_rows(2, 2, true), 41);
  ASSERT_TRUE(now.image);
  EXPECT_EQ(now.image->height, 6) << "what is to come in their mean colour";
  EXPECT_EQ(now.image->rgb[2 * 24], 100);
  EXPECT_EQ(now.rows_done, 2);
  EXPECT_EQ(now.facts.tokens, 8);
  now = desk.take(PreviewEnd{1, PreviewState::kDone}, 0);
  EXPECT_EQ(now.state, GenerateState::kDone);
  EXPECT_TRUE(desk.close().empty());
}

TEST(PreviewDesk, RefusesWhatDoesNotFollow) {
  const auto after_begin = [](PreviewMessage message) {
    return code_of([&] {
      PreviewDesk desk("x");
      desk.take(a_image(), 1);
      desk.take(std::move(message), 2);
    });
  };
  EXPECT_EQ(after_begin(some_rows(0, 2, true)), "");
  EXPECT_EQ(after_begin(some_rows(0, 2, true, 9)), "E_PREVIEW_ORDER") << "nobody began it";
  EXPECT_EQ(after_begin(PreviewEnd{9}), "E_PREVIEW_ORDER");
  EXPECT_EQ(after_begin(a_image()), "E_PREVIEW_ORDER") << "twice";
  EXPECT_EQ(after_begin(some_rows(2, 2, true)), "E_PREVIEW_ORDER") << "a gap";
  EXPECT_EQ(after_begin(some_rows(0, 7, true)), "E_PREVIEW_ORDER") << "too many rows";
  PreviewRows wide = some_rows(0, 2, true);
  wide.rgb.resize(wide.rgb.size() * 2);
  EXPECT_EQ(after_begin(wide), "E_PREVIEW_ORDER");
  PreviewRows beyond = some_rows(0, 1, true);
  beyond.rows_done = 4;
  EXPECT_EQ(after_begin(beyond), "E_PREVIEW_ORDER");
  PreviewDesk desk("x");
  for (std::uint64_t id = 0; id < PreviewDesk::kMaxImages; ++id) desk.take(a_image(id), id);
  EXPECT_EQ(code_of([&] { desk.take(a_image(99), 99); }), "E_PREVIEW_ORDER");
  EXPECT_EQ(desk.close().size(), PreviewDesk::kMaxImages);
  PreviewBegin large = a_image(1), more = a_image(2);
  large.width = large.height = 4096;
  desk.take(PreviewBegin(large), 1);
  EXPECT_EQ(code_of([&] { desk.take(std::move(more), 2); }), "E_PREVIEW_ORDER") << "16 Mpx in all";
}

TEST(PreviewDesk, HoldsNoMoreThanWasPaidFor) {
  PreviewDesk desk("x");
  PreviewBegin large = a_image();
  large.width = 1;
  large.height = 16384;
  desk.take(std::move(large), 1);
  const Generation now = desk.take(PreviewRows{.image = 1, .rows = 1, .rgb = {1, 2, 3}}, 1);
  EXPECT_EQ(now.image->height, 64) << "one row of sixteen thousand";
  EXPECT_EQ(now.image->rgb.back(), 3);
}

TEST(PreviewDesk, NamesCannotSpeakToTerminals) {
  PreviewDesk desk("x");
  PreviewBegin begin = a_image();
  begin.model = "\x1b[31mred";
  begin.prompt = "\x1b]0;title\x07";
  const Generation now = desk.take(std::move(begin), 1);
  EXPECT_EQ(now.settings.model.find('\x1b'), std::string::npos);
  EXPECT_EQ(now.settings.prompt.find('\x1b'), std::string::npos);
  EXPECT_EQ(now.settings.prompt.find('\x07'), std::string::npos);
}

TEST(PreviewAddress, LoopbackAlone) {
  EXPECT_EQ(parse_preview_address("127.0.0.1:7861"), 7861);
  EXPECT_EQ(parse_preview_address("localhost:1"), 1);
  for (const char* bad :
       {"192.168.0.1:80", "another-machine:80", "0.0.0.0:80", "7861", "localhost", "localhost:0",
        "localhost:65536", "localhost:1x", ":80", "[::1]:80", "127.0.0.1.evil:80"}) {
    EXPECT_EQ(code_of([&] { parse_preview_address(bad); }), "E_PREVIEW_TO") << bad;
  }
}

// ---- over sockets

int connect_to(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}
void say(int fd, const std::string& bytes) {
  EXPECT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}
// Waits until the other side has closed.
bool is_closed(int fd) {
  char byte;
  timeval patience{20, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  errno = 0;
  const bool closed = ::recv(fd, &byte, 1, 0) <= 0 && errno != EAGAIN;
  ::close(fd);
  return closed;
}

struct Receiving {
  explicit Receiving(PreviewReceiverOptions options = {}) : receiver(options, events) {}
  ~Receiving() { events.close(); }
  const Snapshot& update() {
    for (Event& event : events.take()) apply(snapshot, std::move(event));
    return snapshot;
  }
  bool until(const std::function<bool(const Snapshot&)>& there) {
    for (int i = 0; i < 30000; ++i) {
      if (there(update())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "nothing came";
    return false;
  }
  EventQueue events{16};
  Snapshot snapshot;
  PreviewReceiver receiver;
};

TEST(PreviewReceiver, StrangersAreDroppedAndCostNobodyElse) {
  Receiving here({.frame_seconds = 0.3, .idle_seconds = 3.0});
  const std::uint16_t port = here.receiver.port();
  const int good = connect_to(port);
  say(good, encode_preview(a_image()));
  const int garbage = connect_to(port), cut = connect_to(port), slow = connect_to(port);
  const int silent = connect_to(port);
  say(garbage, "GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(is_closed(garbage));
  say(cut, encode_preview(a_image()).substr(0, 20));
  ::close(cut);
  const std::string bytes = encode_preview(some_rows(0, 2, true));
  say(slow, encode_preview(a_image()));
  say(slow, bytes.substr(0, 30));  // and no more
  here.until([](const Snapshot& now) {
    return std::count_if(now.generations.begin(), now.generations.end(), [](const Generation& one) {
             return one.error.code == "E_PREVIEW_GONE";
           }) == 1;
  });
  EXPECT_TRUE(is_closed(slow));
  say(good, bytes);
  here.until([](const Snapshot& now) { return now.generations[0].image != nullptr; });
  EXPECT_TRUE(is_closed(silent));
  say(good, encode_preview(PreviewEnd{1}));
  here.until([](const Snapshot& now) { return now.generations[0].state == GenerateState::kDone; });
  EXPECT_EQ(here.snapshot.problems.size(), 1u);
  EXPECT_EQ(here.snapshot.problems[0].code, "E_PREVIEW_FRAME");
  EXPECT_EQ(here.snapshot.generations.size(), 2u);
  ::close(good);
}

TEST(PreviewReceiver, TakesEightAtOnce) {
  Receiving here;
  std::vector<int> sockets;
  for (std::size_t i = 0; i < PreviewReceiver::kMaxSenders; ++i) {
    sockets.push_back(connect_to(here.receiver.port()));
    say(sockets.back(), encode_preview(a_image()));
  }
  here.until([&](const Snapshot& now) { return now.generations.size() == sockets.size(); });
  EXPECT_TRUE(is_closed(connect_to(here.receiver.port())));
  ::close(sockets.back());
  sockets.pop_back();
  here.until([](const Snapshot& now) {
    return std::any_of(now.generations.begin(), now.generations.end(),
                       [](const Generation& one) { return one.state == GenerateState::kFailed; });
  });
  sockets.push_back(connect_to(here.receiver.port()));
  say(sockets.back(), encode_preview(a_image()));
  here.until([&](const Snapshot& now) { return now.generations.size() == sockets.size() + 1; });
  for (const int socket : sockets) ::close(socket);
}

TEST(PreviewReceiver, ATakenPortIsAnError) {
  Receiving here;
  EventQueue events(4);
  EXPECT_EQ(code_of([&] { PreviewReceiver({.port = here.receiver.port()}, events); }), "E_LISTEN");
  EXPECT_EQ(code_of([&] { StudioRun run({.listen = here.receiver.port()}); }), "E_LISTEN");
}

// ---- a task shows its images to a studio that listens

struct Kept : GenerateListener {
  void on_image(GeneratedImage&& decoded_image) override { images.push_back(std::move(decoded_image)); }
  std::vector<GeneratedImage> images;
};

std::vector<PreparedRequest> three_requests(const GenerateTask& task) {
  std::vector<PreparedRequest> out;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    out.push_back(task.prepare({.prompt = "sent", .seed = seed}));
  }
  return out;
}

TEST(PreviewTo, WhatIsShownIsWhatWasGenerated) {
  StudioRun run({.listen = std::uint16_t{0}});
  run.until([](const Snapshot& now) { return !now.status.listening.empty(); });
  const std::uint16_t port = parse_preview_address(run.studio.snapshot().status.listening);
  for (const std::int64_t batch : {1, 2}) {
    GenerateOptions options;
    options.model = "test:tiny";
    options.batch_size = batch;
    Runtime runtime;
    GenerateTask task(runtime, options);
    const auto requests = three_requests(task);
    Kept plain, shown;
    task.run(requests, plain);
    {
      PreviewSender sender(port, [](std::string_view text) { ADD_FAILURE() << text; });
      PreviewListener listener(shown, sender, task);
      task.run(requests, listener);
    }
    const auto count = static_cast<std::size_t>(3 * batch);
    run.until([&](const Snapshot& now) {
      return std::count_if(now.generations.begin(), now.generations.end(), [](const Generation& one) {
               return one.state == GenerateState::kDone;
             }) == static_cast<std::ptrdiff_t>(count);
    });
    ASSERT_EQ(shown.images.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(shown.images[i].image.rgb, plain.images[i].image.rgb) << "nothing changes";
      const Generation& there = run.studio.snapshot().generations[count - 3 + i];
      EXPECT_EQ(there.settings.seed, i + 1);
      EXPECT_EQ(there.image->rgb, plain.images[i].image.rgb);
      EXPECT_EQ(there.facts.tokens, plain.images[i].facts.tokens);
      EXPECT_EQ(there.rows_done, there.grid_rows);
      EXPECT_TRUE(there.from.starts_with("127.0.0.1:"));
    }
  }
}

TEST(PreviewTo, NobodyThereIsOneNotice) {
  std::uint16_t port = 0;
  {
    Receiving here;
    port = here.receiver.port();
  }
  GenerateOptions options;
  options.model = "test:tiny";
  Runtime runtime;
  GenerateTask task(runtime, options);
  const auto requests = three_requests(task);
  Kept kept;
  std::atomic<int> notices = 0;
  {
    PreviewSender sender(port, [&](std::string_view) { ++notices; });
    PreviewListener listener(kept, sender, task);
    EXPECT_TRUE(task.run(requests, listener));
    EXPECT_FALSE(sender.connected());
    listener.on_progress({.images = 1, .rows_done = 1, .rows = 9, .seconds = 100});
    EXPECT_GT(listener.preview_rows(), 9) << "no image is made for nobody";
  }
  EXPECT_EQ(notices, 1);
  EXPECT_EQ(kept.images.size(), 3u);
}

// A viewer that comes late sees the image from where it is.
TEST(PreviewTo, AViewerMayComeLate) {
  std::uint16_t port = 0;
  {
    Receiving here;
    port = here.receiver.port();
  }
  PreviewSender sender(port, [](std::string_view) {});
  const std::uint64_t decoded_image = sender.begin(a_image());
  sender.show(decoded_image, {.rows_done = 1}, nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  Receiving here({.port = port});
  sender.end(decoded_image, PreviewState::kDone, {.rows_done = 3},
             std::make_shared<const Image>(8, 6, some_rows(0, 6, true).rgb));
  here.until([](const Snapshot& now) {
    return now.generations.size() == 1 && now.generations[0].state == GenerateState::kDone;
  });
  EXPECT_EQ(here.snapshot.generations[0].image->rgb, some_rows(0, 6, true).rgb);
}

std::ptrdiff_t done_among(const Snapshot& now) {
  return std::count_if(now.generations.begin(), now.generations.end(),
                       [](const Generation& one) { return one.state == GenerateState::kDone; });
}

TEST(PreviewTo, NeverMoreAtOnceThanAViewerTakes) {
  Receiving here;
  PreviewSender sender(here.receiver.port(), [](std::string_view text) { ADD_FAILURE() << text; });
  const auto most = static_cast<std::ptrdiff_t>(PreviewSender::kMaxImages);
  here.until([](const Snapshot& now) { return !now.status.listening.empty(); });
  std::vector<std::uint64_t> images;
  for (std::ptrdiff_t i = 0; i < most; ++i) images.push_back(sender.begin(a_image()));
  here.until([&](const Snapshot& now) { return std::ssize(now.generations) == most; });
  for (int i = 0; i < 4; ++i) images.push_back(sender.begin(a_image()));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // so that it would be said
  for (const std::uint64_t decoded_image : images) {
    sender.show(decoded_image, {.rows_done = 1}, nullptr);
    sender.end(decoded_image, PreviewState::kDone, {.rows_done = 3}, nullptr);
  }
  here.until([&](const Snapshot& now) { return done_among(now) == most; });
  // Nine megapixels each: one after the other, and each of them.
  PreviewBegin large = a_image();
  large.width = large.height = 3000;
  std::vector<std::uint64_t> several;
  for (int i = 0; i < 3; ++i) several.push_back(sender.begin(large));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (const std::uint64_t decoded_image : several) {
    sender.end(decoded_image, PreviewState::kDone, {.rows_done = 3}, nullptr);
  }
  here.until([&](const Snapshot& now) { return done_among(now) == most + 3; });
  EXPECT_TRUE(here.snapshot.problems.empty()) << format_error(here.snapshot.problems.front());
  for (const Generation& one : here.snapshot.generations) {
    EXPECT_EQ(one.from, here.snapshot.generations[0].from) << "one connection";
  }
}

TEST(PreviewTo, ImagesOfARunThatThrewHaveFailed) {
  Receiving here;
  PreviewSender sender(here.receiver.port(), [](std::string_view) {});
  GenerateOptions options;
  options.model = "test:tiny";
  Runtime runtime;
  GenerateTask task(runtime, options);
  const auto requests = three_requests(task);
  struct Thrower : GenerateListener {
    Flow on_progress(const GenerateProgress&) override { throw std::bad_alloc(); }
  } inner;
  EXPECT_THROW(
      {
        PreviewListener listener(inner, sender, task);
        task.run(requests, listener);
      },
      std::bad_alloc);
  here.until([](const Snapshot& now) {
    return now.generations.size() == 1 && now.generations[0].state == GenerateState::kFailed;
  });
  EXPECT_EQ(here.snapshot.generations[0].error.code, "E_PREVIEW_FAILED");
}

// One that accepts and never reads: calls return at once, memory stays bounded.
TEST(PreviewTo, AViewerThatDoesNotReadCostsNoTime) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const auto image = std::make_shared<const Image>(1024, 1024);
  double longest = 0;
  {
    PreviewSender sender(ntohs(address.sin_port), [](std::string_view) {});
    PreviewBegin begin = a_image();
    begin.width = begin.height = 1024;
    for (int i = 0; i < 200; ++i) {
      const double before = monotonic_seconds();
      const std::uint64_t decoded_image = sender.begin(begin);
      for (int row = 0; row < 5; ++row) sender.show(decoded_image, {.rows_done = row}, image);
      sender.end(decoded_image, PreviewState::kDone, {}, image);
      longest = std::max(longest, monotonic_seconds() - before);
    }
    EXPECT_LT(image.use_count(), 2 + static_cast<long>(PreviewSender::kMaxImages) + 2);
  }
  ::close(listener);
  std::printf("longest call %.3f ms\n", longest * 1000);
}

// A viewer that takes a little every now and then keeps a program that ends no longer than one that
// takes nothing.
TEST(PreviewTo, AViewerThatDripsDoesNotHoldUpTheEnd) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const int small = 4096;
  ::setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::atomic<bool> over = false;
  std::thread dripping([&] {
    const int fd = ::accept(listener, nullptr, nullptr);
    std::vector<char> piece(100'000);
    while (!over && ::recv(fd, piece.data(), piece.size(), MSG_DONTWAIT) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ::close(fd);
  });
  double ended = 0;
  {
    PreviewSender sender(ntohs(address.sin_port), [](std::string_view) {});
    PreviewBegin begin = a_image();
    begin.width = begin.height = 4096;
    const std::uint64_t decoded_image = sender.begin(begin);
    sender.end(decoded_image, PreviewState::kDone, {}, std::make_shared<const Image>(4096, 4096));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ended = monotonic_seconds();
  }
  ended = monotonic_seconds() - ended;
  over = true;
  dripping.join();
  ::close(listener);
  std::printf("ended after %.2f s\n", ended);
  EXPECT_LT(ended, 5) << "one second, and what a busy machine adds";
}

}  // namespace
}  // namespace tessera::preview_test
