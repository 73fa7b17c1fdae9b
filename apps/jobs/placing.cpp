// Putting an item down: all its names are looked at before the first is taken, what is about to be
// done is announced, each file goes to its name in a rename that replaces nobody, then the record.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/jobs/content_sum.h"
#include "apps/jobs/store.h"
#include "apps/runtime/sha256.h"
#include "engine/core/file_stream.h"
#include "engine/core/publish.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxPlaced = std::size_t{1} << 30;

// What a power cut can leave of bytes that were never synced: a beginning of them, with zeros where
// blocks were not written.
bool is_torn(std::string_view standing, std::string_view bytes) {
  if (standing.size() > bytes.size()) return false;
  return std::equal(standing.begin(), standing.end(), bytes.begin(),
                    [](char is, char should) { return is == should || is == '\0'; });
}

[[noreturn]] void refuse_name(const fs::path& path, std::string found) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_OUTPUT_EXISTS",
               .file = path.string(),
               .expected = "no file of this name, or the image of this item",
               .found = std::move(found),
               .hint = "--overwrite replaces it"});
}

}  // namespace

BatchStore::Standing BatchStore::look_at(const SettledItem& item, const OutputFile& file,
                                         const Ours& ours) const {
  const fs::path path = folder_ / file.name;
  const FileType type = file_type(path);
  if (type == FileType::kMissing) return {};
  if (type != FileType::kFile) {
    if (options_.overwrite && type != FileType::kFolder) return {.there = true};
    refuse_name(path, type == FileType::kFolder ? "a folder" : "no plain file");
  }
  const std::string standing = read_file_no_link(path, kMaxPlaced);
  const std::string sum = sha256_hex(standing);
  if (options_.overwrite || standing == file.bytes || ours(file, standing)) return {true, sum};
  const Intents::Known known = intents_.known(item.item.id, file.name, sum);
  if (known == Intents::Known::kOurs) return {true, sum};
  if (const auto was = was_.find(item.item.id); was != was_.end()) {
    for (const RecordedFile& recorded : was->second.files) {
      if (recorded.name == file.name && is_recorded(recorded, standing)) return {true, sum};
    }
  }
  const bool torn = unsynced_ && is_torn(standing, file.bytes);
  if (torn && known != Intents::Known::kBefore) return {true, sum};
  refuse_name(path, known == Intents::Known::kChanged ? "a file that somebody else changed"
                                                      : "another file");
}

// A file that cannot be looked at is nobody's to replace.
BatchStore::Standing BatchStore::look(const SettledItem& item, const OutputFile& file,
                                      const Ours& ours) const {
  try {
    return look_at(item, file, ours);
  } catch (const Error& error) {
    const ErrorInfo& info = error.info();
    if (info.kind != ErrorKind::kGeneral || info.code == "E_OUTPUT_EXISTS") throw;
    if (options_.overwrite) return {.there = true};
    refuse_name(folder_ / file.name, "a file that cannot be read: " + info.found);
  }
}

bool BatchStore::publish_twice(const fs::path& path, std::string_view bytes, Publish mode) const {
  try {
    return publish_file(path, bytes, mode, options_.sync);
  } catch (const Error& error) {
    // The pages of a failed sync may be marked clean: one more try, with another file.
    if (error.info().where != "sync") throw;
    return publish_file(path, bytes, mode, options_.sync);
  }
}

bool BatchStore::write(const OutputFile& file, Publish mode) const {
  return publish_twice(folder_ / file.name, file.bytes, mode);
}

// Synced before the first rename: a text that has its name is known by it from then on.
void BatchStore::announce(const SettledItem& item, std::span<const OutputFile> files,
                          std::span<const Standing> standing) {
  std::vector<IntendedFile> intended;
  for (std::size_t i = 0; i < files.size(); ++i) {
    intended.push_back({files[i].name, sha256_hex(files[i].bytes), standing[i].sum});
  }
  const Json fields = intent_fields(item.item.id, intended);
  intents_.take(fields);
  journal_->add(fields);
  journal_->commit();
}

ItemRecord BatchStore::commit(const SettledItem& item, std::span<const OutputFile> files,
                              double seconds, const Ours& ours) {
  const std::string& id = item.item.id;
  expects(!files.empty() && own_.contains(id), "an item of this shard, with an image");
  std::vector<Standing> standing;
  for (const OutputFile& file : files) standing.push_back(look(item, file, ours));
  note_sync();
  // An image says whose it is; nothing else does.
  const bool proves = files.size() == 1 && files.front().name.ends_with(".png");
  if (!proves) announce(item, files, standing);
  ItemRecord record{.state = ItemState::kDone, .seed = item.item.seed.value()};
  record.tries = failed_[id] + 1;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const bool replace = options_.overwrite || standing[i].there;
    // Equal bytes, too: those that are there may not have been synced.
    if (!write(files[i], replace ? Publish::kReplace : Publish::kNew)) {
      look(item, files[i], ours);  // came since: ours, or the item fails
      write(files[i], Publish::kReplace);
    }
    record.files.push_back(recorded_file(files[i].name, files[i].bytes));
  }
  const Json fields = record_fields(id, record, seconds);
  journal_->add(fields);
  journal_->commit();
  intents_.take(fields);
  drop_segments(id);
  segments_.take(fields);
  records_[id] = record;
  return record;
}

// With the first item of the run, since a run that finds nothing to do writes nothing; and durable
// before its first file: who meets a torn file must know that it can be this store's own.
void BatchStore::note_sync() {
  if (options_.sync == Sync::kOn || std::exchange(sync_noted_, true)) return;
  journal_->add({{"fsync", "off"}});
  journal_->commit(Sync::kOn);
}

}  // namespace tessera
