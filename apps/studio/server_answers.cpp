#include "apps/studio/server_answers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "apps/runtime/base64.h"
#include "engine/core/index.h"
#include "engine/core/json.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxModels = 1000, kMaxName = 256;
constexpr std::int64_t kMaxSide = 16384, kMaxCount = std::int64_t{1} << 53;
constexpr double kMaxSeconds = 1e9, kMaxShare = 100;
constexpr std::size_t kMaxViews = 100, kMaxCells = std::size_t{1} << 16;  // of a view
constexpr std::int64_t kMaxGridSide = 1024;

Json parse(std::string_view text, const std::string& server, std::size_t most) {
  return parse_json(text, server, {.max_bytes = most, .kind = ErrorKind::kGeneral});
}

// "where: expected A, found B (hint)" as it was put together; another text is what was found.
void take_message(std::string_view text, ErrorInfo& error) {
  if (!error.where.empty() && text.starts_with(error.where + ": ")) {
    text.remove_prefix(error.where.size() + 2);
  }
  constexpr std::string_view kExpected = "expected ", kFound = ", found ";
  if (const std::size_t hint = text.rfind(" ("); text.ends_with(')') && hint != text.npos) {
    error.hint = text.substr(hint + 2, text.size() - hint - 3);
    text = text.substr(0, hint);
  }
  const std::size_t found = text.find(kFound);
  if (text.starts_with(kExpected) && found != std::string_view::npos) {
    error.expected = text.substr(kExpected.size(), found - kExpected.size());
    error.found = text.substr(found + kFound.size());
  } else {
    error.expected = "an answer";
    error.found = text;
  }
}

std::string safe(const Json& object, const char* key, std::size_t most) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string()
             ? escape_for_terminal(at->get_ref<const std::string&>(), most)
             : "";
}

bool is_code(std::string_view code) {
  return code.starts_with("E_") && code.size() <= 64 &&
         std::all_of(code.begin(), code.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
         });
}

ErrorInfo error_of(int status, const Json& error) {
  ErrorInfo out{.kind = status >= 400 && status < 500 ? ErrorKind::kUsage : ErrorKind::kGeneral,
                .code = safe(error, "code", 64),
                .where = safe(error, "param", 128)};
  if (!is_code(out.code)) out.code = "E_SERVER_REFUSED";
  take_message(safe(error, "message", 1024), out);
  return out;
}

// An event whose object says what went wrong.
void check_error(const Json& event) {
  if (const auto at = event.find("error"); at != event.end() && at->is_object()) {
    throw Error(error_of(500, *at));
  }
}

// "64x48"; false for another text.
bool read_size(std::string_view text, FoundModel& model) {
  const std::size_t cross = std::min(text.find('x'), text.size());
  const auto side = [](std::string_view digits, std::int64_t& out) {
    const auto [end, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return bad == std::errc{} && end == digits.data() + digits.size() && out >= 1 && out <= kMaxSide;
  };
  return cross < text.size() && side(text.substr(0, cross), model.width) &&
         side(text.substr(cross + 1), model.height);
}

std::string name_field(const JsonReader& reader, const char* key) {
  std::string out = reader.string_or(key, "");
  if (out.size() > kMaxName || out != escape_for_terminal(out, kMaxName)) {
    reader.fail(key, "a name of at most 256 bytes", std::to_string(out.size()) + " bytes");
  }
  return out;
}

ServedView view_of(const JsonReader& reader) {
  ServedView out;
  out.columns = reader.integer("columns", 1, kMaxGridSide);
  out.rows = reader.integer("rows", 1, to_index(kMaxCells) / out.columns);
  const Json& box = reader.raw("box");
  double* const sides[] = {&out.left, &out.top, &out.width, &out.height};
  if (!box.is_array() || box.size() != std::size(sides)) {
    reader.fail("box", "four numbers", "another");
  }
  for (std::size_t i = 0; i < std::size(sides); ++i) {
    const double share = box[i].is_number() ? box[i].get<double>() : kMaxShare + 1;
    if (!(std::abs(share) <= kMaxShare)) reader.fail("box", "four shares of an image", "another");
    *sides[i] = share;
  }
  out.kept.assign(to_size(out.rows * out.columns), 0);
  for (const std::int64_t at : reader.integers("kept", 0, out.rows * out.columns - 1, kMaxCells)) {
    out.kept[to_size(at)] = 1;
  }
  return out;
}

std::string png_of(const JsonReader& reader) {
  std::optional<std::string> png = from_base64(reader.string("b64_json"));
  if (!png) reader.fail("b64_json", "base64 (RFC 4648)", "other text");
  return std::move(*png);
}

}  // namespace

void refuse_answer(const std::string& server, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_SERVER_ANSWER",
               .where = server,
               .expected = std::move(expected),
               .found = std::move(found)});
}

ErrorInfo read_refusal(int status, std::string_view body, const std::string& server) {
  try {
    const Json all = parse(body, server, kServerTextBytes);
    if (all.is_object() && all.contains("error") && all["error"].is_object()) {
      return error_of(status, all["error"]);
    }
  } catch (const Error&) {  // no object of ours: the status says enough
  }
  return {.kind = ErrorKind::kGeneral,
          .code = "E_SERVER_REFUSED",
          .where = server,
          .expected = "an answer",
          .found = "status " + std::to_string(status)};
}

ServedModels read_models(std::string_view body, const std::string& server) {
  const Json all = parse(body, server, kServerTextBytes);
  const JsonReader reader(all, server, "", ErrorKind::kGeneral);
  ServedModels out;
  for (const JsonReader& each : reader.objects("data", kMaxModels)) {
    if (!each.has("tasks")) continue;
    const JsonReader tasks = each.object("tasks");
    if (!tasks.has("image")) continue;
    FoundModel model;
    model.reference.open_name = model.reference.shown_name = name_field(each, "id");
    model.family = name_field(each, "family");
    model.title = name_field(each, "title");
    const JsonReader image = tasks.object("image");
    if (!read_size(image.string("size"), model)) {
      image.fail("size", "WIDTHxHEIGHT, at most 16384 each", "another text");
    }
    if (out.images.empty()) out.first = model.reference.shown_name;
    out.images.push_back(std::move(model));
  }
  return out;
}

std::string read_dtype(std::string_view body, const std::string& model, const std::string& server) {
  const Json all = parse(body, server, kServerTextBytes);
  const JsonReader reader(all, server, "", ErrorKind::kGeneral);
  for (const JsonReader& each : reader.objects("data", kMaxModels)) {
    if (!each.has("tasks") || !each.object("tasks").has("image")) continue;
    if (!model.empty() && each.string("id") != model) continue;
    return name_field(each.object("tasks").object("image"), "dtype");
  }
  return "";
}

ImageNews read_image_event(const ServerEvent& event, const std::string& server) {
  const Json all = parse(event.data, server, kServerEventBytes);
  const JsonReader reader(all, server, "", ErrorKind::kGeneral);
  check_error(all);
  ImageNews out;
  if (event.name == "image_generation.partial_image") {
    out.partial = reader.integer("partial_image_index", 0, 64);
  } else if (event.name == "image_generation.completed") {
    out.facts = parse_facts(reader.raw("record").dump(), server, ErrorKind::kGeneral);
    out.seconds = reader.number("seconds", 0, kMaxSeconds);
  } else {
    refuse_answer(server, "an event of images", "'" + escape_for_terminal(event.name, 64) + "'");
  }
  out.png = png_of(reader);
  return out;
}

ChatNews read_chat_event(const ServerEvent& event, const std::string& server) {
  ChatNews out;
  out.over = event.data == "[DONE]";
  if (out.over) return out;
  const Json all = parse(event.data, server, kServerTextBytes);
  const JsonReader reader(all, server, "", ErrorKind::kGeneral);
  check_error(all);
  for (const JsonReader& choice : reader.objects("choices", 1)) {
    if (choice.has("delta")) out.text += choice.object("delta").string_or("content", "");
    out.cut_short = choice.string_or("finish_reason", "") == "length";
  }
  if (!reader.has("usage")) return out;
  out.has_facts = true;
  const JsonReader usage = reader.object("usage");
  out.prompt_tokens = usage.integer("prompt_tokens", 0, kMaxCount);
  out.tokens = usage.integer("completion_tokens", 0, kMaxCount);
  out.passes = reader.integer_or("passes", 0, 0, kMaxCount);
  if (reader.has("visual")) {
    const JsonReader visual = reader.object("visual");
    out.visual_tokens = visual.integer("tokens", 0, kMaxCount);
    out.kept_tokens = visual.integer("kept_tokens", 0, out.visual_tokens);
    if (!visual.has("patches")) return out;
    for (const JsonReader& view : visual.objects("patches", kMaxViews)) {
      out.views.push_back(view_of(view));
    }
  }
  return out;
}

}  // namespace tessera
