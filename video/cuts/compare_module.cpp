#include "video/cuts/compare_module.h"

#include <dlfcn.h>

#include <filesystem>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/installed.h"

namespace tessera {

void fail_compare(const std::string& file, std::string found) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_VIDEO_CUTS",
               .file = file,
               .expected = "the module that compares frames, next to the program",
               .found = std::move(found)});
}

void* compare_function(const char* name) {
  static void* const kLoaded = [] {
    const std::string file = companion_file(kCompareModule).string();
    void* module = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) fail_compare(file, ::dlerror());
    return module;
  }();
  void* function = ::dlsym(kLoaded, name);
  if (function == nullptr) fail_compare(companion_file(kCompareModule).string(), "another module");
  return function;
}

}  // namespace tessera
