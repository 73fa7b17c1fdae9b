// Where this code is installed: files of the project are found from the program, or from the shared
// library, that holds it.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace tessera {

// The file that holds this code: the program, or a shared library in it. Empty where the system
// does not say.
std::filesystem::path code_file();

// A program or module that is installed with this one: in the folder of the program; where this
// code is in a shared library, in bin/ of the prefix that the library's folder is in (lib/ or
// lib/ARCH/). The file need not exist.
std::filesystem::path companion_file(std::string_view name);

// share/tessera of each prefix that the code may be installed in, nearest first. They need not
// exist.
std::vector<std::filesystem::path> installed_data_folders();

}  // namespace tessera
