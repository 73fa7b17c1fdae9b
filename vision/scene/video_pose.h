// Solids and camera of a frame of a video. Internal to vision/scene.
#pragma once

#include "vision/scene/video.h"
#include "vision/scene/tracer.h"

namespace tessera::world {

PosedScene pose_video(const Video& video, int frame);
Camera video_camera(const Video& video, int frame);

}  // namespace tessera::world
