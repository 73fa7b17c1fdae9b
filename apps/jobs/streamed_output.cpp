// Order: bytes of the items, sync, their records, sync. At the end: the end marker, sync, the
// record "closed" with the length, sync, rename, sync of the folder.
#include "apps/jobs/streamed_output.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "apps/captions/tar_writer.h"
#include "apps/captions/text_forms.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

fs::path with_ending(const fs::path& path, const char* ending) {
  fs::path out = path;
  out += ending;
  return out;
}

}  // namespace

StreamedOutput::StreamedOutput(fs::path output, const Json& job, const StreamOptions& options)
    : output_(std::move(output)),
      part_(with_ending(output_, ".part")),
      options_(options),
      samples_(output_, options.caption_extension, options.existing),
      journal_(with_ending(output_, ".journal"), job, options.start, options.sync,
               [this](const Json& record) { replay(record); }) {
  expects(options.form != OutputForm::kCsv || !options.columns.empty(), "a CSV file has columns");
  const bool taken = !journal_.resumed() && options.start == Start::kResume &&
                     file_type(output_) != FileType::kMissing;
  // A part that nobody knows may be somebody's own.
  const bool part_taken = !journal_.resumed() && !journal_.replaced() &&
                          file_type(part_) == FileType::kFile &&
                          InputFile(part_, ErrorKind::kStorage).size() > 0;
  if (taken || part_taken) {
    remove_durable(with_ending(output_, ".journal"));  // it was just made
    const std::string name = (taken ? output_ : part_).filename().string();
    refuse("E_OUTPUT_EXISTS", "no file of that name, or the journal of it next to it",
           "a file " + name);
  }
  go_on();
}

void StreamedOutput::refuse(const char* code, std::string expected, std::string found) const {
  throw Error({.kind = ErrorKind::kStorage,
               .code = code,
               .file = output_.string(),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = "begin anew, or choose another output"});
}

void StreamedOutput::replay(const Json& record) {
  if (options_.notes) options_.notes(record);
  const std::string event = record.value("ev", std::string());
  if (event == "closed") closed_ = record.value("len", std::uint64_t{0});
  if (event == "open") reopened_ = std::exchange(closed_, std::nullopt);
  if (record.contains("end")) {
    end_ = record.value("end", std::uint64_t{0});
    reopened_.reset();  // the part was there to write to
  }
  if (record.contains("key")) {
    keys_.settle(record.value("key", std::string()), record.value("id", std::string()));
  }
}

// Finds the file in the state that the journal describes, whatever step a killed run was in.
void StreamedOutput::go_on() {
  const bool part = file_type(part_) == FileType::kFile;
  const auto is_whole = [](const fs::path& path, std::uint64_t size) {
    return file_type(path) == FileType::kFile &&
           InputFile(path, ErrorKind::kStorage).size() == size;
  };
  if (closed_) {
    if (part && is_whole(part_, *closed_)) {
      rename_durable(part_, output_);
    } else if (!is_whole(output_, *closed_)) {
      refuse("E_OUTPUT_CHANGED", "the finished output of " + std::to_string(*closed_) + " bytes",
             "none of that length");
    }
    return;
  }
  if (!part && reopened_ && is_whole(output_, *reopened_)) {
    rename_durable(output_, part_);
  }
  open_part();
}

void StreamedOutput::open_part() {
  if (end_ > 0 && file_type(part_) != FileType::kFile) {
    refuse("E_OUTPUT_CHANGED",
           part_.filename().string() + " of at least " + std::to_string(end_) + " bytes",
           "no such file");
  }
  file_ = std::make_unique<AppendFile>(part_);
  if (file_->size() < end_) {
    refuse("E_OUTPUT_CHANGED",
           part_.filename().string() + " of at least " + std::to_string(end_) + " bytes",
           std::to_string(file_->size()));
  }
  cut_ = file_->size() - end_;
  file_->cut(end_);
  if (end_ == 0) file_->append(prefix());
}

// A job that was over gets more items: what failed is tried again.
void StreamedOutput::reopen() {
  Json record = Json::object();
  record["ev"] = "open";
  journal_.add(record);
  journal_.commit();
  reopened_ = std::exchange(closed_, std::nullopt);
  rename_durable(output_, part_);
  open_part();
}

std::string StreamedOutput::prefix() const {
  return options_.form == OutputForm::kCsv ? csv_header(csv()) : std::string();
}

Wanted StreamedOutput::claim(const std::string& key, const std::string& id) {
  if (options_.form != OutputForm::kTar) return Wanted::kYes;
  samples_.check_key(key);
  const Places::Owner* owner = keys_.other(key, id);
  if (owner == nullptr) {
    keys_.keep(key, id);
    return Wanted::kYes;
  }
  if (!owner->settled) return Wanted::kLater;
  samples_.fail_key(key, "each key once in the output", "the same key for " + shown_id(owner->id));
}

void StreamedOutput::release(const std::string& key, const std::string& id) {
  keys_.release(key, id);
}

void StreamedOutput::check_owner(const CaptionResult& result) const {
  samples_.check(result);
  if (const Places::Owner* owner = keys_.other(result.key, result.id)) {
    samples_.fail_key(result.key, "each key once in the output",
                      "the same key for " + shown_id(owner->id));
  }
}

// The sample stands at the end of the output, which is recorded.
void StreamedOutput::note_sample(const CaptionResult& result, Json record) {
  if (options_.form == OutputForm::kTar) {
    keys_.settle(result.key, result.id);
    record["key"] = result.key;
  }
  record["end"] = file_->size();
  end_ = file_->size();
  journal_.add(record);
  commit_if_due();
}

bool StreamedOutput::keep(const CaptionResult& result) {
  if (options_.form != OutputForm::kTar || !samples_.keeps(result)) return false;
  check_owner(result);
  if (!file_) reopen();
  samples_.put_kept(result, [this](std::string_view bytes) { file_->append(bytes); });
  note_sample(result, {{"id", result.id}, {"st", "skipped"}});
  return true;
}

void StreamedOutput::add(const CaptionResult& result, const Json& given) {
  expects(given.is_object() && given.contains("path") && given.contains("caption"),
          "results have a path and a caption");
  Json fields = given;
  fields["caption"] = clean_caption(fields["caption"].get<std::string>());
  if (options_.form == OutputForm::kTar) {
    check_owner(result);
    samples_.check_join(result);
  }
  if (!file_) reopen();
  if (options_.form == OutputForm::kTar) {
    samples_.put(result, fields, [this](std::string_view bytes) { file_->append(bytes); });
  } else {
    put_line(fields);
  }
  note_sample(result, {{"id", result.id}, {"st", "done"}});
}

void StreamedOutput::put_line(const Json& fields) {
  const bool csv_form = options_.form == OutputForm::kCsv;
  file_->append(csv_form ? csv_line(fields, csv()) : json_line(fields) + "\n");
}

void StreamedOutput::repeat(const CaptionResult& result, const Json& fields) {
  expects(fields.is_object() && fields.contains("path") && fields.contains("repeats"),
          "who repeats whom");
  if (options_.form == OutputForm::kTar) check_owner(result);
  if (!file_) reopen();
  if (options_.form == OutputForm::kTar) {
    samples_.put_repeat(result, fields, [this](std::string_view bytes) { file_->append(bytes); });
  } else {
    put_line(fields);
  }
  note_sample(result, {{"id", result.id},
                       {"st", "repeats"},
                       {"path", fields["path"]},
                       {"repeats", fields["repeats"]}});
}

void StreamedOutput::take_over(const Json& given, std::string_view bytes) {
  Json record = given;
  record.erase("end");
  if (record.contains("key")) {
    keys_.settle(record.value("key", std::string()), record.value("id", std::string()));
  }
  if (!bytes.empty()) {
    if (!file_) reopen();
    file_->append(bytes);
    end_ = file_->size();
    record["end"] = end_;
  }
  journal_.add(record);
  commit_if_due();
}

void StreamedOutput::fail(const std::string& id, const std::string& path, const ErrorInfo& info) {
  journal_.add_failure(id, path, info);
  commit_if_due();
}

void StreamedOutput::skip(const std::string& id) {
  Json record = Json::object();
  record["id"] = id;
  record["st"] = "skipped";
  journal_.add(record);
  commit_if_due();
}

void StreamedOutput::commit_if_due() {
  if (pending_++ == 0) first_pending_ = monotonic_seconds();
  if (pending_ >= options_.group_items) return commit();
  commit_if_late();
}

void StreamedOutput::commit_if_late() {
  if (pending_ == 0) return;
  if (monotonic_seconds() - first_pending_ >= options_.group_seconds) commit();
}

void StreamedOutput::commit() {
  if (pending_ == 0) return;
  if (file_ && options_.sync == Sync::kOn) file_->sync();
  journal_.commit();
  committed_ += std::exchange(pending_, 0);
}

void StreamedOutput::finish() {
  commit();
  if (!file_) return;
  if (options_.form == OutputForm::kTar) file_->append(tar_end(file_->size()));
  file_->sync();
  Json record = Json::object();
  record["ev"] = "closed";
  record["len"] = file_->size();
  journal_.add(record);
  journal_.commit();
  closed_ = file_->size();
  file_.reset();
  rename_durable(part_, output_);
}

}  // namespace tessera
