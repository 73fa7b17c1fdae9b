#include "engine/core/installed.h"

#include <dlfcn.h>
#include <link.h>

namespace tessera {

namespace fs = std::filesystem;

namespace {

struct CodePlace {
  fs::path file;
  bool library = false;
};

CodePlace code_place() {
  Dl_info info = {};
  link_map* map = nullptr;
  std::error_code unknown;
  const bool known = ::dladdr1(reinterpret_cast<const void*>(&code_file), &info,
                               reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0;
  // The program itself has no name there.
  if (known && map != nullptr && map->l_name != nullptr && map->l_name[0] != '\0') {
    fs::path file = fs::canonical(map->l_name, unknown);
    if (!unknown) return {std::move(file), true};
  }
  fs::path program = fs::read_symlink("/proc/self/exe", unknown);
  return {unknown ? fs::path() : std::move(program), false};
}

}  // namespace

fs::path code_file() { return code_place().file; }

fs::path companion_file(std::string_view name) {
  const CodePlace place = code_place();
  const fs::path folder = place.file.parent_path();
  if (!place.library) return folder / name;
  const fs::path nearest = folder.parent_path() / "bin" / name;
  const fs::path above = folder.parent_path().parent_path() / "bin" / name;
  std::error_code unknown;
  return !fs::exists(nearest, unknown) && fs::exists(above, unknown) ? above : nearest;
}

std::vector<fs::path> installed_data_folders() {
  const CodePlace place = code_place();
  if (place.file.empty()) return {};
  const fs::path prefix = place.file.parent_path().parent_path();
  std::vector<fs::path> out = {prefix / "share" / "tessera"};
  if (place.library) out.push_back(prefix.parent_path() / "share" / "tessera");
  return out;
}

}  // namespace tessera
