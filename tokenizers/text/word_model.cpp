// See word_model.h.
#include "tokenizers/text/word_model.h"

#include <array>
#include <cstdio>

#include "engine/core/index.h"

namespace tessera {

WordModel::WordModel(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  ids_.reserve(tokens_.size());
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    if (!tokens_[id].empty()) ids_.insert_or_assign(tokens_[id], narrow<std::int32_t>(id));
  }
}

std::optional<std::int32_t> WordModel::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::vector<std::int32_t> byte_token_ids(const WordModel& model) {
  std::vector<std::int32_t> out(256, -1);
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::array<char, 8> name{};
    std::snprintf(name.data(), name.size(), "<0x%02X>", byte);
    out[byte] = model.id_of(name.data()).value_or(-1);
  }
  return out;
}

}  // namespace tessera
