// What decides an image, to and from the shapes that other parts know it in: what an image
// records, what the pipeline is asked, the name of the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/studio/command.h"

namespace tessera {

// Every field that an image records, ready to be generated again with the same bytes as result.
GenerateSettings settings_of(const ImageFacts& facts);

// 32 bits at random: easy to read and type, and enough to be different. Error kGeneral (E_RANDOM).
std::uint64_t random_seed();

// "a-red-ball-on-a-table": letters and digits of ASCII, at most 48 of them; "picture" where there
// are none.
std::string image_slug(std::string_view prompt);

}  // namespace tessera
