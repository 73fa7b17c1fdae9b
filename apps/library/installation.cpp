#include "apps/library/installation.h"

#include "engine/core/error.h"
#include "engine/core/installed.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr const char* kHelper = "tessera-helper";

bool plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos;
}

}  // namespace

fs::path Installation::helper() const {
  return prefix.empty() ? fs::path() : prefix / TESSERA_BINDIR / kHelper;
}

std::string Installation::model(const std::string& name) const {
  if (prefix.empty() || !plain_name(name)) return name;
  const fs::path folder = prefix / "share" / "tessera" / "models" / name;
  return file_exists(folder / "config.json") ? folder.string() : name;
}

Installation find_installation(const fs::path& named) {
  if (!named.empty()) {
    if (is_folder(named / "share" / "tessera")) return {named};
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_PREFIX",
                 .file = named.string(),
                 .where = "prefix",
                 .expected = "a folder with share/tessera, where Tessera is installed",
                 .found = "none"});
  }
  // With the helper installed where it is looked for, models are found in the same way.
  if (file_exists(companion_file(kHelper))) return {};
  const fs::path configured = TESSERA_CONFIGURED_PREFIX;
  return {is_folder(configured / "share" / "tessera") ? configured : fs::path()};
}

}  // namespace tessera
