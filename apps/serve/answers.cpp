#include "apps/serve/answers.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"

namespace tessera {

namespace {

struct Status {
  int code;
  const char* type;
};

Status status_of(const api::Error& error) {
  static const std::pair<std::string_view, Status> kByCode[] = {
      {"E_QUEUE_FULL", {429, "rate_limit_error"}},  {"E_DRAINING", {503, "server_error"}},
      {"E_TIMEOUT", {504, "server_error"}},         {"E_SERVED_MODEL", {404, "not_found_error"}},
      {"E_ROUTE", {404, "not_found_error"}},        {"E_JOB_NUMBER", {404, "not_found_error"}},
      {"E_METHOD", {405, "invalid_request_error"}}, {"E_KEY", {401, "authentication_error"}},
      {"E_ORIGIN", {403, "permission_error"}},      {"E_HOST", {403, "permission_error"}},
      {"E_CONTENT_TYPE", {415, "invalid_request_error"}},
  };
  for (const auto& [code, status] : kByCode) {
    if (error.code() == code) return status;
  }
  // One item of a request that cannot be: an image that is none, a prompt that is too long.
  static constexpr std::string_view kOfItems[] = {"E_PICTURE_", "E_PNG_",   "E_PROMPT_",
                                                  "E_PRUNE_",   "E_CHAT_", "E_TEXT_LENGTH"};
  const bool of_item =
      error.kind() == api::ErrorKind::kGeneral && error.code() != "E_PICTURE_HELPER" &&
      std::any_of(std::begin(kOfItems), std::end(kOfItems),
                  [&](std::string_view begin) { return error.code().starts_with(begin); });
  switch (of_item ? api::ErrorKind::kUsage : error.kind()) {
    case api::ErrorKind::kUsage: return {400, "invalid_request_error"};
    case api::ErrorKind::kMemory: return {507, "server_error"};  // nor will it later
    case api::ErrorKind::kStorage: return {507, "server_error"};
    default: return {500, "server_error"};
  }
}

// Paths of this machine within a text become their last names.
std::string without_paths(std::string_view text) {
  constexpr std::string_view kEnds = " \t'\"`,;()<>[]{}|";
  const auto within_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-~%").find(c) != std::string_view::npos;
  };
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '/' || (at > 0 && within_word(text[at - 1]))) {
      out += text[at++];
      continue;
    }
    std::string_view path = text.substr(at, text.find_first_of(kEnds, at) - at);
    at += path.size();
    if (!path.starts_with("/v1/")) {  // else of this server
      const std::size_t last = path.find_last_not_of('/');
      path = path.substr(0, last == std::string_view::npos ? 0 : last + 1);
      path = path.substr(path.find_last_of('/') + 1);
    }
    out += path;
  }
  return out;
}

std::string message_of(const api::Error& error) {
  std::string out;
  std::string_view where = error.where();
  if (where.starts_with("--")) where.remove_prefix(2);  // a flag is a field here
  if (!where.empty()) out.append(where).append(": ");
  if (!error.expected().empty()) out += "expected " + error.expected();
  if (!error.found().empty()) out += ", found " + error.found();
  if (!error.hint().empty()) out += " (" + error.hint() + ")";
  return without_paths(escape_for_terminal(out));
}

// Whether a text of JSON may have more values: each follows a bracket or a comma, or is all of it.
bool has_more_values(std::string_view text, std::size_t most) {
  std::size_t count = 1;
  for (std::size_t at = 0; at < text.size() && count <= most; ++at) {
    const char c = text[at];
    count += c == ',' || c == '[' || c == '{' ? 1 : 0;
    if (c != '"') continue;
    bool escaped = true;
    while (escaped) {
      at = text.find('"', at + 1);
      if (at == std::string_view::npos) return false;  // the parser says where
      const std::size_t last = text.find_last_not_of('\\', at - 1);  // there is: the string's begin
      escaped = (at - last) % 2 == 0;
    }
  }
  return count > most;
}

// The body's fields as they name themselves in errors: "where" without what readers put around.
std::string param_of(const api::Error& error) {
  std::string out = error.where();
  if (out.starts_with("--")) out = out.substr(2);
  if (error.code() != "E_CONTENT_TYPE") std::replace(out.begin(), out.end(), '-', '_');  // of a header
  const bool plain = !out.empty() && std::all_of(out.begin(), out.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' ||
           c == '[' || c == ']';
  });
  return plain ? out : "";
}

}  // namespace

std::span<const std::pair<std::string_view, api::Task>> task_names() {
  static constexpr std::pair<std::string_view, api::Task> kNames[] = {
      {"image", api::Task::kImage},
      {"video", api::Task::kVideo},
      {"describe", api::Task::kDescribe},
      {"complete", api::Task::kComplete},
      {"answer", api::Task::kAnswer}};
  return kNames;
}

Json error_object(const api::Error& error) {
  // What is with the machine's files is for its keeper to read.
  const bool storage = error.kind() == api::ErrorKind::kStorage;
  const std::string param = storage ? "" : param_of(error);
  return {{"error",
           {{"message", storage ? "the server cannot write what it is asked to keep" : message_of(error)},
            {"type", status_of(error).type},
            {"param", param.empty() ? Json(nullptr) : Json(param)},
            {"code", error.code()}}}};
}

api::Error served_error(const Error& error) {
  const ErrorInfo& info = error.info();
  return api::Error({static_cast<api::ErrorKind>(info.kind), info.code, info.file, info.where,
                     info.expected, info.found, info.hint});
}

Error internal_error(const api::Error& error) {
  return Error({static_cast<ErrorKind>(error.kind()), error.code(), error.file(), error.where(),
                error.expected(), error.found(), error.hint()});
}

HttpAnswer json_answer(const Json& body, int status) {
  return {.status = status, .body = body.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

HttpAnswer error_answer(const api::Error& error, double retry_seconds) {
  HttpAnswer out = json_answer(error_object(error), status_of(error).code);
  if (out.status == 429 || out.status == 503) {
    const double seconds = std::clamp(std::ceil(retry_seconds), 1.0, 600.0);
    out.fields.emplace_back("Retry-After", std::to_string(truncate<int>(seconds)));
  }
  if (out.status == 401) out.fields.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

void refuse_field(std::string_view field, std::string expected, std::string found, std::string hint,
                  std::string code) {
  throw api::Error({.kind = api::ErrorKind::kUsage,
                    .code = std::move(code),
                    .where = std::string(field),
                    .expected = std::move(expected),
                    .found = std::move(found),
                    .hint = std::move(hint)});
}

Body::Body(const HttpRequest& request) {
  // A list has 100,000 requests of 20 values each.
  const std::size_t most = request.path == "/v1/jobs" ? 2'000'000 : 200'000;
  if (has_more_values(request.body, most)) {
    refuse_field("body", "at most " + std::to_string(most) + " values of JSON", "more", "",
                 "E_JSON_VALUES");
  }
  body_ = std::make_shared<const Json>(
      parse_json(request.body, "body",
                 {.max_bytes = request.body.size() + 1, .kind = ErrorKind::kUsage}));
  if (!body_->is_object()) refuse_field("body", "an object of JSON", body_->type_name());
}

const Json* Body::any(std::string_view field) {
  asked_.insert(std::string(field));
  const auto at = body_->find(field);
  const bool silent = at == body_->end() || at->is_null() || skipped_.contains(field);
  return silent ? nullptr : &*at;
}

void Body::skip(std::string_view field, std::int64_t silent) {
  const auto at = body_->find(field);
  if (at == body_->end() || *at != silent) return;
  asked_.insert(std::string(field));
  skipped_.insert(std::string(field));
}

std::optional<std::string> Body::text(std::string_view field) {
  const Json* const value = any(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse_field(field, "a string", value->type_name());
  return value->get<std::string>();
}

std::optional<std::int64_t> Body::integer(std::string_view field, std::int64_t low,
                                          std::int64_t high) {
  const Json* const value = any(field);
  if (value == nullptr) return std::nullopt;
  const std::string expected =
      "an integer from " + std::to_string(low) + " to " + std::to_string(high);
  const bool whole = value->is_number_integer() &&
                     (!value->is_number_unsigned() ||
                      value->get<std::uint64_t>() <= narrow<std::uint64_t>(INT64_MAX));
  if (!whole) refuse_field(field, expected, value->is_number() ? value->dump() : value->type_name());
  const auto number = value->get<std::int64_t>();
  if (number < low || number > high) refuse_field(field, expected, std::to_string(number));
  return number;
}

std::optional<double> Body::number(std::string_view field, double low, double high) {
  const Json* const value = any(field);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const auto number = value->get<double>();
    if (number >= low && number <= high) return number;
  }
  refuse_field(field, "a number from " + Json(low).dump() + " to " + Json(high).dump(),
               value->is_number() ? value->dump() : value->type_name());
}

std::optional<bool> Body::flag(std::string_view field) {
  const Json* const value = any(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse_field(field, "true or false", value->type_name());
  return value->get<bool>();
}

void Body::without_effect(std::string_view field, const std::vector<std::string_view>& silent) {
  const Json* const value = any(field);
  if (value == nullptr) return;
  if (value->is_string()) {
    const auto& text = value->get_ref<const std::string&>();
    if (std::find(silent.begin(), silent.end(), text) != silent.end()) return;
  }
  note(std::string(field) + " is without effect");
}

void Body::only() const {
  for (const auto& [field, value] : body_->items()) {
    if (asked_.find(field) != asked_.end()) continue;
    refuse_field(escape_for_terminal(field, 64), "a field of this request", "another");
  }
}

Body::Settings Body::settings(api::Task task, const std::vector<std::string_view>& not_here) {
  Settings out;
  const std::vector<api::SettingInfo> table = api::setting_table(task);
  std::set<std::string> names;
  for (const auto& [field, value] : body_->items()) {
    if (value.is_null()) continue;
    std::string name = field;
    std::replace(name.begin(), name.end(), '_', '-');
    if (!names.insert(name).second) {
      refuse_field(escape_for_terminal(field, 64), "each setting once", "another spelling of it");
    }
    if (asked_.find(field) != asked_.end()) continue;
    const auto row = std::find_if(table.begin(), table.end(), [&](const api::SettingInfo& info) {
      return info.name == name &&
             std::find(not_here.begin(), not_here.end(), info.name) == not_here.end();
    });
    if (row == table.end()) {
      refuse_field(escape_for_terminal(field, 64), "a field of this request, or a setting's name",
                   "one that is neither", "tessera settings lists those");
    }
    if (!value.is_string() && !value.is_number() && !value.is_boolean()) {
      refuse_field(field, "a number, a string, true or false", value.type_name());
    }
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    (row->place == api::SettingPlace::kOpen ? out.open : out.request).push_back({name, text});
  }
  return out;
}

std::string from_base64(std::string_view text, std::string_view field) {
  std::optional<std::string> out = from_base64(text);
  if (!out) refuse_field(field, "base64 (RFC 4648)", "other text");
  return std::move(*out);
}

}  // namespace tessera
