// The small images along a video, read one after the other next to its playing: whole frames come
// from a process of their own and are made small here. One that cannot be read says why; after a
// few of them the others are left out.
#include <algorithm>

#include "apps/studio/boundary.h"
#include "apps/studio/film_session.h"
#include "apps/studio/gallery.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr int kMaxFailures = 3;
constexpr std::int64_t kStripRun =
    200;  // frames that are rather decoded than begun anew at a key frame

std::string without_file(ErrorInfo info) {
  info.file.clear();
  return format_error(info);
}

}  // namespace

// For the frames as they are counted now. What is there already of the plan before stays.
void FilmSession::plan_strip() {
  end_strip();
  StripPlan plan;
  plan.interrupt = std::make_shared<VideoInterrupt>();
  const std::size_t cells = std::min(kFilmThumbnails, ticks_.size());
  std::map<std::int64_t, std::shared_ptr<const Image>> small;
  for (std::size_t i = 0; i < cells; ++i) {
    const double middle = (to_double(i) + 0.5) / to_double(cells);
    const std::int64_t frame = film_.frame_at(middle * film_.seconds);
    const std::int64_t ticks = nth(ticks_, frame);
    plan.frames.push_back(frame);
    plan.ticks.push_back(ticks);
    FilmThumbnail cell;
    if (const auto there = small_.find(ticks); there != small_.end()) {
      cell = {frame, there->second, ""};
      small.insert(*there);
    }
    events_.push(FilmThumbnailEvent{film_.number, i, cells, std::move(cell)});
  }
  small_ = std::move(small);
  strip_times_ = film_.times;
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    strip_plan_ = std::move(plan);
  }
  strip_ = std::thread([this] { read_strip(); });
}

void FilmSession::end_strip() {
  if (!strip_.joinable()) return;
  strip_ending_ = true;
  strip_plan_.interrupt->fire();
  strip_.join();
  strip_ending_ = false;
}

void FilmSession::read_strip() {
  std::unique_ptr<FrameReader> reader;
  std::int64_t next = -1;
  int failures = 0;
  FilmThumbnail cell;
  const std::vector<std::int64_t>& frames = strip_plan_.frames;
  const auto before = small_;  // shown already
  for (std::size_t i = 0; i < frames.size() && !strip_ends(); ++i) {
    if (before.contains(strip_plan_.ticks[i])) continue;
    if (cell.frame != frames[i]) {
      cell = {frames[i], nullptr, "not read, for others were damaged"};
      try {
        if (failures < kMaxFailures) read_cell(reader, next, strip_plan_.ticks[i], cell);
      } catch (const std::exception& error) {  // the boundary of one small image
        cell.problem = without_file(info_of(error, "thumbnail"));
        reader.reset();
        ++failures;
      }
    }
    if (strip_ends()) return;
    if (cell.image) small_.emplace(strip_plan_.ticks[i], cell.image);
    events_.push(FilmThumbnailEvent{film_.number, i, frames.size(), cell});
  }
}

// `next` is the frame that the reader gives next.
void FilmSession::read_cell(std::unique_ptr<FrameReader>& reader, std::int64_t& next,
                            std::int64_t ticks, FilmThumbnail& cell) {
  if (reader == nullptr) {
    reader = std::make_unique<FrameReader>(
        film_.path,
        film_reader_options(options_.program, options_.deadline_seconds, strip_plan_.interrupt));
    next = 0;
  }
  std::optional<VideoFrame> frame;
  if (cell.frame - next > kStripRun) {
    frame = reader->frame_at(ticks);
  } else {
    do {
      frame = reader->next();
    } while (frame && frame->ticks < ticks && !strip_ends());
  }
  next = cell.frame + 1;
  if (!frame) {
    cell.problem = "no frame there";
    return;
  }
  cell.image = std::make_shared<const Image>(thumbnail_of(*image_of(std::move(*frame))));
  cell.problem.clear();
}

}  // namespace tessera
