// Files that must be there after a power cut, or not at all, and that never replace a stranger's:
// the same steps as write_file_atomic() of engine/core/io.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace tessera {

enum class Publish : std::uint8_t { kNew, kReplace };
enum class Sync : std::uint8_t { kOn, kOff };  // off gives up safety against power cuts only

// Writes next to the target, syncs, renames, syncs the folder (no syncs if they are off). kNew never replaces: false if the
// name is taken, and nothing was changed. Error kStorage, E_IO_WRITE; the temporary is removed
// then.
bool publish_file(const std::filesystem::path& path, std::string_view text, Publish publish,
                  Sync sync = Sync::kOn);

// Creates the folder with its parents and syncs the folders that hold their names, those too that
// were there: who made them may have been killed before the sync. Error kStorage.
void make_folders_durable(const std::filesystem::path& folder);

// Temporaries hold the first bytes of long names only.
inline constexpr std::size_t kTemporaryNameBytes = 200;
// What a temporary of publish_file() or write_file_atomic() was to become: "a.png" of
// ".a.png.tmp-123-4". Empty for any other name.
std::string_view target_of_temporary(std::string_view name);

}  // namespace tessera
