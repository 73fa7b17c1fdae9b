// Weight files written by torch.save: a zip archive with one pickle and one entry per storage.
#pragma once

#include <span>
#include <string>

#include "engine/checkpoint/container.h"

namespace tessera {

// Whether these bytes begin like something torch.save wrote (zip, or one of the two formats before
// it), which decides who reads a file whose name does not tell.
bool looks_like_torch_file(std::span<const std::byte> bytes);

// Errors (kModel): those of read_zip and read_pickled_state, and E_PT_OLD_FORMAT, E_PT_MAGIC,
// E_PT_NO_PICKLE, E_PT_TORCHSCRIPT, E_ZIP_COMPRESSED, E_PT_CRC, E_PT_BYTE_ORDER, E_PT_STORAGE
// (entry missing or of another size).
Container parse_torch_file(std::span<const std::byte> bytes, const std::string& file);

}  // namespace tessera
