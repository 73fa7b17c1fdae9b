#include "apps/runtime/tokenizer_account.h"

#include "tokenizers/text/tokenizer_note.h"

namespace tessera {

KeyAccount account_of(const TokenizerNote& note, const std::string& folder) {
  return {.file = folder + note.file,
          .key = note.key,
          .use = note.neutral ? KeyUse::kWithoutEffect : KeyUse::kNotFollowed,
          .why = note.why};
}

std::shared_ptr<const FolderAccount> with_notes(std::shared_ptr<const FolderAccount> account,
                                                const TextTokenizer& tokenizer) {
  if (account == nullptr || tokenizer.notes().empty()) return account;
  FolderAccount out = *account;
  for (const TokenizerNote& note : tokenizer.notes()) out.set(account_of(note));
  return std::make_shared<const FolderAccount>(std::move(out));
}

}  // namespace tessera
