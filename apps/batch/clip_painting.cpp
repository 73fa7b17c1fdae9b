// Segments of codes into the store, whole clips out of them.
#include "apps/batch/clip_painting.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>

#include "apps/batch/clip_check.h"
#include "apps/batch/equal_failures.h"
#include "apps/batch/item_files.h"
#include "apps/pipeline/memory_attempt.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

// One clip while its grids come to stand.
class SegmentWriter final : public ClipListener {
 public:
  struct Job {
    VideoPipeline& pipeline;
    BatchStore& store;
    ClipPaintListener& listener;
    const SettledItem& item;
    const PreparedClip& clip;
    std::size_t over;  // items of this run that are over
  };
  SegmentWriter(const Job& job, StandingClip standing)
      : job_(job),
        began_at_(standing.grids),
        total_(job.pipeline.grids_of(job.clip)),
        grids_(standing.grids),
        standing_(std::move(standing)) {}

  const StandingClip& standing() const { return standing_; }
  bool whole() const { return standing_.grids == total_; }
  // The store was at work when the run ended.
  bool committing() const { return committing_; }

  Flow on_grid(const ClipGrid& grid) override {
    codes_.insert(codes_.end(), grid.codes.begin(), grid.codes.end());
    ++grids_;
    if (grids_ < total_ && !job_.pipeline.can_go_on_at(job_.clip, grids_)) return Flow::kContinue;
    const std::int64_t passes = grid.passes - passes_;
    committing_ = true;
    job_.store.commit_segment(job_.item, standing_.grids, grids_ - standing_.grids, passes, codes_);
    committing_ = false;
    passes_ = grid.passes;
    standing_.codes.insert(standing_.codes.end(), codes_.begin(), codes_.end());
    standing_.grids = grids_;
    standing_.passes += passes;
    ++standing_.segments;
    codes_.clear();
    job_.listener.on_segment(job_.item, grids_, passes);
    return job_.listener.stop_requested() ? Flow::kStop : Flow::kContinue;
  }

  Flow on_progress(const ClipProgress& progress) override {
    const FamilySpec& spec = job_.pipeline.spec();
    const std::int64_t grid = job_.pipeline.tokens_of(1);
    const std::int64_t within = grids_ < total_ ? progress.tokens_done % grid : 0;
    const std::int64_t rows = spec.model.grid_rows;
    ClipJobProgress shown{.frames_done = progress.frames_done,
                          .frames = progress.frames,
                          .segments = standing_.segments};
    shown.common = {.first = job_.over,
                    .pictures = 1,
                    .rows_done = grids_ * rows + within * rows / grid,
                    .rows = total_ * rows,
                    .tokens_done = (grids_ - began_at_) * grid + within,
                    .tokens = (total_ - began_at_) * grid,
                    .passes = progress.passes,
                    .seconds = progress.seconds,
                    .run_tokens = (grids_ - began_at_) * grid + within,
                    .picture_passes = progress.passes};
    job_.listener.on_progress(shown);
    return Flow::kContinue;
  }

 private:
  Job job_;
  std::int64_t began_at_, total_, grids_;
  StandingClip standing_;
  std::vector<std::int32_t> codes_;  // of grids that no segment holds yet
  std::int64_t passes_ = 0;          // of this run, in segments
  bool committing_ = false;
};

class ClipPainter {
 public:
  ClipPainter(VideoPipeline& pipeline, std::span<const SettledItem> items, BatchStore& store,
              const ClipPaintOptions& options, ClipPaintListener& listener)
      : pipeline_(pipeline), items_(items), store_(store), options_(options), listener_(listener) {}

  PaintEnd run(std::span<const std::size_t> wanted) {
    todo_.assign(wanted.begin(), wanted.end());
    while (!todo_.empty()) {
      if (listener_.stop_requested()) return PaintEnd::kDrained;
      const std::size_t index = todo_.front();
      todo_.pop_front();
      if (attempt(index) == PaintEnd::kDrained) return PaintEnd::kDrained;
    }
    return PaintEnd::kOver;
  }

 private:
  // The boundary of one item.
  PaintEnd attempt(std::size_t index) {
    PaintEnd end = PaintEnd::kOver;
    committing_ = false;
    std::optional<ErrorInfo> failure;
    try {
      failure = memory_failure([&] { end = paint(index); }, "painting");
      if (failure && committing_) throw Error(*failure);
    } catch (const Error& error) {
      if (error.info().kind != ErrorKind::kGeneral || failing_) throw;
      failure = error.info();
    }
    if (failure) fail(index, *failure);
    return end;
  }

  PaintEnd paint(std::size_t index) {
    const SettledItem& item = items_[index];
    const double started = monotonic_seconds();
    const PreparedClip clip = pipeline_.prepare(clip_request_of(item, pipeline_, options_.folder));
    SegmentWriter writer({pipeline_, store_, listener_, item, clip, over_},
                         standing_of(item, clip));
    const std::int64_t taken_over = writer.standing().segments;
    if (!writer.whole()) {
      const ClipCourse course{.standing = writer.standing().codes, .frames = false};
      GeneratedClip made;
      try {
        made = pipeline_.run(clip, writer, course);
      } catch (...) {
        committing_ = writer.committing();
        throw;
      }
      if (made.status == PictureStatus::kFailed) {
        fail(index, made.error);
        return PaintEnd::kOver;
      }
      if (!writer.whole()) return PaintEnd::kDrained;
    }
    const StandingClip& standing = writer.standing();
    const MuxedClip muxed =
        mux_clip(pipeline_, item, clip, standing.codes, options_.files, store_.clip_draft(item));
    PaintedClip painted{.facts = clip.facts,
                        .frames = clip.frames,
                        .first_frames = static_cast<std::int64_t>(clip.first_frames.size()),
                        .rate = rate_of(item, pipeline_),
                        .segments = standing.segments,
                        .taken_over = taken_over,
                        .codec = muxed.codec,
                        .seconds = monotonic_seconds() - started};
    painted.facts.passes = standing.passes;
    painted.facts.tokens = pipeline_.tokens_of(standing.grids - pipeline_.given_grids(clip));
    committing_ = true;
    const ItemRecord record = store_.commit(item, muxed.files, painted.seconds, is_of_item);
    committing_ = false;
    ++over_;
    failures_.clear();
    listener_.on_done(item, record, painted);
    return PaintEnd::kOver;
  }

  // What stands of the clip, if it can be gone on with from there.
  StandingClip standing_of(const SettledItem& item, const PreparedClip& clip) {
    StandingClip standing =
        store_.standing_clip(item, pipeline_.grid_codes(), pipeline_.spec().model.codes);
    const std::int64_t total = pipeline_.grids_of(clip);
    const bool whole = standing.grids == total;
    if (whole || (standing.grids < total && pipeline_.can_go_on_at(clip, standing.grids))) {
      return standing;
    }
    return {};
  }

  void fail(std::size_t index, const ErrorInfo& error) {
    const SettledItem& item = items_[index];
    if (error.code != "E_OUTPUT_EXISTS" && tries_[index] < options_.max_retries) {
      ++tries_[index];
      todo_.push_front(index);
      store_.note_try(item);
      return listener_.on_retry(item, error);
    }
    failing_ = true;  // what is thrown from here on is the run's
    store_.fail(item, error);
    ++over_;
    listener_.on_failed(item, error);
    failures_.add(error);
    failing_ = false;
  }

  VideoPipeline& pipeline_;
  std::span<const SettledItem> items_;
  BatchStore& store_;
  const ClipPaintOptions& options_;
  ClipPaintListener& listener_;
  EqualFailures failures_;
  std::deque<std::size_t> todo_;                // items
  std::unordered_map<std::size_t, int> tries_;  // that failed
  std::size_t over_ = 0;                        // done or failed in this run
  bool committing_ = false, failing_ = false;
};

}  // namespace

PaintEnd paint_clips(VideoPipeline& pipeline, std::span<const SettledItem> items,
                     std::span<const std::size_t> wanted, BatchStore& store,
                     const ClipPaintOptions& options, ClipPaintListener& listener) {
  return ClipPainter(pipeline, items, store, options, listener).run(wanted);
}

}  // namespace tessera
