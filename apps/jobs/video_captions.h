// The scenes of the videos of a captioning job: a request each, and the captions of a video brought
// together again, in order, when the last one is there. A video is one item of the job.
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

struct VideoSettings {
  VideoChoice frames;
  CutSettings cuts;
};

// A video whose scenes are all done.
struct VideoCaption {
  Caption whole;  // id of the video; texts a line each, counts and times added up
  std::vector<TimedCaption> cues;
  std::shared_ptr<const Json> scenes;  // [{start, end, first_frame, last_frame, caption, ...}]
};

// One thread asks for requests, another adds captions.
class VideoCaptions {
 public:
  // Takes a video's scenes; its requests are given by next(). `most`: a scene whose fingerprint
  // differs from an earlier one's by so many bits, at most, has that one's caption.
  void begin(const std::string& id, std::vector<VideoScene> scenes, const DescribeRequest& of_video,
             const VideoChoice& frames, std::optional<int> most = {});
  std::optional<DescribeRequest> next();

  // Whether the caption is a scene's.
  bool knows(const std::string& scene_id) const;
  // The video when this was its last scene. With a failed scene the video is failed, by the first
  // scene's error, whose place names the scene; what is left of its requests is not given any more.
  std::optional<VideoCaption> add(Caption&& caption);

 private:
  struct Work {
    std::vector<VideoScene> scenes;
    std::vector<std::optional<std::size_t>> repeats;  // the scene that has the caption
    std::vector<std::optional<Caption>> captions;
    std::size_t waiting = 0;  // scenes whose captions are missing
  };
  struct Place {
    std::string video;
    std::size_t scene = 0;
  };

  std::optional<Work> put(Caption&& caption, std::string& video);

  mutable std::mutex mutex_;  // of all below
  std::map<std::string, Work> at_work_;
  std::map<std::string, Place> video_of_;
  std::deque<DescribeRequest> requests_;
};

}  // namespace tessera
