// What makes the images of the studio's queue: a model of this process, or a server.
#pragma once

#include "apps/studio/generate_job.h"

namespace tessera {

class ImageMaker {
 public:
  virtual ~ImageMaker() = default;
  // Makes the image of a job, tells of it on its way, saves it. `generation` is loading, and is then
  // done, stopped or has an error. What throws fails this image alone. One call at a time.
  virtual void make(const GenerateJob& job, Generation& generation, StopRequest& stop_request) = 0;
};

}  // namespace tessera
