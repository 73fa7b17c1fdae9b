// A place in tokenizer.json: a value and its path, for checks whose messages name the place. Codes:
// E_TOK_TYPE (wrong JSON type), E_TOK_MISSING (no such field), E_TOK_KEY (unknown field),
// E_TOK_RANGE (number outside its range), E_TOK_VALUE (string that is none of the choices).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/json.h"

namespace tessera {

class JsonNode {
 public:
  JsonNode(const Json& value, const std::string& file, std::string path)
      : value_(&value), file_(&file), path_(std::move(path)) {}

  [[noreturn]] void fail(std::string code, std::string expected, std::string found) const;
  std::string describe() const;  // the value in a few words

  bool is_null() const;
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool has(std::string_view key) const;  // an object with this key, not null
  JsonNode at(std::string_view key) const;
  std::vector<JsonNode> items(std::size_t max_count) const;  // of an array
  std::string text() const;
  bool boolean() const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::int64_t integer(std::int64_t low, std::int64_t high) const;
  // Index into `choices`.
  std::size_t choice(std::span<const std::string_view> choices) const;
  // The string is exactly one character.
  char32_t character() const;
  // Refuses keys that are not listed ("type" always is).
  void only(std::initializer_list<std::string_view> keys) const;

  const Json& json() const { return *value_; }
  const std::string& path() const { return path_; }
  const std::string& file() const { return *file_; }

 private:
  const Json* value_;
  const std::string* file_;
  std::string path_;
};

}  // namespace tessera
