// `tessera batch`: paints the items of a job file, survives any end of itself, and goes on where it
// ended; `batch status` and `batch merge` say and join what is there.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/batch/item_files.h"
#include "apps/batch/job_check.h"
#include "apps/batch/painting.h"
#include "apps/cli/batch_captions.h"
#include "apps/cli/batch_reporter.h"
#include "apps/cli/batch_reports.h"
#include "apps/cli/batch_shard.h"
#include "apps/cli/commands.h"
#include "apps/cli/decode_flags.h"
#include "apps/cli/devices.h"
#include "apps/cli/flags.h"
#include "apps/cli/preview_flags.h"
#include "apps/cli/sampling_flags.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

struct BatchFlags {
  std::vector<std::string> arguments;
  std::optional<std::string> model, negative_prompt, sheet, shard;
  std::optional<std::string> preview_to;
  std::string output_dir, name = "{id}_{seed}.png";
  std::string fsync = "on";
  std::int64_t seed = 0, batch_size = 1, max_retries = 0;
  SizeFlags size;
  SamplingChoice sampling;
  DecodeFlags decode;
  DeviceFlags device;
  BatchCaptionFlags captions;
  bool overwrite = false, sidecar = false, disable_metadata = false;
  bool retry_failed = false, verify = false, anew = false, dry_run = false;
};

[[noreturn]] void refuse(const char* where, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_FLAG_VALUE",
               .where = where,
               .expected = std::move(expected),
               .found = std::move(found)});
}

// All of them are seen; the last one ends the program.
void stop_at(const Session& session, const std::vector<ErrorInfo>& errors) {
  if (errors.empty()) return;
  for (std::size_t i = 0; i + 1 < errors.size(); ++i) {
    if (session.json) print_json_line({{"error", error_json(errors[i])}});
    warn(session, format_error(errors[i]));
  }
  throw Error(errors.back());
}

PipelineOptions pipeline_options(const BatchFlags& flags) {
  PipelineOptions options =
      painting_options(flags.model, flags.device, flags.size, flags.batch_size);
  options.method = method_of(flags.decode);
  options.draft_model = flags.decode.draft_model.value_or("");
  return options;
}

std::vector<SettledItem> settled_job(const Session& session, const BatchFlags& flags,
                                     const fs::path& file) {
  const JobList list = read_job_file(file);
  stop_at(session, list.errors);
  JobDefaults defaults{.base_seed = flags.seed};
  JobItem& common = defaults.fields;
  common.negative_prompt = flags.negative_prompt;
  common.temperature = flags.sampling.temperature;
  common.top_k = flags.sampling.top_k;
  common.top_p = flags.sampling.top_p;
  common.min_p = flags.sampling.min_p;
  common.typical = flags.sampling.typical;
  common.guidance = flags.sampling.guidance;
  return settle_items(list.items, defaults, OutputTemplate(flags.name), file.string());
}

fs::path owner_file(const fs::path& folder, const Shard& shard) {
  return folder / kStateFolder / (journal_name(shard.index, shard.of) + ".owner");
}

// Opens the store; who has the shard, when somebody has it.
BatchStore open_store(const BatchFlags& flags, std::span<const SettledItem> items,
                      const Json& options, const Json& model, const StoreOptions& store_options) {
  try {
    return BatchStore(flags.output_dir, items, options, model, store_options);
  } catch (const Error& error) {
    if (error.info().code != "E_IO_LOCKED") throw;
    ErrorInfo info = error.info();
    const fs::path owner = owner_file(flags.output_dir, store_options.shard);
    if (file_exists(owner)) info.found = "one by " + read_file(owner, 400, ErrorKind::kStorage);
    info.hint = "wait for it, take another --shard, or choose another --output-dir";
    throw Error(std::move(info));
  }
}

void write_owner(const fs::path& folder, const Shard& shard) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  write_file_atomic(owner_file(folder, shard),
                    "process " + std::to_string(::getpid()) + " on " + host);
}

// Only what is asked for has an entry, so that older jobs stay the same ones.
Json job_options(const BatchFlags& flags, const CaptionDescriber* describer) {
  Json options = {{"name", flags.name},
                  {"sidecar", flags.sidecar},
                  {"disable_metadata", flags.disable_metadata}};
  if (describer != nullptr) options["captions"] = describer->identity();
  return options;
}

StoreOptions store_options(const BatchFlags& flags, const Shard& shard,
                           const std::vector<std::string>& endings) {
  StoreOptions options{.shard = shard,
                       .start = flags.anew ? Start::kAnew : Start::kResume,
                       .overwrite = flags.overwrite,
                       .verify = flags.verify,
                       .sync = flags.fsync == "off" ? Sync::kOff : Sync::kOn};
  options.beside.insert(options.beside.end(), endings.begin(), endings.end());
  return options;
}

// Pictures that prove whose they are, for a store whose records were damaged.
auto recogniser(const BatchFlags& flags, const GeneratePipeline& pipeline,
                const std::vector<std::string>& endings) {
  return [&pipeline, files = ItemFiles{.sidecar = flags.sidecar, .endings = endings}](
             const SettledItem& item, const fs::path& folder) {
    return proven_files(item, pipeline.prepare(request_of(item)).facts, files, folder);
  };
}

// What a run holds; the captioner's part is also in the plan, as a part of the process, which is
// the painter's.
struct RunMemory {
  MemoryPlan plan;
  std::optional<CaptionMemoryPlan> captions;
  std::size_t captioner() const { return captions ? captions->total() - captions->process : 0; }
};

RunMemory memory_of(const GeneratePipeline& pipeline, std::span<const PreparedRequest> worst,
                    const CaptionDescriber* describer) {
  RunMemory memory{.plan = pipeline.memory_plan(worst)};
  if (describer != nullptr) {
    memory.captions =
        describer->plan(pipeline.spec().image_width(), pipeline.spec().image_height());
  }
  memory.plan.process += memory.captioner();
  return memory;
}

Shard shard_of_call(const BatchFlags& flags) {
  return flags.shard ? shard_from(*flags.shard, process_environment()) : Shard{};
}

int dry_run(const Session& session, const BatchFlags& flags, const GeneratePipeline& pipeline,
            const CaptionDescriber* describer, std::span<const SettledItem> items,
            const RunMemory& memory) {
  const Shard shard = shard_of_call(flags);
  const MemoryPlan& plan = memory.plan;
  DryRun run{.memory_bytes = plan.total(),
             .captioner_bytes = memory.captioner(),
             .weight_bytes = plan.weights,
             .tokens = pipeline.spec().model.image_tokens(),
             .batch_size = flags.batch_size,
             .threads = static_cast<int>(flags.device.threads)};
  if (describer != nullptr) {
    run.captions = {.look_bytes = memory.captions->tower,
                    .pass_bytes = memory.captions->language,
                    .methods = static_cast<std::int64_t>(describer->endings().size()),
                    .most_tokens = describer->most_tokens()};
  }
  ItemRecords known;
  if (file_exists(fs::path(flags.output_dir) / kStateFolder / "job.json")) {
    known = read_job_report(flags.output_dir).records;
  }
  for (const SettledItem& item : items) {
    if (shard_of(item.item.id, shard.of) != shard.index) continue;
    ++run.items;
    const ItemState state = known[item.item.id].state;
    if (state == ItemState::kPending || (state == ItemState::kFailed && flags.retry_failed)) {
      ++run.wanted;
    }
  }
  return print_dry_run(session, run);
}

void tell_what_was_found(const Session& session, const BatchStore& store) {
  if (store.cut_bytes() > 0) {
    note(session, std::to_string(store.cut_bytes()) + " bytes of a torn record were cut off");
  }
  if (const Journal::Mend& mended = store.mended(); !mended.kept_as.empty()) {
    warn(session, "the journal was damaged in the middle: kept as " + mended.kept_as + "; " +
                      std::to_string(mended.records) + " records taken over, " +
                      std::to_string(store.recognised()) + " pictures recognised");
  }
  if (store.temporaries_removed() > 0) {
    note(session, std::to_string(store.temporaries_removed()) + " unfinished files were removed");
  }
  for (const auto& [id, wrong] : store.damaged()) {
    warn(session, "item " + id + " is painted again: " + wrong);
  }
}

int exit_code_of(const BatchStore::Totals& totals) {
  if (totals.failed == 0) return 0;
  return totals.done == 0 ? 1 : 3;
}

// The sheet is one more file of the folder, and must not take the name of a picture.
void check_sheet(const BatchFlags& flags, const Shard& shard, std::span<const SettledItem> items) {
  const std::string& sheet = *flags.sheet;
  check_sheet_name(sheet);
  if (shard.of > 1) {
    refuse("--sheet", "a job in one shard, or batch merge OUT --sheet " + sheet,
           "one of " + std::to_string(shard.of) + " shards");
  }
  sheet_is_there(fs::path(flags.output_dir) / sheet, flags.overwrite);
  for (const SettledItem& item : items) refuse_sheet_name(item.name, sheet);
}

// A job that is open.
struct OpenJob {
  const Session& session;
  const BatchFlags& flags;
  GeneratePipeline& pipeline;
  CaptionDescriber* describer;  // may be null
  std::span<const SettledItem> items;
  BatchStore& store;
};

PaintEnd paint_wanted(const OpenJob& job, std::span<const std::size_t> wanted,
                      const MemoryPlan& plan) {
  const BatchFlags& flags = job.flags;
  note(job.session, job.pipeline.spec().title + " as " +
                        std::string(dtype_name(job.pipeline.storage())) + " on " +
                        job.pipeline.backend().name() + ", " + format_bytes(plan.total()));
  job.pipeline.load();
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
  const PaintEnd end =
      paint_items(PaintTools(job.pipeline, job.describer), job.items, wanted, job.store,
                  {.batch_size = flags.batch_size,
                   .record = flags.disable_metadata ? RecordFacts::kOnlyAiMark : RecordFacts::kAll,
                   .sidecar = flags.sidecar,
                   .max_retries = static_cast<int>(flags.max_retries)},
                  reporter);
  reporter.clear();
  if (const std::string why = job.pipeline.window_report(); !why.empty()) note(job.session, why);
  return end;
}

// When every item is over, whoever painted the last one.
void write_sheet(const OpenJob& job) {
  const fs::path sheet = fs::path(job.flags.output_dir) / *job.flags.sheet;
  std::vector<std::string> pictures;
  for (const SettledItem& item : job.items) {
    const ItemRecord* record = job.store.record(item.item.id);
    const bool done = record != nullptr && record->state == ItemState::kDone;
    if (done) pictures.push_back(record->files.back().name);
  }
  write_batch_sheet(sheet, job.flags.overwrite, pictures);
  if (!pictures.empty()) note(job.session, "sheet: " + sheet.string());
}

// What became of the job, and its exit code.
int end_job(const OpenJob& job, PaintEnd end) {
  const BatchStore::Totals totals = job.store.totals();
  const std::uint64_t pending = totals.total - totals.done - totals.failed;
  note(job.session, std::to_string(totals.done) + " done, " + std::to_string(totals.failed) +
                        " failed, " + std::to_string(pending) + " pending of " +
                        std::to_string(totals.total));
  if (end == PaintEnd::kDrained) {
    warn(job.session, "stopped; the same command goes on where it ended");
    return 75;
  }
  if (totals.failed > 0) {
    warn(job.session, std::to_string(totals.failed) + " failed; --retry-failed tries them again");
  }
  if (job.flags.sheet) write_sheet(job);
  return exit_code_of(totals);
}

int run_job(const Session& session, BatchFlags flags) {
  const fs::path file = flags.arguments.front();
  if (flags.output_dir.empty()) refuse("--output-dir", "a folder for the pictures", "none");
  settle_size(flags.size);
  const Shard shard = shard_of_call(flags);
  const std::vector<SettledItem> items = settled_job(session, flags, file);
  if (flags.sheet) check_sheet(flags, shard, items);

  GeneratePipeline pipeline(pipeline_options(flags));
  show_elsewhere(session, flags.preview_to, pipeline);
  const JobCheck check = check_items(pipeline, items, flags.batch_size, file.string());
  stop_at(session, check.errors);
  const std::unique_ptr<CaptionDescriber> describer =
      make_describer(session, flags.captions, flags.device, flags.batch_size);
  const std::vector<std::string> endings =
      describer ? describer->endings() : std::vector<std::string>();
  check_text_names(items, endings, file.string());
  const RunMemory memory = memory_of(pipeline, check.worst, describer.get());
  if (flags.dry_run) return dry_run(session, flags, pipeline, describer.get(), items, memory);
  check_memory(memory.plan, pipeline.model_name());
  StoreOptions options = store_options(flags, shard, endings);
  options.recognise = recogniser(flags, pipeline, endings);
  BatchStore store = open_store(flags, items, job_options(flags, describer.get()),
                                model_identity(pipeline, check.worst.front(),
                                               resolve_model(flags.model.value_or("")).open_name),
                                options);
  tell_what_was_found(session, store);
  const OpenJob job{session, flags, pipeline, describer.get(), items, store};
  const std::vector<std::size_t> wanted = store.wanted(flags.retry_failed);
  PaintEnd end = PaintEnd::kOver;
  if (!wanted.empty()) {
    write_owner(flags.output_dir, shard);
    end = paint_wanted(job, wanted, memory.plan);
  }
  return end_job(job, end);
}

int run_batch(const Session& session, const BatchFlags& flags) {
  const std::string first = flags.arguments.empty() ? "" : flags.arguments.front();
  const std::vector<fs::path> rest(flags.arguments.begin() + (first.empty() ? 0 : 1),
                                   flags.arguments.end());
  if (first == "status") {
    if (rest.size() != 1) refuse("batch status", "one output folder", std::to_string(rest.size()));
    return batch_status(session, rest.front());
  }
  if (first == "merge") {
    if (rest.empty()) refuse("batch merge", "output folders", "none");
    if (flags.sheet) check_sheet_name(*flags.sheet);
    return batch_merge(session, rest, flags.output_dir, flags.sheet.value_or(""), flags.overwrite);
  }
  if (flags.arguments.size() != 1) {
    refuse("batch", "one job file (.txt, .jsonl, .csv), or status or merge with output folders",
           std::to_string(flags.arguments.size()) + " arguments");
  }
  return run_job(session, flags);
}

void add_output_flags(CLI::App& app, BatchFlags& flags) {
  const std::string group = "Output";
  text_flag(app, "--output-dir", flags.output_dir, "folder for pictures and the state of the job")
      ->group(group);
  text_flag(app, "--name", flags.name, "file name with {id} and {seed}")->group(group);
  app.add_flag("--overwrite", flags.overwrite, "replace files that are not of this job")
      ->group(group);
  integer_flag(app, "--batch-size", flags.batch_size, 1, 256, "pictures painted at once")
      ->group(group);
  app.add_flag("--sidecar", flags.sidecar, "also a JSON file beside each picture")->group(group);
  text_flag(app, "--sheet", flags.sheet, "also one picture with all of them")->group(group);
  app.add_flag("--disable-metadata", flags.disable_metadata,
               "record no prompt and no settings (the AI mark stays)")
      ->group(group);
}

void add_job_flags(CLI::App& app, BatchFlags& flags) {
  const std::string group = "Job";
  app.add_flag("--dry-run", flags.dry_run, "check everything, estimate time and memory, and end")
      ->group(group);
  text_flag(app, "--shard", flags.shard, "paint part I of N: I/N, auto or auto/N")->group(group);
  app.add_flag("--retry-failed", flags.retry_failed, "try failed items again")->group(group);
  integer_flag(app, "--max-retries", flags.max_retries, 0, 100,
               "more tries of an item that fails, in the same run")
      ->group(group);
  choice_flag(app, "--fsync", flags.fsync, {"on", "off"},
              "off: faster on slow disks, and a power cut may cost finished pictures")
      ->group(group);
  app.add_flag("--verify", flags.verify, "hash what is done before going on")->group(group);
  app.add_flag("--anew", flags.anew, "forget what earlier runs did")->group(group);
}

}  // namespace

void add_batch(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand(
      "batch", "paint a job file (.txt, .jsonl, .csv); 'status OUT', 'merge OUT...'");
  const auto flags = std::make_shared<BatchFlags>();
  app->add_option("job", flags->arguments,
                  "job file; or status and an output folder, or merge and output folders");
  text_flag(*app, "-m,--model", flags->model,
            "bundled name, folder, weight file or org/name; default " + std::string(kDefaultModel));
  text_flag(*app, "-n,--negative-prompt", flags->negative_prompt,
            "what guidance leads away from, where the item says nothing");
  add_size_flags(*app, flags->size);
  integer_flag(*app, "-s,--seed", flags->seed, 0, kMaxJobSeed,
               "seeds of items without one follow from it and from their ids");
  add_sampling_flags(*app, flags->sampling);
  add_decode_flags(*app, flags->decode);
  add_output_flags(*app, *flags);
  add_batch_caption_flags(*app, flags->captions);
  add_preview_flag(*app, flags->preview_to);
  add_job_flags(*app, *flags);
  add_device_flags(*app, flags->device);
  add_common_flags(*app, session);
  app->callback([&session, flags] {
    session.run = [&session, flags] { return run_batch(session, *flags); };
  });
}

}  // namespace tessera
