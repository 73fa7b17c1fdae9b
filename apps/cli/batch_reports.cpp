// Reports of whole jobs.
#include "apps/cli/batch_reports.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/bench/measure.h"
#include "apps/captions/text_forms.h"
#include "apps/jobs/merge.h"
#include "apps/jobs/records.h"
#include "apps/pipeline/facts.h"
#include "apps/pipeline/first_frames.h"
#include "apps/pipeline/memory.h"
#include "engine/core/io.h"
#include "engine/core/thread_pool.h"
#include "vision/image/png.h"
#include "vision/image/resample.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kSheetGap = 4;                     // pixels
constexpr std::string_view kSheetMark = "tessera-sheet";  // a text chunk: how many pictures
constexpr std::int64_t kSheetSide = 8192;                 // pixels
constexpr std::size_t kMaxSheetBytes = std::size_t{1} << 30;
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
  if (!shard.synced) notes += ", painted with --fsync off";
  if (shard.at_once > 0) {
    notes += ", memory lasted for " + std::to_string(shard.at_once) + " at once";
  }
  if (shard.standing_grids > 0) {
    notes += ", " + std::to_string(shard.standing_grids) + " grids of clips in work stand";
  }
  if (shard.behind_damage > 0) {
    notes += ", its journal is damaged: " + std::to_string(shard.behind_damage) +
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
    if (shard.behind_damage > 0) line["behind_damage"] = shard.behind_damage;
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
  if (!sheet.empty()) write_batch_sheet(target / sheet, overwrite, report.pictures);
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

int print_clip_dry_run(const Session& session, const ClipDryRun& run) {
  const double rate = reading_rate(run.threads);
  const double seconds =
      static_cast<double>(run.weight_bytes) * static_cast<double>(run.passes) / rate;
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
                "%zu clips, %zu to paint; memory %s; at least %.3g s (%lld passes of plain "
                "decoding, %s of weights each at %.1f GB/s)",
                run.items, run.wanted, format_bytes(run.memory_bytes).c_str(), seconds,
                static_cast<long long>(run.passes), format_bytes(run.weight_bytes).c_str(),
                rate / 1e9);
  print_line(text);
  return 0;
}

int print_dry_run(const Session& session, const DryRun& run) {
  const double rate = reading_rate(run.threads);
  const auto seconds_of = [&](std::uint64_t bytes, std::int64_t reads) {
    return static_cast<double>(bytes) * static_cast<double>(reads) / rate /
           static_cast<double>(run.batch_size);
  };
  const double picture = seconds_of(run.weight_bytes, run.tokens);
  const double seconds = picture * static_cast<double>(run.wanted);
  const DryCaptions& captions = run.captions;
  const auto captions_of = [&](std::int64_t passes) {
    return (seconds_of(captions.look_bytes, captions.methods) +
            seconds_of(captions.pass_bytes, captions.methods * passes)) *
           static_cast<double>(run.wanted);
  };
  const double least = captions_of(1), full = captions_of(captions.most_tokens);
  if (session.json) {
    Json line = {{"items", run.items},
                 {"wanted", run.wanted},
                 {"memory_bytes", run.memory_bytes},
                 {"seconds_at_least", seconds},
                 {"seconds_a_picture_at_least", picture},
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
      "%zu items, %zu to paint; memory %s%s; at least %.3g s, %.3g s a picture (%lld passes "
      "of plain decoding, %s of weights each at %.1f GB/s, %lld pictures at once)",
      run.items, run.wanted, format_bytes(run.memory_bytes).c_str(), captioner.c_str(), seconds,
      picture, static_cast<long long>(run.tokens), format_bytes(run.weight_bytes).c_str(),
      rate / 1e9, static_cast<long long>(run.batch_size));
  print_line(text);
  if (captions.methods == 0) return 0;
  std::snprintf(text, sizeof text,
                "captions beside that: %.3g s (one pass a text) to %.3g s (%lld tokens a text, "
                "plain), %lld texts a picture, %s of weights a pass",
                least, full, static_cast<long long>(captions.most_tokens),
                static_cast<long long>(captions.methods),
                format_bytes(captions.pass_bytes).c_str());
  print_line(text);
  return 0;
}

void refuse_sheet_name(const std::string& picture, const std::string& sheet) {
  if (picture != sheet) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_SHEET_NAME",
               .where = "--sheet",
               .expected = "a name that no picture has",
               .found = "\"" + sheet + "\""});
}

void check_sheet_name(const std::string& name) {
  std::string found;
  if (!name.ends_with(".png")) found = "another ending";
  if (name.starts_with('.')) found = "a dot first";
  if (name.find('/') != std::string::npos) found = "a folder";
  if (name.find_first_of("{}") != std::string::npos) found = "braces";
  if (!is_printable(name)) found = "control characters";
  if (name.size() > kMaxNameBytes) found = "over " + std::to_string(kMaxNameBytes) + " bytes";
  if (found.empty()) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_SHEET_NAME",
               .file = name.substr(0, kMaxNameBytes),
               .where = "--sheet",
               .expected = "a file name that ends in .png",
               .found = found});
}

bool sheet_is_there(const fs::path& sheet, bool overwrite) {
  const FileType type = file_type(sheet);
  if (type == FileType::kMissing) return false;
  if (type == FileType::kFile) {
    try {
      for (const PngText& text : read_png_texts(sheet).texts) {
        if (text.keyword == kSheetMark) return true;
      }
    } catch (const Error&) {  // no picture: somebody's
    }
    if (overwrite) return false;
  }
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_OUTPUT_EXISTS",
               .file = sheet.string(),
               .where = "--sheet",
               .expected = "no file of this name, or a sheet of this program",
               .found = type == FileType::kFile ? "another file" : "no plain file",
               .hint = "--overwrite replaces a file"});
}

void write_batch_sheet(const fs::path& sheet, bool overwrite,
                       std::span<const std::string> pictures) {
  if (pictures.empty()) return;
  std::int64_t columns = 1;
  while (columns * columns < static_cast<std::int64_t>(pictures.size())) ++columns;
  std::vector<Image> small;
  for (const std::string& name : pictures) {
    const fs::path file = sheet.parent_path() / name;
    const Image whole = name.ends_with(".png") ? read_own_png(file) : first_frame_of(file);
    std::int64_t step = 1;
    while (columns * (std::max(whole.width, whole.height) / step + kSheetGap) > kSheetSide) ++step;
    small.push_back(resize(whole, std::max<std::int64_t>(whole.width / step, 1),
                           std::max<std::int64_t>(whole.height / step, 1), ResampleFilter::kBox));
  }
  const PngText mark[] = {{std::string(kSheetMark), std::to_string(pictures.size())}};
  const std::string bytes =
      encode_png(contact_sheet(small, columns, kSheetGap), mark, ai_media_xmp(program_version()));
  const bool there = sheet_is_there(sheet, overwrite), replace = there || overwrite;
  if (there && read_file(sheet, kMaxSheetBytes, ErrorKind::kStorage) == bytes) return;
  if (publish_file(sheet, bytes, replace ? Publish::kReplace : Publish::kNew)) return;
  sheet_is_there(sheet, overwrite);  // somebody's, that came meanwhile
}

}  // namespace tessera
