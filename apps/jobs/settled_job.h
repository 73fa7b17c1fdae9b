// What tasks over settled items, images and videos, have alike: the store keeps their files, and
// whoever listens hears of items instead of their numbers.
#pragma once

#include <span>

#include "apps/jobs/runner.h"
#include "apps/jobs/settle.h"
#include "apps/jobs/store.h"

namespace tessera {

class SettledListener {
 public:
  virtual ~SettledListener() = default;
  virtual bool stop_requested() { return false; }
  virtual void on_failed(const SettledItem&, const ErrorInfo&) {}
  virtual void on_retry(const SettledItem&, const ErrorInfo&) {}
  virtual void on_fewer(std::int64_t /*items*/) {}
};

// A job over settled items between the run and its store and listener. All are borrowed.
class SettledJob final : public JobRecords, public JobListener {
 public:
  SettledJob(std::span<const SettledItem> items, BatchStore& store, SettledListener& listener)
      : items_(items), store_(store), listener_(listener) {}

  JobEnd run(std::span<const std::size_t> wanted, Task& task, const RunOptions& options) {
    ListedItems source(wanted);
    return JobRun(source, task, *this, *this, options).run();
  }

  void fail(std::size_t item, const ErrorInfo& error) override { store_.fail(items_[item], error); }
  void note_try(std::size_t item) override { store_.note_try(items_[item]); }
  void note_at_once(std::int64_t items) override { store_.note_at_once(items); }

  bool stop_requested() override { return listener_.stop_requested(); }
  void on_failed(std::size_t item, const ErrorInfo& error) override {
    listener_.on_failed(items_[item], error);
  }
  void on_retry(std::size_t item, const ErrorInfo& error) override {
    listener_.on_retry(items_[item], error);
  }
  void on_fewer(std::int64_t items) override { listener_.on_fewer(items); }

 private:
  std::span<const SettledItem> items_;
  BatchStore& store_;
  SettledListener& listener_;
};

}  // namespace tessera
