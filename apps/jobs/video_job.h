// The videos of a job, several at once: each is begun when a slot is free. A video is written as
// segments: its codes are committed to the store grid by grid (window by window where the decoding
// method cannot be gone on with in between), and when all are committed they are decoded, muxed and
// committed as one file. Whatever ends the run costs each video at work one segment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "apps/jobs/video_files.h"
#include "apps/jobs/settled_job.h"

namespace tessera {

struct VideoJobOptions {
  VideoFiles files = {};
  std::filesystem::path folder = {};  // from which first frames are looked for
  std::int64_t at_once = 1;           // videos, as the task has slots
  int max_retries = 0;                // as RunOptions
  LoopNeeds needs = {};               // room of the loop for any of them, as VideoCheck found it
};

// Of the videos at work. `common`: their tokens in this run, rows of codes of the whole videos.
struct VideoJobProgress {
  GenerateProgress common = {};
  std::int64_t frames_done = 0, frames = 0, segments = 0;
};

// A video that is done.
struct JobVideo {
  ImageFacts facts;  // tokens and passes over all runs that wrote segments of it
  std::int64_t frames = 0, first_frames = 0, rate = 0;
  std::int64_t segments = 0, taken_over = 0;  // in all; written by earlier runs
  std::string codec;
  double seconds = 0;  // of this run
};

class VideoJobListener : public SettledListener {
 public:
  // stop_requested() is also asked after every segment.
  virtual void on_progress(const VideoJobProgress&) {}
  // So many grids of the item are durable.
  virtual void on_segment(const SettledItem&, std::int64_t /*grids*/, std::int64_t /*passes*/) {}
  virtual void on_done(const SettledItem&, const ItemRecord&, const JobVideo&) {}
};

// Ends as JobRun::run(); what stands of a video that failed stays for its next try.
JobEnd generate_videos(VideoTask& task, std::span<const SettledItem> items,
                       std::span<const std::size_t> wanted, BatchStore& store,
                       const VideoJobOptions& options, VideoJobListener& listener);

}  // namespace tessera
