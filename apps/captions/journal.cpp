// Commit order, whoever uses the journal: data, sync, record, sync. A record that is there
// therefore promises data that is there; data without a record is cut off or done again.
#include "apps/captions/journal.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/captions/text_forms.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// How the line of any journal begins, and that of one kind.
constexpr std::string_view kAnyHeader = "{\"n\":0,\"tessera\":\"";
std::string header_start(JournalKind kind) {
  return std::string(kAnyHeader) + std::string(journal_kind_name(kind)) + "\",\"version\":1,";
}
std::string title_of(JournalKind kind) {
  return kind == JournalKind::kBatch ? "the journal of a batch job"
                                     : "the journal of a captioning job";
}
// ,"crc":"xxxxxxxx"}
constexpr std::string_view kSumStart = ",\"crc\":\"", kSumEnd = "\"}";
constexpr std::size_t kSumBytes = 8 + 8 + 2;
constexpr std::size_t kMaxRecordBytes = std::size_t{64} << 20;  // the header holds all inputs

std::string hex8(std::uint32_t value) {
  char buffer[12];
  std::snprintf(buffer, sizeof buffer, "%08x", value);
  return buffer;
}

// The record of a line whose checksum and chain hold.
std::optional<Json> open_line(std::string_view line, std::uint64_t count, std::uint32_t before,
                              std::uint32_t& sum) {
  if (line.size() < kSumBytes || !line.ends_with(kSumEnd)) return std::nullopt;
  const std::string_view body = line.substr(0, line.size() - kSumBytes);
  if (!line.substr(body.size()).starts_with(kSumStart)) return std::nullopt;
  sum = crc32c(body);
  if (line.substr(body.size() + kSumStart.size(), 8) != hex8(sum)) return std::nullopt;
  try {
    Json record = parse_json(line, "journal", {.max_bytes = kMaxRecordBytes, .max_depth = 16});
    const bool chained = record.is_object() && record.value("n", std::uint64_t{0}) == count &&
                         record.value("prev", std::string()) == hex8(before);
    if (chained) return record;
  } catch (const std::exception&) {  // a line of somebody else, whatever its checksum says
  }
  return std::nullopt;
}

void differences_at(const std::string& path, const Json& was, const Json& is,
                    std::vector<std::string>& out) {
  const auto name = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  const auto text = [](const Json& value) { return json_line(value).substr(0, 200); };
  if (was == is) return;
  if (was.is_object() && is.is_object()) {
    for (const auto& [key, value] : was.items()) {
      if (!is.contains(key)) {
        out.push_back(name(key) + ": was " + text(value) + ", is gone");
      } else {
        differences_at(name(key), value, is.at(key), out);
      }
    }
    for (const auto& [key, value] : is.items()) {
      if (!was.contains(key)) out.push_back(name(key) + ": is new, " + text(value));
    }
    return;
  }
  if (was.is_array() && is.is_array()) {
    for (std::size_t i = 0; i < std::max(was.size(), is.size()); ++i) {
      const std::string item = path + "[" + std::to_string(i) + "]";
      if (i >= is.size()) {
        out.push_back(item + ": was " + text(was[i]) + ", is gone");
      } else if (i >= was.size()) {
        out.push_back(item + ": is new, " + text(is[i]));
      } else {
        differences_at(item, was[i], is[i], out);
      }
    }
    return;
  }
  out.push_back(path + ": was " + text(was) + ", is " + text(is));
}

// Appends the next piece of the source; false at its end, or when a line is longer than any record.
bool read_more(InputFile& source, std::string& buffer) {
  static constexpr std::size_t kPiece = std::size_t{256} << 10;
  if (buffer.size() > kMaxRecordBytes) return false;
  const std::size_t before = buffer.size();
  buffer.resize(before + kPiece);
  buffer.resize(before + source.read(buffer.data() + before, kPiece));
  return buffer.size() > before;
}

struct TakenLines {
  std::uint64_t bytes = 0;  // of the lines, with their ends
  std::string buffer;       // from the file's start while no line was taken
};

// Gives whole lines one by one until `take` refuses one.
template <typename Take>
TakenLines take_lines(InputFile& source, Take take) {
  TakenLines out;
  for (std::size_t at = 0;;) {
    const std::size_t line_end = out.buffer.find('\n', at);
    if (line_end == std::string::npos) {
      out.buffer.erase(0, std::exchange(at, 0));
      if (!read_more(source, out.buffer)) break;
      continue;
    }
    const std::string_view line = std::string_view(out.buffer).substr(at, line_end - at);
    if (!take(line)) break;
    out.bytes += line.size() + 1;
    at = line_end + 1;
  }
  return out;
}

}  // namespace

std::vector<std::string> json_differences(const Json& was, const Json& is, std::size_t most) {
  std::vector<std::string> all;
  differences_at("", was, is, all);
  if (all.size() > most) {
    const std::size_t more = all.size() - most;
    all.resize(most);
    all.push_back("and " + std::to_string(more) + " more");
  }
  return all;
}

Journal::Journal(const fs::path& path, const Json& job, Start start, Sync sync,
                 const Replay& replay, JournalKind kind)
    : file_(path, AppendFile::Lock::kExclusive), sync_(sync), kind_(kind) {
  if (start == Start::kResume) {
    read(job, replay);
  } else {
    forget();
  }
  if (!resumed_) begin(job);
}

void Journal::refuse(const char* code, std::string expected, std::string found) const {
  throw Error({.kind = ErrorKind::kUsage,
               .code = code,
               .file = file_.path().string(),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = "begin anew, or choose another output"});
}

// Of a file that does not begin as this journal does.
void Journal::refuse_file(std::string_view start) const {
  if (!start.starts_with(kAnyHeader)) refuse("E_JOURNAL", title_of(kind_), "another kind of file");
  const bool old_batch =
      kind_ == JournalKind::kBatch && start.starts_with(header_start(JournalKind::kCaptions));
  refuse("E_JOURNAL", title_of(kind_),
         old_batch ? "the journal of a captioning job, or of a batch job of an earlier version"
                   : "the journal of another kind of job");
}

// Cuts away a journal, of whatever job and kind, and no other kind of file.
void Journal::forget() {
  if (file_.size() == 0) return;
  InputFile source(file_.path(), ErrorKind::kStorage);
  const std::string header = header_start(kind_);
  std::string start(header.size(), '\0');
  start.resize(source.read(start.data(), start.size()));
  if (!header.starts_with(start) && !start.starts_with(kAnyHeader)) refuse_file(start);
  replaced_ = start.size() == header.size();
  file_.cut(0);
}

// Replays the whole records of the file and cuts off what follows them.
void Journal::read(const Json& job, const Replay& replay) {
  InputFile source(file_.path(), ErrorKind::kStorage);
  const auto [end, buffer] =
      take_lines(source, [&](std::string_view line) { return take_line(line, job, replay); });
  const std::string start = header_start(kind_).substr(0, buffer.size());
  if (count_ == 0 && !buffer.starts_with(start)) refuse_file(buffer);
  cut_ = file_.size() - end;
  file_.cut(end);
  if (cut_ > 0 && sync_ == Sync::kOn) file_.sync();
}

// False if the line is no whole record of this journal. Error if the journal is another job's.
bool Journal::take_line(std::string_view line, const Json& job, const Replay& replay) {
  std::uint32_t sum = 0;
  const auto record = open_line(line, count_, last_sum_, sum);
  const bool ours = count_ > 0 || line.starts_with(header_start(kind_));
  if (!record && count_ == 0 && ours) refuse("E_JOURNAL", title_of(kind_), "a damaged header");
  if (!record || !ours) return false;
  if (count_ == 0) {
    const auto changes = json_differences(record->value("job", Json()), job, 8);
    std::string list;
    for (const std::string& change : changes) list += (list.empty() ? "" : "; ") + change;
    if (!changes.empty()) refuse("E_JOB_CHANGED", "the job that was begun here", list);
    resumed_ = true;
  } else if (!believe(*record, replay)) {
    return false;
  }
  ++count_;
  last_sum_ = sum;
  return true;
}

// False if a field has another type than records have: the line is not ours, though its sum is
// right.
bool Journal::believe(const Json& record, const Replay& replay) {
  try {
    note_state(record);
    replay(record);
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return true;
}

void Journal::begin(const Json& job) {
  Json header = Json::object();
  header["tessera"] = journal_kind_name(kind_);
  header["version"] = 1;
  header["job"] = job;
  add(header);
  commit();
}

// The line of a record: number first, chain and checksum last.
std::string Journal::seal(const Json& fields) {
  Json record = Json::object();
  record["n"] = count_++;
  for (const auto& [key, value] : fields.items()) record[key] = value;
  record["prev"] = hex8(last_sum_);
  std::string line = json_line(record);
  line.pop_back();  // the closing brace
  last_sum_ = crc32c(line);
  return line + std::string(kSumStart) + hex8(last_sum_) + std::string(kSumEnd) + "\n";
}

void Journal::note_state(const Json& record) {
  if (!record.contains("id") || !record.contains("st")) return;
  const std::string state = record.value("st", std::string());
  const std::string id = record.value("id", std::string());
  if (state == "done") states_[id] = ItemState::kDone;
  if (state == "skipped") states_[id] = ItemState::kSkipped;
  failures_.erase(id);
  if (state != "failed") return;
  states_[id] = ItemState::kFailed;
  Json& failure = failures_[id] = Json::object();
  for (const char* key : {"path", "error"}) {
    if (record.contains(key)) failure[key] = record.at(key);
  }
  if (failure.value("path", std::string()) != shown_id(id)) failure["id"] = shown_id(id);
}

void Journal::add(const Json& fields) {
  note_state(fields);
  queue_ += seal(fields);
  ++queued_;
}

void Journal::commit() {
  if (queued_ == 0) return;
  file_.append(queue_);
  if (sync_ == Sync::kOn) file_.sync();
  queue_.clear();
  queued_ = 0;
}

ItemState Journal::state(const std::string& id) const {
  const auto found = states_.find(id);
  return found == states_.end() ? ItemState::kPending : found->second;
}

bool Journal::wants(const std::string& id, bool retry_failed) const {
  const ItemState now = state(id);
  return now == ItemState::kPending || (now == ItemState::kFailed && retry_failed);
}

Journal::Totals Journal::totals() const {
  Totals out;
  for (const auto& [id, state] : states_) {
    if (state == ItemState::kDone) ++out.done;
    if (state == ItemState::kSkipped) ++out.skipped;
    if (state == ItemState::kFailed) ++out.failed;
  }
  return out;
}

void Journal::add_failure(const std::string& id, const std::string& path, const ErrorInfo& info) {
  Json record = Json::object();
  record["id"] = id;
  record["st"] = "failed";
  const Json failure = failure_json(id, path, info);
  for (const char* key : {"path", "error"}) {
    if (failure.contains(key)) record[key] = failure.at(key);
  }
  add(record);
}

Json failure_json(const std::string& id, const std::string& path, const ErrorInfo& info) {
  static constexpr std::size_t kMost = 512;
  Json error = Json::object();
  error["code"] = info.code;
  if (!info.file.empty()) error["file"] = escape_for_terminal(info.file, kMost);
  error["where"] = escape_for_terminal(info.where, kMost);
  error["expected"] = escape_for_terminal(info.expected, kMost);
  error["found"] = escape_for_terminal(info.found, kMost);
  if (!info.hint.empty()) error["hint"] = escape_for_terminal(info.hint, kMost);
  Json out = Json::object();
  if (!path.empty()) out["path"] = path;
  if (const std::string shown = shown_id(id); shown != path) out["id"] = shown;
  out["error"] = std::move(error);
  return out;
}

std::uint64_t read_journal(const fs::path& path, const Journal::Replay& replay) {
  InputFile source(path, ErrorKind::kStorage);
  std::uint64_t count = 0;
  std::uint32_t last_sum = 0;
  const std::uint64_t end = take_lines(source, [&](std::string_view line) {
                              std::uint32_t sum = 0;
                              const auto record = open_line(line, count, last_sum, sum);
                              if (!record) return false;
                              try {
                                replay(*record);
                              } catch (const nlohmann::json::exception&) {
                                return false;  // a field of another type: not ours
                              }
                              ++count;
                              last_sum = sum;
                              return true;
                            }).bytes;
  return source.size() > end ? source.size() - end : 0;
}

std::string_view journal_kind_name(JournalKind kind) {
  return kind == JournalKind::kBatch ? "batch" : "captions";
}

void write_failures(const fs::path& path, const Journal& journal) {
  std::string text;
  for (const auto& [id, failure] : journal.failures()) text += json_line(failure) + "\n";
  if (!text.empty()) {
    write_file_atomic(path, text);
  } else if (file_exists(path)) {
    remove_durable(path);
  }
}

}  // namespace tessera
