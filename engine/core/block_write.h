// Blocks of GGUF formats written: parts put where they belong, and numbers rounded so that a
// weighted error is small. Layouts: the ggml project's documentation of its formats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/core/block_parts.h"

namespace tessera {

// The inverse of take_apart(): all bytes of a block. Factors and quants are within the form's bits.
void put_together(const BlockForm& form, const BlockParts& parts, std::byte* out);

// Writes whole blocks of finite numbers with the roundings of the format's reference writer: Q4_1,
// Q5_0 and Q5_1. bytes: of a block
void write_rounded(const BlockForm& form, std::size_t bytes, const float* from, std::int64_t blocks,
                   std::byte* out);

// Writes whole blocks of finite numbers so that the sum of weight * (number - number read back)^2
// is small: scales and offsets are searched around the usual ones and fitted by least squares.
// `weights`: one for each number, not negative; null = equal ones.
void write_searched(const BlockForm& form, std::size_t bytes, const float* from,
                    const float* weights, std::int64_t blocks, std::byte* out);

}  // namespace tessera
