// Further system calls of engine/core/io_layer.h, for the .cpp files of engine/core only.
#pragma once

#include <cstdint>
#include <filesystem>

namespace tessera::io_layer {

int layer_truncate(int fd, std::uint64_t size);
// Fails with EEXIST where layer_rename() would replace.
int layer_rename_new(const std::filesystem::path& from, const std::filesystem::path& to);
int layer_mkdir(const std::filesystem::path& path);

}  // namespace tessera::io_layer
