// Commit order, whoever uses the journal: data, sync, record, sync. A record that is there
// therefore guarantees data that is there; data without a record is cut off or done again.
#include "apps/jobs/journal.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/captions/text_forms.h"
#include "apps/jobs/journal_lines.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;
using namespace journal_lines;

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

// Puts the text next to `path` under the first "NAME.bad-1", "NAME.bad-2" ... that is free; the last
// of them serves if it holds these bytes. Durable when it returns.
fs::path keep_copy(const fs::path& path, const std::string& text) {
  const auto name = [&](std::uint64_t number) {
    return fs::path(path.string() + ".bad-" + std::to_string(number));
  };
  for (std::uint64_t number = 1;; ++number) {
    if (file_type(name(number)) == FileType::kMissing) {
      if (publish_file(name(number), text, Publish::kNew)) return name(number);
    } else if (file_type(name(number + 1)) == FileType::kMissing) {
      const bool same = file_type(name(number)) == FileType::kFile &&
                        InputFile(name(number), ErrorKind::kStorage).size() == text.size() &&
                        read_file_no_link(name(number), text.size()) == text;
      if (same) return name(number);
    }
  }
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
    : file_(std::make_unique<AppendFile>(path, AppendFile::Lock::kExclusive)),
      sync_(sync),
      kind_(kind) {
  if (start == Start::kResume) {
    read(job, replay);
  } else {
    forget();
  }
  if (!resumed_) begin(job);
  // Records that a killed run wrote and did not sync are believed from here on.
  if (resumed_ && sync_ == Sync::kOn) file_->sync();
}

void Journal::refuse(const char* code, std::string expected, std::string found) const {
  throw Error({.kind = ErrorKind::kUsage,
               .code = code,
               .file = file_->path().string(),
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
  if (file_->size() == 0) return;
  InputFile source(file_->path(), ErrorKind::kStorage);
  const std::string header = header_start(kind_);
  std::string start(header.size(), '\0');
  start.resize(source.read(start.data(), start.size()));
  const bool known = header.starts_with(start) || start.starts_with(kAnyHeader);
  // A journal whose first line is damaged is known by its other lines, and kept.
  if (!known && kind_ == JournalKind::kBatch && has_whole_line()) {
    mend_.kept_as = keep_copy(file_->path(), read_all()).filename().string();
  } else if (!known) {
    refuse_file(start);
  }
  replaced_ = start.size() == header.size();
  file_->cut(0);
}

std::string Journal::read_all() const {
  std::string text(file_->size(), '\0');
  InputFile source(file_->path(), ErrorKind::kStorage);
  text.resize(source.read(text.data(), text.size()));
  return text;
}

bool Journal::has_whole_line() const {
  InputFile source(file_->path(), ErrorKind::kStorage);
  bool found = false;
  take_lines(source, [&](std::string_view line) {
    found = open_line(line).has_value();
    return !found;
  });
  return found;
}

// Replays the whole records of the file. A torn end is cut off; damage with whole records after it
// is mended in the journal of a batch job.
void Journal::read(const Json& job, const Replay& replay) {
  InputFile source(file_->path(), ErrorKind::kStorage);
  std::uint64_t end = 0, next = 0;
  bool damaged = false;
  std::vector<Json> after;
  const std::string buffer = take_lines(source, [&](std::string_view line) {
    if (!damaged && take_line(line, job, replay)) {
      end += line.size() + 1;
      next = count_;
      return true;
    }
    if (count_ == 0 || kind_ != JournalKind::kBatch) return false;
    damaged = true;
    std::optional<OpenedLine> opened = open_line(line);
    // Numbers that go up: nothing is believed twice, or in another order than it was written.
    const bool before = opened && opened->number() < next;
    if (!opened || before || !believe(*opened->record, replay)) return true;
    next = opened->number() + 1;
    after.push_back(std::move(*opened->record));
    return true;
  });
  const std::string start = header_start(kind_).substr(0, buffer.size());
  if (count_ == 0 && !buffer.starts_with(start)) refuse_file(buffer);
  if (!after.empty()) return mend(end, after);
  cut_ = file_->size() - end;
  file_->cut(end);
  if (cut_ > 0 && (sync_ == Sync::kOn || kind_ == JournalKind::kBatch)) file_->sync();
}

// The journal as it is goes to a name of its own, durably; only then it is replaced, at once, by
// one that holds what is whole in it. Ended at any point before that, this is done again.
void Journal::mend(std::uint64_t end, const std::vector<Json>& after) {
  const fs::path path = file_->path();
  std::string text = read_all();
  mend_.kept_as = keep_copy(path, text).filename().string();
  text.resize(end);
  const auto add_line = [&](const Json& fields) { text += seal_line(fields, count_++, last_sum_); };
  for (const Json& record : after) add_line(record);
  mend_.records = count_ - 1;  // but for the header
  add_line({{"mended", mend_.kept_as}, {"records", mend_.records}});
  write_file_atomic(path, text);
  // The lock is the file's, not the name's. Who comes in between is met as one that was first.
  file_ = std::make_unique<AppendFile>(path, AppendFile::Lock::kExclusive);
}

// False if the line is no whole record of this journal. Error if the journal is another job's.
bool Journal::take_line(std::string_view line, const Json& job, const Replay& replay) {
  const std::optional<OpenedLine> opened = open_line(line);
  const bool whole = opened && opened->follows(count_, last_sum_);
  const bool ours = count_ > 0 || line.starts_with(header_start(kind_));
  if (!whole && count_ == 0 && ours) refuse("E_JOURNAL", title_of(kind_), "a damaged header");
  if (!whole || !ours) return false;
  if (count_ == 0) {
    const auto changes = json_differences(opened->record->value("job", Json()), job, 8);
    std::string list;
    for (const std::string& change : changes) list += (list.empty() ? "" : "; ") + change;
    if (!changes.empty()) refuse("E_JOB_CHANGED", "the job that was begun here", list);
    resumed_ = true;
    began_anew_ = opened->record->value("anew", false);
  } else if (!believe(*opened->record, replay)) {
    return false;
  }
  ++count_;
  last_sum_ = opened->sum;
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
  if (replaced_) header["anew"] = true;
  began_anew_ = replaced_;
  add(header);
  // Of a batch job whatever follows is synced or not by itself, but never what it stands on.
  commit(kind_ == JournalKind::kBatch ? Sync::kOn : sync_);
}

void Journal::note_state(const Json& record) {
  if (!record.contains("id") || !record.contains("st")) return;
  const std::string state = record.value("st", std::string());
  const std::string id = record.value("id", std::string());
  if (state == "done") states_[id] = ItemState::kDone;
  if (state == "skipped") states_[id] = ItemState::kSkipped;
  if (state == "repeats") states_[id] = ItemState::kRepeats;
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
  queue_ += seal_line(fields, count_++, last_sum_);
  ++queued_;
}

void Journal::commit(std::optional<Sync> sync) {
  if (queued_ == 0) return;
  file_->append(queue_);
  if (sync.value_or(sync_) == Sync::kOn) file_->sync();
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
    if (state == ItemState::kRepeats) ++out.repeats;
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

Json failure_json(const std::string& id, const std::string& path, const ErrorInfo& info,
                  std::size_t most) {
  Json error = Json::object();
  error["code"] = info.code;
  if (!info.file.empty()) error["file"] = escape_for_terminal(info.file, most);
  error["where"] = escape_for_terminal(info.where, most);
  error["expected"] = escape_for_terminal(info.expected, most);
  error["found"] = escape_for_terminal(info.found, most);
  if (!info.hint.empty()) error["hint"] = escape_for_terminal(info.hint, most);
  Json out = Json::object();
  if (!path.empty()) out["path"] = path;
  if (const std::string shown = shown_id(id); shown != path) out["id"] = shown;
  out["error"] = std::move(error);
  return out;
}

JournalRest read_journal(const fs::path& path, const Journal::Replay& replay) {
  InputFile source(path, ErrorKind::kStorage);
  JournalRest rest;
  std::uint64_t count = 0, end = 0;
  std::uint32_t last_sum = 0;
  bool damaged = false;
  take_lines(source, [&](std::string_view line) {
    const std::optional<OpenedLine> opened = open_line(line);
    damaged = damaged || !opened || !opened->follows(count, last_sum);
    if (damaged) {
      if (opened && count > 0) ++rest.records;
      return count > 0;
    }
    try {
      replay(*opened->record);
    } catch (const nlohmann::json::exception&) {
      damaged = true;  // a field of another type: not ours
      return count > 0;
    }
    ++count;
    last_sum = opened->sum;
    end += line.size() + 1;
    return true;
  });
  if (source.size() > end) rest.bytes = source.size() - end;
  return rest;
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
