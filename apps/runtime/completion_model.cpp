#include "apps/runtime/completion_model.h"

#include <nlohmann/json.hpp>

#include "apps/runtime/gguf_tokenizer.h"
#include "apps/runtime/prompt_bytes.h"
#include "apps/runtime/text_stops.h"
#include "apps/runtime/text_storage.h"
#include "apps/runtime/tokenizer_account.h"
#include "engine/checkpoint/gguf_weights.h"
#include "engine/families/describe.h"
#include "engine/families/generation_defaults.h"

namespace tessera {

namespace fs = std::filesystem;

void CompletionModel::read_folder(const fs::path& folder) {
  tokenizer_.emplace(TextTokenizer::from_folder(folder));
  text_.account = with_notes(text_.account, *tokenizer_);
  template_ = read_folder_template(folder);
  const Json generation = read_generation(folder);
  stops_ = read_stops(folder, generation, *text_.config, *tokenizer_, {.id = text_.class_end});
  if (generation.is_object()) {
    sampling_ = read_text_processors(JsonReader(generation, generation_path(folder).string()),
                                     spec().model.vocab);
  }
}

void CompletionModel::read_file(const fs::path& path, bool own_template) {
  const std::string name = gguf_parts(path).front().string();
  FolderAccount account = *text_.account;
  GgufTexts texts = read_gguf_texts(*opened_.weights->gguf(), name, account);
  text_.account = std::make_shared<const FolderAccount>(std::move(account));
  tokenizer_.emplace(std::move(texts.tokenizer));
  stops_ = std::move(texts.stops);
  if (texts.generation) {
    sampling_ = read_text_processors(
        JsonReader(*texts.generation, name, std::string(kGgufGeneration)), spec().model.vocab);
  }
  if (own_template) template_ = take_template(texts, path);
}

std::unique_ptr<CompletionModel> CompletionModel::open(const fs::path& path,
                                                       const fs::path& chat_template) {
  std::unique_ptr<CompletionModel> out(new CompletionModel());
  out->opened_ = open_text_model(path, out->text_);
  const bool gguf = is_gguf_file(path);
  if (gguf) {
    out->read_file(path, chat_template.empty());
  } else {
    out->read_folder(path);
  }
  if (!chat_template.empty()) {
    out->template_ = read_template_file(chat_template, gguf ? fs::path() : path);
  }
  if (out->template_) out->special_.emplace(*out->tokenizer_);
  return out;
}

DType CompletionModel::stored() const {
  if (weights().dequantised()) return kDequantisedStorage;
  return stored_as_filed(spec().tensors, weights());
}

StreamModel CompletionModel::load(Backend& backend, DType storage) const {
  StreamModel out =
      load_stream_model(spec().model, spec().names, *opened_.source, backend, storage);
  opened_.weights->verify_unchanged();
  return out;
}

std::vector<std::int32_t> CompletionModel::prompt_ids(const ChatQuestion& asked, bool chat) const {
  const auto refuse = [&](ErrorKind kind, const char* code, std::string expected,
                          std::string found) {
    throw Error({.kind = kind,
                 .code = code,
                 .file = spec().weights.filename().string(),
                 .where = "prompt",
                 .expected = std::move(expected),
                 .found = std::move(found)});
  };
  check_prompt_bytes(asked, *tokenizer_, text_places(spec().model), ErrorKind::kUsage, "E_TEXT_LENGTH");
  std::vector<std::int32_t> ids;
  if (chat || !asked.turns.empty()) {
    if (!template_) {
      refuse(ErrorKind::kUsage, "E_CHAT_TEMPLATE", "a chat template of the model, for --chat",
             "none; --chat-template FILE gives one");
    }
    std::vector<ChatTurn> turns = asked.turns;
    if (turns.empty()) turns = {{ChatRole::kUser, {{false, asked.text}}}};
    if (asked.image_parts() > 0) {
      refuse(ErrorKind::kUsage, "E_CHAT_IMAGES", "a conversation of texts, as it reads no images",
             std::to_string(asked.image_parts()) + " images");
    }
    // The template has written the beginning.
    ids = encode_segments(*tokenizer_, chat_prompt(*template_, turns, true, *special_, {}));
  } else {
    ids = tokenizer_->encode(asked.text, true, SpecialText::kPlain);
  }
  if (ids.empty()) {
    refuse(ErrorKind::kUsage, "E_TEXT_PROMPT", "a prompt of a token or more", "none");
  }
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < spec().model.vocab) continue;
    refuse(ErrorKind::kModel, "E_TEXT_VOCABULARY",
           "ids below the model's vocabulary of " + std::to_string(spec().model.vocab),
           std::to_string(id));
  }
  return ids;
}

}  // namespace tessera
