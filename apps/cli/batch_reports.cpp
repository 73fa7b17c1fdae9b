// Reports of whole jobs.
#include "apps/cli/batch_reports.h"

#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"
#include "apps/jobs/merge.h"
#include "apps/jobs/records.h"
#include "apps/jobs/sheet.h"
#include "apps/runtime/memory.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/read_probe.h"
#include "engine/core/thread_pool.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kProbeBytes = std::size_t{128} << 20;

std::string counts_text(std::uint64_t total, std::uint64_t done, std::uint64_t failed) {
  return std::to_string(done) + " done, " + std::to_string(failed) + " failed, " +
         std::to_string(total - done - failed) + " pending of " + std::to_string(total);
}

Json counts_json(std::uint64_t total, std::uint64_t done, std::uint64_t failed) {
  return {{"total", total}, {"done", done}, {"failed", failed}, {"pending", total - done - failed}};
}

// Before anything is copied: the sheet must not take the name of a file of the job.
void check_merged_sheet(const std::vector<fs::path>& folders, const fs::path& target,
                        const std::string& sheet, bool overwrite) {
  for (const fs::path& folder : folders) {
    for (const auto& [id, record] : read_job_report(folder).records) {
      for (const RecordedFile& file : record.files) refuse_sheet_name(file.name, sheet);
    }
  }
  sheet_is_there(target / sheet, overwrite);
}

// What of a shard is out of the ordinary; each part after a comma.
std::string notes_text(const ShardReport& shard) {
  std::string notes;
  if (!shard.synced) notes += ", generated with --fsync off";
  if (shard.at_once > 0) {
    notes += ", memory lasted for " + std::to_string(shard.at_once) + " at once";
  }
  if (shard.standing_grids > 0) {
    notes += ", " + std::to_string(shard.standing_grids) + " grids of videos in work stand";
  }
  if (shard.after_damage > 0) {
    notes += ", its journal is damaged: " + std::to_string(shard.after_damage) +
             " records are not counted until its next run";
  }
  return notes;
}

}  // namespace

int batch_status(const Session& session, const fs::path& folder) {
  const JobReport report = read_job_report(folder);
  std::uint64_t total = 0, done = 0, failed = 0;
  bool synced = true;
  Json shards = Json::array();
  for (const ShardReport& shard : report.shards) {
    total += shard.total;
    done += shard.done;
    failed += shard.failed;
    Json line = {{"shard", shard.shard}, {"begun", shard.begun}};
    line.update(counts_json(shard.total, shard.done, shard.failed));
    line["fsync"] = shard.synced ? "on" : "off";
    if (shard.at_once > 0) line["at_once"] = shard.at_once;
    if (shard.standing_grids > 0) line["standing_grids"] = shard.standing_grids;
    if (shard.after_damage > 0) line["behind_damage"] = shard.after_damage;
    synced = synced && shard.synced;
    shards.push_back(std::move(line));
    const std::string notes = notes_text(shard);
    if (session.json) continue;
    if (report.shards.size() == 1) {
      if (!notes.empty()) print_line(notes.substr(2));
      continue;
    }
    print_line("shard " + std::to_string(shard.shard) + "/" + std::to_string(report.shards.size()) +
               "  " + counts_text(shard.total, shard.done, shard.failed) +
               (shard.begun ? notes : ", not begun"));
  }
  if (session.json) {
    Json out = {{"path", folder.string()}};
    out.update(counts_json(total, done, failed));
    out["fsync"] = synced ? "on" : "off";
    out["shards"] = std::move(shards);
    print_json_line(out);
  } else {
    print_line(counts_text(total, done, failed));
    for (const auto& [id, record] : report.records) {
      if (record.state != ItemState::kFailed) continue;
      print_line(escape_for_terminal(id + ": " + record.error));
    }
  }
  if (done + failed < total) return 1;
  return failed > 0 ? 3 : 0;
}

int batch_merge(const Session& session, const std::vector<fs::path>& folders,
                const fs::path& output, const std::string& sheet, bool overwrite) {
  if (output.empty() && folders.size() > 1) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_FLAG_MISSING",
                 .where = "--output-dir",
                 .expected = "a folder for what several folders hold",
                 .found = "none"});
  }
  const fs::path target = output.empty() ? folders.front() : output;
  if (!sheet.empty()) check_merged_sheet(folders, target, sheet, overwrite);
  const MergeReport report = merge_folders(folders, target);
  if (!sheet.empty()) write_sheet(target / sheet, overwrite, report.images);
  if (session.json) {
    Json out = {{"path", report.results.string()}};
    out.update(counts_json(report.total, report.done, report.failed));
    out["copied"] = report.copied;
    print_json_line(out);
  } else {
    print_line(escape_for_terminal(report.results.string()) + "  " +
               counts_text(report.total, report.done, report.failed));
  }
  if (report.failed == 0) return 0;
  return report.done == 0 ? 1 : 3;
}

namespace {

// At which weights are read now, bytes a second.
double reading_rate(int number_of_threads) {
  ThreadPool threads(number_of_threads);
  ReadProbe probe(threads, kProbeBytes);
  return probe.gigabytes_per_second() * 1e9;
}

}  // namespace

int print_video_dry_run(const Session& session, const VideoDryRun& run) {
  const double rate = reading_rate(run.threads);
  const double seconds = to_double(run.weight_bytes) * to_double(run.passes) / rate;
  if (session.json) {
    print_json_line({{"items", run.items},
                     {"wanted", run.wanted},
                     {"memory_bytes", run.memory_bytes},
                     {"seconds_at_least", seconds},
                     {"read_bytes_per_second", rate},
                     {"passes", run.passes}});
    return 0;
  }
  char text[240];
  std::snprintf(text, sizeof text,
                "%zu videos, %zu to generate; memory %s; at least %.3g s (%" PRId64
                " passes of plain "
                "decoding, %s of weights each at %.1f GB/s)",
                run.items, run.wanted, format_bytes(run.memory_bytes).c_str(), seconds, run.passes,
                format_bytes(run.weight_bytes).c_str(), rate / 1e9);
  print_line(text);
  return 0;
}

int print_dry_run(const Session& session, const DryRun& run) {
  const double rate = reading_rate(run.threads);
  const auto seconds_of = [&](std::uint64_t bytes, std::int64_t reads) {
    return to_double(bytes) * to_double(reads) / rate / to_double(run.batch_size);
  };
  const double image = seconds_of(run.weight_bytes, run.tokens);
  const double seconds = image * to_double(run.wanted);
  const DryCaptions& captions = run.captions;
  const auto captions_of = [&](std::int64_t passes) {
    return (seconds_of(captions.look_bytes, captions.methods) +
            seconds_of(captions.pass_bytes, captions.methods * passes)) *
           to_double(run.wanted);
  };
  const double least = captions_of(1), full = captions_of(captions.max_tokens);
  if (session.json) {
    Json line = {{"items", run.items},
                 {"wanted", run.wanted},
                 {"memory_bytes", run.memory_bytes},
                 {"seconds_at_least", seconds},
                 {"seconds_a_picture_at_least", image},
                 {"read_bytes_per_second", rate}};
    if (captions.methods > 0) {
      line["captioner_bytes"] = run.captioner_bytes;
      line["caption_seconds_one_pass"] = least;
      line["caption_seconds_full_length"] = full;
    }
    print_json_line(line);
    return 0;
  }
  const std::string captioner =
      captions.methods > 0 ? " (captioner " + format_bytes(run.captioner_bytes) + ")" : "";
  char text[320];
  std::snprintf(
      text, sizeof text,
      "%zu items, %zu to generate; memory %s%s; at least %.3g s, %.3g s an image (%" PRId64
      " passes "
      "of plain decoding, %s of weights each at %.1f GB/s, %" PRId64 " images at once)",
      run.items, run.wanted, format_bytes(run.memory_bytes).c_str(), captioner.c_str(), seconds,
      image, run.tokens, format_bytes(run.weight_bytes).c_str(), rate / 1e9, run.batch_size);
  print_line(text);
  if (captions.methods == 0) return 0;
  std::snprintf(text, sizeof text,
                "captions next to that: %.3g s (one pass a text) to %.3g s (%" PRId64
                " tokens a text, "
                "plain), %" PRId64 " texts an image, %s of weights a pass",
                least, full, captions.max_tokens, captions.methods,
                format_bytes(captions.pass_bytes).c_str());
  print_line(text);
  return 0;
}

}  // namespace tessera
