// Segments of codes into the store, whole videos out of them.
#include "apps/jobs/video_task.h"

#include <optional>

#include "apps/jobs/clip_check.h"
#include "apps/jobs/item_files.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

// One video while its grids come to be committed.
class SegmentWriter final : public ClipListener {
 public:
  struct Job {
    VideoPipeline& pipeline;
    BatchStore& store;
    VideoJobListener& listener;
    JobRun& run;
    const SettledItem& item;
    const PreparedClip& clip;
  };
  SegmentWriter(const Job& job, StandingClip standing)
      : job_(job),
        began_at_(standing.grids),
        total_(job.pipeline.grids_of(job.clip)),
        grids_(standing.grids),
        standing_(std::move(standing)) {}

  const StandingClip& standing() const { return standing_; }
  bool whole() const { return standing_.grids == total_; }

  Flow on_grid(const ClipGrid& grid) override {
    codes_.insert(codes_.end(), grid.codes.begin(), grid.codes.end());
    ++grids_;
    if (grids_ < total_ && !job_.pipeline.can_go_on_at(job_.clip, grids_)) return Flow::kContinue;
    const std::int64_t passes = grid.passes - passes_;
    job_.run.put_part([&] {
      job_.store.commit_segment(job_.item, standing_.grids, grids_ - standing_.grids, passes,
                                codes_);
    });
    passes_ = grid.passes;
    standing_.codes.insert(standing_.codes.end(), codes_.begin(), codes_.end());
    standing_.grids = grids_;
    standing_.passes += passes;
    ++standing_.segments;
    codes_.clear();
    job_.listener.on_segment(job_.item, grids_, passes);
    return job_.run.stopping() ? Flow::kStop : Flow::kContinue;
  }

  Flow on_progress(const ClipProgress& progress) override {
    const ModelSpec& spec = job_.pipeline.spec();
    const std::int64_t grid = job_.pipeline.tokens_of(1);
    const std::int64_t within = grids_ < total_ ? progress.tokens_done % grid : 0;
    const std::int64_t rows = spec.model.grid_rows;
    VideoJobProgress shown{.frames_done = progress.frames_done,
                           .frames = progress.frames,
                           .segments = standing_.segments};
    shown.common = {.first = job_.run.over(),
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
};

class VideoTask final : public Task {
 public:
  VideoTask(VideoPipeline& pipeline, std::span<const SettledItem> items, BatchStore& store,
            const VideoJobOptions& options, VideoJobListener& listener)
      : pipeline_(pipeline), items_(items), store_(store), options_(options), listener_(listener) {}

  void work(JobRun& run) override {
    for (const std::size_t index : run.take_batch()) {
      const SettledItem& item = items_[index];
      std::optional<ErrorInfo> failure;
      std::optional<Made> made;
      try {
        made = make(item, run, failure);
      } catch (const Error& error) {  // the boundary of one item
        if (error.info().kind != ErrorKind::kGeneral) throw;
        failure = error.info();
      }
      if (failure) {
        run.fail(index, *failure);
      } else if (made) {
        put_down(index, *made, run);
      }
    }
  }

 private:
  struct Made {
    GeneratedVideo video;
    std::vector<OutputFile> files;
  };

  // Empty when the run is stopping, or when the model failed.
  std::optional<Made> make(const SettledItem& item, JobRun& run,
                           std::optional<ErrorInfo>& failure) {
    const double started = monotonic_seconds();
    const PreparedClip clip = pipeline_.prepare(clip_request_of(item, pipeline_, options_.folder));
    SegmentWriter writer({pipeline_, store_, listener_, run, item, clip}, standing_of(item, clip));
    const std::int64_t taken_over = writer.standing().segments;
    if (!writer.whole()) {
      const ClipCourse course{.standing = writer.standing().codes, .frames = false};
      const GeneratedClip generated = pipeline_.run(clip, writer, course);
      if (generated.status == PictureStatus::kFailed) failure = generated.error;
      if (failure || !writer.whole()) return std::nullopt;
    }
    const StandingClip& standing = writer.standing();
    MuxedClip muxed =
        mux_clip(pipeline_, item, clip, standing.codes, options_.files, store_.clip_draft(item));
    Made made{{.facts = clip.facts,
               .frames = clip.frames,
               .first_frames = static_cast<std::int64_t>(clip.first_frames.size()),
               .rate = rate_of(item, pipeline_),
               .segments = standing.segments,
               .taken_over = taken_over,
               .codec = muxed.codec,
               .seconds = monotonic_seconds() - started},
              std::move(muxed.files)};
    made.video.facts.passes = standing.passes;
    made.video.facts.tokens = pipeline_.tokens_of(standing.grids - pipeline_.given_grids(clip));
    return made;
  }

  void put_down(std::size_t index, const Made& made, JobRun& run) {
    const SettledItem& item = items_[index];
    ItemRecord record;
    const bool done = run.done(
        index, [&] { record = store_.commit(item, made.files, made.video.seconds, is_of_item); });
    if (done) listener_.on_done(item, record, made.video);
  }

  // What stands of the video, if it can be gone on with from there.
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

  VideoPipeline& pipeline_;
  std::span<const SettledItem> items_;
  BatchStore& store_;
  const VideoJobOptions& options_;
  VideoJobListener& listener_;
};

}  // namespace

JobEnd generate_videos(VideoPipeline& pipeline, std::span<const SettledItem> items,
                       std::span<const std::size_t> wanted, BatchStore& store,
                       const VideoJobOptions& options, VideoJobListener& listener) {
  VideoTask task(pipeline, items, store, options, listener);
  return SettledJob(items, store, listener)
      .run(wanted, task, {.at_once = 1, .max_retries = options.max_retries});
}

}  // namespace tessera
