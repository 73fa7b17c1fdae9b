// See slow_tokenizers.h: what all converted tokenizers share.
#include "tokenizers/text/slow_tokenizers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "engine/core/index.h"
#include "tokenizers/text/model_json.h"

namespace tessera {

namespace {

// Tokens by content; a later one of the same content changes how it is looked for, not its id.
class AddedList {
 public:
  explicit AddedList(const WordModel& model) : model_(model), next_(model.size()) {}
  // Of a tokenizer whose added tokens have their ids.
  explicit AddedList(const TokenizerParts& parts)
      : model_(*parts.model), next_(std::ssize(parts.added_by_id)), tokens_(parts.added) {
    for (std::size_t i = 0; i < tokens_.size(); ++i) places_.emplace(tokens_[i].content, i);
  }

  const AddedToken& put(AddedToken token) {
    const auto known = places_.find(token.content);
    if (known != places_.end()) {
      AddedToken& old = tokens_[known->second];
      token.id = old.id;
      return old = std::move(token);
    }
    const auto id = model_.id_of(token.content);
    token.id = id ? *id : narrow<std::int32_t>(next_++);
    places_.emplace(token.content, tokens_.size());
    return tokens_.emplace_back(std::move(token));
  }
  bool has(const std::string& content) const { return places_.contains(content); }
  const AddedToken* find(const std::string& content) const {
    const auto known = places_.find(content);
    return known == places_.end() ? nullptr : &tokens_[known->second];
  }
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  const WordModel& model_;
  std::int64_t next_;
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, std::size_t> places_;
};

// Puts what the configuration lists, each with the id it is listed with.
void put_listed(const TokenizerConfig& config, AddedList& list) {
  for (const AddedToken& token : config.listed) {
    const AddedToken& put = list.put(token);
    if (put.id == token.id) continue;
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TOK_ADDED_ID",
                 .file = config.listed_file,
                 .where = "id " + std::to_string(token.id) + ", " + in_quotes(token.content),
                 .expected = std::to_string(put.id) + ", its id by the vocabulary",
                 .found = std::to_string(token.id)});
  }
}

Json json_of(const std::vector<AddedToken>& tokens) {
  Json out = Json::array();
  for (const AddedToken& token : tokens) {
    out.push_back({{"id", token.id},
                   {"content", token.content},
                   {"single_word", token.single_word},
                   {"lstrip", token.lstrip},
                   {"rstrip", token.rstrip},
                   {"normalized", token.normalized},
                   {"special", token.special}});
  }
  return out;
}

bool looked_for_alike(const AddedToken& a, const AddedToken& b) {
  return a.single_word == b.single_word && a.lstrip == b.lstrip && a.rstrip == b.rstrip &&
         a.normalized == b.normalized && a.special == b.special;
}

}  // namespace

std::optional<AddedToken> special_token(const TokenizerConfig& config, std::string_view role,
                                        std::string_view fallback, bool normalized) {
  const TokenRole* set = config.role(role);
  if (set != nullptr && !set->only_text) return set->token;
  AddedToken token;
  token.content = set != nullptr ? set->token->content : std::string(fallback);
  if (token.content.empty()) return std::nullopt;
  token.special = true;
  token.normalized = normalized;
  return token;
}

Json added_tokens_json(const WordModel& model, std::vector<AddedToken> own,
                       const TokenizerConfig& config, const std::vector<AddedToken>& roles) {
  AddedList list(model);
  for (AddedToken& token : own) list.put(std::move(token));
  put_listed(config, list);
  std::unordered_map<std::string, bool> listed;
  for (const AddedToken& token : config.listed) listed.emplace(token.content, true);
  std::unordered_map<std::string, bool> seen;
  for (const AddedToken& token : roles) {
    if (listed.contains(token.content) || !seen.emplace(token.content, true).second) continue;
    list.put(token);
  }
  for (const TokenRole& role : config.additional) {
    const AddedToken& token = *role.token;
    const bool known = listed.contains(token.content) || seen.contains(token.content);
    if (!known && !(role.only_text && list.has(token.content))) list.put(token);
  }
  return json_of(list.tokens());
}

std::optional<Json> added_by_config(const TokenizerParts& parts, const TokenizerConfig& config) {
  AddedList list(parts);
  put_listed(config, list);
  const auto put_special = [&](const TokenRole& role) {
    if (!role.token) return;
    const AddedToken* const known = list.find(role.token->content);
    AddedToken token = known != nullptr ? *known : *role.token;
    token.special = true;
    list.put(std::move(token));
  };
  for (const TokenRole& role : config.roles) put_special(role);
  for (const TokenRole& role : config.additional) put_special(role);
  const auto same = [](const AddedToken& a, const AddedToken& b) {
    return a.content == b.content && looked_for_alike(a, b);
  };
  if (std::equal(list.tokens().begin(), list.tokens().end(), parts.added.begin(), parts.added.end(),
                 same)) {
    return std::nullopt;
  }
  return json_of(list.tokens());
}

}  // namespace tessera
