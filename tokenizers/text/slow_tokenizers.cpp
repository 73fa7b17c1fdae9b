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
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  const WordModel& model_;
  std::int64_t next_;
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, std::size_t> places_;
};

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
  std::unordered_map<std::string, bool> listed;
  for (const AddedToken& token : config.listed) {
    const AddedToken& put = list.put(token);
    listed.emplace(token.content, true);
    if (put.id == token.id) continue;
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TOK_ADDED_ID",
                 .file = config.listed_file,
                 .where = "id " + std::to_string(token.id) + ", " + in_quotes(token.content),
                 .expected = std::to_string(put.id) + ", its id by the vocabulary",
                 .found = std::to_string(token.id)});
  }
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
  Json out = Json::array();
  for (const AddedToken& token : list.tokens()) {
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

}  // namespace tessera
