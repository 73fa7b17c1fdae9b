// Strict JSON for strangers' files: RFC 8259, valid UTF-8, depth and size limits, duplicate keys
// refused, numbers that do not fit refused. Errors name file and place (byte offset or JSON path).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.h"

namespace tessera {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  std::size_t max_bytes = std::size_t{1} << 20;
  int max_depth = 32;
  ErrorKind kind = ErrorKind::kModel;
  // Integers beyond 64 bits become doubles: tokenizers' files write "no limit" as 10^30.
  bool large_integers = false;
};

// `file` is the name in messages. Errors, each with its byte offset: E_JSON (grammar), E_JSON_SIZE,
// E_JSON_DEPTH, E_JSON_UTF8, E_JSON_DUPLICATE, E_JSON_NUMBER (no 64-bit integer, no finite double).
Json parse_json(std::string_view text, const std::string& file, const JsonLimits& limits = {});

// Which keys of a document its readers asked for, by path ("vision_config.patch_size").
class KeysRead {
 public:
  void add(std::string path) { paths_.insert(std::move(path)); }
  bool contains(std::string_view path) const { return paths_.contains(path); }

 private:
  std::set<std::string, std::less<>> paths_;
};

// Reads fields of one JSON object with ranges; remembers file and path for messages, and borrows
// the object. With `read` it notes the keys that were asked for. Errors: E_JSON_MISSING, E_JSON_TYPE, E_JSON_RANGE, E_JSON_CHOICE, E_JSON_UNKNOWN, and
// E_JSON_VALUE for what a caller of fail() refuses. The ..._or forms take null for absent.
class JsonReader {
 public:
  JsonReader(const Json& object, std::string file, std::string path = "",
             ErrorKind kind = ErrorKind::kModel, KeysRead* read = nullptr);

  bool has(std::string_view key) const;  // present and not null
  bool is_null(std::string_view key) const;
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  std::int64_t integer_or(std::string_view key, std::int64_t fallback, std::int64_t low,
                          std::int64_t high) const;
  double number(std::string_view key, double low, double high) const;
  double number_or(std::string_view key, double fallback, double low, double high) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string(std::string_view key) const;
  std::string string_or(std::string_view key, std::string fallback) const;
  // One of `choices`; the message lists them.
  std::string choice(std::string_view key, std::span<const std::string_view> choices) const;
  std::vector<std::int64_t> integers(std::string_view key, std::int64_t low, std::int64_t high,
                                     std::size_t max_count) const;
  std::vector<std::string> strings(std::string_view key, std::size_t max_count) const;
  JsonReader object(std::string_view key) const;
  std::vector<JsonReader> objects(std::string_view key, std::size_t max_count) const;
  const Json& raw(std::string_view key) const;  // Error if absent
  // Error naming the first key that is not in `known`.
  void only(std::span<const std::string_view> known) const;

  const std::string& file() const { return file_; }
  std::string path_of(std::string_view key) const;
  [[noreturn]] void fail(std::string_view key, std::string expected, std::string found) const;

 private:
  [[noreturn]] void fail(std::string_view key, const char* code, std::string expected,
                         std::string found) const;
  const Json* look_up(std::string_view key) const;
  const Json& wanted(std::string_view key, const std::string& expected) const;
  const Json& array(std::string_view key, std::size_t max_count) const;

  const Json* object_;
  std::string file_;
  std::string path_;
  ErrorKind kind_;
  KeysRead* read_;  // null: nobody asks
};

}  // namespace tessera
