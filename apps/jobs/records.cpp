// Records and the files of a begun job.
#include "apps/jobs/records.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"
#include "apps/jobs/segments.h"
#include "apps/jobs/shard.h"
#include "apps/runtime/sha256.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxJobJson = std::size_t{1} << 20;
constexpr std::size_t kMaxItemsFile = std::size_t{1} << 30;
constexpr std::uint32_t kMaxShards = 99999;

[[noreturn]] void refuse_state(const fs::path& file, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_JOB_STATE",
               .file = file.string(),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = "--anew begins the job again"});
}

bool is_digest(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos &&
         is_printable(name);
}

Json record_fields(const std::string& id, const ItemRecord& record, double seconds) {
  Json files = Json::array();
  for (const RecordedFile& file : record.files) {
    files.push_back({{"p", file.name}, {"len", file.bytes}, {"sha256", file.sha256}});
    if (!file.xxh3.empty()) files.back()["xxh3"] = file.xxh3;
  }
  return {{"id", id},     {"st", "done"},       {"files", std::move(files)}, {"seed", record.seed},
          {"s", seconds}, {"try", record.tries}};
}

std::size_t longest_line(const Json& fields) {
  // {"n":18446744073709551615, ... ,"prev":"xxxxxxxx","crc":"xxxxxxxx"} and the line's end.
  static constexpr std::size_t kSealed = 5 + 20 + 18 + 17 + 2;
  return json_line(fields).size() + kSealed;
}

Json failed_fields(const std::string& id, const ErrorInfo& error, std::int64_t tries) {
  static constexpr std::size_t kWhole = std::size_t{1} << 30;
  const Json whole = failure_json(id, "", error, kWhole).at("error");
  for (std::size_t most = 512;; most /= 2) {
    Json out = {{"id", id},
                {"st", "failed"},
                {"error", failure_json(id, "", error, most).at("error")},
                {"try", tries}};
    if (out.at("error") != whole) out["cut"] = true;
    if (longest_line(out) <= kMaxRecordLine) return out;
    expects(most > 8, "ids and codes are short");
  }
}

std::string record_of(const Json& fields, ItemRecord& record) {
  if (!fields.contains("id") || !fields.contains("st")) return {};
  const std::string id = fields.at("id").get<std::string>();
  const std::string state = fields.at("st").get<std::string>();
  record = {};
  record.tries = fields.value("try", std::int64_t{1});
  if (state == "failed") {
    record.state = ItemState::kFailed;
    record.error = json_line(fields.value("error", Json::object()));
    return id;
  }
  if (state != "done") return {};
  for (const Json& file : fields.at("files")) {
    RecordedFile& known = record.files.emplace_back();
    known.name = file.at("p").get<std::string>();
    known.bytes = file.at("len").get<std::uint64_t>();
    known.sha256 = file.at("sha256").get<std::string>();
    if (!is_plain_name(known.name)) return {};
    if (!is_digest(known.sha256, 64)) return {};
    known.xxh3 = file.value("xxh3", std::string());
    if (!known.xxh3.empty() && !is_digest(known.xxh3, 16)) return {};
  }
  if (record.files.empty()) return {};
  record.seed = fields.at("seed").get<std::int64_t>();
  record.state = ItemState::kDone;
  return id;
}

ItemRecord merge_records(const std::string& id, const ItemRecord& a, const ItemRecord& b) {
  const auto rank = [](const ItemRecord& record) {
    return record.state == ItemState::kDone ? 2 : record.state == ItemState::kFailed ? 1 : 0;
  };
  if (rank(a) != rank(b)) return rank(a) > rank(b) ? a : b;
  if (a.state == ItemState::kFailed) {
    return a.error <= b.error ? a : b;
  }
  if (a == b) return a;
  // The first file that the other has not alike; one of them at least has such a file or another
  // seed.
  const auto shown = [](const ItemRecord& record, const ItemRecord& other) {
    const auto differs = [&](const RecordedFile& file) {
      return std::find(other.files.begin(), other.files.end(), file) == other.files.end();
    };
    const auto file = std::find_if(record.files.begin(), record.files.end(), differs);
    const bool alike = file == record.files.end();
    const RecordedFile& heard = alike ? record.files.back() : *file;
    return heard.name + " with sha256 " + heard.sha256.substr(0, 12) +
           (alike ? " of seed " + std::to_string(record.seed) : "");
  };
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_MERGE_CONFLICT",
               .where = "item " + id,
               .expected = "one image",
               .found = shown(a, b) + " and " + shown(b, a)});
}

ItemRecords merge_records(const ItemRecords& a, const ItemRecords& b) {
  ItemRecords out = a;
  for (const auto& [id, record] : b) {
    const auto [known, fresh] = out.emplace(id, record);
    if (!fresh) known->second = merge_records(id, known->second, record);
  }
  return out;
}

void put_caption(Json& line, const std::string& ending, const std::string& text) {
  static constexpr std::size_t kDot = 1, kTxt = 4;
  if (ending.size() <= kTxt) {
    line["caption"] = text;
  } else {
    line["captions"][ending.substr(kDot, ending.size() - kDot - kTxt)] = text;
  }
}

namespace {

std::string shard_name(std::uint32_t shard, std::uint32_t shards, const char* ending) {
  char name[48];
  std::snprintf(name, sizeof name, "shard-%05u-of-%05u%s", shard, shards, ending);
  return name;
}

}  // namespace

std::string journal_name(std::uint32_t shard, std::uint32_t shards) {
  return shard_name(shard, shards, ".jnl");
}

std::string log_name(std::uint32_t shard, std::uint32_t shards) {
  return shard_name(shard, shards, ".log");
}

std::string items_text(std::vector<const JobItem*> items) {
  std::sort(items.begin(), items.end(),
            [](const JobItem* a, const JobItem* b) { return a->id < b->id; });
  std::string text;
  for (const JobItem* item : items) text += job_line(*item) + "\n";
  return text;
}

void check_begun_items(const fs::path& folder, const std::string& items) {
  const fs::path items_file = folder / kStateFolder / "items.jsonl";
  if (InputFile(items_file, ErrorKind::kUsage).size() == items.size() &&
      read_file(items_file, items.size(), ErrorKind::kUsage) == items) {
    return;
  }
  refuse_state(items_file, "the items that job.json names", "other bytes");
}

std::optional<BegunJob> read_begun_job(const fs::path& folder) {
  const fs::path job_file = folder / kStateFolder / "job.json";
  if (file_type(job_file) == FileType::kMissing) return std::nullopt;
  BegunJob begun;
  begun.job = read_file(job_file, kMaxJobJson, ErrorKind::kUsage);
  begun.digest = sha256_hex(begun.job);
  const Json job = parse_json(begun.job, job_file.string(),
                              {.max_bytes = kMaxJobJson, .kind = ErrorKind::kUsage});
  const JsonReader reader(job, job_file.string(), "", ErrorKind::kUsage);
  reader.integer("schema", 1, 1);
  begun.shards = narrow<std::uint32_t>(reader.integer("shards", 1, kMaxShards));
  const JsonReader items = reader.object("items");
  const auto count = items.integer("count", 1, to_index(kMaxJobItems));

  const fs::path items_file = folder / kStateFolder / "items.jsonl";
  const std::string lines = read_file(items_file, kMaxItemsFile, ErrorKind::kUsage);
  if (sha256_hex(lines) != items.string("sha256")) {
    refuse_state(items_file, "the items that job.json names", "other bytes");
  }
  JobList list = read_job_file(items_file);
  if (!list.errors.empty()) throw Error(list.errors.front());
  if (list.items.size() != to_size(count)) {
    refuse_state(items_file, std::to_string(count) + " items", std::to_string(list.items.size()));
  }
  begun.items = std::move(list.items);
  return begun;
}

JobReport read_job_report(const fs::path& folder) {
  std::optional<BegunJob> begun = read_begun_job(folder);
  if (!begun) refuse_state(folder / kStateFolder, "a job that was begun here", "none");
  JobReport report{.begun = std::move(*begun)};
  std::map<std::string, std::uint32_t> shard_of_id;
  report.shards.resize(report.begun.shards);
  for (std::uint32_t i = 0; i < report.begun.shards; ++i) report.shards[i].shard = i + 1;
  for (const JobItem& item : report.begun.items) {
    const std::uint32_t shard = shard_of(item.id, report.begun.shards);
    shard_of_id[item.id] = shard;
    ++report.shards[shard - 1].total;
  }
  for (ShardReport& shard : report.shards) {
    const fs::path path = folder / kStateFolder / journal_name(shard.shard, report.begun.shards);
    if (file_type(path) == FileType::kMissing) continue;
    bool ours = false, header = true;
    ItemRecords records;
    Segments segments;
    const JournalRest rest = read_journal(path, [&](const Json& fields) {
      if (header) {
        const std::string kind = fields.value("tessera", std::string());
        if (kind != journal_kind_name(JournalKind::kBatch)) {
          refuse_state(path, "the journal of a batch job",
                       "the journal of a captioning job, or of a batch job of an earlier version");
        }
        ours = fields.at("job").at("batch") == report.begun.digest;
      }
      header = false;
      if (fields.value("fsync", std::string()) == "off") shard.synced = false;
      shard.at_once = fields.value("at_once", shard.at_once);
      segments.take(fields);
      ItemRecord record;
      const std::string id = record_of(fields, record);
      const auto known = shard_of_id.find(id);
      if (known != shard_of_id.end() && known->second == shard.shard) records[id] = record;
    });
    if (!ours) continue;
    shard.begun = true;
    shard.after_damage = rest.records;
    for (const auto& [id, record] : records) {
      ++(record.state == ItemState::kDone ? shard.done : shard.failed);
    }
    for (const auto& [id, list] : segments.all()) {
      const auto known = shard_of_id.find(id);
      if (list.empty() || known == shard_of_id.end() || known->second != shard.shard) continue;
      const std::int64_t grids = list.back().first + list.back().grids;
      report.standing[id] = grids;
      shard.standing_grids += narrow<std::uint64_t>(grids);
    }
    report.records.merge(records);
  }
  return report;
}

}  // namespace tessera
