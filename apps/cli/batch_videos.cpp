// A job of videos: its check, its dry run, what it says while it runs.
#include "apps/cli/batch_videos.h"

#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/cli/batch_reports.h"
#include "apps/cli/commands.h"
#include "apps/cli/folder_keys.h"
#include "apps/cli/progress.h"
#include "apps/jobs/job_check.h"
#include "apps/jobs/job_folder.h"
#include "apps/jobs/video_check.h"
#include "apps/jobs/video_job.h"
#include "engine/core/index.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

void refuse_image_flags(const BatchFlags& flags) {
  if (flags.captions.on || flags.captions.captioner) {
    refuse_flag("--captions", "a job of images",
                "items of kind video; describe them with `tessera caption --video`");
  }
}

// Says of a model that generates images what the job can do about it.
VideoTask open_video_task(Runtime& runtime, const BatchFlags& flags) {
  try {
    return VideoTask(runtime, pipeline_options(flags));
  } catch (const Error& error) {
    if (error.info().code != "E_MODEL_PICTURES") throw;
    ErrorInfo info = error.info();
    info.hint = "--model with a model of videos, or items of kind image";
    throw Error(std::move(info));
  }
}

// First frames are looked for next to the job file.
fs::path folder_of(const BatchJob& job) {
  return job.file.has_parent_path() ? job.file.parent_path() : fs::path(".");
}

class VideoJobReporter final : public VideoJobListener {
 public:
  struct Job {
    fs::path folder;
    std::size_t wanted = 0, total = 0;
  };
  VideoJobReporter(const Session& session, Job job)
      : session_(session), job_(std::move(job)), progress_(session, job_.wanted) {}

  bool stop_requested() override { return session_.stop_requested(); }
  void on_progress(const VideoJobProgress& progress) override {
    const JobCounts counts{.done = done_,
                           .failed = failed_,
                           .skipped = job_.total - job_.wanted,
                           .pending = job_.wanted - done_ - failed_,
                           .total = job_.total};
    progress_.show(progress.common, counts,
                   VideoCounts{progress.frames_done, progress.frames, progress.segments});
  }
  void on_done(const SettledItem& item, const ItemRecord& record, const JobVideo& video) override {
    ++done_;
    progress_.clear();
    const std::string path = (job_.folder / item.name).string();
    const double duration = to_double(video.frames) / to_double(video.rate);
    if (session_.json) {
      Json line =
          image_line(path, record.files.back().sha256, item.item.id, video.facts, video.seconds);
      line.update(Json{{"frames", video.frames},
                       {"first_frames", video.first_frames},
                       {"fps", video.rate},
                       {"duration", duration},
                       {"codec", video.codec},
                       {"segments", video.segments},
                       {"segments_taken_over", video.taken_over}});
      return print_json_line(line);
    }
    char rest[160];
    std::snprintf(rest, sizeof rest,
                  "  seed %" PRIu64 "  %" PRId64 " frames, %.2f s, %s  %.2f s, %" PRId64 " passes",
                  video.facts.seed, video.frames, duration, video.codec.c_str(), video.seconds,
                  video.facts.passes);
    print_line(escape_for_terminal(path) + rest);
  }
  void on_failed(const SettledItem& item, const ErrorInfo& error) override {
    ++failed_;
    progress_.clear();
    if (session_.json) print_json_line(failure_json(item.item.id, "", error));
    warn(session_, "item " + item.item.id + ": " + format_error(error));
  }
  void on_retry(const SettledItem& item, const ErrorInfo& error) override {
    progress_.clear();
    warn(session_, "item " + item.item.id + " is tried again: " + format_error(error));
  }
  void on_fewer(std::int64_t videos) override {
    progress_.clear();
    warn(session_,
         "memory did not last: from here on " + std::to_string(videos) + " videos at once");
  }
  void clear() { progress_.clear(); }

 private:
  const Session& session_;
  Job job_;
  ProgressReporter progress_;
  std::uint64_t done_ = 0, failed_ = 0;
};

int dry_run_videos(const Session& session, const BatchFlags& flags, const BatchJob& job,
                   const Shard& shard, const VideoTask& task, const VideoCheck& check) {
  const WantedItems wanted = wanted_items(flags.output_dir, shard, job.items, flags.retry_failed);
  VideoDryRun run{.items = wanted.items,
                  .wanted = wanted.wanted.size(),
                  .memory_bytes = check.plan.total(),
                  .weight_bytes = check.plan.weights,
                  .passes = 0,
                  .threads = narrow<int>(flags.device.threads)};
  for (const std::size_t index : wanted.wanted) {
    const VideoCheck::Size& size = check.sizes[index];
    const auto standing = wanted.standing.find(job.items[index].item.id);
    const std::int64_t there = standing == wanted.standing.end() ? 0 : standing->second;
    run.passes +=
        task.tokens_of(std::max<std::int64_t>(size.grids - std::max(size.given, there), 0));
  }
  return print_video_dry_run(session, run);
}

StoreOptions video_store_options(const BatchFlags& flags, const Shard& shard) {
  return store_options(flags, shard, {".xmp"});
}

JobEnd generate_wanted_videos(const Session& session, const BatchFlags& flags, const BatchJob& job,
                              VideoTask& task, BatchStore& store, const LoopNeeds& needs,
                              std::span<const std::size_t> wanted) {
  VideoJobOptions options;
  options.at_once = flags.batch_size;
  options.needs = needs;
  options.folder = folder_of(job);
  options.max_retries = narrow<int>(flags.max_retries);
  options.files.record = flags.disable_metadata ? RecordFacts::kOnlyAiMark : RecordFacts::kAll;
  options.files.sidecar = flags.sidecar;
  options.files.quality = flags.quality;
  VideoJobReporter reporter(
      session,
      {.folder = flags.output_dir, .wanted = wanted.size(), .total = store.totals().total});
  const JobEnd end = generate_videos(task, job.items, wanted, store, options, reporter);
  reporter.clear();
  if (const std::string why = task.window_report(); !why.empty()) note(session, why);
  return end;
}

}  // namespace

int generate_video_job(const Session& session, const BatchFlags& flags, BatchJob& job,
                       const Shard& shard) {
  refuse_image_flags(flags);
  Runtime runtime;
  VideoTask task = open_video_task(runtime, flags);
  warn_of_keys(session, task.spec().account.get());
  const std::string file = job.file.string();
  stop_at(session, settle_first_frames(job.items, folder_of(job), file));
  const VideoCheck check = check_videos(task, job.items, folder_of(job), file, flags.batch_size);
  stop_at(session, check.errors);
  if (flags.dry_run) return dry_run_videos(session, flags, job, shard, task, check);
  check_memory(check.plan, task.model_name());
  Json identity = job_options(flags, job);
  identity["quality"] = flags.quality;
  BatchStore store =
      open_store(flags.output_dir, job.items, identity,
                 model_identity(check.facts, task.spec(),
                                resolve_video_model(flags.model.value_or("")).open_name),
                 video_store_options(flags, shard));
  tell_what_was_found(session, store);
  const std::vector<std::size_t> wanted = store.wanted(flags.retry_failed);
  JobEnd end = JobEnd::kOver;
  if (!wanted.empty()) {
    write_owner(flags.output_dir, shard);
    note(session, task.spec().title + " as " + std::string(dtype_name(task.storage())) + " on " +
                      task.backend().name() + ", " + format_bytes(check.plan.total()));
    end = generate_wanted_videos(session, flags, job, task, store, check.needs, wanted);
  }
  return end_job(session, flags, job.items, store, end);
}

}  // namespace tessera
