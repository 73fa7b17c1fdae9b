// `tessera batch`: paints the items of a job file, survives any end of itself, and goes on where it
// ended; `batch status` and `batch merge` say and join what is there.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/batch/painting.h"
#include "apps/captions/text_forms.h"
#include "apps/cli/batch_reports.h"
#include "apps/cli/batch_shard.h"
#include "apps/cli/commands.h"
#include "apps/cli/decode_flags.h"
#include "apps/cli/devices.h"
#include "apps/cli/flags.h"
#include "apps/cli/preview_flags.h"
#include "apps/cli/progress.h"
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
  std::int64_t seed = 0, batch_size = 1;
  SizeFlags size;
  SamplingChoice sampling;
  DecodeFlags decode;
  DeviceFlags device;
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

// Says on stdout what is done, on stderr what is going on.
class BatchReporter final : public PaintListener {
 public:
  BatchReporter(const Session& session, fs::path folder, std::size_t wanted)
      : session_(session), folder_(std::move(folder)), progress_(session, wanted) {}

  bool stop_requested() override { return session_.stop_requested(); }
  void on_progress(const GenerateProgress& progress) override { progress_.show(progress); }

  void on_done(const SettledItem& item, const ItemRecord& record,
               const GeneratedPicture& picture) override {
    ++done_;
    progress_.clear();
    const PictureFacts& facts = picture.facts;
    const std::string path = (folder_ / item.name).string();
    if (!session_.json) {
      char rest[120];
      std::snprintf(rest, sizeof rest, "  seed %llu  %.2f s, %lld passes, %.2f tokens a pass",
                    static_cast<unsigned long long>(facts.seed), picture.seconds,
                    static_cast<long long>(facts.passes), facts.tokens_per_pass());
      print_line(escape_for_terminal(path) + rest);
      return;
    }
    print_json_line(
        picture_line(path, record.files.back().sha256, item.item.id, facts, picture.seconds));
  }

  void on_failed(const SettledItem& item, const ErrorInfo& error) override {
    ++failed_;
    progress_.clear();
    if (session_.json) print_json_line(failure_json(item.item.id, "", error));
    warn(session_, "item " + item.item.id + ": " + format_error(error));
  }

  void clear() { progress_.clear(); }
  std::uint64_t done() const { return done_; }
  std::uint64_t failed() const { return failed_; }

 private:
  const Session& session_;
  fs::path folder_;
  ProgressReporter progress_;
  std::uint64_t done_ = 0, failed_ = 0;
};

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

Json job_options(const BatchFlags& flags) {
  return {{"name", flags.name},
          {"sidecar", flags.sidecar},
          {"disable_metadata", flags.disable_metadata}};
}

int dry_run(const Session& session, const BatchFlags& flags, const GeneratePipeline& pipeline,
            std::span<const SettledItem> items, const MemoryPlan& plan, const Shard& shard) {
  DryRun run{.memory_bytes = plan.total(),
             .weight_bytes = plan.weights,
             .tokens = pipeline.spec().model.image_tokens(),
             .batch_size = flags.batch_size,
             .threads = static_cast<int>(flags.device.threads)};
  ItemRecords known;
  if (is_folder(fs::path(flags.output_dir) / kStateFolder)) {
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
void check_sheet(const std::string& sheet, std::span<const SettledItem> items) {
  OutputTemplate{sheet};
  for (const SettledItem& item : items) {
    if (item.name == sheet) refuse("--sheet", "a name that no picture has", "\"" + sheet + "\"");
  }
}

int run_job(const Session& session, BatchFlags flags) {
  const fs::path file = flags.arguments.front();
  if (flags.output_dir.empty()) refuse("--output-dir", "a folder for the pictures", "none");
  settle_size(flags.size);
  const Shard shard = flags.shard ? shard_from(*flags.shard, process_environment()) : Shard{};
  const std::vector<SettledItem> items = settled_job(session, flags, file);
  if (flags.sheet) check_sheet(*flags.sheet, items);

  GeneratePipeline pipeline(pipeline_options(flags));
  show_elsewhere(session, flags.preview_to, pipeline);
  const JobCheck check = check_items(pipeline, items, flags.batch_size, file.string());
  stop_at(session, check.errors);
  const MemoryPlan plan = pipeline.memory_plan(check.worst);
  if (flags.dry_run) return dry_run(session, flags, pipeline, items, plan, shard);
  check_memory(plan, pipeline.model_name());
  BatchStore store = open_store(flags, items, job_options(flags),
                                model_identity(pipeline, check.worst.front(),
                                               resolve_model(flags.model.value_or("")).open_name),
                                {.shard = shard,
                                 .start = flags.anew ? Start::kAnew : Start::kResume,
                                 .overwrite = flags.overwrite,
                                 .verify = flags.verify});
  tell_what_was_found(session, store);
  const std::vector<std::size_t> wanted = store.wanted(flags.retry_failed);
  PaintEnd end = PaintEnd::kOver;
  if (!wanted.empty()) {
    ensure_output_folder(flags.output_dir);
    write_owner(flags.output_dir, shard);
    note(session, pipeline.spec().title + " as " + std::string(dtype_name(pipeline.storage())) +
                      " on " + pipeline.backend().name() + ", " + format_bytes(plan.total()));
    pipeline.load();
    BatchReporter reporter(session, flags.output_dir, wanted.size());
    end = paint_items(
        pipeline, items, wanted, store,
        {.batch_size = flags.batch_size,
         .record = flags.disable_metadata ? RecordFacts::kOnlyAiMark : RecordFacts::kAll,
         .sidecar = flags.sidecar},
        reporter);
    reporter.clear();
    if (const std::string why = pipeline.window_report(); !why.empty()) note(session, why);
  }
  const BatchStore::Totals totals = store.totals();
  const std::uint64_t pending = totals.total - totals.done - totals.failed;
  note(session, std::to_string(totals.done) + " done, " + std::to_string(totals.failed) +
                    " failed, " + std::to_string(pending) + " pending of " +
                    std::to_string(totals.total));
  if (end == PaintEnd::kDrained) {
    warn(session, "stopped; the same command goes on where it ended");
    return 75;
  }
  if (totals.failed > 0) {
    warn(session, std::to_string(totals.failed) + " failed; --retry-failed tries them again");
  }
  if (flags.sheet && !wanted.empty()) {
    write_batch_sheet(flags.output_dir, *flags.sheet, items, store);
    note(session, "sheet: " + (fs::path(flags.output_dir) / *flags.sheet).string());
  }
  return exit_code_of(totals);
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
    return batch_merge(session, rest, flags.output_dir);
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
  add_preview_flag(*app, flags->preview_to);
  add_job_flags(*app, *flags);
  add_device_flags(*app, flags->device);
  add_common_flags(*app, session);
  app->callback([&session, flags] {
    session.run = [&session, flags] { return run_batch(session, *flags); };
  });
}

}  // namespace tessera
