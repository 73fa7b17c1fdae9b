// Several workers of one program as if they were processes on one machine: one of them runs at a
// time, and before every change to the disk a seeded number says who goes on. A worker can be
// killed there, within a write too: every call it still makes fails, so nothing changes any more,
// and its locks go with its files. All changes are written down, with whose they are.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <semaphore>
#include <thread>
#include <vector>

#include "tests/support/disk_record.h"
#include "tests/support/fault_scope.h"

namespace tessera {

class RandomScheduler final : public IoWatcher {
 public:
  struct Worker {
    std::function<void()> body;
    std::uint64_t dies_at = 0;  // the change of its own it is killed at, from 1; 0 = never
  };
  struct End {
    bool killed = false;
    std::string error;  // the code of the error that ended it, and what it says
  };

  RandomScheduler(const std::filesystem::path& root, std::mt19937_64& lot)
      : recorder_(root), lot_(lot) {
    installed_watcher().store(this);
  }
  ~RandomScheduler() override {
    fault_.reset();
    installed_watcher().store(nullptr);
  }

  // Runs them all to their ends.
  std::vector<End> run(std::vector<Worker> workers) {
    workers_ = std::move(workers);
    ends_.assign(workers_.size(), {});
    counts_.assign(workers_.size(), 0);
    gates_.clear();
    alive_.clear();
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      gates_.emplace_back(0);
      alive_.push_back(i);
    }
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      threads.emplace_back([this, i] { live(i); });
    }
    wake(draw());
    all_over_.acquire();
    for (std::thread& thread : threads) thread.join();
    return ends_;
  }

  void before(const IoChange& change) override {
    if (fault_) return;                                   // a dying worker
    if (alive_.empty()) return recorder_.before(change);  // the test itself reads
    const std::size_t me = running_;
    if (const std::size_t next = draw(); next != me) {
      wake(next);
      gates_[me].acquire();
    }
    if (++counts_[me] == workers_[me].dies_at) return kill(change);
    recorder_.before(change);
  }
  void after(const IoChange& change) override {
    recorder_.after(change);
    owners_.resize(recorder_.trace().size(), running_);
  }
  void heard(const std::string& id) {
    recorder_.heard(id);
    owners_.resize(recorder_.trace().size(), running_);
  }

  const DiskTrace& trace() const { return recorder_.trace(); }
  const std::vector<std::size_t>& owners() const { return owners_; }  // of the steps

 private:
  void live(std::size_t me) {
    gates_[me].acquire();
    try {
      workers_[me].body();
    } catch (const Error& error) {
      if (!fault_) ends_[me].error = error.info().code + ": " + error.what();
    }
    ends_[me].killed = fault_.has_value();
    fault_.reset();
    std::erase(alive_, me);
    if (alive_.empty()) {
      all_over_.release();
    } else {
      wake(draw());
    }
  }

  std::size_t draw() { return alive_[lot_() % alive_.size()]; }
  // The caller waits or ends.
  void wake(std::size_t worker) {
    running_ = worker;
    gates_[worker].release();
  }

  void kill(const IoChange& change) {
    if (change.op == IoOp::kWrite && change.cut_to < 0 && !change.data.empty()) {
      IoChange part = change;
      part.data = change.data.first(lot_() % change.data.size());
      if (!part.data.empty() && ::write(part.fd, part.data.data(), part.data.size()) ==
                                    static_cast<ssize_t>(part.data.size())) {
        after(part);
      }
    }
    fault_.emplace(FaultPlan{.error = EIO, .mode = FaultPlan::Mode::kSticky});
  }

  DiskRecorder recorder_;
  std::mt19937_64& lot_;
  std::vector<Worker> workers_;
  std::vector<End> ends_;
  std::vector<std::uint64_t> counts_;
  std::deque<std::binary_semaphore> gates_;
  std::binary_semaphore all_over_{0};
  std::vector<std::size_t> alive_, owners_;
  std::size_t running_ = 0;
  std::optional<FaultScope> fault_;
};

}  // namespace tessera
