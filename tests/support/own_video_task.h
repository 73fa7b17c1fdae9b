// A video task with a runtime of its own, for tests that write one video after the other.
#pragma once

#include <utility>

#include "apps/runtime/video_task.h"

namespace tessera {

class RuntimeOfOne {
 protected:
  Runtime own_;
};

class OwnVideoTask : private RuntimeOfOne, public VideoTask {
 public:
  explicit OwnVideoTask(const GenerateOptions& options) : VideoTask(own_, options) {}
  OwnVideoTask(const GenerateOptions& options, OpenedModel model, std::string shown_name)
      : VideoTask(own_, options, std::move(model), std::move(shown_name)) {}

  GeneratedVideo run(const PreparedVideo& video, VideoListener& listener, VideoCourse course = {}) {
    return generate_video(*this, video, listener, std::move(course));
  }
};

}  // namespace tessera
