// What is behind the table: sky, clouds or stars, two rows of hills. Internal to
// apps/lab/still_life.
#pragma once

#include "apps/lab/still_life/stage.h"

namespace tessera::still {

struct Backdrop {
  Vec light;
  int part;  // 0 sky, 1 far hills, 2 near hills
};
// (u, v): image point, -1 to 1; `edge`: v of the table's far edge there.
Backdrop backdrop_at(const Stage& stage, float u, float v, float edge);

// The sky in a mirror: by the height of the direction, -1 to 1.
Vec sky_towards(const Air& air, float height);

}  // namespace tessera::still
