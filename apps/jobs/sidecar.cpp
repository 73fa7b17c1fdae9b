// Order of one item: announce, sync the journal, write next to, sync, rename, sync the folder,
// record. The record is synced with the announcement of the next item.
#include "apps/jobs/sidecar.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "apps/captions/text_forms.h"
#include "apps/jobs/refusals.h"
#include "engine/core/io.h"
#include "engine/core/publish.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kAbsent = "none";
constexpr std::size_t kMaxQueued = 256;  // records that a kill may lose

// Hash of what a name holds, kAbsent for nothing. Links are never followed: text of a file
// elsewhere must not come into a caption.
std::string hash_at(const fs::path& file) {
  if (file_type(file) == FileType::kMissing) return std::string(kAbsent);
  return content_hash(read_file_no_link(file, SidecarOutput::kMaxTextBytes));
}

const SidecarOptions& checked(const SidecarOptions& options) {
  check_caption_extension(options.extension);
  return options;
}

// What refuses one place alone fails one item; a full or broken disk would fail all.
template <typename Step>
void at_place(Step step) {
  try {
    step();
  } catch (const Error& error) {
    if (error.info().code != "E_IO_PLACE") throw;
    ErrorInfo info = error.info();
    info.kind = ErrorKind::kGeneral;
    throw Error(std::move(info));
  }
}

// A killed write leaves its temporary; nobody else's names look like it.
void remove_temporaries(const fs::path& file) {
  const std::string target = file.filename().string().substr(0, 200);
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (!is_folder(folder)) return;
  for (const fs::path& path : list_folder(folder)) {
    const std::string name = path.filename().string();
    const bool ours = target_of_temporary(name) == target;
    if (ours && file_type(path) == FileType::kFile) at_place([&] { remove_durable(path); });
  }
}

}  // namespace

SidecarOutput::SidecarOutput(const fs::path& journal, const Json& job,
                             const SidecarOptions& options)
    : options_(checked(options)),
      journal_(journal, job, options.start, options.sync,
               [this](const Json& record) { replay(record); }) {}

void SidecarOutput::replay(const Json& record) {
  if (options_.notes) options_.notes(record);
  over_ = record.value("ev", std::string()) == "over";
  const std::string id = record.value("id", std::string());
  const std::string file = name_of_stable(record.value("file", std::string()));
  if (!file.empty()) owners_.settle(file, id);
  if (record.contains("new")) {
    intents_[id] = {file, record.value("old", std::string()), record.value("new", std::string())};
    return;
  }
  const auto intent = intents_.extract(id);
  if (!intent || record.value("st", std::string()) != "failed") return;
  owners_.forget(intent.mapped().file, id);
}

void SidecarOutput::settle(const std::string& id, const std::string& file) {
  const auto found = intents_.extract(id);
  if (!found || found.mapped().file != file) return;
  const Intent& intent = found.mapped();
  remove_temporaries(file);
  std::string now;
  try {
    now = hash_at(file);
  } catch (const Error&) {  // a link, a folder: not what was announced
  }
  if (now == intent.new_hash) {
    record("done", id, file);
  } else if (now != intent.old_hash) {
    over_ = false;
    journal_.add_failure(id, stable_text(file),
                         {.kind = ErrorKind::kGeneral,
                          .code = "E_SIDECAR_CHANGED",
                          .file = file,
                          .expected = "the text before or after the caption was written",
                          .found = "a text changed by someone else"});
  }
}

void SidecarOutput::record(const char* state, const std::string& id, const std::string& file) {
  over_ = false;
  Json record = Json::object();
  record["id"] = id;
  record["st"] = state;
  record["file"] = stable_text(file);
  journal_.add(record);
  owners_.settle(file, id);
  if (journal_.queued() >= kMaxQueued) journal_.commit();
}

fs::path SidecarOutput::path_of(const CaptionItem& item) const {
  if (item.file.empty()) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_SIDECAR_PLACE",
                 .file = item.path,
                 .expected = "an image in a folder",
                 .found = "one inside a shard, which has no place for text files",
                 .hint = "write JSON lines, CSV or a WebDataset instead"});
  }
  fs::path path = item.file;
  return path.replace_extension(options_.extension);
}

Wanted SidecarOutput::wants(const CaptionItem& item, bool retry_failed) {
  const fs::path file = path_of(item);
  settle(item.id, file.string());
  if (!journal_.wants(item.id, retry_failed)) {
    const ItemState state = journal_.state(item.id);
    const bool textless = state == ItemState::kFailed || state == ItemState::kRepeats;
    if (textless || file_type(file) != FileType::kMissing) return Wanted::kNo;
  }
  if (const Places::Owner* owner = owners_.other(file.string(), item.id)) {
    if (!owner->settled) return Wanted::kLater;
    refuse_file(ErrorKind::kGeneral, "E_SIDECAR_SHARED", file, "one image for a text file",
                shown_id(owner->id) + " and " + shown_id(item.id));
  }
  const FileType type = file_type(file);
  if (type != FileType::kMissing && type != FileType::kFile) {
    refuse_file(ErrorKind::kGeneral, "E_SIDECAR_LINK", file, "a text file",
                type == FileType::kLink ? "a link" : "something else of that name");
  }
  // From now on: other images may be asked about before this one's text is written.
  owners_.hold(file.string(), item.id);
  if (type == FileType::kMissing || options_.existing != ExistingCaption::kSkip) {
    return Wanted::kYes;
  }
  record("skipped", item.id, file.string());
  return Wanted::kNo;
}

void SidecarOutput::write(const CaptionItem& item, std::string_view caption) {
  const fs::path file = path_of(item);
  std::string old_text, old_hash(kAbsent);
  if (file_type(file) != FileType::kMissing) {
    old_text = read_file_no_link(file, kMaxTextBytes);
    old_hash = content_hash(old_text);
    const bool joins = options_.existing == ExistingCaption::kAppend ||
                       options_.existing == ExistingCaption::kPrepend;
    if (joins && !is_valid_utf8(old_text)) {
      refuse_file(ErrorKind::kGeneral, "E_SIDECAR_TEXT", file, "UTF-8 to add a caption to",
                  "other bytes");
    }
  }
  // Somebody may have written the file since wants(); a skipped file stays as it is then too.
  const bool keep = options_.existing == ExistingCaption::kSkip && old_hash != kAbsent;
  if (keep) return record("skipped", item.id, file.string());
  const std::string text =
      join_captions(old_text, caption,
                    options_.existing == ExistingCaption::kSkip ? ExistingCaption::kOverwrite
                                                                : options_.existing);
  if (text.size() > kMaxTextBytes) {
    refuse_file(ErrorKind::kGeneral, "E_SIDECAR_TEXT", file,
                "at most " + std::to_string(kMaxTextBytes) + " bytes", std::to_string(text.size()));
  }
  over_ = false;
  Json intent = Json::object();
  intent["id"] = item.id;
  intent["file"] = stable_text(file.string());
  intent["old"] = old_hash;
  intent["new"] = content_hash(text);
  journal_.add(intent);
  journal_.commit();
  at_place([&] { write_file_atomic(file, text); });
  record("done", item.id, file.string());
}

void SidecarOutput::finish() {
  if (over_) return commit();
  Json record = Json::object();
  record["ev"] = "over";
  journal_.add(record);
  journal_.commit();
  over_ = true;
}

void SidecarOutput::repeat(const CaptionItem& item, const std::string& path) {
  over_ = false;
  Json record = Json::object();
  record["id"] = item.id;
  record["st"] = "repeats";
  record["path"] = item.path;
  record["repeats"] = path;
  journal_.add(record);
  owners_.release(path_of(item).string(), item.id);
  if (journal_.queued() >= kMaxQueued) journal_.commit();
}

void SidecarOutput::fail(const CaptionItem& item, const ErrorInfo& info) {
  over_ = false;
  journal_.add_failure(item.id, item.path, info);
  if (item.file.empty()) return;
  // The file is free for another image of this name.
  owners_.release(path_of(item).string(), item.id);
}

}  // namespace tessera
