// Tokens that a folder's tokenizer_config.json and added_tokens.json name next to tokenizer.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

struct NamedToken {
  std::string file, key;  // where it stands
  std::string content;
  std::int64_t id = 0;
};

// The reference adds those that tokenizer.json lacks, at the next free id. Error kModel for files
// that are no such lists.
std::vector<NamedToken> named_tokens(const std::filesystem::path& folder);

}  // namespace tessera
