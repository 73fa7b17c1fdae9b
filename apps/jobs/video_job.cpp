// Segments of codes into the store, whole videos out of them.
#include "apps/jobs/video_job.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "apps/jobs/item_files.h"
#include "apps/jobs/video_check.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

class VideoJob;

// One video while its grids are committed.
class SegmentWriter final : public VideoListener {
 public:
  SegmentWriter(VideoJob& job, std::size_t index, PreparedVideo video, StandingVideo committed);

  std::size_t index() const { return index_; }
  const PreparedVideo& video() const { return video_; }
  const StandingVideo& committed() const { return committed_; }
  std::int64_t taken_over() const { return taken_over_; }  // segments of earlier runs
  bool whole() const { return committed_.grids == total_; }
  double started() const { return started_; }
  void add_to(VideoJobProgress& shown) const;

  Flow on_grid(const VideoGrid& grid) override;
  Flow on_progress(const VideoProgress& progress) override;
  void on_over(GeneratedVideo&& video) override;

 private:
  VideoJob& job_;
  std::size_t index_;  // of the item
  PreparedVideo video_;
  std::int64_t began_at_, total_, grids_;
  StandingVideo committed_;
  std::int64_t taken_over_;
  std::vector<std::int32_t> codes_;  // of grids that no segment holds yet
  std::int64_t passes_ = 0;          // of this run, in segments
  VideoProgress progress_;
  double started_ = monotonic_seconds();
};

class VideoJob final : public Task {
 public:
  VideoJob(VideoTask& task, std::span<const SettledItem> items, BatchStore& store,
           const VideoJobOptions& options, VideoJobListener& listener, std::size_t wanted)
      : task_(task),
        items_(items),
        store_(store),
        options_(options),
        listener_(listener),
        wanted_(to_index(wanted)) {}

  void work(JobRun& run) override {
    run_ = &run;
    at_work_.clear();
    ended_ = false;
    task_.runtime().finish(task_.submit(std::make_unique<Videos>(*this)));
  }
  void release() override { task_.release(); }

  // --- of the videos at work ---
  VideoTask& task() { return task_; }
  JobRun& run() { return *run_; }
  void commit_segment(const SegmentWriter& writer, std::int64_t grids, std::int64_t passes,
                      std::span<const std::int32_t> codes) {
    run_->put_part([&] {
      store_.commit_segment(items_[writer.index()], writer.committed().grids, grids, passes, codes);
    });
  }
  Flow after_segment(std::size_t index, std::int64_t grids, std::int64_t passes) {
    listener_.on_segment(items_[index], grids, passes);
    return run_->stopping() ? Flow::kStop : Flow::kContinue;
  }
  void show_progress();
  void end(std::size_t index, const GeneratedVideo& video);

 private:
  // Those that the run gives, as slots become free.
  class Videos final : public VideoSource {
   public:
    explicit Videos(VideoJob& job) : job_(job) {}
    LoopNeeds needs() const override {
      LoopNeeds out = job_.options_.needs;
      out.slots = std::min(job_.run_->at_once(), job_.wanted_);
      return out;
    }
    std::optional<VideoOrder> next() override { return job_.next(); }
    bool more() const override { return !job_.ended_; }
    bool takes_fewer_slots() const override { return true; }
    void on_fewer_slots(std::int64_t /*had*/, std::int64_t have) override {
      job_.run_->lasts_for(have);
    }

   private:
    VideoJob& job_;
  };

  std::optional<VideoOrder> next();
  std::optional<VideoOrder> begin(std::size_t index);
  void finish(const SegmentWriter& writer);
  StandingVideo committed_of(const SettledItem& item, const PreparedVideo& video);
  // Errors of one item end there.
  template <typename Work>
  void within_item(std::size_t index, const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      if (error.info().kind != ErrorKind::kGeneral) throw;
      run_->fail(index, error.info());
    }
  }

  VideoTask& task_;
  std::span<const SettledItem> items_;
  BatchStore& store_;
  const VideoJobOptions& options_;
  VideoJobListener& listener_;
  std::int64_t wanted_;  // items of the run
  JobRun* run_ = nullptr;
  bool ended_ = false;                                             // the run gives no more
  std::map<std::size_t, std::unique_ptr<SegmentWriter>> at_work_;  // by item
};

// --- one video -----------------------------------------------------------------------------------

SegmentWriter::SegmentWriter(VideoJob& job, std::size_t index, PreparedVideo video,
                             StandingVideo committed)
    : job_(job),
      index_(index),
      video_(std::move(video)),
      began_at_(committed.grids),
      total_(job.task().grids_of(video_)),
      grids_(committed.grids),
      committed_(std::move(committed)),
      taken_over_(committed_.segments) {}

Flow SegmentWriter::on_grid(const VideoGrid& grid) {
  codes_.insert(codes_.end(), grid.codes.begin(), grid.codes.end());
  ++grids_;
  if (grids_ < total_ && !job_.task().can_go_on_at(video_, grids_)) return Flow::kContinue;
  const std::int64_t passes = grid.passes - passes_;
  job_.commit_segment(*this, grids_ - committed_.grids, passes, codes_);
  passes_ = grid.passes;
  committed_.codes.insert(committed_.codes.end(), codes_.begin(), codes_.end());
  committed_.grids = grids_;
  committed_.passes += passes;
  ++committed_.segments;
  codes_.clear();
  return job_.after_segment(index_, grids_, passes);
}

Flow SegmentWriter::on_progress(const VideoProgress& progress) {
  progress_ = progress;
  job_.show_progress();
  return Flow::kContinue;
}

void SegmentWriter::add_to(VideoJobProgress& shown) const {
  const std::int64_t grid = job_.task().tokens_of(1), rows = job_.task().spec().model.grid_rows;
  const std::int64_t within = grids_ < total_ ? progress_.tokens_done % grid : 0;
  const std::int64_t tokens = (grids_ - began_at_) * grid + within;
  shown.frames_done += progress_.frames_done;
  shown.frames += video_.frames;
  shown.segments += committed_.segments;
  GenerateProgress& common = shown.common;
  ++common.images;
  common.rows_done += grids_ * rows + within * rows / grid;
  common.rows += total_ * rows;
  common.tokens_done += tokens;
  common.tokens += (total_ - began_at_) * grid;
  common.passes = std::max(common.passes, progress_.passes);
  common.seconds = std::max(common.seconds, progress_.seconds);
  common.run_tokens += tokens;
  common.image_passes += progress_.passes;
}

void SegmentWriter::on_over(GeneratedVideo&& video) { job_.end(index_, video); }

// --- the job -------------------------------------------------------------------------------------

std::optional<VideoOrder> VideoJob::next() {
  while (const std::optional<std::size_t> index = run_->take()) {
    std::optional<VideoOrder> order;
    within_item(*index, [&] { order = begin(*index); });
    if (order) return order;
  }
  ended_ = run_->ended();
  return std::nullopt;
}

// Nothing where it only had to be put together.
std::optional<VideoOrder> VideoJob::begin(std::size_t index) {
  const SettledItem& item = items_[index];
  PreparedVideo video = task_.prepare(video_request_of(item, task_, options_.folder));
  StandingVideo committed = committed_of(item, video);
  auto writer =
      std::make_unique<SegmentWriter>(*this, index, std::move(video), std::move(committed));
  if (writer->whole()) {
    finish(*writer);
    return std::nullopt;
  }
  VideoOrder out{.video = writer->video(),
                 .listener = writer.get(),
                 .course = {.committed = writer->committed().codes, .frames = false}};
  at_work_[index] = std::move(writer);
  return out;
}

// What is committed of the video, if it can be gone on with from there.
StandingVideo VideoJob::committed_of(const SettledItem& item, const PreparedVideo& video) {
  StandingVideo committed = store_.standing_video(item, task_.grid_codes(), task_.spec().model.codes);
  const std::int64_t total = task_.grids_of(video);
  const bool whole = committed.grids == total;
  if (whole || (committed.grids < total && task_.can_go_on_at(video, committed.grids))) {
    return committed;
  }
  return {};
}

void VideoJob::show_progress() {
  VideoJobProgress shown;
  shown.common.first = run_->over();
  for (const auto& [index, writer] : at_work_) writer->add_to(shown);
  listener_.on_progress(shown);
}

// One that is not whole is left open: the run is stopping.
void VideoJob::end(std::size_t index, const GeneratedVideo& video) {
  const std::unique_ptr<SegmentWriter> writer = std::move(at_work_.at(index));
  at_work_.erase(index);
  if (video.status == ImageStatus::kFailed) return run_->fail(index, video.error);
  if (!writer->whole()) return;
  within_item(index, [&] { finish(*writer); });
}

void VideoJob::finish(const SegmentWriter& writer) {
  const SettledItem& item = items_[writer.index()];
  const PreparedVideo& video = writer.video();
  const StandingVideo& committed = writer.committed();
  const MuxedVideo muxed =
      mux_video(task_, item, video, committed.codes, options_.files, store_.video_draft(item));
  JobVideo made{.facts = video.facts,
                .frames = video.frames,
                .first_frames = std::ssize(video.first_frames),
                .rate = rate_of(item, task_),
                .segments = committed.segments,
                .taken_over = writer.taken_over(),
                .codec = muxed.codec,
                .seconds = monotonic_seconds() - writer.started()};
  made.facts.passes = committed.passes;
  made.facts.tokens = task_.tokens_of(committed.grids - task_.given_grids(video));
  ItemRecord record;
  const bool done = run_->done(
      writer.index(), [&] { record = store_.commit(item, muxed.files, made.seconds, is_of_item); });
  if (done) listener_.on_done(item, record, made);
}

}  // namespace

JobEnd generate_videos(VideoTask& task, std::span<const SettledItem> items,
                       std::span<const std::size_t> wanted, BatchStore& store,
                       const VideoJobOptions& options, VideoJobListener& listener) {
  VideoJob job(task, items, store, options, listener, wanted.size());
  return SettledJob(items, store, listener)
      .run(wanted, job, {.at_once = options.at_once, .max_retries = options.max_retries});
}

}  // namespace tessera
