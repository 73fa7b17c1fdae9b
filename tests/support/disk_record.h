// What a power cut can leave: the changes that a run makes to a folder are written down as they
// pass the I/O layer, and replayed onto a disk in memory that keeps only what was synced and any
// choice of the rest. Follows Pillai et al., "All File Systems Are Not Created Equal" (OSDI'14):
// data and names survive apart, a write may survive in part, a rename whole or not at all.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/io_watch.h"
#include "tests/support/temp_folder.h"

namespace tessera {

struct DiskStep {
  enum class Kind : std::uint8_t {
    kCreate,
    kWrite,
    kCut,
    kSyncFile,
    kSyncFolder,
    kRename,
    kUnlink,
    kMkdir,
    kHeard,  // no change: from here on the caller calls the item `path` done
  };
  Kind kind;
  std::string path, to;    // relative to the root; kHeard: the id
  std::string data;        // kWrite: appended
  std::uint64_t size = 0;  // kCut
};
using DiskTrace = std::vector<DiskStep>;

// Whether a step changes what the disk shows; syncs and what is notified do not.
inline bool is_change(const DiskStep& step) {
  using Kind = DiskStep::Kind;
  return step.kind != Kind::kSyncFile && step.kind != Kind::kSyncFolder && step.kind != Kind::kHeard;
}

// Files by path and the folders; what a mounted disk shows.
struct DiskImage {
  std::map<std::string, std::string> files;
  std::set<std::string> folders;

  // Equal for images that differ in the numbers of temporaries only.
  std::string key() const {
    std::string out;
    for (const auto& [path, data] : files) {
      out += path.substr(0, std::min(path.find(".tmp-"), path.size())) + '\1' + data + '\2';
    }
    for (const std::string& folder : folders) out += folder + '\3';
    return out;
  }

  void put_into(const std::filesystem::path& root) const {
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      std::filesystem::remove_all(entry.path());
    }
    for (const std::string& folder : folders) {
      std::filesystem::create_directories(root / folder);
    }
    for (const auto& [path, data] : files) put_file(root / path, data);
  }
};

// Writes down the changes below `root` while it lives.
class DiskRecorder final : public IoWatcher {
 public:
  explicit DiskRecorder(std::filesystem::path root) : root_(std::move(root)) {
    expects(installed_watcher().exchange(this) == nullptr, "one watcher at a time");
  }
  ~DiskRecorder() override { installed_watcher().store(nullptr); }

  void before(const IoChange& change) override {
    if (change.op == IoOp::kOpen) existed_ = std::filesystem::exists(*change.path);
  }
  void after(const IoChange& change) override {
    using Kind = DiskStep::Kind;
    switch (change.op) {
      case IoOp::kOpen:
        names_[change.fd] = relative(*change.path);
        if (!existed_) trace_.push_back({Kind::kCreate, names_[change.fd]});
        break;
      case IoOp::kWrite: {
        DiskStep step{Kind::kWrite, names_.at(change.fd)};
        step.data.assign(reinterpret_cast<const char*>(change.data.data()), change.data.size());
        if (change.cut_to >= 0) {
          step.kind = Kind::kCut;
          step.size = static_cast<std::uint64_t>(change.cut_to);
        }
        trace_.push_back(step);
        break;
      }
      case IoOp::kSync: {
        struct stat info {};
        ::fstat(change.fd, &info);
        trace_.push_back(
            {S_ISDIR(info.st_mode) ? Kind::kSyncFolder : Kind::kSyncFile, names_.at(change.fd)});
        break;
      }
      case IoOp::kRename:
        trace_.push_back({Kind::kRename, relative(*change.path), relative(*change.to)});
        break;
      case IoOp::kUnlink:
        trace_.push_back({Kind::kUnlink, relative(*change.path)});
        break;
      case IoOp::kMkdir:
        trace_.push_back({Kind::kMkdir, relative(*change.path)});
        break;
      default:
        break;
    }
  }
  void heard(const std::string& id) { trace_.push_back({DiskStep::Kind::kHeard, id}); }
  const DiskTrace& trace() const { return trace_; }

 private:
  std::string relative(const std::filesystem::path& path) const {
    const std::string name = path.lexically_relative(root_).string();
    return name == "." ? "" : name;
  }

  std::filesystem::path root_;
  std::map<int, std::string> names_;
  DiskTrace trace_;
  bool existed_ = false;
};

// The disk while a trace runs over it.
class SimulatedDisk {
 public:
  explicit SimulatedDisk(const DiskImage& start) : folders_(start.folders) {
    for (const auto& [path, data] : start.files) {
      now_[path] = durable_names_[path] = inodes_.size();
      inodes_.push_back(data);
    }
  }

  void run(const DiskStep& step) {
    using Kind = DiskStep::Kind;
    switch (step.kind) {
      case Kind::kCreate:
        now_[step.path] = inodes_.size();
        pending_.push_back({step, inodes_.size()});
        inodes_.emplace_back();
        break;
      case Kind::kWrite:
      case Kind::kCut:
      case Kind::kUnlink:
        pending_.push_back({step, now_.at(step.path)});
        if (step.kind == Kind::kUnlink) now_.erase(step.path);
        break;
      case Kind::kRename: {
        const std::size_t inode = now_.at(step.path);
        pending_.push_back({step, inode});
        now_.erase(step.path);
        now_[step.to] = inode;
        break;
      }
      case Kind::kMkdir:
        pending_.push_back({step, 0});
        break;
      case Kind::kSyncFile: {
        const auto found = now_.find(step.path);
        if (found == now_.end()) break;
        settle([&](const Pending& op) { return is_data(op) && op.inode == found->second; });
        break;
      }
      case Kind::kSyncFolder:
        settle([&](const Pending& op) { return !is_data(op) && folder_of(op) == step.path; });
        break;
      case Kind::kHeard:
        break;
    }
  }

  // Calls `see` with every image that a power cut could leave now.
  void for_each_image(const std::function<void(const DiskImage&)>& see) const {
    std::vector<int> choices(pending_.size(), 0);
    while (true) {
      see(image_of(choices));
      std::size_t at = 0;
      while (at < choices.size() && ++choices[at] == ways(pending_[at])) choices[at++] = 0;
      if (at == choices.size()) return;
    }
  }

 private:
  struct Pending {
    DiskStep step;
    std::size_t inode = 0;
  };
  struct State {
    std::map<std::string, std::size_t> names;
    std::vector<std::string> inodes;
    std::set<std::string> folders;
  };

  static bool is_data(const Pending& op) {
    return op.step.kind == DiskStep::Kind::kWrite || op.step.kind == DiskStep::Kind::kCut;
  }
  static std::string folder_of(const Pending& op) {
    return std::filesystem::path(op.step.path).parent_path().string();
  }
  // Lost, whole, and for writes of more than a byte: half.
  static int ways(const Pending& op) {
    return op.step.kind == DiskStep::Kind::kWrite && op.step.data.size() > 1 ? 3 : 2;
  }

  static void apply(const Pending& op, State& state, bool half) {
    using Kind = DiskStep::Kind;
    const DiskStep& step = op.step;
    switch (step.kind) {
      case Kind::kCreate:
        state.names[step.path] = op.inode;
        break;
      case Kind::kWrite:
        state.inodes[op.inode] += half ? step.data.substr(0, step.data.size() / 2) : step.data;
        break;
      case Kind::kCut:
        if (state.inodes[op.inode].size() > step.size) state.inodes[op.inode].resize(step.size);
        break;
      case Kind::kRename: {
        const auto old = state.names.find(step.path);
        if (old != state.names.end() && old->second == op.inode) state.names.erase(old);
        state.names[step.to] = op.inode;
        break;
      }
      case Kind::kUnlink: {
        const auto old = state.names.find(step.path);
        if (old != state.names.end() && old->second == op.inode) state.names.erase(old);
        break;
      }
      case Kind::kMkdir:
        state.folders.insert(step.path);
        break;
      default:
        break;
    }
  }

  // What is certain from now on: these operations, in order.
  template <typename Chosen>
  void settle(Chosen chosen) {
    std::vector<Pending> rest;
    State state = durable();
    for (const Pending& op : pending_) {
      if (chosen(op)) {
        apply(op, state, false);
      } else {
        rest.push_back(op);
      }
    }
    durable_names_ = state.names;
    durable_data_ = state.inodes;
    folders_ = state.folders;
    pending_ = std::move(rest);
  }

  State durable() const {
    State state{durable_names_, durable_data_, folders_};
    // Files that were there at the start are durable; new ones begin empty.
    for (std::size_t i = state.inodes.size(); i < inodes_.size(); ++i) {
      state.inodes.push_back(inodes_[i]);
    }
    return state;
  }

  DiskImage image_of(const std::vector<int>& choices) const {
    State state = durable();
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (choices[i] > 0) apply(pending_[i], state, choices[i] == 2);
    }
    DiskImage image;
    image.folders = state.folders;
    const auto reachable = [&](const std::string& path) {
      const std::string folder = std::filesystem::path(path).parent_path().string();
      return folder.empty() || state.folders.contains(folder);
    };
    for (const auto& [path, inode] : state.names) {
      if (reachable(path)) image.files[path] = state.inodes[inode];
    }
    return image;
  }

  // Names as the running process sees them; first contents of files (of new ones empty).
  std::map<std::string, std::size_t> now_, durable_names_;
  std::vector<std::string> inodes_, durable_data_;
  std::set<std::string> folders_;
  std::vector<Pending> pending_;
};

}  // namespace tessera
