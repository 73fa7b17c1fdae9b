// Power cuts, all of them: after every step of a run every image that the disk could show is made,
// the real store goes on from it, and the same again from every step of that run. Broken orders of
// the same steps must be caught, or the check proves nothing.
#include <cstdio>
#include <deque>

#include "apps/pipeline/sha256.h"
#include "engine/core/publish.h"
#include "tests/support/disk_record.h"
#include "tests/unit/batch/store_job.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Kind = DiskStep::Kind;
using Breaking = std::function<DiskTrace(DiskTrace)>;

struct Violations {
  std::uint64_t torn = 0;        // a name shows a file that is not whole
  std::uint64_t false_done = 0;  // a record says done, and a file is not as it says
  std::uint64_t lost = 0;        // an item was called done and is not
  std::uint64_t stuck = 0;       // the next run fails or ends otherwise
  std::uint64_t sum() const { return torn + false_done + lost + stuck; }
};

class CrashModel {
 public:
  CrashModel(int items, int crashes, Breaking breaking)
      : items_(small_job(items)),
        whole_(whole_outputs(items_)),
        crashes_(crashes),
        breaking_(std::move(breaking)) {}

  void explore() {
    queue_.push_back({{}, {}, 0});
    while (!queue_.empty()) {
      const Node node = std::move(queue_.front());
      queue_.pop_front();
      ++states;
      visit(node);
    }
  }

  std::uint64_t states = 0, crash_points = 0, images = 0;
  Violations bad;
  std::string first_problem;

 private:
  struct Node {
    DiskImage image;
    std::set<std::string> told;
    int crashes = 0;
  };

  void problem(std::uint64_t& count, const std::string& what) {
    ++count;
    if (first_problem.empty()) first_problem = what;
  }

  bool is_whole(const DiskImage& image, const std::string& name) const {
    const auto file = image.files.find("out/" + name);
    return file != image.files.end() && file->second == whole_.at(name);
  }

  // What must hold in any image, before anybody repairs it.
  void check(const Node& node) {
    for (const auto& [path, data] : node.image.files) {
      const std::string name = fs::path(path).filename().string();
      const auto known = whole_.find(name);
      if (known != whole_.end() && data != known->second) problem(bad.torn, path + " is torn");
    }
    std::set<std::string> done;
    const fs::path journal = folder_.out() / kStateFolder / journal_name(1, 1);
    if (fs::exists(journal)) {
      read_journal(journal, [&](const Json& fields) {
        ItemRecord record;
        const std::string id = record_of(fields, record);
        if (id.empty()) return;
        for (const RecordedFile& file : record.files) {
          if (!is_whole(node.image, file.name)) problem(bad.false_done, id + " is not done");
        }
        done.insert(id);
      });
    }
    for (const std::string& id : node.told) {
      if (!done.contains(id)) problem(bad.lost, id + " was called done");
    }
  }

  DiskTrace go_on() {
    DiskTrace trace;
    try {
      DiskRecorder recorder(folder_.root());
      run_store(folder_.out(), items_, [&](const std::string& id) { recorder.told(id); });
      trace = recorder.trace();
    } catch (const Error& error) {
      problem(bad.stuck, error.what());
      return {};
    }
    if (folder_.outputs() != whole_) problem(bad.stuck, "other files at the end");
    return trace;
  }

  void visit(const Node& node) {
    node.image.put_into(folder_.root());
    check(node);
    const DiskTrace trace = breaking_ ? breaking_(go_on()) : go_on();
    if (!breaking_) {  // what is over stays as it is
      DiskRecorder recorder(folder_.root());
      const int painted = run_store(folder_.out(), items_);
      if (painted != 0 || !recorder.trace().empty()) problem(bad.stuck, "a second run writes");
    }
    if (node.crashes == crashes_) return;
    SimulatedDisk disk(node.image);
    std::set<std::string> told = node.told;
    for (std::size_t at = 0; at <= trace.size(); ++at) {
      ++crash_points;
      disk.for_each_image([&](const DiskImage& image) {
        ++images;
        std::string key = image.key() + std::to_string(node.crashes + 1);
        for (const std::string& id : told) key += '\4' + id;
        if (seen_.insert(sha256_hex(key)).second) {
          queue_.push_back({image, told, node.crashes + 1});
        }
      });
      if (at == trace.size()) break;
      disk.run(trace[at]);
      if (trace[at].kind == Kind::kTold) told.insert(trace[at].path);
    }
  }

  StoreFolder folder_;
  std::vector<SettledItem> items_;
  std::map<std::string, std::string> whole_;
  int crashes_;
  Breaking breaking_;
  std::deque<Node> queue_;
  std::set<std::string> seen_;
};

bool is_journal(const std::string& path) { return path.ends_with(".jnl"); }
bool is_output(const std::string& path) {
  return path.starts_with("out/") && !path.starts_with("out/.tessera");
}

DiskTrace without(DiskTrace trace, const std::function<bool(const DiskStep&)>& dropped) {
  std::erase_if(trace, dropped);
  return trace;
}

// Moves the journal's write and sync of each item before `first`, which ends the item's files.
DiskTrace journal_before(DiskTrace trace, Kind first) {
  DiskTrace out;
  for (const DiskStep& step : trace) {
    const bool record = is_journal(step.path) &&
                        (step.kind == Kind::kWrite || step.kind == Kind::kSyncFile) &&
                        step.data.find("\"tessera\":") == std::string::npos;
    std::size_t place = out.size();
    if (record && step.kind == Kind::kWrite) {
      for (std::size_t i = out.size(); i-- > 0 && out[i].kind != Kind::kTold;) {
        if (out[i].kind == first && (first == Kind::kSyncFolder || is_output(out[i].path))) {
          place = i;
          break;
        }
      }
    }
    out.insert(out.begin() + static_cast<std::ptrdiff_t>(place), step);
    if (record && place + 1 < out.size()) {
      out.insert(out.begin() + static_cast<std::ptrdiff_t>(place) + 1,
                 {Kind::kSyncFile, step.path});
    }
  }
  return out;
}

// Files under their final names from the first byte, and no syncs.
DiskTrace in_place(const DiskTrace& trace) {
  DiskTrace out;
  for (DiskStep step : trace) {
    if (is_output(step.path)) {
      if (step.kind == Kind::kSyncFile || step.kind == Kind::kRename) continue;
      if (step.kind == Kind::kUnlink) continue;
      const std::string name(target_of_temporary(fs::path(step.path).filename().string()));
      if (!name.empty()) step.path = "out/" + name;
    }
    const bool sync = step.kind == Kind::kSyncFolder || step.kind == Kind::kSyncFile;
    if (sync && (step.path == "out" || is_journal(step.path))) continue;
    out.push_back(step);
  }
  return out;
}

void print(const char* name, const CrashModel& model) {
  std::printf(
      "%-34s %7llu crash points, %7llu disks, %6llu of them new: torn %llu, false done "
      "%llu, lost %llu, stuck %llu\n",
      name, static_cast<unsigned long long>(model.crash_points),
      static_cast<unsigned long long>(model.images), static_cast<unsigned long long>(model.states),
      static_cast<unsigned long long>(model.bad.torn),
      static_cast<unsigned long long>(model.bad.false_done),
      static_cast<unsigned long long>(model.bad.lost),
      static_cast<unsigned long long>(model.bad.stuck));
}

TEST(StoreCrash, NoPowerCutLosesAnything) {
  CrashModel model(4, 3, nullptr);
  model.explore();
  print("the order as it is, three crashes", model);
  EXPECT_EQ(model.bad.sum(), 0u) << model.first_problem;
  EXPECT_GT(model.states, 200u);
  EXPECT_GT(model.crash_points, 5000u);
}

struct Broken {
  const char* name;
  int items, crashes;
  Breaking breaking;
  std::uint64_t Violations::*must;  // the kind it must be caught by
};

TEST(StoreCrash, BrokenOrdersAreCaught) {
  const Broken variants[] = {
      {"without the sync of files", 2, 1,
       [](const DiskTrace& trace) {
         return without(trace, [](const DiskStep& step) {
           return step.kind == Kind::kSyncFile && is_output(step.path);
         });
       },
       &Violations::torn},
      {"without the sync of the folder", 2, 1,
       [](const DiskTrace& trace) {
         return without(trace, [](const DiskStep& step) {
           return step.kind == Kind::kSyncFolder && step.path == "out";
         });
       },
       &Violations::false_done},
      {"the record before the rename", 2, 1,
       [](const DiskTrace& trace) { return journal_before(trace, Kind::kRename); },
       &Violations::false_done},
      {"without the sync of the journal", 2, 1,
       [](const DiskTrace& trace) {
         return without(trace, [](const DiskStep& step) {
           return step.kind == Kind::kSyncFile && is_journal(step.path);
         });
       },
       &Violations::lost},
      {"written in place, without syncs", 1, 1, in_place, &Violations::torn},
      {"a torn end of the journal stays", 2, 2,
       [](const DiskTrace& trace) {
         return without(trace, [](const DiskStep& step) {
           return step.kind == Kind::kCut && is_journal(step.path);
         });
       },
       &Violations::lost},
  };
  for (const Broken& variant : variants) {
    CrashModel model(variant.items, variant.crashes, variant.breaking);
    model.explore();
    print(variant.name, model);
    EXPECT_GT(model.bad.*variant.must, 0u) << variant.name;
  }
}

}  // namespace
}  // namespace tessera
