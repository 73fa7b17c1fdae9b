// See sentencepiece.h. Field numbers are those of sentencepiece_model.proto.
#include "tokenizers/text/sentencepiece.h"

#include <cmath>
#include <unordered_set>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/protobuf.h"
#include "tokenizers/text/tokenizer_json.h"

namespace tessera {

namespace {

using Wire = ProtoField::Kind;

[[noreturn]] void fail_model(const std::string& file, const char* code, std::string where,
                             std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kModel,
               .code = code,
               .file = file,
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found)});
}

SentencePiece read_piece(std::string_view bytes, const std::string& file, std::size_t id,
                         std::size_t base) {
  const std::string where = "piece " + std::to_string(id);
  ProtoReader reader(bytes, file, where, base);
  SentencePiece piece;
  for (ProtoField field; reader.next(field);) {
    if (field.number == 1) {
      reader.expect(field, Wire::kBytes);
      piece.text = std::string(field.bytes);
    } else if (field.number == 2) {
      reader.expect(field, Wire::kFixed32);
      piece.score = field.as_float();
    } else if (field.number == 3) {
      reader.expect(field, Wire::kVarint);
      if (field.value < 1 || field.value > 6)
        fail_model(file, "E_TOK_PIECE", where, "a type from 1 to 6", std::to_string(field.value));
      piece.type = static_cast<SentencePiece::Type>(field.value);
    }
  }
  if (piece.text.empty())
    fail_model(file, "E_TOK_TOKEN_EMPTY", where, "a text of at least one byte", "an empty one");
  if (piece.text.size() > kMaxTokenBytes) {
    fail_model(file, "E_TOK_TOKEN_LENGTH", where,
               "at most " + std::to_string(kMaxTokenBytes) + " bytes",
               std::to_string(piece.text.size()) + " bytes");
  }
  if (!is_valid_utf8(piece.text)) fail_model(file, "E_TOK_PIECE", where, "UTF-8", "other bytes");
  if (!std::isfinite(piece.score))
    fail_model(file, "E_TOK_PIECE", where, "a finite score", "another");
  return piece;
}

void read_trainer(ProtoReader reader, const std::string& file, SentencePieceModel& model) {
  for (ProtoField field; reader.next(field);) {
    if (field.number == 45) {
      reader.expect(field, Wire::kBytes);
      model.unknown_piece = std::string(field.bytes);
      continue;
    }
    if (field.number != 3 && field.number != 24 && field.number != 35 && field.number != 40)
      continue;
    reader.expect(field, Wire::kVarint);
    if (field.number == 3) {
      if (field.value != 1 && field.value != 2) {
        fail_model(file, "E_TOK_MODEL", "trainer_spec.model_type", "1 (Unigram) or 2 (BPE)",
                   std::to_string(field.value));
      }
      model.kind = static_cast<SentencePieceModel::Kind>(field.value);
    }
    if (field.number == 24) model.suffix_spaces = field.value != 0;
    if (field.number == 35) model.byte_fallback = field.value != 0;
    // Negative numbers take all 64 bits; none of them is an id.
    if (field.number == 40)
      model.unknown_id = field.value < kMaxTokens ? narrow<std::int32_t>(field.value) : -1;
  }
}

void read_normalizer_spec(ProtoReader reader, SentencePieceModel& model) {
  for (ProtoField field; reader.next(field);) {
    if (field.number != 2) continue;
    reader.expect(field, Wire::kBytes);
    model.charsmap = std::string(field.bytes);
  }
}

void check_pieces(const SentencePieceModel& model, const std::string& file) {
  if (model.pieces.empty()) fail_model(file, "E_TOK_VOCAB_EMPTY", "pieces", "at least one", "none");
  std::unordered_set<std::string_view> seen;
  seen.reserve(model.pieces.size());
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (seen.insert(model.pieces[id].text).second) continue;
    fail_model(file, "E_TOK_PIECE", "piece " + std::to_string(id), "each text once",
               "\"" + model.pieces[id].text.substr(0, 60) + "\" again");
  }
  const auto count = std::ssize(model.pieces);
  if (model.unknown_id < 0 || model.unknown_id >= count) {
    fail_model(file, "E_TOK_UNKNOWN", "trainer_spec.unk_id", "an id below " + std::to_string(count),
               std::to_string(model.unknown_id));
  }
  if (model.suffix_spaces) {
    fail_model(file, "E_TOK_MODEL", "trainer_spec.treat_whitespace_as_suffix", "false", "true");
  }
}

}  // namespace

SentencePieceModel read_sentencepiece(std::string_view bytes, const std::string& file) {
  SentencePieceModel model;
  ProtoReader reader(bytes, file, "model");
  for (ProtoField field; reader.next(field);) {
    if (field.number < 1 || field.number > 3) continue;
    reader.expect(field, Wire::kBytes);
    if (field.number == 2)
      read_trainer({field.bytes, file, "trainer_spec", reader.place()}, file, model);
    if (field.number == 3)
      read_normalizer_spec({field.bytes, file, "normalizer_spec", reader.place()}, model);
    if (field.number != 1) continue;
    if (model.pieces.size() == kMaxTokens) {
      fail_model(file, "E_TOK_COUNT", "pieces", "at most " + std::to_string(kMaxTokens), "more");
    }
    model.pieces.push_back(read_piece(field.bytes, file, model.pieces.size(), reader.place()));
  }
  check_pieces(model, file);
  return model;
}

}  // namespace tessera
