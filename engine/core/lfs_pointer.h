// What git leaves in the place of a large file until git-lfs fetches it: a text of about 130 bytes
// (git-lfs, specification of pointer files).
#pragma once

#include <string_view>

namespace tessera {

// `file`: its bytes, or the first of them.
inline bool is_lfs_pointer(std::string_view file) {
  return file.starts_with("version https://git-lfs");
}

}  // namespace tessera
