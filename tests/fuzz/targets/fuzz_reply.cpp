// What a server answers the viewer. Oracle: whatever the bytes, an answer that comes in pieces is
// the one that comes at once, and bounds hold; plain readers, written down once more, see the same
// body and the same events; what events and documents say is within its ranges or refused by name,
// and what is shown of a refusal has no controls.
#include <nlohmann/json.hpp>

#include "apps/client/answer_reader.h"
#include "apps/client/event_reader.h"
#include "apps/runtime/base64.h"
#include "apps/studio/server_answers.h"
#include "engine/core/json.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "tests/fuzz/targets/json_mutator.h"

namespace tessera::fuzz {
namespace {

constexpr std::size_t kHeadBytes = 256, kBodyBytes = 2048, kEventBytes = 1500;
constexpr const char* kServer = "http://server:1";
using State = AnswerReader::State;

struct Reply {
  State state = State::kHead;
  int status = 0;
  std::string type, body;
  std::size_t taken = 0;
  bool limit = false;  // refused for its length
};

Reply read(std::string_view text, std::size_t piece) {
  AnswerReader reader(kBodyBytes, kHeadBytes);
  Reply out;
  std::string waiting;
  std::size_t given = 0;
  while (given < text.size() && reader.state() != State::kWhole && reader.state() != State::kRefused) {
    const std::string_view more = text.substr(given, piece == 0 ? text.size() : piece);
    given += more.size();
    waiting += more;
    for (std::size_t used = 1; used > 0 && reader.state() != State::kWhole;) {
      used = reader.take(waiting);
      require(used <= waiting.size(), "no more is taken than there is");
      waiting.erase(0, used);
      out.taken += used;
      if (reader.state() == State::kRefused) break;
      if (reader.state() == State::kHead) {
        require(out.taken <= kHeadBytes, "heads are bounded");
      } else {
        out.body += reader.take_body();
        require(out.body.size() <= kBodyBytes, "bodies are bounded");
      }
    }
    if (reader.state() == State::kBody || reader.state() == State::kHead) {
      require(waiting.size() <= kHeadBytes, "lines are bounded");
    }
  }
  reader.end();
  out.state = reader.state();
  require(out.state == State::kWhole || out.state == State::kRefused, "an answer ends");
  if (out.state == State::kRefused) {
    require(!reader.refusal().empty(), "a refusal says what was found");
    out.limit = reader.refusal().ends_with("too long");
  } else {
    out.status = reader.status();
    out.type = reader.type();
  }
  return out;
}

// Where the body ends for a reader that knows these three ways.
void check_end(std::string_view text, const Reply& one) {
  const std::size_t head = text.find("\r\n\r\n");
  require(head != std::string_view::npos, "heads end");
  std::string lower;
  for (const char c : text.substr(0, head)) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::string_view rest = text.substr(head + 4, one.taken - head - 4);
  const bool chunked = lower.find("\r\ntransfer-encoding:") != std::string::npos;
  const std::size_t length = lower.find("\r\ncontent-length:");
  if (one.status == 204 || one.status == 304) return;  // which have no body
  if (!chunked) {
    require(rest == one.body, "bodies are what follows");
    if (length == std::string::npos) return;
    require(std::stoul(lower.substr(length + 17)) == one.body.size(), "bodies have their length");
    return;
  }
  if (lower.find("\r\ntransfer-encoding: chunked\r\n") == std::string::npos &&
      !lower.ends_with("\r\ntransfer-encoding: chunked")) {
    return;  // a coding of another kind, or written in another way
  }
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
  require(body == one.body, "chunks are put together");
}

// Lines by hand; no limits.
std::vector<ServerEvent> plain_events(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::vector<ServerEvent> out;
  std::vector<std::string> datas;
  std::string name, line;
  const auto end_line = [&] {
    if (line.empty()) {
      if (!datas.empty()) {
        out.push_back({name, datas[0]});
        for (std::size_t i = 1; i < datas.size(); ++i) out.back().data += "\n" + datas[i];
      }
      datas.clear();
      name.clear();
      return;
    }
    const std::size_t colon = line.find(':');
    std::string value = colon == std::string::npos ? "" : line.substr(colon + 1);
    if (value.starts_with(' ')) value.erase(0, 1);
    if (line.substr(0, colon) == "data") datas.push_back(value);
    if (line.substr(0, colon) == "event") name = value;
    line.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r' && text[i] != '\n') {
      line += text[i];
      continue;
    }
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') ++i;
    end_line();
  }
  return out;
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
}

void check_error(const ErrorInfo& error) {
  require(error.kind == ErrorKind::kGeneral || error.kind == ErrorKind::kUsage, "of a server");
  require(error.code.starts_with("E_") && error.code.size() <= 64 &&
              error.code.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos,
          "codes are codes");
  require(!has_control(error.where) && !has_control(error.expected) && !has_control(error.found) &&
              !has_control(error.hint),
          "what is shown has no controls");
}

template <typename Call>
void guarded(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    require(!error.info().code.empty(), "errors have codes");
    if (!error.info().code.starts_with("E_JSON")) check_error(error.info());
  }
}

void check_event(const ServerEvent& event) {
  guarded([&] {
    const ImageNews news = read_image_event(event, kServer);
    require(news.partial >= -1 && news.partial <= 64, "partial images have numbers");
    require(news.seconds >= 0 && news.seconds <= 1e9, "time is a number");
    require(from_base64(to_base64(news.png)) == news.png, "base64 comes back");
    if (news.partial < 0) {
      require(news.facts.tokens >= 1 && news.facts.seed < (std::uint64_t{1} << 63), "records are checked");
    }
  });
  guarded([&] {
    const ChatNews news = read_chat_event(event, kServer);
    require(news.tokens >= 0 && news.passes >= 0 && news.kept_tokens >= 0 &&
                news.kept_tokens <= news.visual_tokens,
            "counts are counts");
    require(news.text.size() <= event.data.size(), "texts are theirs");
    for (const ServedView& view : news.views) {
      require(view.rows >= 1 && view.columns >= 1 && view.rows * view.columns <= 1 << 16 &&
                  view.kept.size() == static_cast<std::size_t>(view.rows * view.columns),
              "views have cells");
    }
  });
}

void check_document(const std::string& body) {
  check_error(read_refusal(500, body, kServer));
  check_error(read_refusal(404, body, kServer));
  guarded([&] {
    const ServedModels models = read_models(body, kServer);
    for (const FoundModel& model : models.images) {
      require(model.width >= 1 && model.width <= 16384 && model.height >= 1 && model.height <= 16384,
              "models have sizes");
      require(model.reference.shown_name.size() <= 256 && !has_control(model.reference.shown_name) &&
                  !has_control(model.title),
              "names are names");
    }
    require(!models.images.empty() || models.first.empty(), "the first is one of them");
  });
  guarded([&] { require(!has_control(read_dtype(body, "", kServer)), "types are names"); });
}

void check_events(std::string_view body) {
  std::vector<ServerEvent> at_once;
  EventReader whole(kEventBytes);
  const bool good = whole.feed(body, at_once);
  require(whole.held() <= kEventBytes, "events are bounded");
  const std::vector<ServerEvent> plain = plain_events(body);
  for (const ServerEvent& event : at_once) {
    require(event.name.size() + event.data.size() <= kEventBytes, "events are bounded");
  }
  if (good) require(at_once == plain, "events are those of the standard");
  require(at_once.size() <= plain.size() &&
              std::equal(at_once.begin(), at_once.end(), plain.begin()),
          "no event is made up");
  for (const std::size_t piece : {1, 3, 50}) {
    std::vector<ServerEvent> out;
    EventReader reader(kEventBytes);
    bool goes_on = true;
    for (std::size_t at = 0; at < body.size() && goes_on; at += piece) {
      goes_on = reader.feed(body.substr(at, piece), out);
    }
    require(out == at_once && goes_on == good, "pieces change no event");
  }
  for (const ServerEvent& event : at_once) check_event(event);
}

std::vector<std::string> seeds() {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
  const std::string record =
      R"({"version":1,"program":"t","prompt":"x","model":"m","family":"f","dtype":"f32","backend":"cpu",)"
      R"("seed":3,"width":8,"height":8,"temp":1,"top_k":0,"top_p":1,"min_p":0,"typical":1,"cfg_scale":1,)"
      R"("decode":"plain","accept":"exact","preserves_distribution":true,"tokens":4,"passes":4,)"
      R"("tokens_per_pass":1,"window":1})";
  const std::string models =
      R"({"data":[{"id":"a","title":"A","tasks":{"image":{"dtype":"f32","size":"64x48"}}},)"
      R"({"id":"b","tasks":{"image":{"size":"1x16384"}}},{"id":"c","tasks":{}}]})";
  return {
      head + "event: image_generation.partial_image\ndata: {\"b64_json\":\"cHBt\",\"partial_image_index\":2}\n\n",
      head + "event: image_generation.completed\ndata: {\"b64_json\":\"cHBt\",\"seconds\":0.5,\"record\":" +
          record + "}\n\n",
      head + "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\ndata: "
             "{\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2},\"visual\":{\"tokens\":9,"
             "\"kept_tokens\":9,\"patches\":[{\"columns\":3,\"rows\":2,\"box\":[0,0,1,1],\"kept\":[5]}]}}\n\ndata: "
             "[DONE]\n\n",
      head + "data: {\"error\":{\"message\":\"w: expected a, found b (c)\",\"param\":\"w\",\"code\":\"E_X\"}}\n\n",
      head + "\xef\xbb\xbf: c\r\nid: 1\rdata:1\r\ndata: 2\r\n\r\nevent:x\rdata\r\rdata: " +
          std::string(kEventBytes - 6, 'x') + "\n\n",
      head + "data:" + std::string(kEventBytes - 5, 'x') + "\n\ndata:" + std::string(40, 'y') + "\n\n",
      "HTTP/1.1 200 OK\r\n\r\n" + models,
      "HTTP/1.1 200 OK\r\n\r\n{\"data\":[{\"id\":\"a\",\"tasks\":{\"image\":{\"size\":\"8x0\"}}}]}",
      "HTTP/1.1 404 No\r\n\r\n{\"error\":{\"message\":\"no \\u001b\",\"param\":null,\"code\":\"x\"}}",
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab\n\nc",
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n10\r\n" + std::string(16, 'x') +
          "\r\n0\r\nT: u\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(252, 'x') + "\r\na\r\n0\r\n\r\n",
      "HTTP/1.1 200 OK\r\n\r\n" + std::string(kBodyBytes, 'x'),
      "HTTP/1.1 200 OK\r\nA: " + std::string(230, 'a') + "\r\n\r\n",
      [] {
        std::string lines = "HTTP/1.1 200 OK\r\n";
        while (lines.size() + 2 <= kHeadBytes) lines += "A: aaaa\r\n";
        return lines + "A: a";
      }(),
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(kHeadBytes, 'x'),
      head + "data:" + std::string(kEventBytes - 4, 'x'),
  };
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
  const Reply at_once = read(text, 0);
  if (at_once.state == State::kWhole) check_end(text, at_once);
  for (const std::size_t piece : {1, 7, 100}) {
    const Reply in_pieces = read(text, piece);
    if (in_pieces.state == State::kWhole) check_end(text, in_pieces);
    if (at_once.limit || in_pieces.limit) continue;  // at which byte they are seen is no matter
    // Nor is a fault after the end of an answer.
    require(at_once.state == in_pieces.state && at_once.status == in_pieces.status &&
                at_once.type == in_pieces.type && (at_once.state == State::kRefused || at_once.body == in_pieces.body),
            "pieces change no answer");
  }
  if (at_once.state != State::kWhole) return 0;
  check_events(at_once.body);
  check_document(at_once.body);
  return 0;
}

// Words of the grammars, numbers of lengths, and values of the JSON, next to libFuzzer's changes.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera::fuzz;
  static const char* const kPieces[] = {"\r\n", "\r\n\r\n", "\n", "\r", "\n\n", "data: ", "data:", "event: ",
                                        "event: image_generation.completed\n", ":", " ", "\xef\xbb\xbf", ";x=y",
                                        "Transfer-Encoding: chunked\r\n", "Content-Length: 4\r\n", "0\r\n\r\n",
                                        "1\r\nx\r\n", "[DONE]", "xxxxxxxx"};
  Choice choice(seed);
  std::string text(as_text(data, size));
  const std::size_t brace = text.find('{');
  const std::size_t end = std::min(text.find('\n', brace), text.size());
  if (brace != std::string::npos && choice.one_in(2)) {
    const std::string json = mutate_json(std::string_view(text).substr(brace, end - brace), choice);
    if (json.empty()) return LLVMFuzzerMutate(data, size, max_size);
    text.replace(brace, end - brace, json);
    return release(text, data, max_size);
  }
  if (choice.one_in(2)) return LLVMFuzzerMutate(data, size, max_size);
  const std::size_t at = choice.below(text.size() + 1);
  if (const std::size_t digit = text.find_first_of("0123456789", at);
      digit != std::string::npos && choice.one_in(2)) {
    const std::size_t last = text.find_first_not_of("0123456789", digit);
    const std::string number = text.substr(digit, last - digit).substr(0, 18);
    text.replace(digit, number.size(), std::to_string(other_number(std::stoull(number), choice)));
  } else {
    text.insert(at, kPieces[choice.below(std::size(kPieces))]);
  }
  return release(text, data, max_size);
}
