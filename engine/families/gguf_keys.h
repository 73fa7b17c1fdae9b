// Keys of a GGUF file under one prefix: read with their kinds and ranges, and what became of each.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/gguf.h"
#include "engine/families/folder_files.h"

namespace tessera {

// A key below a prefix that is read nowhere, and why nothing is lost; "stem.*" for all below.
struct IdleGgufKey {
  std::string_view key, why;
};

class GgufKeyReader {
 public:
  // `prefix`: "llama", "tokenizer", without the dot; keys below are named without it. `code`: of
  // all errors (kModel), which name `file`, key, expected and found. All are borrowed but the
  // prefix.
  GgufKeyReader(const GgufFile& head, std::string prefix, const std::string& file, const char* code)
      : head_(head), prefix_(std::move(prefix)), file_(file), code_(code) {}

  [[noreturn]] void fail(std::string_view key, std::string expected, std::string found) const;
  // nullptr when absent. Every way of asking counts as reading.
  const GgufValue* find(std::string_view key);
  bool has(std::string_view key) { return find(key) != nullptr; }
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t low, std::int64_t high);
  std::int64_t wanted(std::string_view key, std::int64_t low, std::int64_t high);
  std::optional<double> number(std::string_view key, double low, double high);
  double wanted_number(std::string_view key, double low, double high);
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  // Whole numbers of a list.
  std::optional<std::vector<std::int64_t>> integers(std::string_view key, std::int64_t low,
                                                    std::int64_t high, std::size_t max_count);
  std::optional<std::vector<double>> numbers(std::string_view key, std::size_t max_count);
  // Calls take() with each element, in order; it says whether the element is of the right kind.
  // Without such a key: an error if `wanted`.
  template <typename Take>
  void list(std::string_view key, const char* expected, std::size_t max_count, bool wanted,
            const Take& take) {
    std::optional<GgufArray> array = elements(key, expected, max_count, wanted);
    while (array && array->left() > 0) {
      const GgufValue element = array->next();
      if (!take(element)) fail_element(key, expected, element);
    }
  }

  // Every key below the prefix was read, or is idle.
  void check_all(std::span<const IdleGgufKey> idle) const;
  // The same keys, one row each.
  void account(std::span<const IdleGgufKey> idle, FolderAccount& out) const;
  const std::string& file() const { return file_; }

 private:
  std::string name_of(std::string_view key) const { return prefix_ + "." + std::string(key); }
  std::optional<GgufArray> elements(std::string_view key, const char* expected,
                                    std::size_t max_count, bool wanted);
  [[noreturn]] void fail_element(std::string_view key, const char* expected,
                                 const GgufValue& element) const;

  const GgufFile& head_;
  std::string prefix_;
  const std::string& file_;
  const char* code_;
  std::set<std::string, std::less<>> read_;
};

// What the file says of its licence, or where to look.
std::string gguf_licence(const GgufFile& head);

// The keys outside those prefixes: of the container, and those that describe the file.
void account_other_keys(const GgufFile& head, std::span<const std::string_view> read_prefixes,
                        const std::string& file, FolderAccount& out);

}  // namespace tessera
