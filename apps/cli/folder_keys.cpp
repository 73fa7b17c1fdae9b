#include "apps/cli/folder_keys.h"

#include <nlohmann/json.hpp>
namespace tessera {

void warn_of_keys(const Session& session, const FolderAccount* account) {
  if (account == nullptr) return;
  for (const std::string& line : account->warnings()) warn(session, line);
}

void print_keys(const Session& session, const FolderAccount* account, std::string_view half) {
  if (account == nullptr) return;
  if (!session.json) print_line(std::string(half) + ":");
  for (const KeyAccount& key : account->keys) {
    const std::string_view use = key_use_name(key.use);
    if (session.json) {
      print_json_line(
          {{"half", half}, {"file", key.file}, {"key", key.key}, {"use", use}, {"why", key.why}});
      continue;
    }
    std::string line = key.file + "  " + key.key + ": " + std::string(use);
    if (!key.why.empty()) line += " (" + std::string(key.why) + ")";
    print_line(escape_for_terminal(line));
  }
}

}  // namespace tessera
