#include "apps/lab/still_life/things.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera::still {
namespace {

constexpr std::string_view kMagic = "TESTHNG1";
constexpr std::size_t kMaxPackBytes = std::size_t{1} << 28;
constexpr std::size_t kMaxPhrase = 64;

class PackReader {
 public:
  PackReader(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  std::string_view take(std::size_t count, const char* what) {
    if (bytes_.size() - at_ < count) {
      fail(std::to_string(count) + " bytes of " + what,
           std::to_string(bytes_.size() - at_) + " bytes");
    }
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }

  std::uint32_t number(int bytes, const char* what) {
    const std::string_view digits = take(to_size(bytes), what);
    std::uint32_t value = 0;
    for (int i = bytes; i-- > 0;) value = value << 8 | byte_of(nth(digits, i));
    return value;
  }

  std::uint32_t number(int bytes, const char* what, std::uint32_t low, std::uint32_t high) {
    const std::uint32_t value = number(bytes, what);
    if (value < low || value > high) {
      at_ -= to_size(bytes);
      fail(std::string(what) + " from " + std::to_string(low) + " to " + std::to_string(high),
           std::to_string(value));
    }
    return value;
  }

  bool done() const { return at_ == bytes_.size(); }

  [[noreturn]] void fail(std::string expected, std::string found) const {
    throw Error{{.kind = ErrorKind::kUsage,
                 .code = "E_THINGS",
                 .file = file_,
                 .where = "byte " + std::to_string(at_),
                 .expected = std::move(expected),
                 .found = std::move(found),
                 .hint = "assets/recipes/make_things.py makes a pack"}};
  }

 private:
  std::string_view bytes_;
  const std::string& file_;
  std::size_t at_ = 0;
};

bool good_name(std::string_view name) {
  const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !name.empty() && letter(name.front()) && letter(name.back()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return letter(c) || c == ' ' || c == '-'; });
}

// The transfer curve of the renderer's images is a square root.
float linear(char byte) {
  const float value = to_float(byte_of(byte)) * (1.0f / 255.0f);
  return value * value;
}

ThingLevel first_level(int width, int height, std::string_view rgba) {
  ThingLevel level{width, height, std::vector<float>(rgba.size())};
  for (std::size_t i = 0; i < rgba.size(); i += 4) {
    const float alpha = to_float(byte_of(rgba[i + 3])) * (1.0f / 255.0f);
    for (std::size_t c = 0; c < 3; ++c) level.rgba[i + c] = alpha * linear(rgba[i + c]);
    level.rgba[i + 3] = alpha;
  }
  return level;
}

// Mean of 2x2; an odd side repeats its last row or column.
ThingLevel halved(const ThingLevel& from) {
  ThingLevel level{(from.width + 1) / 2, (from.height + 1) / 2, {}};
  level.rgba.reserve(to_size(level.width) * to_size(level.height) * 4);
  for (int y = 0; y < level.height; ++y) {
    for (int x = 0; x < level.width; ++x) {
      const int right = std::min(2 * x + 1, from.width - 1);
      const int below = std::min(2 * y + 1, from.height - 1);
      for (int c = 0; c < 4; ++c) {
        const auto at = [&](int column, int row) {
          return nth(from.rgba, (row * from.width + column) * 4 + c);
        };
        level.rgba.push_back(
            0.25f * (at(2 * x, 2 * y) + at(right, 2 * y) + at(2 * x, below) + at(right, below)));
      }
    }
  }
  return level;
}

Thing read_thing(PackReader& reader) {
  Thing thing;
  const auto length = reader.number(2, "a phrase's length", 3, kMaxPhrase);
  const std::string_view phrase = reader.take(length, "a phrase");
  const std::size_t space = phrase.find(' ');
  thing.article = phrase.substr(0, space);
  if (space != std::string_view::npos) thing.name = phrase.substr(space + 1);
  if ((thing.article != "a" && thing.article != "an") || !good_name(thing.name)) {
    reader.fail("\"a\" or \"an\" and a name of a-z, spaces and hyphens",
                "\"" + std::string(phrase) + "\"");
  }
  const int width = narrow<int>(reader.number(2, "a width", 1, kMaxThingSide));
  const int height = narrow<int>(reader.number(2, "a height", 1, kMaxThingSide));
  const std::string_view rgba =
      reader.take(to_size(width) * to_size(height) * 4, "a cut-out's pixels");
  thing.levels.push_back(first_level(width, height, rgba));
  const std::vector<float>& pixels = thing.levels.front().rgba;
  bool visible = false;
  for (std::size_t i = 3; i < pixels.size(); i += 4) visible = visible || pixels[i] > 0.5f;
  if (!visible) reader.fail("a cut-out of which something can be seen", "no opaque pixel");
  while (thing.levels.back().width > 1 && thing.levels.back().height > 1) {
    thing.levels.push_back(halved(thing.levels.back()));
  }
  return thing;
}

std::string fingerprint_of(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes) hash = (hash ^ byte_of(byte)) * 0x100000001b3u;
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) {
    text += nth(std::string_view("0123456789abcdef"), narrow<int>(hash >> shift & 15u));
  }
  return text;
}

}  // namespace

float Thing::aspect() const {
  return to_float(levels.front().width) / to_float(levels.front().height);
}

int Things::size() const { return list_ ? narrow<int>(list_->size()) : 0; }

const Thing& Things::operator[](int index) const {
  expects(list_ != nullptr, "a thing of a pack");
  return nth(*list_, index);
}

const Thing* Things::find(std::string_view name) const {
  if (!list_) return nullptr;
  const auto found =
      std::lower_bound(list_->begin(), list_->end(), name,
                       [](const Thing& thing, std::string_view key) { return thing.name < key; });
  return found != list_->end() && found->name == name ? &*found : nullptr;
}

Things parse_things(std::string_view bytes, const std::string& file) {
  PackReader reader(bytes, file);
  if (bytes.substr(0, kMagic.size()) != kMagic) reader.fail("a pack of things", "another file");
  reader.take(kMagic.size(), "magic");
  const std::uint32_t count = reader.number(4, "a number of things", 1, kMaxThings);
  std::vector<Thing> list;
  for (std::uint32_t i = 0; i < count; ++i) {
    Thing thing = read_thing(reader);
    if (!list.empty() && list.back().name >= thing.name) {
      reader.fail("names in order, none twice",
                  "\"" + thing.name + "\" after \"" + list.back().name + "\"");
    }
    list.push_back(std::move(thing));
  }
  if (!reader.done()) reader.fail("the end of the file", "more bytes");
  Things things;
  things.list_ = std::make_shared<const std::vector<Thing>>(std::move(list));
  things.fingerprint_ = fingerprint_of(bytes);
  return things;
}

Things read_things(const std::filesystem::path& path) {
  return parse_things(read_file(path, kMaxPackBytes, ErrorKind::kUsage), path.string());
}

}  // namespace tessera::still
