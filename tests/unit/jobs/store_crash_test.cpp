// Power cuts, all of them: after every step of a run every image that the disk could show is made,
// the real store goes on from it, and the same again from every step of that run. Broken orders of
// the same steps must be caught, or the check proves nothing.
#include <algorithm>
#include <cstdio>
#include <deque>

#include "apps/runtime/sha256.h"
#include "engine/core/publish.h"
#include "tests/support/disk_record.h"
#include "tests/unit/jobs/store_job.h"

namespace tessera::store_crash_test {
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

struct CrashPlan {
  std::vector<SettledItem> items;
  int crashes = 0;
  Breaking breaking = nullptr;
  bool texts_differ = false;  // each run has another text next to the image of item a
  bool few_files = false;     // item a has one of its files less: without syncs disks multiply
  bool videos = false;         // written in segments
  Sync sync = Sync::kOn;      // off: files may be torn and lost, but every run must end well
  DiskImage start = {};
  // What is wrong with an image next to the rest, "" for nothing.
  std::function<std::string(const DiskImage&)> wrong = nullptr;
};

class CrashModel {
 public:
  explicit CrashModel(CrashPlan plan) : plan_(std::move(plan)) {
    for (const SettledItem& item : plan_.items) {
      for (int run = 0; run <= plan_.crashes; ++run) {
        for (const OutputFile& file : made(item, run)) whole_[file.name].insert(file.bytes);
      }
      for (std::int64_t grid = 0; plan_.videos && grid < kVideoGrids; ++grid) {
        segments_[segment_name(item.item.id, grid)] = codes_text(codes_of(item, grid, 1));
      }
    }
  }

  void explore() {
    queue_.push_back({plan_.start, {}, 0});
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
    std::set<std::string> heard;
    int crashes = 0;
  };

  std::vector<OutputFile> made(const SettledItem& item, int run) const {
    if (plan_.videos) return files_of_video(item);
    std::vector<OutputFile> files = files_of(item);
    if (plan_.few_files && files.size() > 2) files.erase(files.begin());
    if (plan_.texts_differ && files.size() > 1) files[0].bytes += " of run " + std::to_string(run);
    return files;
  }

  int run(int number, const std::function<void(const std::string&)>& heard = nullptr) {
    if (plan_.videos) {
      return run_video_store(folder_.out(), plan_.items, heard, {.sync = plan_.sync});
    }
    return run_store(folder_.out(), plan_.items, heard, {.sync = plan_.sync}, false,
                     [&](const SettledItem& item) { return made(item, number); });
  }

  void problem(std::uint64_t& count, const std::string& what) {
    ++count;
    if (first_problem.empty()) first_problem = what;
  }

  bool is_recorded(const DiskImage& image, const RecordedFile& recorded) const {
    const auto file = image.files.find("out/" + recorded.name);
    return file != image.files.end() && sha256_hex(file->second) == recorded.sha256;
  }

  // What must hold in any image, before anybody repairs it.
  void check(const Node& node) {
    for (const auto& [path, data] : node.image.files) {
      const std::string name = fs::path(path).filename().string();
      const auto known = whole_.find(name);
      if (known != whole_.end() && !known->second.contains(data)) {
        problem(bad.torn, path + " is torn");
      }
      const auto segment = segments_.find(name);
      if (segment != segments_.end() && segment->second != data) {
        problem(bad.torn, path + " is torn");
      }
    }
    if (const std::string wrong = plan_.wrong ? plan_.wrong(node.image) : ""; !wrong.empty()) {
      problem(bad.lost, wrong);
    }
    std::set<std::string> done;
    Segments segments;
    const fs::path journal = folder_.out() / kStateFolder / journal_name(1, 1);
    if (fs::exists(journal)) {
      read_journal(journal, [&](const Json& fields) {
        ItemRecord record;
        segments.take(fields);
        const std::string id = record_of(fields, record);
        if (id.empty()) return;
        for (const RecordedFile& file : record.files) {
          if (!is_recorded(node.image, file)) problem(bad.false_done, id + " is not done");
        }
        done.insert(id);
      });
    }
    for (const auto& [id, list] : segments.all()) {
      for (const VideoSegment& segment : list) {
        const auto file = node.image.files.find("out/.tessera/" + segment.file.name);
        if (file == node.image.files.end()) problem(bad.false_done, segment.file.name + " is gone");
      }
    }
    for (const std::string& heard : node.heard) {
      const std::string id = heard.substr(0, heard.find('/'));
      if (done.contains(id)) continue;
      const bool video = id == heard;
      const auto stands = static_cast<std::int64_t>(segments.of(id).size());
      if (video || stands <= heard.back() - '0') problem(bad.lost, heard + " was called durable");
    }
  }

  bool all_whole(const std::map<std::string, std::string>& outputs) const {
    if (outputs.size() != whole_.size()) return false;
    return std::all_of(outputs.begin(), outputs.end(), [&](const auto& file) {
      const auto known = whole_.find(file.first);
      return known != whole_.end() && known->second.contains(file.second);
    });
  }

  DiskTrace go_on(int number) {
    DiskTrace trace;
    try {
      DiskRecorder recorder(folder_.root());
      run(number, [&](const std::string& id) { recorder.heard(id); });
      trace = recorder.trace();
    } catch (const Error& error) {
      problem(bad.stuck, error.what());
      return {};
    }
    if (!all_whole(folder_.outputs())) problem(bad.stuck, "other files at the end");
    return trace;
  }

  void visit(const Node& node) {
    node.image.put_into(folder_.root());
    check(node);
    const bool broken = plan_.breaking != nullptr;
    const DiskTrace trace = broken ? plan_.breaking(go_on(node.crashes)) : go_on(node.crashes);
    if (!broken) {  // what is over stays as it is
      DiskRecorder recorder(folder_.root());
      const int generated = run(node.crashes);
      const bool writes = std::ranges::any_of(recorder.trace(), is_change);
      if (generated != 0 || writes) problem(bad.stuck, "a second run writes");
    }
    if (node.crashes == plan_.crashes) return;
    SimulatedDisk disk(node.image);
    std::set<std::string> heard = node.heard;
    for (std::size_t at = 0; at <= trace.size(); ++at) {
      ++crash_points;
      disk.for_each_image([&](const DiskImage& image) {
        ++images;
        std::string key = image.key() + std::to_string(node.crashes + 1);
        for (const std::string& id : heard) key += '\4' + id;
        if (seen_.insert(sha256_hex(key)).second) {
          queue_.push_back({image, heard, node.crashes + 1});
        }
      });
      if (at == trace.size()) break;
      disk.run(trace[at]);
      if (trace[at].kind == Kind::kHeard) heard.insert(trace[at].path);
    }
  }

  StoreFolder folder_;
  CrashPlan plan_;
  std::map<std::string, std::set<std::string>> whole_;  // what a file of the name may be
  std::map<std::string, std::string> segments_;         // and what one of a video in work must be
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
      for (std::size_t i = out.size(); i-- > 0 && out[i].kind != Kind::kHeard;) {
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

// The journal's sync that follows an intent is left out.
DiskTrace intents_unsynced(const DiskTrace& trace) {
  DiskTrace out;
  bool intent = false;
  for (const DiskStep& step : trace) {
    const bool sync = is_journal(step.path) && step.kind == Kind::kSyncFile;
    if (sync && std::exchange(intent, false)) continue;
    if (step.data.find("\"intent\":") != std::string::npos) intent = true;
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
  CrashModel model({.items = small_job(4), .crashes = 3});
  model.explore();
  print("the order as it is, three crashes", model);
  EXPECT_EQ(model.bad.sum(), 0u) << model.first_problem;
  EXPECT_GT(model.states, 200u);
  EXPECT_GT(model.crash_points, 5000u);
}

// Segments of videos: what was called durable stands after any cut, and a video that is over leaves
// nothing of them.
TEST(StoreCrash, NoPowerCutLosesASegment) {
  CrashModel model({.items = video_job(2), .crashes = 2, .videos = true});
  model.explore();
  print("videos in segments, two crashes", model);
  EXPECT_EQ(model.bad.sum(), 0u) << model.first_problem;
  EXPECT_GT(model.crash_points, 1000u);
}

bool is_segment(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return !item_of_video_file(name).empty() || !item_of_video_file(target_of_temporary(name)).empty();
}

// One segment's step is left out, as disks multiply with each.
bool is_part_of(const std::string& path, std::int64_t grid) {
  return is_segment(path) && path.find(segment_name("a", grid)) != std::string::npos;
}

DiskTrace segment_name_unsynced(const DiskTrace& trace) {
  DiskTrace out;
  bool named = false;
  for (const DiskStep& step : trace) {
    if (step.kind == Kind::kRename && is_part_of(step.to, 1)) named = true;
    if (step.kind == Kind::kSyncFolder && std::exchange(named, false)) continue;
    out.push_back(step);
  }
  return out;
}

TEST(StoreCrash, BrokenOrdersOfSegmentsAreCaught) {
  const auto file_unsynced = [](const DiskTrace& trace) {
    return without(trace, [](const DiskStep& step) {
      return step.kind == Kind::kSyncFile && is_part_of(step.path, 1);
    });
  };
  const auto records_unsynced = [](const DiskTrace& trace) {
    return without(trace, [](const DiskStep& step) {
      return step.kind == Kind::kSyncFile && is_journal(step.path);
    });
  };
  struct Variant {
    const char* name;
    Breaking breaking;
    std::uint64_t Violations::*must;
  };
  const Variant variants[] = {
      {"without the sync of a segment", file_unsynced, &Violations::torn},
      {"without the sync of its name", segment_name_unsynced, &Violations::false_done},
      {"without the sync of its record", records_unsynced, &Violations::lost},
  };
  for (const Variant& variant : variants) {
    CrashModel model(
        {.items = video_job(1), .crashes = 1, .breaking = variant.breaking, .videos = true});
    model.explore();
    print(variant.name, model);
    EXPECT_GT(model.bad.*variant.must, 0u) << variant.name;
  }
}

struct Broken {
  const char* name;
  int items, crashes;
  Breaking breaking;
  std::uint64_t Violations::*must;  // the kind it must be caught by
  bool texts_differ = false, few_files = false;
};

// A text says nothing of whose it is. That no run is stopped by its own is the intent's work.
TEST(StoreCrash, TextsOfOtherRunsAreKnown) {
  CrashModel model({.items = small_job(2), .crashes = 3, .texts_differ = true});
  model.explore();
  print("other texts in each run, three", model);
  EXPECT_EQ(model.bad.sum(), 0u) << model.first_problem;
  EXPECT_GT(model.crash_points, 1000u);
}

// Without syncs a power cut may cost images. It stops no run: what it tore is generated again.
TEST(StoreCrash, WithoutSyncsEveryRunEndsWell) {
  std::vector<SettledItem> with_texts = small_job(1), without = small_job(3);
  without.erase(without.begin());
  for (const auto& items : {with_texts, without}) {
    CrashModel model({.items = items, .crashes = 1, .few_files = true, .sync = Sync::kOff});
    model.explore();
    print("without syncs, one crash", model);
    EXPECT_EQ(model.bad.stuck, 0u) << model.first_problem;
    EXPECT_GT(model.bad.torn, 0u) << "there was something to heal";
  }
}

// A journal that is damaged in the middle is mended while power is cut: it is there as it was until
// its copy is.
TEST(StoreCrash, MendingLosesNothing) {
  const std::vector<SettledItem> items = small_job(3);
  const std::string name = "out/.tessera/" + journal_name(1, 1);
  DiskImage start;
  std::string damaged;
  {
    const StoreFolder folder;
    run_store(folder.out(), items);
    damaged = damage_line(folder.root() / name, "\"id\":\"b\"");
    for (const auto& entry : fs::recursive_directory_iterator(folder.root())) {
      const std::string path = entry.path().lexically_relative(folder.root()).string();
      if (entry.is_directory()) {
        start.folders.insert(path);
      } else {
        start.files[path] = get_file(entry.path());
      }
    }
  }
  CrashModel model({.items = items,
                    .crashes = 2,
                    .start = start,
                    .wrong = [&](const DiskImage& image) -> std::string {
                      const auto journal = image.files.find(name);
                      const auto kept = image.files.find(name + ".bad-1");
                      if (journal == image.files.end()) return "there is no journal";
                      if (kept != image.files.end() && kept->second != damaged) return "bad copy";
                      const bool mended = journal->second != damaged;
                      return mended && kept == image.files.end() ? "replaced before kept" : "";
                    }});
  model.explore();
  print("a damaged journal, two crashes", model);
  EXPECT_EQ(model.bad.sum(), 0u) << model.first_problem;
  EXPECT_GT(model.crash_points, 100u);
}

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
      {"written in place, without syncs", 1, 1, in_place, &Violations::torn, false, true},
      {"a torn end of the journal stays", 2, 2,
       [](const DiskTrace& trace) {
         return without(trace, [](const DiskStep& step) {
           return step.kind == Kind::kCut && is_journal(step.path);
         });
       },
       &Violations::lost},
      {"the rename before the intent's sync", 1, 1, intents_unsynced, &Violations::stuck, true},
  };
  for (const Broken& variant : variants) {
    CrashModel model({.items = small_job(variant.items),
                      .crashes = variant.crashes,
                      .breaking = variant.breaking,
                      .texts_differ = variant.texts_differ,
                      .few_files = variant.few_files});
    model.explore();
    print(variant.name, model);
    EXPECT_GT(model.bad.*variant.must, 0u) << variant.name;
  }
}

}  // namespace
}  // namespace tessera::store_crash_test
