// A model that is open for one of the tasks, as the public headers see it.
#pragma once

#include <memory>

#include <tessera/runtime.h>

#include "apps/library/guard.h"
#include "apps/library/installation.h"
#include "apps/runtime/runtime.h"

namespace tessera {

class OpenTask {
 public:
  virtual ~OpenTask() = default;
  virtual api::ModelInfo info() const = 0;
  // Those that the model was not opened for: Error kUsage (E_TASK).
  virtual api::MemoryPlan plan(const api::ImageRequest&) const { refuse("generates images"); }
  virtual api::MemoryPlan plan(const api::VideoRequest&) const { refuse("generates videos"); }
  virtual api::MemoryPlan plan(const api::DescribeRequest&) const { refuse("describes"); }
  virtual Ticket submit(const api::ImageRequest&, api::ImageCallbacks) {
    refuse("generates images");
  }
  virtual Ticket submit(const api::VideoRequest&, api::VideoCallbacks) {
    refuse("generates videos");
  }
  virtual Ticket submit(const api::DescribeRequest&, api::DescribeCallbacks) {
    refuse("describes");
  }

 private:
  [[noreturn]] void refuse(const char* wanted) const;
};

// The runtime outlives the task. Errors of opening.
std::unique_ptr<OpenTask> open_image_task(Runtime& runtime, const Installation& place,
                                          const std::string& model,
                                          const api::OpenOptions& options);
std::unique_ptr<OpenTask> open_video_task(Runtime& runtime, const Installation& place,
                                          const std::string& model,
                                          const api::OpenOptions& options);
std::unique_ptr<OpenTask> open_describe_task(Runtime& runtime, const Installation& place,
                                             const std::string& model,
                                             const api::OpenOptions& options);

}  // namespace tessera
