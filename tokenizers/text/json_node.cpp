// See json_node.h.
#include "tokenizers/text/json_node.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/utf8.h"

namespace tessera {

void JsonNode::fail(std::string code, std::string expected, std::string found) const {
  throw Error({.kind = ErrorKind::kModel,
               .code = std::move(code),
               .file = *file_,
               .where = path_,
               .expected = std::move(expected),
               .found = std::move(found)});
}

std::string JsonNode::describe() const {
  switch (value_->type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return value_->get<bool>() ? "true" : "false";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array of " + std::to_string(value_->size());
    case Json::value_t::string: {
      const auto& whole = value_->get_ref<const std::string&>();
      return "\"" + whole.substr(0, 60) + (whole.size() > 60 ? "...\"" : "\"");
    }
    default:
      return value_->dump();
  }
}

bool JsonNode::is_null() const { return value_->is_null(); }
bool JsonNode::is_object() const { return value_->is_object(); }
bool JsonNode::is_array() const { return value_->is_array(); }
bool JsonNode::is_string() const { return value_->is_string(); }

bool JsonNode::has(std::string_view key) const {
  if (!value_->is_object()) fail("E_TOK_TYPE", "an object", describe());
  const auto found = value_->find(std::string(key));
  return found != value_->end() && !found->is_null();
}

JsonNode JsonNode::at(std::string_view key) const {
  if (!value_->is_object()) fail("E_TOK_TYPE", "an object", describe());
  const auto found = value_->find(std::string(key));
  if (found == value_->end()) fail("E_TOK_MISSING", "a field \"" + std::string(key) + "\"", "none");
  return {*found, *file_, path_ + "." + std::string(key)};
}

std::vector<JsonNode> JsonNode::items(std::size_t max_count) const {
  if (!value_->is_array()) fail("E_TOK_TYPE", "an array", describe());
  if (value_->size() > max_count) {
    fail("E_TOK_COUNT", "at most " + std::to_string(max_count) + " entries", describe());
  }
  std::vector<JsonNode> out;
  out.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    out.emplace_back((*value_)[i], *file_, path_ + "[" + std::to_string(i) + "]");
  }
  return out;
}

std::string JsonNode::text() const {
  if (!value_->is_string()) fail("E_TOK_TYPE", "a string", describe());
  return value_->get<std::string>();
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) fail("E_TOK_TYPE", "true or false", describe());
  return value_->get<bool>();
}

bool JsonNode::boolean_or(std::string_view key, bool fallback) const {
  return has(key) ? at(key).boolean() : fallback;
}

std::int64_t JsonNode::integer(std::int64_t low, std::int64_t high) const {
  if (!value_->is_number_integer()) fail("E_TOK_TYPE", "an integer", describe());
  const bool huge = value_->is_number_unsigned() && value_->get<std::uint64_t>() > INT64_MAX;
  const std::int64_t value = huge ? INT64_MAX : value_->get<std::int64_t>();
  if (huge || value < low || value > high) {
    fail("E_TOK_RANGE", "an integer from " + std::to_string(low) + " to " + std::to_string(high),
         describe());
  }
  return value;
}

std::size_t JsonNode::choice(std::span<const std::string_view> choices) const {
  const std::string name = text();
  std::string list;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (name == choices[i]) return i;
    list += (i == 0 ? "" : ", ") + std::string(choices[i]);
  }
  fail("E_TOK_VALUE", "one of " + list, describe());
}

char32_t JsonNode::character() const {
  const std::string value = text();
  const Utf8Char c = value.empty() ? Utf8Char{} : decode_utf8(value, 0);
  if (!c.valid || c.length != value.size())
    fail("E_TOK_CHARACTER", "exactly one character", describe());
  return c.code;
}

void JsonNode::only(std::initializer_list<std::string_view> keys) const {
  for (const auto& entry : value_->items()) {
    if (entry.key() == "type") continue;
    if (std::find(keys.begin(), keys.end(), entry.key()) != keys.end()) continue;
    std::string list;
    for (std::string_view key : keys) list += (list.empty() ? "" : ", ") + std::string(key);
    fail("E_TOK_KEY", "no fields but " + list, "\"" + entry.key().substr(0, 60) + "\"");
  }
}

}  // namespace tessera
