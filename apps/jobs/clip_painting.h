// Paints the clips of a job that are not done yet, one after the other. A clip is written as
// segments: its codes are committed to the store grid by grid (window by window where the decoding
// method cannot be gone on with in between), and when all stand they are decoded, muxed and
// committed as one file. Whatever ends the run costs one segment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "apps/jobs/clip_files.h"
#include "apps/jobs/painting.h"

namespace tessera {

struct ClipPaintOptions {
  ClipFiles files = {};
  std::filesystem::path folder = {};  // from which first frames are looked for
  int max_retries = 0;           // as PaintOptions
};

// `common`: this clip's tokens in this run, rows of codes of the whole clip.
struct ClipJobProgress {
  GenerateProgress common = {};
  std::int64_t frames_done = 0, frames = 0, segments = 0;
};

struct PaintedClip {
  PictureFacts facts;  // tokens and passes over all runs that wrote segments of it
  std::int64_t frames = 0, first_frames = 0, rate = 0;
  std::int64_t segments = 0, taken_over = 0;  // in all; written by earlier runs
  std::string codec;
  double seconds = 0;  // of this run
};

class ClipPaintListener {
 public:
  virtual ~ClipPaintListener() = default;
  // Asked between clips and behind every segment.
  virtual bool stop_requested() { return false; }
  virtual void on_progress(const ClipJobProgress&) {}
  // So many grids of the item are durable.
  virtual void on_segment(const SettledItem&, std::int64_t /*grids*/, std::int64_t /*passes*/) {}
  virtual void on_done(const SettledItem&, const ItemRecord&, const PaintedClip&) {}
  virtual void on_failed(const SettledItem&, const ErrorInfo&) {}
  virtual void on_retry(const SettledItem&, const ErrorInfo&) {}
};

// Errors as paint_items(); what stands of a clip that failed stays for its next try.
PaintEnd paint_clips(VideoPipeline& pipeline, std::span<const SettledItem> items,
                     std::span<const std::size_t> wanted, BatchStore& store,
                     const ClipPaintOptions& options, ClipPaintListener& listener);

}  // namespace tessera
