// The account of a folder's keys with what its tokenizer says of its own files.
#pragma once

#include <memory>

#include "engine/families/folder_files.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

// What a tokenizer says of a key of its own files, which are named after `folder`.
KeyAccount account_of(const TokenizerNote& note, const std::string& folder = "");

// The account itself where there is nothing to add; null stays null.
std::shared_ptr<const FolderAccount> with_notes(std::shared_ptr<const FolderAccount> account,
                                                const TextTokenizer& tokenizer);

}  // namespace tessera
