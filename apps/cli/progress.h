// Progress on stderr: a bar on a terminal, a line every few seconds elsewhere, or JSON lines.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "apps/cli/session.h"
#include "apps/runtime/generate_request.h"
#include "apps/runtime/video_task.h"
#include "engine/core/json.h"

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

// What all reporters share: whether a line is due, and how it is written.
class ProgressLine {
 public:
  ProgressLine(const Session& session, double json_seconds);

  ProgressStyle style() const { return style_; }
  // Whether it is time for a line, which is then said to be written; `last` JSON lines always are.
  bool due(bool last = false);
  // The line in its style: `json` makes the value of the key "progress".
  void write(const std::function<Json()>& json, const std::function<std::string()>& text);
  // Clears a line that stays on the terminal, so that others are by themselves.
  void clear();

 private:
  ProgressStyle style_;
  double interval_, last_shown_;
  bool open_ = false;
};

class ProgressReporter {
 public:
  ProgressReporter(const Session& session, std::size_t images);
  // `job`, `video`: told next to it where lines are JSON.
  void show(const GenerateProgress& progress, const std::optional<JobCounts>& job = {},
            const std::optional<VideoCounts>& video = {});
  void clear() { line_.clear(); }

 private:
  struct Figures {
    double tokens_per_second = 0, tokens_per_pass = 0;
    std::optional<double> images_per_hour, eta_seconds;  // empty = not known yet
  };
  Figures figures_of(const GenerateProgress& progress) const;
  std::string describe(const GenerateProgress& progress) const;
  Json json_of(const GenerateProgress& progress, const std::optional<JobCounts>& job,
               const std::optional<VideoCounts>& video) const;

  const Session& session_;
  ProgressLine line_;
  std::size_t images_ = 0;
  double started_ = 0;
};

// Progress of a video.
class VideoReporter {
 public:
  explicit VideoReporter(const Session& session);
  void show(const VideoProgress& progress);
  void clear() { line_.clear(); }

 private:
  ProgressLine line_;
};

// Progress of a job whose length nobody knows: how many images so far, and how fast.
class CountProgress {
 public:
  explicit CountProgress(const Session& session);
  void show(std::uint64_t done, std::uint64_t failed);
  void clear() { line_.clear(); }
  // The last count, where lines are JSON.
  void finish(std::uint64_t done, std::uint64_t failed);

 private:
  void print(std::uint64_t done, std::uint64_t failed);

  ProgressLine line_;
  double started_;
};

// Progress of a file that is written.
class ByteProgress {
 public:
  explicit ByteProgress(const Session& session);
  // `name`: what was written last.
  void show(std::string_view name, std::uint64_t written, std::uint64_t all);
  void clear() { line_.clear(); }

 private:
  ProgressLine line_;
};

}  // namespace tessera
