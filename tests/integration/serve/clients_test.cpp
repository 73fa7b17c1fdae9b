// Requests of real clients, as they were recorded, to the program: what each client reads of an
// answer is there. A record is lines of "# key: value", the head of the request, an empty line and
// the body; its line ends stand for CR LF in a form, whose other bytes are \xHH.
#include <gtest/gtest.h>

#include <set>

#include "apps/runtime/base64.h"
#include "tests/integration/serve/serve_program.h"

namespace tessera::clients_test {
namespace {

using Json = nlohmann::ordered_json;

const std::filesystem::path kRecords =
    std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/integration/serve/clients";

struct Record {
  std::multimap<std::string, std::string> notes;
  std::string first, fields, body;  // the fields but Content-Length

  std::string note(const std::string& key) const {
    const auto at = notes.find(key);
    return at == notes.end() ? "" : at->second;
  }
  bool form() const { return fields.find("multipart/form-data") != std::string::npos; }
  Json json() const { return Json::parse(body, nullptr, false); }
  bool stream() const { return !form() && !body.empty() && json().value("stream", false); }
  bool chat() const { return first.find("/chat/completions") != std::string::npos; }

  // `renamed`: where a proxy of the client sends it, and the model that answers here.
  std::string request(bool renamed) const {
    std::string line = first, text = body;
    if (const std::string path = note("path"); !path.empty()) {
      const std::size_t from = line.find(' ') + 1;
      line.replace(from, line.rfind(' ') - from, path);
    }
    if (renamed && !note("model").empty()) {
      Json changed = json();
      changed["model"] = note("model");
      text = changed.dump();
    }
    return line + "\r\n" + fields + "Content-Length: " + std::to_string(text.size()) + "\r\n\r\n" +
           text;
  }
};

std::string with_bytes(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text.compare(at, 2, "\\x") == 0) {
      out += static_cast<char>(std::stoi(text.substr(at + 2, 2), nullptr, 16));
      at += 3;
    } else {
      out += text[at] == '\n' ? "\r\n" : std::string(1, text[at]);
    }
  }
  return out;
}

Record read_record(const std::filesystem::path& file) {
  Record out;
  const std::string text = get_file(file);
  std::size_t at = 0;
  const auto line = [&] {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string one = text.substr(at, end - at);
    at = std::min(end + 1, text.size());
    return one;
  };
  for (out.first = line(); out.first.starts_with("# "); out.first = line()) {
    const std::size_t colon = out.first.find(": ");
    if (colon == std::string::npos) continue;
    out.notes.emplace(out.first.substr(2, colon - 2), out.first.substr(colon + 2));
  }
  for (std::string one = line(); !one.empty(); one = line()) out.fields += one + "\r\n";
  out.body = text.substr(at);
  if (out.form()) {
    out.body = with_bytes(out.body);
  } else if (out.body.ends_with('\n')) {
    out.body.pop_back();
  }
  return out;
}

// "/pointer type" of what a client reads.
bool holds(const Json& json, const std::string& reads) {
  const std::size_t space = reads.rfind(' ');
  const std::string type = reads.substr(space + 1);
  const Json::json_pointer at(reads.substr(0, space));
  if (!json.is_object() || !json.contains(at)) return false;
  const Json& value = json.at(at);
  if (type == "number") return value.is_number();
  if (type == "array") return value.is_array() && !value.empty();
  if (type == "png") {
    return value.is_string() &&
           from_base64(value.get<std::string>()).value_or("").starts_with("\x89PNG");
  }
  return type == "string" && value.is_string();
}

// The data of events that the line protocol of all these clients takes: "data: ..." alone.
std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> out;
  EXPECT_TRUE(body.ends_with("\n\n")) << body.substr(0, 200);
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = std::min(body.find("\n\n", at), body.size());
    const std::string event = body.substr(at, end - at);
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    EXPECT_EQ(event.find('\n'), std::string::npos) << event;
    out.push_back(event.substr(std::min<std::size_t>(6, event.size())));
    at = end + 2;
  }
  return out;
}

// Chunks: one beginning and one end of each choice, usage where it was asked for, [DONE].
std::vector<Json> chunks_of(const Record& record, const std::string& body) {
  std::vector<std::string> events = events_of(body);
  EXPECT_FALSE(events.empty());
  if (events.empty()) return {};
  EXPECT_EQ(events.back(), "[DONE]");
  events.pop_back();
  std::vector<Json> out;
  std::string text;
  std::map<int, int> begun, ended;
  int usages = 0;
  for (const std::string& event : events) {
    const Json& chunk = out.emplace_back(Json::parse(event, nullptr, false));
    EXPECT_TRUE(chunk.is_object() && !chunk.contains("error")) << event;
    if (!chunk.is_object() || !chunk.contains("choices")) continue;
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_EQ(chunk["id"], out.front()["id"]);
    if (chunk["choices"].empty()) ++usages;
    for (const Json& choice : chunk["choices"]) {
      const int at = choice["index"];
      if (choice["delta"].contains("role")) ++begun[at];
      if (!choice["finish_reason"].is_null()) ++ended[at];
      text += choice["delta"].value("content", "");
    }
  }
  const int choices = record.json().value("n", 1);
  EXPECT_EQ(begun.size(), static_cast<std::size_t>(choices));
  EXPECT_EQ(begun, ended);
  EXPECT_FALSE(text.empty());
  const Json asked = record.json();
  const bool usage =
      asked.contains("stream_options") && asked["stream_options"].value("include_usage", false);
  EXPECT_EQ(usages, usage ? 1 : 0);
  return out;
}

class Clients : public ServeProgram {
 protected:
  static void expect_refusal(const HttpSeen& got, int status, const std::string& code) {
    EXPECT_EQ(got.status, status) << got.body.substr(0, 300);
    const Json json = Json::parse(got.body, nullptr, false);
    ASSERT_TRUE(json.is_object() && json.contains("error")) << got.body.substr(0, 300);
    EXPECT_EQ(json["error"]["code"], code) << got.body;
  }
  static void replay(const Record& record, std::uint16_t port) {
    if (!record.note("model").empty()) {
      expect_refusal(RawClient(port).ask(record.request(false)), 404, "E_SERVED_MODEL");
    }
    const HttpSeen got = RawClient(port).ask(record.request(true));
    ASSERT_TRUE(got.whole) << got.head;
    const bool events = record.stream() && got.status == 200;
    const std::string type = events ? "text/event-stream" : "application/json";
    EXPECT_TRUE(got.fields.at("content-type").starts_with(type)) << got.head;
    if (const std::string status = record.note("status"); !status.empty()) {
      expect_refusal(got, std::stoi(status), record.note("code"));
    } else {
      ASSERT_EQ(got.status, 200) << got.body.substr(0, 500);
    }
    const std::vector<Json> seen = events
                                       ? chunks_of(record, got.body)
                                       : std::vector<Json>{Json::parse(got.body, nullptr, false)};
    const auto reads = record.notes.equal_range("reads");
    EXPECT_NE(reads.first, reads.second);
    for (auto at = reads.first; at != reads.second; ++at) {
      EXPECT_TRUE(std::any_of(seen.begin(), seen.end(),
                              [&](const Json& one) { return holds(one, at->second); }))
          << at->second << "\n"
          << got.body.substr(0, 500);
    }
  }
};

TEST_F(Clients, FindInAnswersWhatTheyRead) {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kRecords))
    files.insert(entry.path());
  EXPECT_GT(files.size(), 40u);
  const ProgramResult served = serve_and_end(
      {},
      [&](std::uint16_t port) {
        for (const std::filesystem::path& file : files) {
          SCOPED_TRACE(file.filename().string());
          replay(read_record(file), port);
        }
      },
      TESSERA_ALONE);
  EXPECT_EQ(served.exit_code, 75) << served.err;
}

}  // namespace
}  // namespace tessera::clients_test
