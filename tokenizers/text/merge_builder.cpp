// See merge_builder.h.
#include "tokenizers/text/merge_builder.h"

#include "engine/core/index.h"
#include "tokenizers/text/model_json.h"

namespace tessera {

MergeBuilder::MergeBuilder(const std::vector<std::string>& tokens, std::size_t count,
                           std::size_t prefix_bytes)
    : prefix_bytes_(prefix_bytes), table_(count) {
  ids_.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty()) ids_.emplace(tokens[id], narrow<std::int32_t>(id));
  }
}

std::optional<std::int32_t> MergeBuilder::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<MergeBuilder::Fault> MergeBuilder::add(std::string_view left,
                                                     std::string_view right) {
  const auto left_id = id_of(left), right_id = id_of(right);
  if (!left_id || !right_id) {
    return Fault{"E_TOK_MERGE_UNKNOWN", "tokens of the vocabulary",
                 in_quotes(left_id ? right : left)};
  }
  if (right.size() < prefix_bytes_) {
    return Fault{"E_TOK_MERGE_RESULT", "a right token with the continuing_subword_prefix",
                 in_quotes(right)};
  }
  const std::string joined = std::string(left).append(right.substr(prefix_bytes_));
  const auto result = id_of(joined);
  if (!result) {
    return Fault{"E_TOK_MERGE_RESULT", "the merged token in the vocabulary", in_quotes(joined)};
  }
  table_.set(*left_id, *right_id, {rank_++, *result});
  return std::nullopt;
}

}  // namespace tessera
