#include "apps/runtime/text_rows.h"

#include <algorithm>
#include <utility>

#include "apps/runtime/generation_parts.h"
#include "apps/runtime/shared_model.h"
#include "apps/runtime/tokenizer_account.h"
#include "engine/core/index.h"

namespace tessera {

std::unique_ptr<TextRows> TextRows::open(const ModelSpec& spec, const std::string& folder,
                                         Backend& backend, std::optional<DType> storage) {
  if (!spec.context) {
    if (folder.empty()) return nullptr;
    refuse_request("E_TEXT_ENCODER", "--text-encoder",
                   "none, as this model reads no rows of another model", folder);
  }
  const std::filesystem::path found = folder.empty()
                                          ? find_text_encoder(spec.folder, spec.context->encoders)
                                          : std::filesystem::path(folder);
  if (found.empty()) return nullptr;
  OpenedTextEncoder opened =
      open_text_encoder(found, spec.context->width, spec.context->encoder_list());
  const DType kept = storage.value_or(opened.stored);
  return std::unique_ptr<TextRows>(new TextRows(std::move(opened), *spec.context, backend, kept));
}

TextRows::TextRows(OpenedTextEncoder opened, ContextSpec wanted, Backend& backend, DType storage)
    : opened_(std::move(opened)),
      wanted_(std::move(wanted)),
      backend_(backend),
      storage_(storage),
      tokenizer_(TextTokenizer::from_folder(opened_.folder)) {
  if (wanted_.cleaned) cleaner_.emplace();
  if (tokenizer_.vocab_size() <= opened_.config.vocabulary) return;
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_TOKENIZER_VOCAB",
               .file = opened_.folder.string(),
               .where = "vocab_size",
               .expected = "at least the tokenizer's " + std::to_string(tokenizer_.vocab_size()),
               .found = std::to_string(opened_.config.vocabulary)});
}

std::shared_ptr<const FolderAccount> TextRows::with_account(
    std::shared_ptr<const FolderAccount> account) const {
  FolderAccount own = opened_.account;
  for (const TokenizerNote& note : tokenizer_.notes()) own.set(account_of(note, name() + "/"));
  auto out = account == nullptr ? std::make_shared<FolderAccount>()
                                : std::make_shared<FolderAccount>(*account);
  out->keys.insert(out->keys.end(), own.keys.begin(), own.keys.end());
  return out;
}

std::vector<std::int32_t> TextRows::encode(const std::string& text, const char* where) const {
  check_prompt_text(text, where);
  if (const std::string found = cleaner_ ? cleaner_->markup(text) : ""; !found.empty()) {
    refuse_request("E_PROMPT_MARKUP", where, "a text without tags and entities of HTML",
                   "'" + found + "'", "write the characters themselves");
  }
  const std::string read = cleaner_ ? cleaner_->clean(text) : text;
  if (read.empty()) {
    refuse_request("E_PROMPT_EMPTY", where, "a text of which cleaning leaves something",
                   "'" + text.substr(0, 200) + "'");
  }
  std::vector<std::int32_t> ids = tokenizer_.encode(read);
  const auto most = to_size(wanted_.rows);
  if (ids.size() > most) {
    refuse_request("E_PROMPT_LENGTH", where, "at most " + std::to_string(most) + " tokens",
                   std::to_string(ids.size()) + " tokens", "shorten the text");
  }
  return ids;
}

const Tensor& TextRows::rows_of(std::span<const std::int32_t> ids) {
  if (!encoder_) {
    encoder_.emplace(load_text_encoder(opened_, backend_, storage_));
    opened_.weights.reset();
  }
  if (!std::ranges::equal(ids, ids_)) {
    rows_ = encoder_->encode(ids);
    ids_.assign(ids.begin(), ids.end());
  }
  return rows_;
}

std::shared_ptr<const Tensor> TextRows::padded_rows_of(std::span<const std::int32_t> ids) {
  const Tensor& rows = rows_of(ids);
  auto out = std::make_shared<Tensor>(Tensor::host(DType::kF32, {wanted_.rows, wanted_.width}));
  const std::int64_t given = rows.shape().elements();
  backend_.download(rows.view(), {DType::kF32, rows.shape(), out->f32(), Device{}});
  backend_.synchronize();
  std::fill(out->f32() + given, out->f32() + out->shape().elements(), 0.0f);
  return out;
}

std::size_t TextRows::bytes() const {
  return TextEncoder::weight_bytes(opened_.config, backend_, storage_) +
         TextEncoder::scratch_bytes(opened_.config, wanted_.rows);
}

}  // namespace tessera
