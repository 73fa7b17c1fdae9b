// The images of a job: one submission over all items, each image committed to the store before its
// listener hears of it. Where images are described they are so batch by batch, and where memory
// does not last, generator and captioner release theirs by turns before fewer are tried at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/jobs/describing.h"
#include "apps/jobs/settled_job.h"
#include "apps/runtime/generate_task.h"

namespace tessera {

struct ImageJobOptions {
  std::int64_t batch_size = 1;  // images at once
  LoopNeeds room = {};  // for the largest of them, as far as it is known; slots are not read
  RecordFacts record = RecordFacts::kAll;
  bool sidecar = false;  // a JSON file next to each image
  int max_retries = 0;   // as RunOptions
};

// What works. `generate` stands for the task's run(), `describer` may be null.
struct ImageTools {
  GenerateTask& task;
  std::function<void(std::unique_ptr<GenerateSource>, GenerateListener&)> generate;
  ImageDescriber* describer = nullptr;

  explicit ImageTools(GenerateTask& generator, ImageDescriber* describes = nullptr);
};

class ImageJobListener : public SettledListener {
 public:
  // progress.first: items of this run that are done or failed.
  virtual void on_progress(const GenerateProgress&) {}
  // The item is done and durable. The image and codes of the image are gone by then.
  virtual void on_done(const SettledItem&, const ItemRecord&, const GeneratedImage&,
                       const Described&) {}
  // Memory did not last: so many texts at once from here on. Once a level.
  virtual void on_fewer_texts(std::int64_t /*texts*/) {}
  // Memory did not last for both: generator and captioner hold theirs one after the other. Once.
  virtual void on_turns() {}
};

// Ends as JobRun::run().
JobEnd generate_images(const ImageTools& tools, std::span<const SettledItem> items,
                       std::span<const std::size_t> wanted, BatchStore& store,
                       const ImageJobOptions& options, ImageJobListener& listener);

}  // namespace tessera
