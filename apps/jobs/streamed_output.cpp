// Order: bytes of the items, sync, their records, sync. At the end: the end marker, sync, the
// record "closed" with the length, sync, rename, sync of the folder.
#include "apps/jobs/streamed_output.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/captions/tar_writer.h"
#include "apps/captions/text_forms.h"
#include "engine/core/io.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFactsExtension = "caption.json";

fs::path with_ending(const fs::path& path, const char* ending) {
  fs::path out = path;
  out += ending;
  return out;
}

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

}  // namespace

StreamedOutput::StreamedOutput(fs::path output, const Json& job, const StreamOptions& options)
    : output_(std::move(output)),
      part_(with_ending(output_, ".part")),
      options_(options),
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
    refuse("E_OUTPUT_EXISTS", "no file of that name, or the journal of it beside it",
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
  const std::string event = record.value("ev", std::string());
  if (event == "closed") closed_ = record.value("len", std::uint64_t{0});
  if (event == "open") reopened_ = std::exchange(closed_, std::nullopt);
  if (record.contains("end")) {
    end_ = record.value("end", std::uint64_t{0});
    reopened_.reset();  // the part was there to write to
  }
  if (record.contains("key")) {
    keys_[record.value("key", std::string())] = {record.value("id", std::string()), true};
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
  if (options_.form != OutputForm::kCsv) return {};
  std::vector<CsvCell> cells;
  for (const std::string& column : options_.columns) cells.push_back({column});
  return csv_row(cells, options_.formula_safe);
}

std::string StreamedOutput::csv_of(const Json& fields) const {
  std::vector<CsvCell> cells;
  for (const std::string& column : options_.columns) {
    const auto found = fields.find(column);
    if (found == fields.end() || found->is_null()) {
      cells.push_back({});
    } else if (found->is_string()) {
      cells.push_back({clean_caption(found->get_ref<const std::string&>())});
    } else {
      cells.push_back({json_line(*found), found->is_structured()});
    }
  }
  return csv_row(cells, options_.formula_safe);
}

void StreamedOutput::fail_key(const std::string& key, std::string expected,
                              std::string found) const {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_OUTPUT_KEY",
               .file = output_.string(),
               .where = "sample " + key,
               .expected = std::move(expected),
               .found = std::move(found)});
}

Wanted StreamedOutput::claim(const std::string& key, const std::string& id) {
  if (options_.form != OutputForm::kTar) return Wanted::kYes;
  const bool good = !key.empty() && split_key(key + ".x").key == key &&
                    safe_member_name(key + ".x") == key + ".x";
  if (!good) fail_key(key, "a key: a relative path without dots in its last part", "another name");
  const auto [owner, fresh] = keys_.try_emplace(key, Owner{id, false});
  if (fresh || owner->second.id == id) return Wanted::kYes;
  if (!owner->second.settled) return Wanted::kLater;
  fail_key(key, "each key once in the output", "the same key for " + shown_id(owner->second.id));
}

void StreamedOutput::release(const std::string& key, const std::string& id) {
  const auto owner = keys_.find(key);
  const bool held = owner != keys_.end() && owner->second.id == id;
  if (held && !owner->second.settled) keys_.erase(owner);
}

void StreamedOutput::check_key(const CaptionResult& result) const {
  const bool good = !result.key.empty() && split_key(result.key + ".x").key == result.key;
  if (!good) {
    fail_key(result.key, "a key: a relative path without dots in its last part", "another name");
  }
  std::vector<std::string> extensions = {result.picture.extension, options_.caption_extension,
                                         std::string(kFactsExtension)};
  for (const SampleMember& member : result.others) extensions.push_back(member.extension);
  for (const std::string& extension : extensions) {
    const std::string name = result.key + "." + extension;
    const KeyParts parts = split_key(name);
    if (safe_member_name(name) != name || parts.key != result.key) {
      fail_key(result.key, "names that an archive can hold",
               "the ending " + extension.substr(0, 100));
    }
  }
  const auto owner = keys_.find(result.key);
  if (owner != keys_.end() && owner->second.id != result.id) {
    fail_key(result.key, "each key once in the output",
             "the same key for " + shown_id(owner->second.id));
  }
}

bool StreamedOutput::is_caption(const SampleMember& member) const {
  return lower_case(member.extension) == lower_case(options_.caption_extension);
}

// Bytes that are no text would be changed by joining.
void StreamedOutput::check_join(const CaptionResult& result) const {
  if (options_.existing == ExistingCaption::kOverwrite) return;
  for (const SampleMember& member : result.others) {
    if (!is_caption(member) || is_valid_utf8(member.bytes)) continue;
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_SIDECAR_TEXT",
                 .file = output_.string(),
                 .where = "sample " + result.key,
                 .expected = "UTF-8 to add a caption to",
                 .found = "other bytes in ." + member.extension});
  }
}

// The sample stands at the end of the output, which is recorded.
void StreamedOutput::note_sample(const CaptionResult& result, const char* state) {
  Json record = Json::object();
  record["id"] = result.id;
  record["st"] = state;
  if (options_.form == OutputForm::kTar) {
    keys_[result.key] = {result.id, true};
    record["key"] = result.key;
  }
  record["end"] = file_->size();
  end_ = file_->size();
  journal_.add(record);
  commit_if_due();
}

bool StreamedOutput::keep(const CaptionResult& result) {
  const bool wanted = options_.form == OutputForm::kTar &&
                      options_.existing == ExistingCaption::kSkip &&
                      std::any_of(result.others.begin(), result.others.end(),
                                  [&](const SampleMember& member) { return is_caption(member); });
  if (!wanted) return false;
  check_key(result);
  if (!file_) reopen();
  const auto put = [&](const SampleMember& member) {
    file_->append(tar_member(result.key + "." + member.extension, member.bytes));
  };
  put(result.picture);
  for (const SampleMember& member : result.others) put(member);
  note_sample(result, "skipped");
  return true;
}

// Picture, other members as they were, caption, facts.
void StreamedOutput::add_sample(const CaptionResult& result, const Json& fields) {
  const auto put = [&](const std::string& extension, std::string_view bytes) {
    file_->append(tar_member(result.key + "." + extension, bytes));
  };
  put(result.picture.extension, result.picture.bytes);
  std::string caption = fields.at("caption").get<std::string>();
  for (const SampleMember& member : result.others) {
    const std::string extension = lower_case(member.extension);
    if (extension == kFactsExtension) continue;
    if (is_caption(member)) {
      caption = join_captions(member.bytes, caption, options_.existing);
    } else {
      put(member.extension, member.bytes);
    }
  }
  put(options_.caption_extension, caption);
  put(std::string(kFactsExtension), json_line(fields));
}

void StreamedOutput::add(const CaptionResult& result, const Json& given) {
  expects(given.is_object() && given.contains("path") && given.contains("caption"),
          "results have a path and a caption");
  Json fields = given;
  fields["caption"] = clean_caption(fields["caption"].get<std::string>());
  if (options_.form == OutputForm::kTar) {
    check_key(result);
    check_join(result);
  }
  if (!file_) reopen();
  if (options_.form == OutputForm::kTar) {
    add_sample(result, fields);
  } else {
    file_->append(options_.form == OutputForm::kCsv ? csv_of(fields) : json_line(fields) + "\n");
  }
  note_sample(result, "done");
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
