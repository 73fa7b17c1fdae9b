// A small job over the real store: items whose bytes follow from their ids, painted by nobody.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/jobs/settle.h"
#include "apps/jobs/store.h"
#include "tests/support/temp_folder.h"

namespace tessera {

// Syncs cost nothing on a file system in memory, and thousands of runs follow.
class StoreFolder {
 public:
  StoreFolder() {
    if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
    folder_ = std::make_unique<TempFolder>();
  }
  const std::filesystem::path& root() const { return folder_->path(); }
  std::filesystem::path out() const { return folder_->path() / "out"; }
  void clear() const { std::filesystem::remove_all(out()); }
  // Everything below out/ but the state folder.
  std::map<std::string, std::string> outputs() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(out())) {
      if (entry.is_regular_file()) {
        files[entry.path().filename().string()] = get_file(entry.path());
      }
    }
    return files;
  }

 private:
  std::unique_ptr<TempFolder> folder_;
};

inline std::vector<SettledItem> small_job(int count) {
  std::vector<JobItem> items;
  for (int i = 0; i < count; ++i) {
    JobItem item{.line = static_cast<std::uint64_t>(i + 1)};
    item.id = std::string(1, static_cast<char>('a' + i));
    item.prompt = "picture " + item.id;
    items.push_back(item);
  }
  return settle_items(items, {}, OutputTemplate("{id}.png"), "job");
}

inline std::vector<OutputFile> files_of(const SettledItem& item) {
  const std::string bytes =
      "pixels of " + item.item.id + " " + std::to_string(item.item.seed.value());
  if (item.item.id != "a") return {{item.name, bytes}};
  return {{"a.txt", "a text"}, {"a.json", "{\"facts\":1}"}, {item.name, bytes}};  // one with more
}

inline std::map<std::string, std::string> whole_outputs(const std::vector<SettledItem>& items) {
  std::map<std::string, std::string> out;
  for (const SettledItem& item : items) {
    for (const OutputFile& file : files_of(item)) out[file.name] = file.bytes;
  }
  return out;
}

inline const Json kStoreOptions = {{"decode", "plain"}};
inline const Json kStoreModel = {{"name", "test"}};
inline const BatchStore::Ours kNobodys = [](const OutputFile&, std::string_view) { return false; };

using MadeFiles = std::function<std::vector<OutputFile>(const SettledItem&)>;

// One run over what is wanted. `told` hears of every item that may be called done.
inline int run_store(const std::filesystem::path& out, const std::vector<SettledItem>& items,
                     const std::function<void(const std::string&)>& told = nullptr,
                     StoreOptions options = {}, bool retry_failed = false,
                     const MadeFiles& made = files_of) {
  options.beside = {".json", ".txt"};
  BatchStore store(out, items, kStoreOptions, kStoreModel, options);
  int painted = 0;
  for (const std::size_t index : store.wanted(retry_failed)) {
    const SettledItem& item = items[index];
    const std::vector<OutputFile> files = made(item);
    store.commit(item, files, 0.5, kNobodys);
    if (told) told(item.item.id);
    ++painted;
  }
  return painted;
}

// Clips of so many grids, of so many codes each, which follow from the item.
inline constexpr std::int64_t kClipGrids = 3;
inline constexpr std::size_t kGridCodes = 2;

inline std::vector<SettledItem> clip_job(int count) {
  std::vector<JobItem> items;
  for (const SettledItem& item : small_job(count)) {
    items.push_back(item.item);
    items.back().kind = kVideoKind;
  }
  return settle_items(items, {}, OutputTemplate("{id}.mkv"), "job");
}

inline std::vector<std::int32_t> codes_of(const SettledItem& item, std::int64_t first,
                                          std::int64_t grids) {
  std::vector<std::int32_t> out;
  const auto count = static_cast<std::int64_t>(kGridCodes);
  for (std::int64_t i = first * count; i < (first + grids) * count; ++i) {
    out.push_back(static_cast<std::int32_t>((item.item.seed.value() + 7 * i) % 1000));
  }
  return out;
}

inline std::vector<OutputFile> files_of_clip(const SettledItem& item) {
  return {{item.name, "frames of " + codes_text(codes_of(item, 0, kClipGrids))}};
}

// One run over the clips that are wanted, a segment a grid. `told` hears "id/grid" of each segment
// that may be called durable, and of each clip its id. Returns the segments that were written.
inline int run_clip_store(const std::filesystem::path& out, const std::vector<SettledItem>& items,
                          const std::function<void(const std::string&)>& told = nullptr,
                          const StoreOptions& options = {}) {
  BatchStore store(out, items, kStoreOptions, kStoreModel, options);
  int written = 0;
  for (const std::size_t index : store.wanted(false)) {
    const SettledItem& item = items[index];
    const StandingClip standing = store.standing_clip(item, kGridCodes, 1000);
    expects(standing.codes == codes_of(item, 0, standing.grids),
            "what stands is what was put down");
    for (std::int64_t grid = standing.grids; grid < kClipGrids; ++grid) {
      store.commit_segment(item, grid, 1, 2, codes_of(item, grid, 1));
      ++written;
      if (told) told(item.item.id + "/" + std::to_string(grid));
    }
    store.commit(item, files_of_clip(item), 0.5, kNobodys);
    if (told) told(item.item.id);
  }
  return written;
}

// Lines of a file, with their ends.
inline std::vector<std::string> lines_of(const std::filesystem::path& path) {
  const std::string text = get_file(path);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    lines.push_back(text.substr(at, end - at));
    at = end;
  }
  return lines;
}

// Flips a bit in the middle of the line that holds `part`; what the file is then.
inline std::string damage_line(const std::filesystem::path& path, const std::string& part) {
  std::string text;
  for (std::string& line : lines_of(path)) {
    if (line.find(part) != std::string::npos) line[line.size() / 2] ^= 1;
    text += line;
  }
  put_file(path, text);
  return text;
}

}  // namespace tessera
