// The scenes of the clips of a captioning job: a request each, and the captions of a clip brought
// together again, in order, when the last one is there. A clip is one item of the job.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "apps/captions/subtitles.h"
#include "apps/runtime/describe_options.h"
#include "engine/core/json.h"

namespace tessera {

struct ClipSettings {
  ClipChoice frames;
  CutSettings cuts;
};

// A clip whose scenes are all done.
struct ClipCaption {
  Caption whole;  // id of the clip; texts a line each, counts and times added up
  std::vector<TimedCaption> cues;
  std::shared_ptr<const Json> scenes;  // [{start, end, first_frame, last_frame, caption, ...}]
};

// One thread asks for requests, another adds captions.
class ClipCaptions {
 public:
  // Takes a clip's scenes; its requests are given by next().
  void begin(const std::string& id, std::vector<ClipScene> scenes, const DescribeRequest& of_clip,
             const ClipChoice& frames);
  std::optional<DescribeRequest> next();

  // Whether the caption is a scene's.
  bool knows(const std::string& scene_id) const;
  // The clip when this was its last scene. With a failed scene the clip is failed, by the first
  // scene's error, whose place names the scene; what is left of its requests is not given any more.
  std::optional<ClipCaption> add(Caption&& caption);

 private:
  struct Work {
    std::vector<ClipScene> scenes;
    std::vector<std::optional<Caption>> captions;
    std::size_t waiting = 0;  // scenes whose captions are missing
  };
  struct Place {
    std::string clip;
    std::size_t scene = 0;
  };

  std::optional<Work> put(Caption&& caption, std::string& clip);

  mutable std::mutex mutex_;  // of all below
  std::map<std::string, Work> at_work_;
  std::map<std::string, Place> clip_of_;
  std::deque<DescribeRequest> requests_;
};

}  // namespace tessera
