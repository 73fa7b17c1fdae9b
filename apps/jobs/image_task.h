// The images of a job: prompts batched across items, each image described if that is asked for and
// committed to the store before anybody is told. Where memory does not last, generator and
// captioner give theirs back by turns before fewer are tried at once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "apps/jobs/describing.h"
#include "apps/jobs/settled_job.h"
#include "apps/runtime/generate_pipeline.h"

namespace tessera {

struct ImageJobOptions {
  std::int64_t batch_size = 1;
  RecordFacts record = RecordFacts::kAll;
  bool sidecar = false;  // a JSON file beside each image
  int max_retries = 0;   // as RunOptions
};

// Who works. `generate` stands for the pipeline's run(), `describer` may be null.
struct ImageTools {
  GeneratePipeline& pipeline;
  std::function<void(std::span<const PreparedRequest>, GenerateListener&)> generate;
  Describer* describer = nullptr;

  explicit ImageTools(GeneratePipeline& generator, Describer* describes = nullptr);
};

class ImageJobListener : public SettledListener {
 public:
  // progress.first: items of this run that are done or failed.
  virtual void on_progress(const GenerateProgress&) {}
  // The item is done and durable. The image and codes of the picture are gone by then.
  virtual void on_done(const SettledItem&, const ItemRecord&, const GeneratedPicture&,
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
