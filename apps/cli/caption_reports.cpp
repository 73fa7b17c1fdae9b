// Reports of whole captioning jobs.
#include "apps/cli/caption_reports.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/captions/text_forms.h"
#include "apps/jobs/caption_merge.h"
#include "apps/jobs/caption_report.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

struct Counts {
  std::uint64_t done = 0, skipped = 0, failed = 0, repeats = 0;
};

std::string text_of(const Counts& counts) {
  return caption_counts_text(counts.done, counts.skipped, counts.repeats, counts.failed);
}

// "repeats" only where images were compared and some were left out.
Json json_of(const Counts& counts) {
  Json out = {{"done", counts.done}, {"skipped", counts.skipped}, {"failed", counts.failed}};
  if (counts.repeats > 0) out["repeats"] = counts.repeats;
  return out;
}

std::string notes_of(const CaptionShard& shard) {
  if (!shard.begun) return ", not begun";
  std::string notes = shard.over ? "" : ", not over";
  if (shard.after_damage > 0) {
    notes += ", its journal is damaged: " + std::to_string(shard.after_damage) +
             " records after the damage are done again";
  }
  return notes;
}

// Items without a caption.
void print_failures(const CaptionReport& report) {
  for (const CaptionShard& shard : report.shards) {
    for (const auto& [id, record] : shard.records) {
      if (record.state == ItemState::kRepeats) {
        const std::string other = record.fields->value("repeats", std::string());
        print_line(escape_for_terminal(shown_id(id)) + ": repeats " + escape_for_terminal(other));
      }
      if (record.state != ItemState::kFailed) continue;
      const Json error = record.fields->value("error", Json::object());
      print_line(escape_for_terminal(shown_id(id)) + ": " + json_line(error));
    }
  }
}

// Whether the job is over; adds to the counts of all jobs.
bool print_job(const Session& session, const CaptionReport& report, const fs::path& path,
               Counts& all) {
  Counts sum;
  bool over = true;
  Json shards = Json::array();
  for (const CaptionShard& shard : report.shards) {
    const Counts counts{shard.done, shard.skipped, shard.failed, shard.repeats};
    sum.done += counts.done;
    sum.skipped += counts.skipped;
    sum.failed += counts.failed;
    sum.repeats += counts.repeats;
    over = over && shard.over;
    Json line = {{"shard", shard.shard.index}, {"begun", shard.begun}, {"over", shard.over}};
    line.update(json_of(counts));
    if (shard.after_damage > 0) line["behind_damage"] = shard.after_damage;
    shards.push_back(std::move(line));
    if (session.json || report.shards.size() == 1) continue;
    print_line("shard " + std::to_string(shard.shard.index) + "/" + std::to_string(shard.shard.of) +
               "  " + text_of(counts) + notes_of(shard));
  }
  all.done += sum.done;
  all.skipped += sum.skipped;
  all.failed += sum.failed;
  all.repeats += sum.repeats;
  if (session.json) {
    Json out = {{"path", path.string()}, {"over", over}};
    out.update(json_of(sum));
    out["shards"] = std::move(shards);
    print_json_line(out);
    return over;
  }
  const bool one = report.shards.size() == 1;
  print_line(text_of(sum) + (one ? notes_of(report.shards.front()) : over ? "" : ", not over"));
  print_failures(report);
  return over;
}

int code_of(const CaptionMerge& merge) {
  if (merge.failed == 0) return 0;
  return merge.done + merge.skipped + merge.repeats == 0 ? 1 : 3;
}

void print_merge(const Session& session, const CaptionMerge& merge) {
  const Counts counts{merge.done, merge.skipped, merge.failed, merge.repeats};
  if (session.json) {
    Json out = {{"path", merge.path.string()}};
    out.update(json_of(counts));
    return print_json_line(out);
  }
  print_line(escape_for_terminal(merge.path.string()) + "  " + text_of(counts));
}

[[noreturn]] void refuse_report(const char* code, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = code,
               .where = "--output",
               .expected = std::move(expected),
               .found = std::move(found)});
}

}  // namespace

std::string caption_counts_text(std::uint64_t done, std::uint64_t skipped, std::uint64_t repeats,
                                std::uint64_t failed) {
  const std::string similar =
      repeats == 0 ? "" : std::to_string(repeats) + " repeat another image, ";
  return std::to_string(done) + " done, " + std::to_string(skipped) + " were there already, " +
         similar + std::to_string(failed) + " failed";
}

int caption_status(const Session& session, const fs::path& place) {
  Counts all;
  bool over = true;
  for (const CaptionReport& report : read_caption_reports(place)) {
    over = print_job(session, report, place, all) && over;
  }
  if (!over) return 1;
  return all.failed > 0 ? 3 : 0;
}

int caption_merge(const Session& session, const std::vector<fs::path>& places,
                  const fs::path& output) {
  std::vector<CaptionReport> reports;
  int code = 0;
  for (const fs::path& place : places) {
    for (CaptionReport& report : read_caption_reports(place)) {
      if (!report.output.empty()) {
        reports.push_back(std::move(report));
        continue;
      }
      const CaptionMerge merge = merge_texts(report, place);
      print_merge(session, merge);
      code = std::max(code, code_of(merge));
    }
  }
  if (reports.empty()) return code;
  if (output.empty() && reports.size() > 1) {
    refuse_report("E_FLAG_MISSING", "a file for what several places hold", "none");
  }
  const CaptionMerge merge =
      merge_outputs(reports, output.empty() ? reports.front().output : output);
  print_merge(session, merge);
  return std::max(code, code_of(merge));
}

}  // namespace tessera
