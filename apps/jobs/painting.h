// Paints the items of a job that are not done yet: prompts batched across items, each picture
// described if that is asked for and committed to the store before anybody is told. Where memory
// does not last, painter and captioner give theirs back by turns, then half as many are tried at
// once, down to one item, which then fails alone.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "apps/jobs/describing.h"
#include "apps/jobs/settle.h"
#include "apps/jobs/store.h"
#include "apps/pipeline/generate_pipeline.h"

namespace tessera {

struct PaintOptions {
  std::int64_t batch_size = 1;
  RecordFacts record = RecordFacts::kAll;
  bool sidecar = false;  // a JSON file beside each picture
  int max_retries = 0;  // more tries of an item that failed, alone; a stranger's file is no failure
};

// Who works. `paint` stands for the pipeline's run(), `describer` may be null.
struct PaintTools {
  GeneratePipeline& pipeline;
  std::function<void(std::span<const PreparedRequest>, GenerateListener&)> paint;
  Describer* describer = nullptr;

  explicit PaintTools(GeneratePipeline& painter, Describer* describes = nullptr);
};

class PaintListener {
 public:
  virtual ~PaintListener() = default;
  // Asked between batches: the running one is always finished.
  virtual bool stop_requested() { return false; }
  // progress.first: items of this run that are done or failed.
  virtual void on_progress(const GenerateProgress&) {}
  // The item is done and durable. The image and codes of the picture are gone by then.
  virtual void on_done(const SettledItem&, const ItemRecord&, const GeneratedPicture&,
                       const Described&) {}
  virtual void on_failed(const SettledItem&, const ErrorInfo&) {}
  virtual void on_retry(const SettledItem&, const ErrorInfo&) {}
  // Memory did not last: so many pictures, or texts, at once from here on. Once a level.
  virtual void on_fewer(std::int64_t /*pictures*/) {}
  virtual void on_fewer_texts(std::int64_t /*texts*/) {}
  // Memory did not last for both: painter and captioner hold theirs one after the other. Once.
  virtual void on_turns() {}
};

enum class PaintEnd : std::uint8_t { kOver, kDrained };
// Errors of single items become failed items, but five alike are E_BATCH_FAILING when none of the
// items that ended in between is done (strangers' files do not count); storage
// and model errors are thrown, and so is missing memory while an item is put down; all of them
// leave everything resumable.
PaintEnd paint_items(const PaintTools& tools, std::span<const SettledItem> items,
                     std::span<const std::size_t> wanted, BatchStore& store,
                     const PaintOptions& options, PaintListener& listener);

}  // namespace tessera
