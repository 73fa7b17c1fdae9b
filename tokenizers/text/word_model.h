// The models of tokenizer.json: from a word to ids. A model knows its vocabulary and its own way of
// cutting; added tokens, normalisers and templates are outside.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/core/index.h"
#include "tokenizers/text/regex.h"

namespace tessera {

class WordModel {
 public:
  virtual ~WordModel() = default;
  WordModel(const WordModel&) = delete;
  WordModel& operator=(const WordModel&) = delete;

  // Appends the ids of one word (valid UTF-8, not empty). What takes more than a step a byte counts
  // against the budget of `scratch`.
  virtual void encode(std::string_view word, RegexScratch& scratch,
                      std::vector<std::int32_t>& out) const = 0;

  std::optional<std::int32_t> id_of(std::string_view token) const;
  // 0 <= id < size(); an empty string is an id the model itself does not have.
  std::string_view token(std::int32_t id) const { return nth(tokens_, id); }
  std::int64_t size() const { return std::ssize(tokens_); }

 protected:
  // Of equal tokens the last one's id is found.
  explicit WordModel(std::vector<std::string> tokens);
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
};

// The ids of the tokens "<0x00>" to "<0xFF>", -1 where there is none.
std::vector<std::int32_t> byte_token_ids(const WordModel& model);

}  // namespace tessera
