// Says what a job does while it generates: on stdout what is done, on stderr what is going on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/cli/progress.h"
#include "apps/cli/session.h"
#include "apps/jobs/image_task.h"

namespace tessera {

class BatchReporter final : public ImageJobListener {
 public:
  // The run wants `wanted` of the `total` items of its shard. `endings`: of the texts next to each
  // image. The session is borrowed.
  struct Job {
    std::filesystem::path folder;
    std::size_t wanted = 0, total = 0;
    std::vector<std::string> endings;
  };
  BatchReporter(const Session& session, Job job);

  bool stop_requested() override { return session_.stop_requested(); }
  void on_progress(const GenerateProgress& progress) override;
  void on_done(const SettledItem& item, const ItemRecord& record, const GeneratedImage& image,
               const Described& described) override;
  void on_failed(const SettledItem& item, const ErrorInfo& error) override;
  void on_retry(const SettledItem& item, const ErrorInfo& error) override;
  void on_fewer(std::int64_t images) override;
  void on_fewer_texts(std::int64_t texts) override;
  void on_turns() override;

  void clear() { progress_.clear(); }

 private:
  void warn_of_memory(const std::string& what);

  const Session& session_;
  Job job_;
  ProgressReporter progress_;
  std::uint64_t done_ = 0, failed_ = 0;
};

}  // namespace tessera
