// A job from its file to its store, and from its store to its exit code.
#include "apps/cli/batch_job.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/cli/devices.h"
#include "apps/jobs/job_folder.h"
#include "apps/jobs/shard.h"
#include "apps/jobs/sheet.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

void refuse_flag(const char* where, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_FLAG_VALUE",
               .where = where,
               .expected = std::move(expected),
               .found = std::move(found)});
}

void stop_at(const Session& session, const std::vector<ErrorInfo>& errors) {
  if (errors.empty()) return;
  for (std::size_t i = 0; i + 1 < errors.size(); ++i) {
    if (session.json) print_json_line({{"error", error_json(errors[i])}});
    warn(session, format_error(errors[i]));
  }
  throw Error(errors.back());
}

namespace {

// The sheet is one more file of the folder, and must not take the name of an image.
void check_sheet(const BatchFlags& flags, const Shard& shard, std::span<const SettledItem> items) {
  const std::string& sheet = *flags.sheet;
  check_sheet_name(sheet);
  if (shard.of > 1) {
    refuse_flag("--sheet", "a job in one shard, or batch merge OUT --sheet " + sheet,
                "one of " + std::to_string(shard.of) + " shards");
  }
  sheet_is_there(fs::path(flags.output_dir) / sheet, flags.overwrite);
  for (const SettledItem& item : items) refuse_sheet_name(item.name, sheet);
}

int exit_code_of(const BatchStore::Totals& totals) {
  if (totals.failed == 0) return 0;
  return totals.done == 0 ? 1 : 3;
}

// When every item is over, whoever generated the last one.
void write_job_sheet(const Session& session, const BatchFlags& flags,
                     std::span<const SettledItem> items, const BatchStore& store) {
  const fs::path sheet = fs::path(flags.output_dir) / *flags.sheet;
  std::vector<std::string> images;
  for (const SettledItem& item : items) {
    const ItemRecord* record = store.record(item.item.id);
    const bool done = record != nullptr && record->state == ItemState::kDone;
    if (done) images.push_back(record->files.back().name);
  }
  write_sheet(sheet, flags.overwrite, images);
  if (!images.empty()) note(session, "sheet: " + sheet.string());
}

}  // namespace

BatchJob read_batch_job(const Session& session, const BatchFlags& flags, const Shard& shard) {
  BatchJob job{.file = flags.arguments.front()};
  const JobList list = read_job_file(job.file);
  stop_at(session, list.errors);
  job.videos =
      flags.kind == kVideoKind || std::any_of(list.items.begin(), list.items.end(),
                                              [](const JobItem& item) { return item.is_video(); });
  job.name = flags.name.value_or(job.videos ? "{id}_{seed}.mkv" : "{id}_{seed}.png");
  JobDefaults defaults{.base_seed = flags.seed};
  JobItem& common = defaults.fields;
  common.negative_prompt = flags.negative_prompt;
  common.settings = flags.sampling;
  common.kind = flags.kind;
  common.frames = flags.frames;
  common.fps = flags.fps;
  job.items = settle_items(list.items, defaults, OutputTemplate(job.name), job.file.string());
  if (flags.sheet) check_sheet(flags, shard, job.items);
  return job;
}

GenerateOptions pipeline_options(const BatchFlags& flags) {
  GenerateOptions options =
      generation_options(flags.model, flags.device, flags.size, flags.batch_size);
  choose_method(options, flags.decode);
  options.text_encoder = flags.text_encoder.value_or("");
  return options;
}

Shard shard_of_call(const BatchFlags& flags) {
  return flags.shard ? shard_from(*flags.shard, process_environment()) : Shard{};
}

StoreOptions store_options(const BatchFlags& flags, const Shard& shard,
                           const std::vector<std::string>& endings) {
  StoreOptions options{.shard = shard,
                       .start = flags.anew ? Start::kAnew : Start::kResume,
                       .overwrite = flags.overwrite,
                       .verify = flags.verify,
                       .sync = flags.fsync == "off" ? Sync::kOff : Sync::kOn};
  options.next_to.insert(options.next_to.end(), endings.begin(), endings.end());
  return options;
}

Json job_options(const BatchFlags& flags, const BatchJob& job) {
  return {
      {"name", job.name}, {"sidecar", flags.sidecar}, {"disable_metadata", flags.disable_metadata}};
}

void tell_what_was_found(const Session& session, const BatchStore& store) {
  if (store.cut_bytes() > 0) {
    note(session, std::to_string(store.cut_bytes()) + " bytes of a torn record were cut off");
  }
  if (const Journal::Mend& mended = store.mended(); !mended.kept_as.empty()) {
    warn(session, "the journal was damaged in the middle: kept as " + mended.kept_as + "; " +
                      std::to_string(mended.records) + " records taken over, " +
                      std::to_string(store.recognised()) + " images recognised");
  }
  if (store.temporaries_removed() > 0) {
    note(session, std::to_string(store.temporaries_removed()) + " unfinished files were removed");
  }
  for (const auto& [id, wrong] : store.damaged()) {
    warn(session, "item " + id + " is generated again: " + wrong);
  }
}

int end_job(const Session& session, const BatchFlags& flags, std::span<const SettledItem> items,
            const BatchStore& store, JobEnd end) {
  const BatchStore::Totals totals = store.totals();
  const std::uint64_t pending = totals.total - totals.done - totals.failed;
  note(session, std::to_string(totals.done) + " done, " + std::to_string(totals.failed) +
                    " failed, " + std::to_string(pending) + " pending of " +
                    std::to_string(totals.total));
  if (end == JobEnd::kDrained) {
    warn(session, "stopped; the same command goes on where it ended");
    return 75;
  }
  if (totals.failed > 0) {
    warn(session, std::to_string(totals.failed) + " failed; --retry-failed tries them again");
  }
  if (flags.sheet) write_job_sheet(session, flags, items, store);
  return exit_code_of(totals);
}

}  // namespace tessera
