// Text tokenizer read from a published tokenizer.json: normaliser, added tokens, pre-tokeniser, BPE
// model, post-processor and decoder, with the ids of the Hugging Face `tokenizers` package.
// Whatever the file asks for and this engine does not do is refused by name when the file is
// loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/text/tokenizer_note.h"

namespace tessera {

struct TokenizerParts;

// What a special token written out in a text means.
enum class SpecialText {
  kControl,  // the special token itself, as Hugging Face does
  kPlain,    // ordinary characters: for text of people who must not steer the model
};

// Part of a text.
struct TextStretch {
  std::string_view text;
  SpecialText in_text = SpecialText::kControl;
};

// Move-only; const after loading; encode and decode may run in many threads at once.
class TextTokenizer {
 public:
  static constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;
  static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMaxStretchesBytes = std::size_t{64} << 20;

  // Error kModel (E_IO_*, E_JSON, E_TOK_*) names file and JSON path.
  static TextTokenizer from_file(const std::filesystem::path& tokenizer_json);
  // From the files of a model's folder: tokenizer.json, else those that the reference converts
  // (tokenizer_folder.h). Added tokens of `again` are special and looked for as they stand, whatever
  // the files say: the model's processor adds them once more. Error kModel (E_IO_*, E_JSON*, E_TOK_*).
  static TextTokenizer from_folder(const std::filesystem::path& folder,
                                   std::span<const std::string_view> again = {});
  // Of parts that were read already.
  static TextTokenizer from_parts(TokenizerParts parts);
  // `file` is the name in messages.
  static TextTokenizer from_json(std::string_view text, const std::string& file);

  TextTokenizer(TextTokenizer&&) noexcept;
  TextTokenizer& operator=(TextTokenizer&&) noexcept;
  ~TextTokenizer();

  // Token ids of a UTF-8 text. With add_special the post-processor's template (BOS ...) is applied.
  // Error kGeneral: E_TOK_TEXT_SIZE above 1 MiB (or above 16 MiB once normalised), E_TOK_TEXT_UTF8,
  // E_TOK_BUDGET when the patterns of the file need more than the step budget of this text.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special = true,
                                   SpecialText in_text = SpecialText::kControl) const;
  // The same of stretches that are one text together: what begins a text (Metaspace's first piece)
  // or strips white space around a token works across them. Each may have 1 MiB, all 64 MiB.
  std::vector<std::int32_t> encode(std::span<const TextStretch> stretches,
                                   bool add_special = true) const;

  // Ids that the post-processor's template puts before and after those of a text.
  std::vector<std::int32_t> ids_before() const;
  std::vector<std::int32_t> ids_after() const;

  // Text of the ids, always valid UTF-8 (U+FFFD for broken byte sequences). Ids outside the
  // vocabulary give nothing. Error kGeneral, E_TOK_TEXT_SIZE, when the text exceeds 64 MiB.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = true) const;

  // What the id adds to a text, which may be part of a character; of a special token its name. Empty
  // outside the vocabulary.
  std::string bytes_of(std::int32_t id) const;

  // The id of exactly this token, as it is written in the file, added tokens included.
  std::optional<std::int32_t> id_of(std::string_view token) const;
  // The token as it is written in the file. 0 <= id < vocab_size().
  std::string_view token(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  // Highest id + 1, added tokens included. Every id below it has a token.
  std::int64_t vocab_size() const;
  // Of keys that are set and change nothing here: "truncation", "padding", "add_bos_token".
  std::span<const TokenizerNote> notes() const;

 private:
  struct Parts;
  explicit TextTokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

}  // namespace tessera
