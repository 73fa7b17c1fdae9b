// Merging reads all journals first and writes last.
#include "apps/jobs/caption_merge.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apps/captions/output_forms.h"
#include "apps/captions/text_forms.h"
#include "apps/jobs/caption_store.h"
#include "apps/jobs/journal_lines.h"
#include "apps/jobs/refusals.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

std::string name_of(const Shard& shard) {
  return "shard " + std::to_string(shard.index) + "/" + std::to_string(shard.of);
}

void check_over(const CaptionShard& shard) {
  if (shard.over) return;
  refuse_file(ErrorKind::kGeneral, "E_MERGE_PENDING", shard.journal, "every shard over",
              name_of(shard.shard) + (shard.begun ? ", which is not" : ", which was not begun"));
}

struct MergedItem {
  const CaptionShard* shard = nullptr;
  const CaptionRecord* record = nullptr;
};

// Items of all shards, in the order in which people list their ids.
std::vector<std::pair<std::string, MergedItem>> items_of(
    std::span<const CaptionShard* const> shards) {
  std::map<std::string, MergedItem> by_id;
  for (const CaptionShard* shard : shards) {
    for (const auto& [id, record] : shard->records) {
      const auto [known, fresh] = by_id.emplace(id, MergedItem{shard, &record});
      if (fresh || record.state == ItemState::kFailed) continue;
      const CaptionRecord& other = *known->second.record;
      if (other.state != ItemState::kFailed) {
        // An image that inputs gave twice, under two keys, is described by one process once.
        const std::string own_key = record.fields->value("key", std::string());
        const std::string other_key = other.fields->value("key", std::string());
        if (natural_less(other_key, own_key)) continue;
        if (own_key == other_key)
          refuse_file(ErrorKind::kGeneral, "E_MERGE_CONFLICT", shard->journal,
                      "each item in one shard",
                      shown_id(id) + " in " + name_of(known->second.shard->shard) + " and " +
                          name_of(shard->shard));
      }
      known->second = {shard, &record};
    }
  }
  std::vector<std::pair<std::string, MergedItem>> out(by_id.begin(), by_id.end());
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return natural_less(a.first, b.first); });
  return out;
}

void count(const CaptionRecord& record, CaptionMerge& merge) {
  if (record.state == ItemState::kDone) ++merge.done;
  if (record.state == ItemState::kSkipped) ++merge.skipped;
  if (record.state == ItemState::kFailed) ++merge.failed;
  if (record.state == ItemState::kRepeats) ++merge.repeats;
}

// Each shard once, whichever place has it; all of one job.
std::vector<const CaptionShard*> shards_of(std::span<const CaptionReport> reports) {
  std::vector<const CaptionShard*> out(reports.front().shards.size(), nullptr);
  for (const CaptionReport& report : reports) {
    if (report.shards.size() != out.size()) {
      refuse_file(ErrorKind::kGeneral, "E_MERGE_JOB", report.output,
                  std::to_string(out.size()) + " shards", std::to_string(report.shards.size()));
    }
    for (const CaptionShard& shard : report.shards) {
      const CaptionShard*& known = out[shard.shard.index - 1];
      if (known == nullptr || (shard.over && !known->over)) known = &shard;
    }
  }
  for (const CaptionShard* shard : out) {
    check_over(*shard);
    const auto changes = json_differences(*out.front()->job, *shard->job, 8);
    if (!changes.empty()) {
      refuse_file(ErrorKind::kGeneral, "E_MERGE_JOB", shard->journal,
                  "the job of " + out.front()->journal.string(), changes.front());
    }
  }
  return out;
}

// The outputs of shards, opened once each.
class ShardOutputs {
 public:
  std::string bytes_of(const MergedItem& item) {
    const CaptionRecord& record = *item.record;
    if (record.end <= record.begin) return {};
    std::unique_ptr<InputFile>& file = files_[item.shard];
    if (!file) file = open(*item.shard);
    std::string bytes(record.end - record.begin, '\0');
    file->seek(record.begin);
    bytes.resize(file->read(bytes.data(), bytes.size()));
    return bytes;
  }

 private:
  static std::unique_ptr<InputFile> open(const CaptionShard& shard) {
    auto file = std::make_unique<InputFile>(shard.output, ErrorKind::kGeneral);
    if (file->size() == shard.size) return file;
    refuse_file(ErrorKind::kGeneral, "E_MERGE_FILE", shard.output,
                std::to_string(shard.size) + " bytes, as it was closed",
                std::to_string(file->size()));
  }

  std::map<const CaptionShard*, std::unique_ptr<InputFile>> files_;
};

// A whole journal of the job in one part, as one that ended leaves it.
std::string journal_text(const Json& job,
                         std::span<const std::pair<std::string, MergedItem>> items) {
  std::uint64_t number = 0;
  std::uint32_t sum = 0;
  const Json header = {
      {"tessera", journal_kind_name(JournalKind::kCaptions)}, {"version", 1}, {"job", job}};
  std::string text = journal_lines::seal_line(header, number++, sum);
  for (const auto& [id, item] : items) {
    text += journal_lines::seal_line(*item.record->fields, number++, sum);
  }
  return text + journal_lines::seal_line({{"ev", "over"}}, number, sum);
}

}  // namespace

CaptionMerge merge_outputs(std::span<const CaptionReport> reports, const fs::path& output) {
  expects(!reports.empty(), "a job to merge");
  const std::vector<const CaptionShard*> shards = shards_of(reports);
  CaptionMerge merge{.path = output};
  const auto items = items_of(shards);
  for (const auto& [id, item] : items) count(*item.record, merge);
  if (shards.size() == 1 && shards.front()->output == output) return merge;
  Json job = *shards.front()->job;
  job["output"] = output.filename().string();
  StreamOptions options;
  options.form = output_form(output.string()).value();
  options.columns = caption_columns(job);
  options.formula_safe = !job.value("csv_raw", false);
  StreamedOutput whole(output, job, options);
  ShardOutputs outputs;
  for (const auto& [id, item] : items) {
    const bool failed = item.record->state == ItemState::kFailed;
    const bool known = failed && whole.journal().state(id) != ItemState::kPending;
    if (known || !whole.wants(id, true)) continue;
    whole.take_over(*item.record->fields, outputs.bytes_of(item));
  }
  whole.finish();
  return merge;
}

CaptionMerge merge_texts(const CaptionReport& report, const fs::path& folder) {
  CaptionMerge merge{.path = folder};
  const fs::path whole = folder / TextJournalName{report.hash, {}}.text();
  // Where a merge was ended while it removed journals, this one has all that they said.
  CaptionShard merged{.journal = whole};
  read_caption_shard(merged);
  std::vector<const CaptionShard*> shards;
  if (merged.begun) {
    shards.push_back(&merged);
  } else {
    for (const CaptionShard& shard : report.shards) shards.push_back(&shard);
  }
  for (const CaptionShard* shard : shards) check_over(*shard);
  const auto items = items_of(shards);
  for (const auto& [id, item] : items) count(*item.record, merge);
  if (report.shards.size() == 1) return merge;
  const Json& job = *shards.front()->job;
  if (!merged.begun) write_file_atomic(whole, journal_text(job, items));
  for (const CaptionShard& shard : report.shards) {
    if (shard.begun) remove_durable(shard.journal);
  }
  const std::string existing = job.value("existing", std::string());
  const bool needed = merge.failed > 0 || merge.repeats > 0 || existing == "append" || existing == "prepend";
  if (!needed) remove_durable(whole);
  return merge;
}

}  // namespace tessera
