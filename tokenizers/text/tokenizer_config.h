// What tokenizer_config.json, special_tokens_map.json and added_tokens.json say of a tokenizer
// whose vocabulary lies in other files: its class, its switches and its special tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizers/text/added_tokens.h"

namespace tessera {

// A key that may be absent, null, or true or false.
struct ConfigSwitch {
  bool present = false;
  std::optional<bool> value;  // none: null
};

// One of "bos_token", "eos_token" ...: absent keys are not listed.
struct TokenRole {
  std::string name;
  std::optional<AddedToken> token;  // none: null
  bool only_text = false;           // written as a string: the class decides how it is looked for
};

// The name of a class without the ending "Fast".
std::string class_without_fast(std::string name);

struct TokenizerConfig {
  std::string file;        // tokenizer_config.json, for messages; empty if there is none
  std::string class_name;  // without "Fast"; empty if the file names none
  bool clean_up_spaces = false;
  ConfigSwitch legacy, add_prefix_space, add_bos_token, add_eos_token;
  std::int64_t extra_ids = 100;
  std::vector<TokenRole> roles;
  std::vector<TokenRole> additional;  // of additional_special_tokens and extra_special_tokens
  // Of added_tokens_decoder, else of added_tokens.json, by id.
  std::vector<AddedToken> listed;
  std::string listed_file;

  // Without the ending "Fast". True if it is a name.
  bool name_class(std::string name);
  const TokenRole* role(std::string_view name) const;
};

// Files that are not there say nothing. Error kModel (E_IO_*, E_JSON*, E_TOK_*) names file and
// path; E_TOK_SPLIT_SPECIAL for a tokenizer that reads its special tokens as text.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

}  // namespace tessera
