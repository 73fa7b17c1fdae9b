// The task "describe": images and questions to texts, pruned and drafted as one likes. What the
// text of an image says depends on the image, the question and the settings alone. One bad image is
// one failed caption.
//
//   Runtime runtime;
//   DescribeTask task(runtime, options);
//   runtime.finish(task.submit(requests, listener));
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/runtime/caption_memory.h"
#include "apps/runtime/caption_model.h"
#include "apps/runtime/describe_options.h"
#include "apps/runtime/lane.h"
#include "apps/runtime/runtime.h"

namespace tessera {

class DescribeTask {
 public:
  // Opens and checks the model's files and takes part in the runtime, which is borrowed; reads no
  // weights. Error kModel; kUsage for settings that contradict one another or the model: what is
  // refused later is one image.
  DescribeTask(Runtime& runtime, const DescribeOptions& options);
  // What is at work is dropped, and its listeners hear no more.
  ~DescribeTask();
  DescribeTask(DescribeTask&&) noexcept;

  const CaptionModel& model() const;
  const std::string& model_name() const;
  const std::vector<std::string>& model_notes() const;  // ModelReference::notes
  const DecodeMethod& method() const;
  DType storage() const;
  const Backend& backend() const;
  // Of its loops, since the last submission that found nothing at work.
  StreamTimes times() const;
  std::string window_report() const;

  // What is held while texts about such images are written, options.batch_size at once; without
  // images as for one of usual size. The images as the model's policy plans them. Error kUsage for
  // a prompt that cannot be.
  CaptionMemoryPlan plan(const ChatQuestion& prompt, std::span<const PreprocessPlan> images) const;
  // Error kUsage for settings of a request that cannot be.
  void check(const DescribeRequest& request) const;
  // Error kMemory (E_MEMORY_PLAN) when not even one short text about a small image fits. load()
  // asks as well.
  void check_memory() const;

  // Reads the weights; once. Else the first text does.
  void load();

  // Another pruner, from the next submission on. Error kUsage as of the constructor.
  void set_pruning(const PruneChoice& prune);
  // Texts at once, from the next submission on that finds nothing at work, in the place of
  // options.batch_size.
  void set_texts_at_once(std::int64_t texts);
  // Drops what is held besides weights; nothing is at work. The next submission makes it again.
  void release();

  // Captions come in the order in which texts end. Requests are taken as there is room for them, on
  // another thread. The listener is borrowed until on_over().
  Ticket submit(DescribeSource source, DescribeListener& listener);
  Ticket submit(std::vector<DescribeRequest> requests, DescribeListener& listener);

 private:
  struct State;
  Ticket submit(DescribeSource source, std::int64_t slots, DescribeListener& listener);
  std::unique_ptr<State> state_;
};

}  // namespace tessera
