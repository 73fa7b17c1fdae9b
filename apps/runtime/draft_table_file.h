// The draft table that may lie next to a model's weights: guesses.safetensors with `left_above`
// [V, V], `left` [V] and `above` [V], all I16.
#pragma once

#include <filesystem>
#include <memory>

#include "engine/decoding/draft_table.h"

namespace tessera {

// nullptr when the folder has none. Error kModel naming the tensor for another shape, type, or a
// code outside of the codebook.
std::shared_ptr<const DraftTable> load_draft_table(const std::filesystem::path& folder,
                                                   std::int64_t codes);

}  // namespace tessera
