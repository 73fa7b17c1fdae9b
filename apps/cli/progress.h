// Progress on stderr: a bar on a terminal, a line every few seconds elsewhere, or JSON lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "apps/cli/session.h"
#include "apps/runtime/generate_request.h"
#include "apps/runtime/video_task.h"

namespace tessera {

enum class ProgressStyle : std::uint8_t { kNone, kBar, kLines, kJson };

// Items of a job: done + failed + skipped + pending = total at any moment. Of this run but for
// `skipped`, what earlier runs have settled.
struct JobCounts {
  std::uint64_t done = 0, failed = 0, skipped = 0, pending = 0, total = 0;
};

// A video of a job: frames that stand, segments that are durable.
struct VideoCounts {
  std::int64_t frames_done = 0, frames = 0, segments = 0;
};

ProgressStyle progress_style(const Session& session);

class ProgressReporter {
 public:
  ProgressReporter(const Session& session, std::size_t images);
  // `job`, `video`: told next to it where lines are JSON.
  void show(const GenerateProgress& progress, const std::optional<JobCounts>& job = {},
            const std::optional<VideoCounts>& video = {});
  // Clears the bar, so that other lines stand by themselves.
  void clear();

 private:
  struct Figures {
    double tokens_per_second = 0, tokens_per_pass = 0;
    std::optional<double> images_per_hour, eta_seconds;  // empty = not known yet
  };
  Figures figures_of(const GenerateProgress& progress) const;
  std::string describe(const GenerateProgress& progress) const;
  std::string json_text(const GenerateProgress& progress, const std::optional<JobCounts>& job,
                        const std::optional<VideoCounts>& video) const;

  const Session& session_;
  ProgressStyle style_ = ProgressStyle::kNone;
  std::size_t images_ = 0;
  double last_shown_ = -1e9;
  double started_ = 0;
  bool bar_open_ = false;
};

// Progress of a video.
class VideoReporter {
 public:
  explicit VideoReporter(const Session& session);
  void show(const VideoProgress& progress);
  void clear();

 private:
  ProgressStyle style_;
  double last_shown_ = -1e9;
  bool line_open_ = false;
};

// Progress of a job whose length nobody knows: how many images so far, and how fast.
class CountProgress {
 public:
  explicit CountProgress(const Session& session);
  void show(std::uint64_t done, std::uint64_t failed);
  void clear();
  // The last count, where lines are JSON.
  void finish(std::uint64_t done, std::uint64_t failed);

 private:
  void print(std::uint64_t done, std::uint64_t failed, double now);

  ProgressStyle style_;
  double started_ = 0, last_shown_ = -1e9;
  bool line_open_ = false;
};

// Progress of a file that is written.
class ByteProgress {
 public:
  explicit ByteProgress(const Session& session);
  // `name`: what was written last.
  void show(std::string_view name, std::uint64_t written, std::uint64_t all);
  void clear();

 private:
  ProgressStyle style_;
  double last_shown_;
  bool line_open_ = false;
};

}  // namespace tessera
