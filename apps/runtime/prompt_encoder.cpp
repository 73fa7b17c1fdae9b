#include "apps/runtime/prompt_encoder.h"

#include <algorithm>
#include <charconv>

#include "apps/runtime/generation_parts.h"
#include "engine/core/index.h"
#include "tokenizers/text/unicode.h"

namespace tessera {

PromptEncoder::PromptEncoder(const OpenedModel& model, const std::string& name)
    : model_(model.spec.model), classes_(model.spec.prompt.classes) {
  // Texts that another model encodes are not read here.
  if (model.spec.prompt.kind == PromptKind::kText && !model.spec.context) {
    load_text_tokenizer(model, name);
  }
}

// Reads the tokenizer and finds the template and the special tokens in it, by string.
void PromptEncoder::load_text_tokenizer(const OpenedModel& opened, const std::string& name) {
  const ModelSpec& spec = opened.spec;
  if (!opened.tokenizer_json.empty()) {
    text_ = TextTokenizer::from_json(opened.tokenizer_json, name);
  } else if (spec.tokenizer.filename() == "tokenizer.json") {
    text_ = TextTokenizer::from_folder(spec.tokenizer.parent_path());
  } else {
    text_ = TextTokenizer::from_file(spec.tokenizer);
  }
  tokenizer_file_ = spec.tokenizer.empty() ? name : spec.tokenizer.string();
  kept_ = spec.prompt.kept;
  if (!kept_ && !spec.prompt.pad_token.empty()) pad_ = id_of(spec.prompt.pad_token);
  negative_ = spec.prompt.negative_text;
  kept_out_ = spec.prompt.kept_out;
  begin_image_ = id_of(spec.prompt.begin_image_token);
  if (spec.prompt.of_folder && opened.tokenizer_json.empty()) {
    template_ = read_folder_template(spec.tokenizer.parent_path());
  }
  if (template_) special_.emplace(*text_);
  const auto fits = [&](const PromptForm& candidate) {
    return candidate.requires_token.empty() || text_->id_of(candidate.requires_token);
  };
  const auto found = std::find_if(spec.prompt.forms.begin(), spec.prompt.forms.end(), fits);
  if (found == spec.prompt.forms.end()) refuse_token(spec.prompt.forms.front().requires_token);
  form_ = *found;
  if (!form_.first.empty()) first_ = id_of(form_.first);
  // A joint vocabulary's tokenizer knows image codes too, which no prompt may hold.
  const bool joint = !spec.names.prompt_rows.empty();
  const std::int64_t known = spec.model.prompt_vocab + (joint ? spec.model.codes : 0);
  if (text_->vocab_size() > known) {
    throw Error(
        {.kind = ErrorKind::kModel,
         .code = "E_TOKENIZER_VOCAB",
         .file = tokenizer_file_,
         .where = "vocab",
         .expected = "at most " + std::to_string(known) + " tokens, which is what the model embeds",
         .found = std::to_string(text_->vocab_size())});
  }
  check_first_code(spec);
}

// Configurations may say how many rows there are and not where the codes begin.
void PromptEncoder::check_first_code(const ModelSpec& spec) const {
  const auto found = text_->id_of(spec.prompt.first_code_token);
  if (!found || *found == spec.model.prompt_vocab) return;
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_TOKENIZER_VOCAB",
               .file = tokenizer_file_,
               .where = spec.prompt.first_code_token,
               .expected = "id " + std::to_string(spec.model.prompt_vocab) +
                           ", as the codes are the model's last rows",
               .found = "id " + std::to_string(*found)});
}

std::int32_t PromptEncoder::id_of(const std::string& token) const {
  if (const auto found = text_->id_of(token)) return *found;
  refuse_token(token);
}

void PromptEncoder::refuse_token(const std::string& token) const {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_TOKENIZER_TOKEN",
               .file = tokenizer_file_,
               .where = "added_tokens",
               .expected = "the token " + token,
               .found = "none of this name"});
}

std::vector<std::int32_t> PromptEncoder::encode_text(const std::string& prompt,
                                                     const char* where) const {
  check_prompt_text(prompt, where);
  return encode_template(prompt, where);
}

std::vector<std::int32_t> PromptEncoder::framed(std::string_view before, std::string_view text,
                                                std::string_view after) const {
  // Once more where the text spells it.
  const std::string whole = std::string(before).append(text).append(after);
  std::vector<std::int32_t> ids = text_->encode(whole, !first_);
  if (first_) ids.insert(ids.begin(), *first_);
  return ids;
}

std::vector<std::int32_t> PromptEncoder::encode_question(const std::string& text,
                                                         const std::string& turn_end) const {
  check_prompt_text(text, "--prompt");
  return framed("", text, turn_end);
}

std::vector<std::int32_t> PromptEncoder::image_opening() const {
  const std::vector<std::int32_t> ids = framed(form_.before, "", form_.after);
  expects(std::ssize(ids) >= model_.kept_last, "a prompt has its ends");
  return {ids.end() - model_.kept_last, ids.end()};
}

std::vector<std::int32_t> PromptEncoder::template_ids(const std::string& prompt) const {
  if (!template_) {
    const std::string_view text = form_.strip ? strip_ends(prompt) : std::string_view(prompt);
    return framed(form_.before, text, form_.after);
  }
  Prompt turns =
      chat_prompt(*template_, {{ChatRole::kUser, {{false, prompt}}}}, true, *special_, {});
  turns.push_back({PromptSegment::Kind::kControl, std::string(text_->token(begin_image_))});
  return encode_prompt(*text_, turns);
}

// What is not kept becomes the pad token.
std::vector<std::int32_t> PromptEncoder::without_text(
    const std::vector<std::int32_t>& prompt) const {
  if (!kept_) return unconditional_prompt(model_, prompt, pad_);
  std::vector<std::int32_t> out = prompt;
  for (std::int32_t& id : out) {
    if (id != kept_->begin && id != kept_->begin_image) id = kept_->pad;
  }
  return out;
}

std::vector<std::int32_t> PromptEncoder::encode_template(const std::string& prompt,
                                                         const char* where) const {
  std::vector<std::int32_t> ids = template_ids(prompt);
  const auto most = to_size(model_.max_prompt);
  if (ids.size() > most) {
    refuse_request("E_PROMPT_LENGTH", where, "at most " + std::to_string(most) + " tokens",
                   std::to_string(ids.size()) + " tokens", "shorten the text");
  }
  check_spelled(ids, where);
  expects(!ids.empty() && ids.back() == begin_image_, "a prompt ends with the begin-image token");
  return ids;
}

void PromptEncoder::check_spelled(const std::vector<std::int32_t>& ids, const char* where) const {
  const auto kept_out = [&](std::int32_t id) {
    return std::any_of(kept_out_.begin(), kept_out_.end(), [&](const RowRange& range) {
      return id >= range.first && id < range.first + range.count;
    });
  };
  for (std::int64_t i = 0; i < std::ssize(ids); ++i) {
    const std::int32_t id = nth(ids, i);
    const bool of_frame = (first_ && i == 0) || i >= std::ssize(ids) - model_.kept_last;
    if (id < model_.prompt_vocab && (of_frame || !kept_out(id))) continue;
    refuse_request("E_PROMPT_TEXT", where, "a text without image tokens",
                   "token " + std::to_string(id) + ", " + std::string(text_->token(id)));
  }
}

std::int32_t PromptEncoder::parse_class(const std::string& prompt) const {
  std::int64_t value = -1;
  const char* end = prompt.data() + prompt.size();
  const auto [rest, status] = std::from_chars(prompt.data(), end, value);
  if (status != std::errc{} || rest != end || value < 0 || value >= classes_) {
    refuse_request("E_CLASS", "--prompt",
                   "a class number from 0 to " + std::to_string(classes_ - 1),
                   "'" + prompt.substr(0, 200) + "'");
  }
  return narrow<std::int32_t>(value);
}

EncodedPrompt PromptEncoder::encode(const std::string& prompt,
                                    const std::optional<std::string>& negative, bool guided) const {
  EncodedPrompt out;
  if (model_.prompt == PromptKind::kFrames) {
    if (!prompt.empty()) {
      refuse_request("E_PROMPT_TEXT", "--prompt", "none, as this model goes on with frames",
                     "a text");
    }
    if (negative || guided) {
      refuse_request("E_NEGATIVE_PROMPT", negative ? "--negative-prompt" : "--cfg-scale",
                     "none, as this model has one branch", negative ? "a text" : "guidance");
    }
    // The token before the stream, if there is one, is all of the prompt table.
    out.prompt.assign(to_size(model_.max_prompt), 0);
    return out;
  }
  if (model_.prompt == PromptKind::kClass) {
    if (negative) {
      refuse_request("E_NEGATIVE_PROMPT", "--negative-prompt",
                     "none, as this model takes class numbers", "a text");
    }
    out.prompt = {parse_class(prompt)};
    if (guided) out.unconditional = {model_.null_class};
    return out;
  }
  out.prompt = encode_text(prompt, "--prompt");
  if (guided && negative) {
    out.unconditional = encode_text(*negative, "--negative-prompt");
  } else if (guided && model_.unconditional == UnconditionalRule::kOtherText) {
    out.unconditional = encode_template(negative_, "negative prompt of the model");
  } else if (guided) {
    out.unconditional = without_text(out.prompt);
  }
  return out;
}

}  // namespace tessera
