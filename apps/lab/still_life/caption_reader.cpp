// The way from a caption back to what it says.
#include <algorithm>

#include "apps/lab/scene/word_reader.h"
#include "apps/lab/still_life/caption.h"
#include "engine/core/index.h"

namespace tessera::still {
namespace {

template <typename Enum>
Enum word_of(WordReader& words, std::span<const std::string_view> names) {
  return enum_at<Enum>(words.need_one_of(names));
}

class CaptionReader {
 public:
  CaptionReader(std::string_view text, const Things& things) : words_(text), things_(things) {}

  Said read() {
    if (words_.accept("from left to right ")) {
      list(true);
      surroundings(true, true);
      if (words_.accept(", the ")) depth_of_two();
    } else if (words_.accept("a picture of ")) {
      list(false);
      surroundings(true, false);
    } else if (words_.accept("on a ")) {
      table();
      const bool one = words_.accept(" stands ");
      if (!one) words_.need(" stand ");
      list(true);
      if (one != (said_.objects.size() == 1))
        words_.fail("one object after \"stands\", more after \"stand\"");
      sky();
    } else {
      said_.sizes = words_.accept("a small ") || words_.accept("a large ");
      words_.back_to(0);
      plain();
    }
    words_.need_end();
    return std::move(said_);
  }

 private:
  // A list, or two objects by how they stand to each other.
  void plain() {
    object(said_.sizes);
    const bool left = words_.accept(" to the left of ");
    if (left || words_.accept(" to the right of ")) {
      two(left);
    } else {
      rest_of_list(said_.sizes);
    }
    surroundings(said_.sizes, said_.sizes);
  }

  void two(bool left) {
    const int first = left ? 0 : 1;
    said_.relations.push_back({first, 1 - first, left ? Relation::kLeftOf : Relation::kRightOf});
    if (words_.accept("and behind "))
      said_.relations.push_back({first, 1 - first, Relation::kBehind});
    if (words_.accept("and in front of ")) {
      said_.relations.push_back({first, 1 - first, Relation::kInFrontOf});
    }
    object(true);
    if (!left) std::swap(said_.objects[0], said_.objects[1]);
  }

  void list(bool sizes) {
    said_.sizes = sizes;
    object(sizes);
    rest_of_list(sizes);
  }

  void rest_of_list(bool sizes) {
    bool last = false;
    while (!last && said_.objects.size() < kMaxObjects) {
      last = words_.accept(" and ");
      if (!last && !words_.is_next(", a")) break;
      if (!last) words_.need(", ");
      object(sizes);
    }
    if (said_.objects.size() > 1 && !last) words_.fail("\" and \" before the last object");
  }

  void object(bool sized) {
    Object object;
    const bool an = words_.accept("an ");
    if (!an) words_.need("a ");
    if (sized) {
      object.size = word_of<SolidSize>(words_, size_names());
      words_.need(" ");
    }
    if (!solid(&object)) thing(sized, an, &object);
    said_.objects.push_back(std::move(object));
  }

  // A thing may begin with a colour ("red apple"), so a solid needs colour and surface.
  bool solid(Object* object) {
    const std::size_t begin = words_.place();
    const int colour = words_.one_of(still_colour_names());
    if (colour >= 0 && words_.accept(" ")) {
      const int surface = words_.one_of(surface_names());
      if (surface >= 0 && words_.accept(" ")) {
        object->colour = enum_at<Colour>(colour);
        object->surface = enum_at<Surface>(surface);
        object->kind = word_of<SolidKind>(words_, kind_names());
        return true;
      }
    }
    words_.back_to(begin);
    return false;
  }

  // The longest name that fits: "pear" is also the beginning of others.
  void thing(bool sized, bool an, Object* object) {
    const Thing* longest = nullptr;
    for (int i = 0; i < things_.size(); ++i) {
      const Thing& candidate = things_[i];
      if (!words_.is_next(candidate.name)) continue;
      if (!sized && (candidate.article == "an") != an) continue;
      if (longest == nullptr || candidate.name.size() > longest->name.size()) longest = &candidate;
    }
    if (longest == nullptr) words_.fail("a solid or a thing of the pack");
    words_.need(longest->name);
    object->thing = longest->name;
  }

  void table() {
    said_.table_colour = word_of<Colour>(words_, still_colour_names());
    words_.need(" ");
    said_.table = word_of<Surface>(words_, surface_names());
    words_.need(" table");
  }

  void sky() {
    if (words_.accept(" under a ")) {
      said_.sky = words_.accept("clear") ? Sky::kClear : Sky::kCloudy;
      if (said_.sky == Sky::kCloudy) words_.need("cloudy");
      words_.need(" sky");
    } else {
      said_.sky = words_.accept(" at sunset") ? Sky::kSunset : Sky::kNight;
      if (said_.sky == Sky::kNight) words_.need(" at night");
    }
  }

  void surroundings(bool with_sky, bool with_lamp) {
    words_.need(" on a ");
    table();
    if (with_sky) sky();
    if (!with_lamp) return;
    words_.need(", lit from the ");
    said_.lamp = word_of<Lamp>(words_, lamp_names());
  }

  int known() {
    Object named;
    if (!solid(&named)) thing(true, false, &named);
    for (std::size_t i = 0; i < said_.objects.size(); ++i) {
      named.size = said_.objects[i].size;
      if (named == said_.objects[i]) return narrow<int>(i);
    }
    words_.fail("an object named before");
  }

  void depth_of_two() {
    const int first = known();
    const bool behind = words_.accept(" behind the ");
    if (!behind) words_.need(" in front of the ");
    said_.relations.push_back({first, known(), behind ? Relation::kBehind : Relation::kInFrontOf});
  }

  WordReader words_;
  const Things& things_;
  Said said_;
};

}  // namespace

Said read_caption(std::string_view text, const Things& things) {
  return CaptionReader(text, things).read();
}

}  // namespace tessera::still
