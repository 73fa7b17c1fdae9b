// What the program says about the keys of a model's files.
#pragma once

#include "apps/cli/session.h"

namespace tessera {

struct FolderAccount;

// Null: nothing is known of them. One line a file with keys that nobody knows, or that are not followed.
void warn_of_keys(const Session& session, const FolderAccount* account);
// Every key, a line each.
void print_keys(const Session& session, const FolderAccount* account);

}  // namespace tessera
