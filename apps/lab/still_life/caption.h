// Sentences about still lifes, from a small grammar, and the way back. A caption names things or
// materials, textures and colours, the table, and what stands where; some leave out sizes, sky and
// light.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lab/still_life/still_life.h"

namespace tessera::still {

// "a large red wooden cube", "a small apple".
std::string describe(const Object& object, const Things& things);

// Everything but places: "a large red wooden cube and a small apple on a brown wooden table under a
// clear sky, lit from the left".
std::string canonical_caption(const StillLife& scene, const Things& things);

// The canonical caption for four scenes in ten, else a paraphrase; the choice is the scene seed's.
std::string caption(const StillLife& scene, const Things& things);

// How two objects stand to each other.
enum class Relation : std::uint8_t { kLeftOf, kRightOf, kInFrontOf, kBehind };
struct Related {
  int first, second;  // places in Said::objects
  Relation relation;
  bool operator==(const Related&) const = default;
};

// What a caption says. `objects` are listed left to right; their places, turns and mirroring are
// not said.
struct Said {
  std::vector<Object> objects;
  bool sizes = false;  // the sizes of `objects` are said
  Surface table = Surface::kPlain;
  Colour table_colour = Colour::kBrown;
  std::optional<Sky> sky;
  std::optional<Lamp> lamp;
  std::vector<Related> relations;
};

// Whether two objects of a scene stand to each other like this: by the middle of what is seen for
// left and right, by at least 0.8 units of depth for front and behind.
bool holds(const StillLife& scene, const Things& things, const Related& related);

// Reads any text that caption() writes. Any other is an Error (kUsage) naming the byte.
Said read_caption(std::string_view text, const Things& things);

}  // namespace tessera::still
