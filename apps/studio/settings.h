// What decides a picture, to and from the shapes that other parts know it in: what a picture
// records, what the pipeline is asked, the name of the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/studio/command.h"

namespace tessera {

// Every field that a picture records, ready to be painted again with the same bytes as result.
PaintSettings settings_of(const ImageFacts& facts);

// 32 bits by lot: easy to read and type, and enough to be different. Error kGeneral (E_RANDOM).
std::uint64_t random_seed();

// "a-red-ball-on-a-table": letters and digits of ASCII, at most 48 of them; "picture" where there
// are none.
std::string picture_slug(std::string_view prompt);

}  // namespace tessera
