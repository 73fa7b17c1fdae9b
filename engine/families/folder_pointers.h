// Files that git-lfs has not fetched.
#pragma once

#include <filesystem>

namespace tessera {

// Error kModel (E_LFS_POINTER) for a pointer in the place of a file of the folder, weights apart:
// Checkpoint::open() names those.
void refuse_pointers(const std::filesystem::path& folder);

}  // namespace tessera
