// The safetensors format: eight bytes of header length, a JSON header, the tensors' bytes without
// hole or overlap up to the end of the file.
#pragma once

#include <span>
#include <string>

#include "engine/checkpoint/container.h"

namespace tessera {

// Whether the bytes begin with the length of a header that fits and an object: no more is looked at.
bool looks_like_safetensors(std::span<const std::byte> bytes);

// Reads and checks the header of a whole file in memory or mapped; the tensors' bytes are not
// touched and nothing is allocated from declared sizes. `file` is the name in messages.
// Errors (kModel), all with the tensor's name or the byte: E_ST_SHORT, E_ST_HEADER_SIZE,
// E_ST_HEADER_START, E_ST_HEADER_PAD, E_ST_GRAMMAR, E_ST_COUNT, E_ST_NAME, E_ST_DUPLICATE,
// E_ST_FIELD, E_ST_DTYPE, E_ST_DTYPE_UNSUPPORTED, E_ST_RANK, E_ST_SHAPE, E_ST_OVERFLOW,
// E_ST_OFFSETS, E_ST_SIZE, E_ST_HOLE, E_ST_OVERLAP, E_ST_TRUNCATED, E_ST_TRAILING, E_ST_METADATA,
// and E_JSON, E_JSON_DEPTH, E_JSON_UTF8 for the JSON itself.
Container parse_safetensors(std::span<const std::byte> bytes, const std::string& file);

}  // namespace tessera
