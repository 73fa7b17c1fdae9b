// A text encoder next to a model that reads its rows: opened and checked with it; its weights are
// read for the first text and stay, as the memory plan has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/families/model_spec.h"
#include "engine/families/text_encoder.h"
#include "tokenizers/text/caption_cleaning.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

class TextRows {
 public:
  // The encoder in `folder`, else the one that is inside the model's folder or next to it. Null:
  // there is none. Its matrices are kept as `storage`, else as their files have them. Error kUsage
  // (E_TEXT_ENCODER): a folder for a model that reads no such rows; kModel: those of
  // open_text_encoder() and of its tokenizer.
  static std::unique_ptr<TextRows> open(const ModelSpec& spec, const std::string& folder,
                                        Backend& backend, std::optional<DType> storage);

  const std::string& name() const { return opened_.name; }
  // Of the model's files with the encoder's.
  std::shared_ptr<const FolderAccount> with_account(
      std::shared_ptr<const FolderAccount> account) const;

  // Ids of a text, cleaned where the model wants that, at most as many as it reads; the last one
  // ends it. Error kUsage: E_PROMPT_EMPTY, E_PROMPT_LENGTH, E_PROMPT_MARKUP, E_PROMPT_TEXT;
  // `where` is the flag.
  std::vector<std::int32_t> encode(const std::string& text, const char* where) const;
  // [T, width] f32 on the device. The rows of the last ids are kept: images of one prompt ask once.
  // Error kModel, kMemory.
  const Tensor& rows_of(std::span<const std::int32_t> ids);
  // The same in host memory, [rows, width] with zeros after the text's.
  std::shared_ptr<const Tensor> padded_rows_of(std::span<const std::int32_t> ids);

  std::size_t bytes() const;  // weights, and what encoding the longest text takes

 private:
  TextRows(OpenedTextEncoder opened, ContextSpec wanted, Backend& backend, DType storage);

  OpenedTextEncoder opened_;
  ContextSpec wanted_;
  Backend& backend_;
  DType storage_;
  TextTokenizer tokenizer_;
  std::optional<CaptionCleaner> cleaner_;
  std::optional<TextEncoder> encoder_;  // once a text was encoded
  std::vector<std::int32_t> ids_;       // of rows_
  Tensor rows_;
};

}  // namespace tessera
