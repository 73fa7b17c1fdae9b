// A tokenizer that a GGUF file lists: tokens by id with their kinds, scores or merges, and the
// names of its model and of its way to cut words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/text/tokenizer_json.h"

namespace tessera {

// Kinds of listed tokens, numbered as in files and as SentencePiece does.
enum class ListedKind : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct ListedTokenizer {
  std::string file;                 // the name in messages
  std::string model;                // "llama" (SentencePiece's BPE), "gpt2" (BPE over bytes)
  std::string cut;                  // of "gpt2": "qwen2", "llama-bpe", ...; empty = not said
  std::vector<std::string> tokens;  // by id
  std::vector<float> scores;        // of "llama", as many
  std::vector<ListedKind> kinds;    // as many; empty = all are normal
  std::vector<std::string> merges;  // of "gpt2": "left right", the first one first
  std::optional<std::int32_t> begin, end, unknown, pad;  // ids
  std::optional<bool> add_begin, add_end, space_prefix;  // none = as the model does
  // Of "llama": a space is put in front of what follows a special token too; none = yes.
  std::optional<bool> legacy;
};

// Error kModel naming the file and the key: E_TOK_MODEL for a model, E_TOK_PRE for a way to cut
// that is not known here; E_TOK_COUNT, E_TOK_ID, E_TOK_TOKEN_*, E_TOK_MERGE_*.
TokenizerParts convert_listed(ListedTokenizer listed);
// Values of ListedTokenizer::cut.
std::vector<std::string_view> listed_cuts();

// The tokenizer of a model's folder as such a list, which gives the same ids: of many texts, among
// them every token's, and checked by encoding them. `rows` of the model's table: those beyond the
// tokenizer's ids get kUnused tokens. Error kModel: as read_tokenizer_folder(), E_TOK_LISTED for
// what no such list gives.
ListedTokenizer list_tokenizer(const std::filesystem::path& folder, std::int64_t rows);

}  // namespace tessera
