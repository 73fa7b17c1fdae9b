// Cut-outs of things: small RGBA images with names, in one file (a pack). The project ships none;
// assets/recipes/make_things.py makes a pack from what Debian packages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::still {

inline constexpr int kMaxThings = 4096;
inline constexpr int kMaxThingSide = 256;  // pixels

// One halving of a cut-out: premultiplied RGBA in linear light, row-major, [height, width, 4].
struct ThingLevel {
  int width = 0;
  int height = 0;
  std::vector<float> rgba;
};

struct Thing {
  std::string name;                // "apple", "pair of scissors"
  std::string article;             // "a" or "an"
  std::vector<ThingLevel> levels;  // full size first, then halved until a side is 1
  float aspect() const;            // width / height
};

// A pack in memory, sorted by name. Cheap to copy: the cut-outs are shared.
class Things {
 public:
  Things() = default;
  bool empty() const { return size() == 0; }
  int size() const;
  const Thing& operator[](int index) const;
  // The thing of that name, or null.
  const Thing* find(std::string_view name) const;
  // FNV-1a of the file, 16 digits in base 16; empty without a file. The same fingerprint, the same
  // pixels.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  friend Things parse_things(std::string_view bytes, const std::string& file);
  std::shared_ptr<const std::vector<Thing>> list_;
  std::string fingerprint_;
};

// A pack: the 8 bytes "TESTHNG1", a count (u32, little-endian as every number), and for each thing
// the length of its phrase (u16), the phrase ("an apple": article, space, name of a-z, spaces and
// hyphens), width and height (u16) and width * height * 4 bytes of RGBA, alpha not multiplied in,
// colours under a square-root transfer curve. Things are sorted by name. Error (kUsage) naming
// `file` and the byte if anything differs: wrong magic, a count of none or more than kMaxThings, a
// bad phrase, a name out of order or twice, a side of 0 or more than kMaxThingSide, no visible
// pixel, a cut file, bytes left.
Things parse_things(std::string_view bytes, const std::string& file);
Things read_things(const std::filesystem::path& path);

}  // namespace tessera::still
