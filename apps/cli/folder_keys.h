// What the program says about the keys of a model's files.
#pragma once

#include "apps/cli/session.h"
#include "engine/families/folder_files.h"

namespace tessera {

// Null: there is no such half. One line a file with keys that nobody knows, or that are not
// followed.
void warn_of_keys(const Session& session, const FolderAccount* account);
// Every key, a line each; `half` says whose account it is: "describing", "generating".
void print_keys(const Session& session, const FolderAccount* account, std::string_view half);

}  // namespace tessera
