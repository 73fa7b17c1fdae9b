// `tessera batch`: generates the items of a job file, survives any end of itself, and goes on where
// it ended; `batch status` and `batch merge` say and join what is there.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/cli/batch_job.h"
#include "apps/cli/batch_reporter.h"
#include "apps/cli/batch_reports.h"
#include "apps/cli/batch_videos.h"
#include "apps/cli/commands.h"
#include "apps/cli/decode_flags.h"
#include "apps/cli/devices.h"
#include "apps/cli/folder_keys.h"
#include "apps/cli/sampling_flags.h"
#include "apps/cli/setting_flags.h"
#include "apps/jobs/image_task.h"
#include "apps/jobs/item_files.h"
#include "apps/jobs/job_check.h"
#include "apps/jobs/job_folder.h"
#include "apps/jobs/sheet.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

// Images that prove whose they are, for a store whose records were damaged.
auto recogniser(const BatchFlags& flags, const GenerateTask& task,
                const std::vector<std::string>& endings) {
  return [&task, files = ItemFiles{.sidecar = flags.sidecar, .endings = endings}](
             const SettledItem& item, const fs::path& folder) {
    return proven_files(item, task.prepare(request_of(item)).facts, files, folder);
  };
}

// What a run holds; the captioner's part is also in the plan: on a device as its own, else as a
// part of the process, which is the generator's.
struct RunMemory {
  MemoryPlan plan;
  std::optional<CaptionMemoryPlan> captions;
  std::size_t captioner() const { return captions ? captions->total() - captions->process : 0; }
};

RunMemory memory_of(const GenerateTask& task, std::span<const PreparedRequest> worst,
                    const CaptionDescriber* describer) {
  RunMemory memory;
  if (describer != nullptr) {
    memory.captions = describer->plan(task.spec().image_width(), task.spec().image_height());
  }
  memory.plan = task.plan(worst, memory.captioner());
  return memory;
}

int dry_run(const Session& session, const BatchFlags& flags, const GenerateTask& task,
            const CaptionDescriber* describer, std::span<const SettledItem> items,
            const RunMemory& memory) {
  const MemoryPlan& plan = memory.plan;
  const WantedItems wanted =
      wanted_items(flags.output_dir, shard_of_call(flags), items, flags.retry_failed);
  DryRun run{.items = wanted.items,
             .wanted = wanted.wanted.size(),
             .memory_bytes = plan.total(),
             .captioner_bytes = memory.captioner(),
             .weight_bytes = plan.weights,
             .tokens = task.spec().model.image_tokens(),
             .batch_size = flags.batch_size,
             .threads = narrow<int>(flags.device.threads)};
  if (describer != nullptr) {
    run.captions = {.look_bytes = memory.captions->tower,
                    .pass_bytes = memory.captions->language,
                    .methods = std::ssize(describer->endings()),
                    .max_tokens = describer->max_tokens()};
  }
  return print_dry_run(session, run);
}

// A job that is open.
struct OpenJob {
  const Session& session;
  const BatchFlags& flags;
  GenerateTask& task;
  CaptionDescriber* describer;  // may be null
  std::span<const SettledItem> items;
  BatchStore& store;
};

JobEnd generate_wanted(const OpenJob& job, std::span<const std::size_t> wanted,
                       const MemoryPlan& plan, const LoopNeeds& room) {
  const BatchFlags& flags = job.flags;
  note(job.session, job.task.spec().title + " as " + std::string(dtype_name(job.task.storage())) +
                        " on " + job.task.backend().name() + ", " + format_bytes(plan.total()));
  job.task.load();
  std::vector<std::string> endings;
  if (job.describer != nullptr) {
    note(job.session, "captions by " + job.describer->model_name());
    job.describer->load();
    endings = job.describer->endings();
  }
  BatchReporter reporter(job.session, {.folder = flags.output_dir,
                                       .wanted = wanted.size(),
                                       .total = job.store.totals().total,
                                       .endings = endings});
  const JobEnd end = generate_images(
      ImageTools(job.task, job.describer), job.items, wanted, job.store,
      {.batch_size = flags.batch_size,
       .room = room,
       .record = flags.disable_metadata ? RecordFacts::kOnlyAiMark : RecordFacts::kAll,
       .sidecar = flags.sidecar,
       .max_retries = narrow<int>(flags.max_retries)},
      reporter);
  reporter.clear();
  if (const std::string why = job.task.window_report(); !why.empty()) note(job.session, why);
  return end;
}

// A job of images needs a model of images.
void refuse_video_model(const GenerateTask& task) {
  if (!task.spec().video) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_MODEL_CLIPS",
               .file = task.model_name(),
               .expected = "a model that generates images",
               .found = "one that generates videos",
               .hint = "items of kind video: a field \"kind\" or --kind video"});
}

int generate_job(const Session& session, const BatchFlags& flags, const BatchJob& job,
                 const Shard& shard) {
  Runtime runtime;
  GenerateTask task(runtime, pipeline_options(flags));
  warn_of_keys(session, task.spec().account.get());
  refuse_video_model(task);
  const std::vector<SettledItem>& items = job.items;
  const JobCheck check = check_items(task, items, flags.batch_size, job.file.string());
  stop_at(session, check.errors);
  const std::unique_ptr<CaptionDescriber> describer =
      make_describer(session, flags.captions, flags.device, flags.batch_size);
  const std::vector<std::string> endings =
      describer ? describer->endings() : std::vector<std::string>();
  check_text_names(items, endings, job.file.string());
  const RunMemory memory = memory_of(task, check.worst, describer.get());
  if (flags.dry_run) return dry_run(session, flags, task, describer.get(), items, memory);
  check_memory(memory.plan, task.model_name());
  StoreOptions options = store_options(flags, shard, endings);
  options.recognise = recogniser(flags, task, endings);
  Json identity = job_options(flags, job);
  if (describer != nullptr) identity["captions"] = describer->identity();
  BatchStore store = open_store(flags.output_dir, job.items, identity,
                                model_identity(check.worst.front().facts, task.spec(),
                                               resolve_model(flags.model.value_or("")).open_name),
                                options);
  tell_what_was_found(session, store);
  const std::vector<std::size_t> wanted = store.wanted(flags.retry_failed);
  JobEnd end = JobEnd::kOver;
  if (!wanted.empty()) {
    write_owner(flags.output_dir, shard);
    end = generate_wanted({session, flags, task, describer.get(), items, store}, wanted,
                          memory.plan, room_for(check.worst));
  }
  return end_job(session, flags, items, store, end);
}

int run_batch_job(const Session& session, BatchFlags flags) {
  if (flags.output_dir.empty()) refuse_flag("--output-dir", "a folder for the images", "none");
  settle_size(flags.size);
  const Shard shard = shard_of_call(flags);
  BatchJob job = read_batch_job(session, flags, shard);
  return job.videos ? generate_video_job(session, flags, job, shard)
                    : generate_job(session, flags, job, shard);
}

int run_batch(const Session& session, const BatchFlags& flags) {
  const std::string first = flags.arguments.empty() ? "" : flags.arguments.front();
  const std::vector<fs::path> rest(flags.arguments.begin() + (first.empty() ? 0 : 1),
                                   flags.arguments.end());
  if (first == "status") {
    if (rest.size() != 1)
      refuse_flag("batch status", "one output folder", std::to_string(rest.size()));
    return batch_status(session, rest.front());
  }
  if (first == "merge") {
    if (rest.empty()) refuse_flag("batch merge", "output folders", "none");
    if (flags.sheet) check_sheet_name(*flags.sheet);
    return batch_merge(session, rest, flags.output_dir, flags.sheet.value_or(""), flags.overwrite);
  }
  if (flags.arguments.size() != 1) {
    refuse_flag("batch",
                "one job file (.txt, .jsonl, .csv), or status or merge with output folders",
                std::to_string(flags.arguments.size()) + " arguments");
  }
  return run_batch_job(session, flags);
}

void add_batch_output_flags(CLI::App& app, BatchFlags& flags) {
  const std::string group = "Output";
  text_flag(app, "--output-dir", flags.output_dir, "folder for images and the state of the job")
      ->group(group);
  text_flag(app, "--name", flags.name,
            "file name with {id} and {seed}; default {id}_{seed}.png, of videos {id}_{seed}.mkv")
      ->group(group);
  app.add_flag("--overwrite", flags.overwrite, "replace files that are not of this job")
      ->group(group);
  setting_flag(app, setting::kBatchSize, flags.batch_size, {.group = group});
  app.add_flag("--sidecar", flags.sidecar, "also a JSON file next to each image")->group(group);
  text_flag(app, "--sheet", flags.sheet, "also one image with all of them")->group(group);
  app.add_flag("--disable-metadata", flags.disable_metadata,
               "record no prompt and no settings (the AI mark stays)")
      ->group(group);
}

void add_video_job_flags(CLI::App& app, BatchFlags& flags) {
  const std::string group = "Videos";
  choice_flag(app, "--kind", flags.kind, {kImageKind, kVideoKind},
              "what an item is that does not say it", {kOldImageKind})
      ->group(group);
  setting_flag(app, setting::kFrames, flags.frames,
               {.group = group, .help = "frames of a video that does not say it"});
  setting_flag(app, setting::kFps, flags.fps,
               {.group = group, .help = "frames a second of a video that does not say it"});
  setting_flag(app, setting::kQuality, flags.quality, {.group = group});
}

void add_batch_job_flags(CLI::App& app, BatchFlags& flags) {
  const std::string group = "Job";
  app.add_flag("--dry-run", flags.dry_run, "check everything, estimate time and memory, and end")
      ->group(group);
  text_flag(app, "--shard", flags.shard, "generate part I of N: I/N, auto or auto/N")->group(group);
  app.add_flag("--retry-failed", flags.retry_failed, "try failed items again")->group(group);
  integer_flag(app, "--max-retries", flags.max_retries, 0, 100,
               "more tries of an item that fails, in the same run")
      ->group(group);
  choice_flag(app, "--fsync", flags.fsync, {"on", "off"},
              "off: faster on slow disks, and a power cut may cost finished images")
      ->group(group);
  app.add_flag("--verify", flags.verify, "hash what is done before going on")->group(group);
  app.add_flag("--anew", flags.anew, "forget what earlier runs did")->group(group);
}

}  // namespace

void add_batch(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand(
      "batch", "generate a job file (.txt, .jsonl, .csv); 'status OUT', 'merge OUT...'");
  const auto flags = std::make_shared<BatchFlags>();
  app->add_option("job", flags->arguments,
                  "job file; or status and an output folder, or merge and output folders");
  text_flag(*app, "-m,--model", flags->model,
            "bundled name, folder, weight file or org/name; default " + std::string(kDefaultModel));
  text_encoder_flag(*app, flags->text_encoder);
  text_flag(*app, "-n,--negative-prompt", flags->negative_prompt,
            "what guidance leads away from, where the item says nothing");
  add_size_flags(*app, flags->size);
  integer_flag(*app, "-s,--seed", flags->seed, 0, kMaxJobSeed,
               "seeds of items without one follow from it and from their ids");
  add_sampling_flags(*app, Door::kBatch, flags->sampling);
  add_decode_flags(*app, Door::kBatch, flags->decode);
  add_batch_output_flags(*app, *flags);
  add_batch_caption_flags(*app, flags->captions);
  add_video_job_flags(*app, *flags);
  add_batch_job_flags(*app, *flags);
  add_device_flags(*app, flags->device);
  add_common_flags(*app, session);
  app->callback([&session, flags] {
    session.run = [&session, flags] { return run_batch(session, *flags); };
  });
}

}  // namespace tessera
