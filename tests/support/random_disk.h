// One image that a power cut could leave, random: what no later sync covers survives or not,
// each change by its own random number, a write also in part, of any length.
// tests/support/disk_record.h makes all images of a short run; this one makes any of a long one.
#pragma once

#include <filesystem>
#include <random>

#include "tests/support/disk_record.h"

namespace tessera {

class RandomDisk {
 public:
  // `trace` runs over `start`; power is cut before step `end`.
  RandomDisk(const DiskImage& start, const DiskTrace& trace, std::size_t end)
      : start_(start), trace_(trace), inodes_(end, 0), offsets_(end, 0), sure_(end, false) {
    for (const auto& [path, data] : start.files) {
      first_[path] = sizes_.size();
      sizes_.push_back(data.size());
    }
    now_ = first_;
    for (std::size_t i = 0; i < end; ++i) run(i);
  }

  DiskImage draw(std::mt19937_64& lot) const {
    std::map<std::string, std::size_t> names = first_;
    std::vector<std::string> data(sizes_.size());
    for (const auto& [path, inode] : first_) data[inode] = start_.files.at(path);
    DiskImage image;
    image.folders = start_.folders;
    for (std::size_t i = 0; i < sure_.size(); ++i) {
      const std::size_t way = sure_[i] ? 1 : lot() % 3;  // lost, whole, a part
      if (way == 0) continue;
      const DiskStep& step = trace_[i];
      if (step.kind == Kind::kWrite) {
        const std::size_t kept = way == 1 ? step.data.size() : lot() % (step.data.size() + 1);
        std::string& file = data[inodes_[i]];
        if (file.size() < offsets_[i] + kept) file.resize(offsets_[i] + kept);  // a hole is zeros
        file.replace(offsets_[i], kept, step.data, 0, kept);
      } else if (step.kind == Kind::kCut) {
        if (data[inodes_[i]].size() > step.size) data[inodes_[i]].resize(step.size);
      } else {
        rename(step, inodes_[i], names, image);
      }
    }
    std::erase_if(image.folders,
                  [&](const std::string& path) { return !is_reachable(path, image); });
    for (const auto& [path, inode] : names) {
      if (is_reachable(path, image)) image.files[path] = data[inode];
    }
    return image;
  }

 private:
  using Kind = DiskStep::Kind;

  static std::string folder_of(const std::string& path) {
    return std::filesystem::path(path).parent_path().string();
  }
  static bool is_reachable(const std::string& path, const DiskImage& image) {
    const std::string folder = folder_of(path);
    return folder.empty() || (image.folders.contains(folder) && is_reachable(folder, image));
  }
  static bool is_data(const DiskStep& step) {
    return step.kind == Kind::kWrite || step.kind == Kind::kCut;
  }
  static bool is_name(const DiskStep& step) {
    return step.kind == Kind::kCreate || step.kind == Kind::kRename || step.kind == Kind::kUnlink ||
           step.kind == Kind::kMkdir;
  }

  // A change of a name.
  static void rename(const DiskStep& step, std::size_t inode,
                     std::map<std::string, std::size_t>& names, DiskImage& image) {
    const auto old = names.find(step.path);
    const bool there = old != names.end() && old->second == inode;
    if (step.kind == Kind::kMkdir) image.folders.insert(step.path);
    if (step.kind == Kind::kCreate) names[step.path] = inode;
    if ((step.kind == Kind::kRename || step.kind == Kind::kUnlink) && there) names.erase(old);
    if (step.kind == Kind::kRename) names[step.to] = inode;
  }

  // As the running process sees it; what a sync makes sure of.
  void run(std::size_t i) {
    const DiskStep& step = trace_[i];
    if (step.kind == Kind::kCreate) {
      now_[step.path] = sizes_.size();
      sizes_.push_back(0);
    }
    const auto file = now_.find(step.path);
    if (file != now_.end()) inodes_[i] = file->second;
    if (step.kind == Kind::kWrite) {
      offsets_[i] = sizes_[inodes_[i]];
      sizes_[inodes_[i]] += step.data.size();
    } else if (step.kind == Kind::kCut) {
      sizes_[inodes_[i]] = step.size;
    } else if (step.kind == Kind::kUnlink) {
      now_.erase(step.path);
    } else if (step.kind == Kind::kRename) {
      now_.erase(step.path);
      now_[step.to] = inodes_[i];
    } else if (step.kind == Kind::kSyncFile && file != now_.end()) {
      for (std::size_t j = 0; j < i; ++j) {
        if (is_data(trace_[j]) && inodes_[j] == inodes_[i]) sure_[j] = true;
      }
    } else if (step.kind == Kind::kSyncFolder) {
      for (std::size_t j = 0; j < i; ++j) {
        if (is_name(trace_[j]) && folder_of(trace_[j].path) == step.path) sure_[j] = true;
      }
    }
  }

  const DiskImage& start_;
  const DiskTrace& trace_;
  std::map<std::string, std::size_t> first_, now_;
  std::vector<std::size_t> sizes_;             // of inodes
  std::vector<std::size_t> inodes_, offsets_;  // of steps
  std::vector<bool> sure_;
};

}  // namespace tessera
