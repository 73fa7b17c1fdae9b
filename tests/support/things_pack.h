// Packs of cut-outs made by tests (apps/lab/still_life/things.h).
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct PackedThing {
  std::string phrase;
  int width, height;
  int alpha = 255;  // of a disc in the middle; around it is nothing
};

inline std::string pack_of(const std::vector<PackedThing>& list) {
  const auto number = [](std::size_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 255u);
    return text;
  };
  std::string pack = "TESTHNG1" + number(list.size(), 4);
  for (const PackedThing& thing : list) {
    pack += number(thing.phrase.size(), 2) + thing.phrase + number(thing.width, 2) +
            number(thing.height, 2);
    for (int y = 0; y < thing.height; ++y) {
      for (int x = 0; x < thing.width; ++x) {
        const double dx = (x + 0.5) / thing.width - 0.5;
        const double dy = (y + 0.5) / thing.height - 0.5;
        const bool inside = dx * dx + dy * dy < 0.25;
        pack += number(200, 1) + number(thing.phrase.size() * 9 % 256, 1) +
                number(x * 12 % 256, 1) + number(inside ? thing.alpha : 0, 1);
      }
    }
  }
  return pack;
}

// Four things, one with a colour in its name, one wider than high.
inline std::string small_pack() {
  return pack_of(
      {{"a dog", 24, 32}, {"an owl", 16, 20}, {"a pair of dice", 20, 12}, {"a red apple", 16, 16}});
}

}  // namespace tessera
