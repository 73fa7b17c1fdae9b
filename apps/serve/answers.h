// How the interface of OpenAI's images and chats writes errors, and what all endpoints share of
// reading a request. What a client is told holds no path of this machine.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/runtime.h>

#include "apps/runtime/base64.h"
#include "apps/serve/http/message.h"
#include "engine/core/json.h"

namespace tessera {

namespace api = tessera_v0;

// What clients call the tasks.
std::span<const std::pair<std::string_view, api::Task>> task_names();

// {"error": {message, type, param, code}} and its status: 400 for what a client can mend, 404, 429
// and 503 with Retry-After of so many seconds, 500.
Json error_object(const api::Error& error);
HttpAnswer error_answer(const api::Error& error, double retry_seconds = 1);
HttpAnswer json_answer(const Json& body, int status = 200);
// The same error on either side of the library's border.
api::Error served_error(const Error& error);
Error internal_error(const api::Error& error);

// Error kUsage of a request's field.
[[noreturn]] void refuse_field(std::string_view field, std::string expected, std::string found,
                               std::string hint = "", std::string code = "E_FIELD");

// The body of a request: an object of JSON. Fields that nobody asked for are refused by done(), but
// those that settings take.
class Body {
 public:
  // Error kUsage: E_JSON_VALUES for more than 200,000 values, 2,000,000 of a list of requests; E_FIELD
  // for what is no object, and those of parse_json().
  explicit Body(const HttpRequest& request);

  // Each may be absent or null; Error kUsage for another type or out of range.
  std::optional<std::string> text(std::string_view field);
  std::optional<std::int64_t> integer(std::string_view field, std::int64_t low, std::int64_t high);
  std::optional<double> number(std::string_view field, double low, double high);
  std::optional<bool> flag(std::string_view field);
  const Json* any(std::string_view field);  // null: absent or null
  // A value that says the same as none.
  void skip(std::string_view field, std::int64_t silent);
  // A text that must be one of these, and says nothing that could be followed: noted where it is
  // none of `silent`.
  void without_effect(std::string_view field, const std::vector<std::string_view>& silent);

  // Error kUsage (E_FIELD) for a field that was not asked for.
  void only() const;
  // What is left, by the names of the task's settings with '_' for '-'. Error kUsage (E_FIELD) for
  // others, and for one that is there in both spellings.
  struct Settings {
    api::Settings open, request;
  };
  Settings settings(api::Task task, const std::vector<std::string_view>& not_here = {});

  // What was said without effect, a line each.
  const std::vector<std::string>& notes() const { return notes_; }
  void note(std::string text) { notes_.push_back(std::move(text)); }

 private:
  std::shared_ptr<const Json> body_;  // an object
  std::set<std::string, std::less<>> asked_, skipped_;
  std::vector<std::string> notes_;
};

// Error kUsage naming the field.
std::string from_base64(std::string_view text, std::string_view field);

}  // namespace tessera
