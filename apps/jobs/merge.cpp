// Merging reads all journals first and writes last.
#include "apps/jobs/merge.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "apps/captions/text_forms.h"
#include "apps/runtime/sha256.h"
#include "engine/core/file_stream.h"
#include "engine/core/io.h"
#include "engine/core/publish.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxOutputBytes = std::size_t{1} << 30;

[[noreturn]] void refuse_merge(const char* code, const fs::path& file, std::string expected,
                               std::string found) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = code,
               .file = file.string(),
               .expected = std::move(expected),
               .found = std::move(found)});
}

JobReport read_whole_report(const fs::path& folder) {
  JobReport report = read_job_report(folder);
  for (const ShardReport& shard : report.shards) {
    if (shard.after_damage == 0) continue;
    refuse_merge("E_JOURNAL",
                 folder / kStateFolder / journal_name(shard.shard, report.begun.shards),
                 "a whole journal; the next run of the shard mends it",
                 "damage with " + std::to_string(shard.after_damage) + " records after it");
  }
  return report;
}

// The bytes of the file in the first folder that has it whole.
std::string find_whole(std::span<const fs::path> folders, const RecordedFile& file) {
  for (const fs::path& folder : folders) {
    const fs::path path = folder / file.name;
    if (file_type(path) != FileType::kFile) continue;
    std::string bytes = read_file_no_link(path, kMaxOutputBytes);
    if (bytes.size() == file.bytes && sha256_hex(bytes) == file.sha256) return bytes;
  }
  refuse_merge("E_MERGE_FILE", folders.front() / file.name, "the file that the journal names",
               "none with these bytes");
}

// True if it was not there. A file of the name with other bytes is a stranger's.
bool put_next_to(const fs::path& path, const std::string& bytes) {
  if (file_type(path) == FileType::kFile && read_file_no_link(path, kMaxOutputBytes) == bytes) {
    return false;
  }
  if (publish_file(path, bytes, Publish::kNew)) return true;
  refuse_merge("E_OUTPUT_EXISTS", path, "no file of this name", "another file");
}

// `texts`: of the files next to the image that are texts, by name.
Json result_of(const JobItem& item, const ItemRecord& record,
               const std::vector<std::pair<std::string, std::string>>& texts) {
  if (record.state == ItemState::kFailed) {
    return {{"id", item.id}, {"error", Json::parse(record.error)}};
  }
  const RecordedFile& image = record.files.back();
  Json line = {
      {"id", item.id}, {"path", image.name}, {"sha256", image.sha256}, {"seed", record.seed}};
  const std::string stem = fs::path(image.name).stem().string();
  for (const auto& [name, text] : texts) {
    if (name.starts_with(stem)) put_caption(line, name.substr(stem.size()), text);
  }
  return line;
}

}  // namespace

MergeReport merge_folders(std::span<const fs::path> folders, const fs::path& output) {
  expects(!folders.empty(), "folders to merge");
  JobReport whole = read_whole_report(folders.front());
  for (const fs::path& folder : folders.subspan(1)) {
    const JobReport other = read_whole_report(folder);
    if (other.begun.job != whole.begun.job) {
      refuse_merge("E_MERGE_JOB", folder, "the job of " + folders.front().string(), "another one");
    }
    whole.records = merge_records(whole.records, other.records);
  }
  MergeReport report{.total = whole.begun.items.size(), .results = output / "results.jsonl"};
  std::string first_pending;
  for (const JobItem& item : whole.begun.items) {
    const ItemRecord& record = whole.records[item.id];
    if (record.state == ItemState::kPending && first_pending.empty()) first_pending = item.id;
    if (record.state == ItemState::kDone) {
      ++report.done;
      report.images.push_back(record.files.back().name);
    }
    if (record.state == ItemState::kFailed) ++report.failed;
  }
  const std::uint64_t pending = report.total - report.done - report.failed;
  if (pending > 0) {
    refuse_merge("E_MERGE_PENDING", folders.front(), "every item done or failed",
                 std::to_string(pending) + " of " + std::to_string(report.total) +
                     " that nobody worked on, first " + first_pending);
  }
  make_folders_durable(output);
  std::string text;
  for (const JobItem& item : whole.begun.items) {
    const ItemRecord& record = whole.records[item.id];
    std::vector<std::pair<std::string, std::string>> texts;
    for (const RecordedFile& file : record.files) {
      std::string bytes = find_whole(folders, file);
      if (put_next_to(output / file.name, bytes)) ++report.copied;
      if (file.name.ends_with(".txt")) texts.emplace_back(file.name, std::move(bytes));
    }
    text += json_line(result_of(item, record, texts)) + "\n";
  }
  const bool same = file_type(report.results) == FileType::kFile &&
                    read_file_no_link(report.results, kMaxOutputBytes) == text;
  if (!same) write_file_atomic(report.results, text);
  return report;
}

}  // namespace tessera
