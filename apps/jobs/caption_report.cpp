// Journals of captioning jobs, read by others.
#include "apps/jobs/caption_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apps/captions/output_forms.h"
#include "apps/jobs/caption_store.h"
#include "apps/jobs/refusals.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

ItemState state_of(const std::string& name) {
  if (name == "done") return ItemState::kDone;
  if (name == "skipped") return ItemState::kSkipped;
  if (name == "repeats") return ItemState::kRepeats;
  return name == "failed" ? ItemState::kFailed : ItemState::kPending;
}

void take_header(const Json& fields, CaptionShard& shard) {
  if (fields.value("tessera", std::string()) != journal_kind_name(JournalKind::kCaptions)) {
    refuse_file(ErrorKind::kUsage, "E_JOURNAL", shard.journal, "the journal of a captioning job",
                "another journal");
  }
  shard.begun = true;
  Json job = fields.at("job");
  job.erase("shard");
  shard.job = std::make_shared<const Json>(std::move(job));
}

// What a record says of the job as a whole.
void take_event(const std::string& event, const Json& fields, CaptionShard& shard) {
  shard.over = event == "closed" || event == "over";
  if (event == "closed") shard.size = fields.at("len").get<std::uint64_t>();
}

void take_item(const Json& fields, CaptionShard& shard, std::uint64_t& end) {
  CaptionRecord record;
  record.state = state_of(fields.at("st").get<std::string>());
  if (record.state == ItemState::kPending) return;
  Json kept = fields;
  for (const char* key : {"n", "prev", "crc"}) kept.erase(key);
  record.fields = std::make_shared<const Json>(std::move(kept));
  if (fields.contains("end")) {
    record.begin = end;
    record.end = end = fields.at("end").get<std::uint64_t>();
  }
  shard.records[fields.at("id").get<std::string>()] = std::move(record);
}

fs::path journal_of(const fs::path& output) {
  fs::path journal = output;
  journal += ".journal";
  return journal;
}

// In how many shards the output was begun; 0 when nothing was.
std::uint32_t shards_of_output(const fs::path& output) {
  static constexpr std::string_view kJournal = ".journal";
  const fs::path folder = output.parent_path().empty() ? fs::path(".") : output.parent_path();
  if (!is_folder(folder)) return 0;
  std::uint32_t of = 0;
  for (const fs::path& path : list_folder(folder)) {
    const std::string name = path.filename().string();
    if (!name.ends_with(kJournal)) continue;
    const auto shard = shard_in_name(name.substr(0, name.size() - kJournal.size()), output);
    if (!shard) continue;
    if (of != 0 && of != shard->of) {
      refuse_file(ErrorKind::kUsage, "E_JOB_STATE", output, "shards of one number",
                  "some of " + std::to_string(of) + " and some of " + std::to_string(shard->of));
    }
    of = shard->of;
  }
  return of;
}

// Where items begin: after the header of a CSV, which ends with its first line.
std::uint64_t first_item_of(const fs::path& output) {
  if (output_form(output.string()) != OutputForm::kCsv) return 0;
  fs::path part = output;
  part += ".part";
  const fs::path& file = file_type(output) == FileType::kFile ? output : part;
  if (file_type(file) != FileType::kFile) return 0;
  InputFile source(file, ErrorKind::kStorage);
  std::string text(std::size_t{64} << 10, '\0');
  text.resize(source.read(text.data(), text.size()));
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? 0 : end + 1;
}

CaptionReport read_output_report(const fs::path& output) {
  const std::uint32_t shards = shards_of_output(output);
  CaptionReport report{.output = output, .hash = {}, .shards = {}};
  const bool whole = file_type(journal_of(output)) == FileType::kFile;
  if (!whole && shards == 0) {
    refuse_file(ErrorKind::kUsage, "E_JOB_STATE", journal_of(output),
                "a captioning job that was begun here", "none");
  }
  // A job in shards goes before what was merged of it.
  const std::uint32_t of = shards == 0 ? 1 : shards;
  for (std::uint32_t i = 1; i <= of; ++i) {
    CaptionShard& shard = report.shards.emplace_back();
    shard.shard = {i, of};
    shard.output = shard_output(output, shard.shard);
    shard.journal = journal_of(shard.output);
    read_caption_shard(shard, first_item_of(shard.output));
  }
  return report;
}

std::vector<CaptionReport> read_text_reports(const fs::path& folder) {
  std::map<std::string, std::uint32_t> jobs;  // shards, by hash
  for (const fs::path& path : list_folder(folder)) {
    const auto name = text_journal_name(path.filename().string());
    if (!name) continue;
    // Next to shards a journal of one part is that of a merge.
    std::uint32_t& of = jobs[name->hash];
    if (of > 1 && name->shard.of > 1 && of != name->shard.of) {
      refuse_file(
          ErrorKind::kUsage, "E_JOB_STATE", path, "shards of one number",
          "some of " + std::to_string(of) + " and some of " + std::to_string(name->shard.of));
    }
    of = std::max(of, name->shard.of);
  }
  if (jobs.empty()) {
    refuse_file(ErrorKind::kUsage, "E_JOB_STATE", folder,
                "the journal of a captioning job (text files that are all there "
                "need none)",
                "none");
  }
  std::vector<CaptionReport> out;
  for (const auto& [hash, of] : jobs) {
    CaptionReport& report = out.emplace_back();
    report.hash = hash;
    for (std::uint32_t i = 1; i <= of; ++i) {
      CaptionShard& shard = report.shards.emplace_back();
      shard.shard = {i, of};
      shard.journal = folder / TextJournalName{hash, shard.shard}.text();
      read_caption_shard(shard);
    }
  }
  return out;
}

}  // namespace

void read_caption_shard(CaptionShard& shard, std::uint64_t first) {
  if (file_type(shard.journal) != FileType::kFile) return;
  std::uint64_t end = first;
  const JournalRest rest = read_journal(shard.journal, [&](const Json& fields) {
    if (!shard.begun) return take_header(fields, shard);
    shard.over = false;
    const std::string event = fields.value("ev", std::string());
    if (!event.empty()) take_event(event, fields, shard);
    if (fields.contains("id") && fields.contains("st")) take_item(fields, shard, end);
  });
  shard.after_damage = rest.records;
  for (const auto& [id, record] : shard.records) {
    if (record.state == ItemState::kDone) ++shard.done;
    if (record.state == ItemState::kSkipped) ++shard.skipped;
    if (record.state == ItemState::kFailed) ++shard.failed;
    if (record.state == ItemState::kRepeats) ++shard.repeats;
  }
}

std::vector<CaptionReport> read_caption_reports(const fs::path& place) {
  if (is_folder(place)) return read_text_reports(place);
  if (!output_form(place.string())) {
    refuse_file(ErrorKind::kUsage, "E_OUTPUT_FORM", place,
                "an output (.jsonl, .csv, .tar) or a folder of images", "another name");
  }
  return {read_output_report(place)};
}

}  // namespace tessera
