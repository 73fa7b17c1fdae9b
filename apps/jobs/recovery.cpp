// What a start finds on disk: temporaries of dead runs, files of done items, and, when records were
// lost, files that prove by themselves whose they are.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/jobs/content_sum.h"
#include "apps/jobs/store.h"
#include "apps/jobs/temporaries.h"
#include "apps/runtime/sha256.h"
#include "engine/core/file_stream.h"
#include "engine/core/io.h"
#include "engine/core/publish.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxRecovered = std::size_t{1} << 30;

}  // namespace

std::uint64_t remove_temporaries(const fs::path& folder,
                                 const std::function<bool(std::string_view)>& is_target) {
  std::uint64_t removed = 0;
  for (const fs::path& path : list_folder(folder)) {
    const std::string name = path.filename().string();
    const std::string_view target = target_of_temporary(name);
    if (target.empty() || !is_target(target)) continue;
    remove_durable(path);
    ++removed;
  }
  return removed;
}

void BatchStore::sweep() {
  std::unordered_map<std::string, bool> targets;
  for (const auto& [id, index] : own_) {
    const std::string& name = items_[index].name;
    targets[name.substr(0, kTemporaryNameBytes)] = true;
    for (const std::string& ending : options_.next_to) {
      targets[(fs::path(name).stem().string() + ending).substr(0, kTemporaryNameBytes)] = true;
    }
  }
  swept_ = remove_temporaries(
      folder_, [&](std::string_view target) { return targets.contains(std::string(target)); });
  // The journal itself when it is mended, and its copies.
  const std::string journal = journal_name(options_.shard.index, options_.shard.of);
  swept_ += remove_temporaries(state_, [&](std::string_view target) {
    return target.starts_with(journal) || own_.contains(item_of_video_file(target));
  });
  sweep_segments();
}

// The files of the item's last intent, if all of them stand as it says.
std::vector<OutputFile> BatchStore::intended_files(const SettledItem& item) const {
  std::vector<OutputFile> out;
  try {
    for (const IntendedFile& file : intents_.last(item.item.id)) {
      const fs::path path = folder_ / file.name;
      if (file_type(path) != FileType::kFile) return {};
      out.push_back({file.name, read_file_no_link(path, kMaxRecovered)});
      if (sha256_hex(out.back().bytes) != file.now) return {};
    }
  } catch (const Error& error) {  // what cannot be read proves nothing
    if (error.info().kind != ErrorKind::kGeneral) throw;
    return {};
  }
  if (!out.empty() && out.back().name != item.name) return {};
  return out;
}

// Items that no record calls done, after records were lost: an older record of a failure may be all
// that is left. Their files are put down again, with equal
// bytes: whether those that stand there were ever synced is not known. That it was done is
// recorded, so that an end in between leads here again.
void BatchStore::recognise_outputs() {
  if (!records_lost_) return;
  // Images of a job that was begun anew may be of the one before, which another model generated.
  const bool by_themselves = options_.recognise && !journal_->began_anew();
  std::vector<std::size_t> indices;
  for (const auto& [id, index] : own_) {
    const auto known = records_.find(id);
    const bool done = known != records_.end() && known->second.state == ItemState::kDone;
    if (!done) indices.push_back(index);
  }
  std::sort(indices.begin(), indices.end());
  for (const std::size_t index : indices) {
    const SettledItem& item = items_[index];
    std::vector<OutputFile> files = intended_files(item);
    if (files.empty() && by_themselves) files = options_.recognise(item, folder_);
    if (files.empty()) continue;
    note_sync();
    ItemRecord record{.state = ItemState::kDone, .seed = item.item.seed.value()};
    record.tries = failed_[item.item.id] + 1;
    for (const OutputFile& file : files) {
      write(file, Publish::kReplace);
      record.files.push_back(recorded_file(file.name, file.bytes));
    }
    const Json fields = record_fields(item.item.id, record, 0);
    journal_->add(fields);
    intents_.take(fields);
    records_[item.item.id] = std::move(record);
    ++recognised_;
  }
  journal_->add({{"recognised", recognised_}});
  journal_->commit();
  records_lost_ = false;
}

std::string BatchStore::what_is_wrong(const RecordedFile& file, bool verify) const {
  const fs::path path = folder_ / file.name;
  if (file_type(path) != FileType::kFile) return file.name + " is gone";
  const std::uint64_t size = InputFile(path, ErrorKind::kStorage).size();
  if (size != file.bytes) {
    return file.name + " has " + std::to_string(size) + " bytes of " + std::to_string(file.bytes);
  }
  if (verify && !is_recorded(file, read_file_no_link(path, kMaxRecovered))) {
    return file.name + " has other bytes";
  }
  return {};
}

void BatchStore::check_done(bool verify) {
  for (auto record = records_.begin(); record != records_.end();) {
    std::string wrong;
    for (const RecordedFile& file : record->second.files) {
      if (wrong.empty()) wrong = what_is_wrong(file, verify);
    }
    if (wrong.empty()) {
      ++record;
      continue;
    }
    damaged_.emplace_back(record->first, wrong);
    was_[record->first] = std::move(record->second);
    record = records_.erase(record);
  }
  std::sort(damaged_.begin(), damaged_.end());
}

}  // namespace tessera
