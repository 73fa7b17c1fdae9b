// Where recorded files of the tree lie: where the program was built, or where TESSERA_TEST_SOURCES
// says, for test programs that are carried to another machine.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace tessera {

inline std::filesystem::path source_folder() {
  const char* elsewhere = std::getenv("TESSERA_TEST_SOURCES");
  return elsewhere == nullptr ? TESSERA_SOURCE_DIR : elsewhere;
}

}  // namespace tessera
