// The small pictures along a clip, read one after the other beside its playing: whole frames come
// from a process of their own and are made small here. One that cannot be read says why; after a
// few of them the others are left out.
#include "apps/studio/boundary.h"
#include "apps/studio/film_session.h"
#include "apps/studio/gallery.h"

namespace tessera {

namespace {

constexpr int kMostFailures = 3;
constexpr std::int64_t kRun = 16;  // frames that are rather decoded than jumped over

std::string without_file(ErrorInfo info) {
  info.file.clear();
  return format_error(info);
}

}  // namespace

void FilmSession::read_strip() {
  std::unique_ptr<FrameReader> reader;
  std::int64_t next = -1;
  int failures = 0;
  FilmThumbnail cell;
  const std::vector<std::int64_t>& frames = strip_plan_.frames;
  for (std::size_t i = 0; i < frames.size() && !ending_; ++i) {
    if (cell.frame != frames[i]) {
      cell = {frames[i], nullptr, "not read, for others were damaged"};
      try {
        if (failures < kMostFailures) read_cell(reader, next, strip_plan_.ticks[i], cell);
      } catch (const std::exception& error) {  // the boundary of one small picture
        cell.problem = without_file(info_of(error, "thumbnail"));
        reader.reset();
        ++failures;
      }
    }
    if (ending_) return;
    events_.push(FilmThumbnailEvent{film_.number, i, frames.size(), cell});
  }
}

// `next` is the frame that the reader gives next.
void FilmSession::read_cell(std::unique_ptr<FrameReader>& reader, std::int64_t& next,
                            std::int64_t ticks, FilmThumbnail& cell) {
  if (reader == nullptr) {
    reader = std::make_unique<FrameReader>(
        film_.path, film_reader_options(options_.program, options_.deadline_seconds));
    next = 0;
  }
  std::optional<VideoFrame> frame;
  if (cell.frame - next > kRun) {
    frame = reader->frame_at(ticks);
  } else {
    do {
      frame = reader->next();
    } while (frame && frame->ticks < ticks && !ending_);
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
