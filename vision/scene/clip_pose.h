// Solids and camera of a frame of a clip. Internal to vision/scene.
#pragma once

#include "vision/scene/clip.h"
#include "vision/scene/tracer.h"

namespace tessera::world {

PosedScene pose_clip(const Clip& clip, int frame);
Camera clip_camera(const Clip& clip, int frame);

}  // namespace tessera::world
