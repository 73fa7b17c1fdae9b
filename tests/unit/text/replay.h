// Compares a tokenizer with what the reference recorded: one JSON line a string, {text, ids, plain,
// decoded, raw}; a field that is left out equals the one it is derived from. "words", if there, is
// how the pre-tokeniser alone cuts the text.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

struct ReplayResult {
  std::size_t strings = 0;
  std::vector<std::string> disagreements;  // the first 50, one line each
  std::size_t disagreement_count = 0;
};

// Reads NAME.tokenizer.json and NAME.strings.jsonl of `folder`.
ReplayResult replay(const std::filesystem::path& folder, const std::string& name);

// The tokenizer of a folder's files and its strings.jsonl.
ReplayResult replay_folder(const std::filesystem::path& folder);

// The folders in `folder` that have strings.jsonl, sorted.
std::vector<std::filesystem::path> replay_folders(const std::filesystem::path& folder);

// The words of a pre-tokeniser (as JSON) for each text of its rows, [[text, [word ...]] ...]; one
// JSON line {pre_tokenizer, rows} each.
ReplayResult replay_words(const std::filesystem::path& file);

// The names with NAME.texts.jsonl in `folder`, sorted.
std::vector<std::string> text_names(const std::filesystem::path& folder);

// The names in `folder`, sorted.
std::vector<std::string> replay_names(const std::filesystem::path& folder);

// Reads NAME.tokenizer.json, or the folder NAME, and NAME.texts.jsonl, writes NAME.out.jsonl: for
// each text [ids, ids without special tokens around, decoded text, decoded with special tokens].
// Returns how many.
std::size_t encode_texts(const std::filesystem::path& folder, const std::string& name);

}  // namespace tessera
