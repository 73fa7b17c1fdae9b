// Solids and camera of a frame of a video. Internal to apps/lab/scene.
#pragma once

#include "apps/lab/scene/video.h"
#include "apps/lab/scene/tracer.h"

namespace tessera::world {

PosedScene pose_video(const Video& video, int frame);
Camera video_camera(const Video& video, int frame);

}  // namespace tessera::world
