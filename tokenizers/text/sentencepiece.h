// SentencePiece's model file ("tokenizer.model", "spiece.model"): pieces with scores, the trainer's
// and the normaliser's settings that matter for encoding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct SentencePiece {
  enum class Type : std::uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6,
  };
  std::string text;
  float score = 0;
  Type type = Type::kNormal;
};

struct SentencePieceModel {
  enum class Kind : std::uint8_t { kUnigram = 1, kBpe = 2 } kind = Kind::kUnigram;
  std::vector<SentencePiece> pieces;  // by id, all different
  std::int32_t unknown_id = 0;
  std::string unknown_piece = "<unk>";
  bool byte_fallback = false;
  bool suffix_spaces = false;  // white space ends a word
  std::string charsmap;        // "precompiled_charsmap"; empty: none
};

// Error kModel (E_TOK_*) names file and piece or byte.
SentencePieceModel read_sentencepiece(std::string_view bytes, const std::string& file);

}  // namespace tessera
