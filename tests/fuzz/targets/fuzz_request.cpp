// Requests over HTTP. Oracle: whatever the bytes, a request that comes in pieces is the one that
// comes at once; bounds of head, body and lines hold; a plain reader, written down once more, sees
// the same end of a body, so that nobody else's request is read out of it; fields of its JSON are
// within their ranges or refused by name, and no refusal shows a path of this machine.
#include <nlohmann/json.hpp>

#include "apps/serve/answers.h"
#include "apps/serve/http/request_reader.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "tests/fuzz/targets/json_mutator.h"

// In place of the library's, which knows all methods.
std::vector<tessera_v0::SettingInfo> tessera_v0::setting_table(Task) {
  return {{.name = "top-k", .kind = "integer", .high = 100},
          {.name = "decode", .kind = "name", .place = SettingPlace::kOpen}};
}

namespace tessera::fuzz {
namespace {

constexpr std::size_t kHeaderBytes = 256, kBodyBytes = 512;
using State = RequestReader::State;

struct Outcome {
  State state = State::kHead;
  int status = 0;  // of a refusal
  HttpRequest request;
  std::size_t taken = 0;
};

// In pieces of so many bytes; 0 = at once. As a connection reads: what is not taken comes again.
Outcome read(std::string_view text, std::size_t piece) {
  RequestReader reader(kHeaderBytes, kBodyBytes);
  Outcome out;
  std::size_t given = 0;
  while (given < text.size() && reader.state() != State::kWhole && reader.state() != State::kRefused) {
    given = piece == 0 ? text.size() : std::min(given + piece, text.size());
    for (std::size_t used = 1; used > 0 && out.taken < given;) {
      used = reader.take(text.substr(out.taken, given - out.taken));
      out.taken += used;
      require(out.taken <= given, "no more is taken than there is");
      if (reader.state() == State::kRefused) break;
      require(reader.body_size() <= kBodyBytes, "bodies are bounded");
    }
    if (reader.state() == State::kHead) {
      require(out.taken <= kHeaderBytes, "heads are bounded");
      if (piece == 1) require(given <= 2 * kHeaderBytes, "heads are bounded");
    } else if (reader.state() == State::kBody) {
      require(given - out.taken <= kHeaderBytes, "lines within bodies are bounded");
    }
  }
  out.state = reader.state();
  if (out.state == State::kRefused) {
    out.status = reader.refusal().status;
    const Json said = Json::parse(reader.refusal().body, nullptr, false);
    require(said.is_object() && said["error"].size() == 4, "refusals have their form");
  } else if (out.state != State::kHead) {
    out.request = reader.head();
    if (out.state == State::kWhole) out.request.body = reader.take_body();
  }
  return out;
}

bool is_limit(const Outcome& one) { return one.status == 413 || one.status == 431; }

void check_pieces(const Outcome& one, const Outcome& other) {
  if (is_limit(one) || is_limit(other)) return;  // at which byte they are seen is no matter
  // Nor is whether a fault is seen before a head or a line has ended.
  const auto is_final = [](const Outcome& out) {
    return out.state == State::kWhole || out.state == State::kRefused;
  };
  if (!is_final(one) && other.state == State::kRefused) return;
  if (!is_final(other) && one.state == State::kRefused) return;
  require(one.state == other.state && one.status == other.status, "pieces change no outcome");
  if (one.state == State::kRefused || one.state == State::kHead) return;
  require(one.state != State::kWhole || one.taken == other.taken, "pieces change no end");
  require(one.request.method == other.request.method && one.request.path == other.request.path &&
              one.request.query == other.request.query && one.request.fields == other.request.fields &&
              one.request.body == other.request.body,
          "pieces change no request");
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t') || byte == 0x7f;
  });
}

// Where the body ends for a reader that knows these two ways, each alone.
void check_end(std::string_view text, const Outcome& one) {
  const HttpRequest& request = one.request;
  require(!request.method.empty(), "a method");
  require(!has_control(request.method) && !has_control(request.path) && !has_control(request.query),
          "lines have no controls");
  std::size_t lengths = 0, codings = 0;
  for (const auto& [name, value] : request.fields) {
    require(!name.empty() && name.find_first_of(" :") == std::string::npos, "names are tokens");
    require(!has_control(name) && !has_control(value), "fields have no controls");
    lengths += name == "content-length" ? 1 : 0;
    codings += name == "transfer-encoding" ? 1 : 0;
  }
  if (one.state != State::kWhole) return;
  const std::size_t head = text.find("\r\n\r\n");
  require(head != std::string_view::npos && head + 4 <= kHeaderBytes, "heads are bounded");
  std::string_view rest = text.substr(head + 4, one.taken - head - 4);
  require(lengths == 0 || codings == 0, "one way to say where a body ends");
  if (codings == 0) {
    require(rest == request.body, "bodies have their length");
    if (lengths == 0) require(rest.empty(), "without a length there is no body");
    return;
  }
  require(codings == 1, "one coding");
  std::string body;
  while (true) {
    const std::size_t line = rest.find("\r\n");
    require(line != std::string_view::npos, "chunks have sizes");
    const std::size_t size = std::stoul(std::string(rest.substr(0, line)), nullptr, 16);
    rest.remove_prefix(line + 2);
    if (size == 0) break;
    require(rest.size() >= size + 2 && rest.substr(size, 2) == "\r\n", "chunks have ends");
    body += rest.substr(0, size);
    rest.remove_prefix(size + 2);
  }
  require(rest == "\r\n" || (rest.ends_with("\r\n\r\n") && rest.find("\r\n\r\n") == rest.size() - 4),
          "trailers end");
  require(body == request.body, "chunks are put together");
}

void check_error(const api::Error& error) {
  require(error.kind() == api::ErrorKind::kUsage && !error.code().empty(), "refusals are of usage");
  const HttpAnswer answer = error_answer(error);
  require(answer.status >= 400 && answer.status < 500, "refusals are a client's");
  const Json back = Json::parse(answer.body, nullptr, false);
  require(back.is_object() && back["error"].size() == 4, "refusals have their form");
}

// A request with one JSON object, as the images' endpoint reads it.
void check_body(const HttpRequest& request) {
  try {
    Body body(request);
    const auto number = body.integer("n", -3, 10);
    require(!number || (*number >= -3 && *number <= 10), "integers are in range");
    const auto real = body.number("temp", 0, 2);
    require(!real || (*real >= 0 && *real <= 2), "numbers are in range");
    body.flag("stream");
    if (const auto text = body.text("prompt")) {
      require(from_base64(to_base64(*text), "prompt") == *text, "base64 comes back");
      const std::string bytes = from_base64(*text, "prompt");
      std::size_t digits = 0;
      for (const char c : *text) digits += std::isspace(static_cast<unsigned char>(c)) == 0 ? 1 : 0;
      require(digits % 4 == 0 && bytes.size() <= digits / 4 * 3, "base64 is whole");
    }
    body.without_effect("quality", {"auto"});
    const Body::Settings settings = body.settings(api::Task::kImage);
    require(settings.open.size() + settings.request.size() <= 4, "settings are known");
  } catch (const api::Error& error) {
    check_error(error);
  } catch (const Error& error) {
    require(error.info().kind == ErrorKind::kUsage, "JSON that is wrong is a client's");
  }
}

void check_message(std::string_view text) {
  if (text.find("folder-of") != std::string_view::npos) return;
  const std::string place = "/folder-of/machine/m" + std::string(text.substr(0, 40)) + "'";
  for (const char* before : {"", "a ", "(", "x=", "'"}) {
    const Json error = error_object(api::Error({.code = "E_X", .found = before + place}));
    require(error["error"]["message"].get<std::string>().find("folder-of") == std::string::npos,
            "no path is shown");
  }
}

std::vector<std::string> seeds() {
  const std::string json =
      R"({"prompt":"cHBt","n":3,"temp":1.5,"stream":true,"quality":"high","top_k":7,"decode":"x"})";
  const auto post = [](const std::string& fields, const std::string& body) {
    return "POST /v1/images?a=b HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n" + body;
  };
  std::vector<std::string> out = {
      "GET /health HTTP/1.1\r\nHost: localhost:80\r\n\r\n",
      "HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.1\r\n\r\n",
      post("Content-Length: 3\r\n", "abcGET / HTTP/1.1\r\n\r\n"),
      post("Content-Length: 600\r\n", std::string(600, 'x')),
      post("Content-Length: 512\r\n", std::string(512, 'x')),
      post("Content-Length: 513\r\n", std::string(513, 'x')),
      post([] {
        std::string lines;
        for (int i = 0; i < 23; ++i) lines += "A: aaaa\r\n";
        return lines;
      }(), ""),
      post("Transfer-Encoding: chunked\r\n", "3;x=y\r\nabc\r\n0\r\nT: u\r\n\r\n"),
      post("Transfer-Encoding: chunked\r\n", "1;" + std::string(300, 'x') + "\r\na\r\n0\r\n\r\n"),
      post("Transfer-Encoding: gzip, chunked\r\n", "1\r\na\r\n0\r\n\r\n"),
      post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
      post("A: " + std::string(300, 'a') + "\r\n", ""),
  };
  out.push_back(post("Content-Length: " + std::to_string(json.size()) + "\r\n", json));
  return out;
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tessera::fuzz::write_seeds_if_asked(tessera::fuzz::seeds());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera::fuzz;
  const std::string_view text = as_text(data, size);
  const Outcome at_once = read(text, 0);
  if (at_once.state == State::kBody || at_once.state == State::kWhole) check_end(text, at_once);
  for (const std::size_t piece : {1, 7, 100}) {
    const Outcome in_pieces = read(text, piece);
    if (in_pieces.state == State::kBody || in_pieces.state == State::kWhole) check_end(text, in_pieces);
    check_pieces(at_once, in_pieces);
  }
  if (at_once.state == State::kWhole) check_body(at_once.request);
  check_message(text);
  return 0;
}

// Words of the grammar, numbers of lengths, and values of the JSON, next to libFuzzer's changes.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera::fuzz;
  static const char* const kPieces[] = {"\r\n", "\r\n\r\n", "\n", "\r", ": ", ";", ";x", "=\"a\"", " ", "\t",
                                        "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: gzip\r\n",
                                        "Content-Length: 4\r\n", "Content-Length: ", ", chunked", "0\r\n\r\n",
                                        "1\r\nx\r\n", "HTTP/1.0", "Expect: 100-continue\r\n", "ffffffff"};
  Choice choice(seed);
  std::string text(as_text(data, size));
  const std::size_t brace = text.find('{');
  if (brace != std::string::npos && choice.one_in(2)) {  // the JSON, and the length it then has
    const std::string json = mutate_json(std::string_view(text).substr(brace), choice);
    if (json.empty() || json.size() > kBodyBytes) return LLVMFuzzerMutate(data, size, max_size);
    return release("POST / HTTP/1.1\r\nContent-Length: " + std::to_string(json.size()) + "\r\n\r\n" + json,
                   data, max_size);
  }
  if (choice.one_in(2)) return LLVMFuzzerMutate(data, size, max_size);
  const std::size_t at = choice.below(text.size() + 1);
  if (const std::size_t digit = text.find_first_of("0123456789", at);
      digit != std::string::npos && choice.one_in(2)) {
    const std::size_t end = text.find_first_not_of("0123456789", digit);
    const std::string number = text.substr(digit, end - digit).substr(0, 18);
    text.replace(digit, number.size(), std::to_string(other_number(std::stoull(number), choice)));
  } else {
    text.insert(at, kPieces[choice.below(std::size(kPieces))]);
  }
  return release(text, data, max_size);
}
