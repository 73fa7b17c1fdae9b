// The queue of images and the threads that see to it, one for each maker: an image after the other,
// each told of on its way.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "apps/studio/event_queue.h"
#include "apps/studio/image_maker.h"

namespace tessera {

class GenerateWorker {
 public:
  static constexpr std::size_t kMaxQueued = 1000;

  // The queue of events is borrowed and must be closed before the worker ends.
  GenerateWorker(std::vector<std::unique_ptr<ImageMaker>> makers, EventQueue& events);
  // Ends running images after their pass, as if nobody had wished for them; queued ones are gone.
  ~GenerateWorker();
  // The same without waiting.
  void end();
  GenerateWorker(const GenerateWorker&) = delete;

  // All of them or, when there is no room, none.
  bool queue(std::vector<GenerateJob> jobs);
  // Takes an image out of the queue; false when it is not there any more.
  bool drop(std::uint64_t number);
  // Ends an image after its pass; 0 = those that run.
  void stop(std::uint64_t number);

 private:
  struct Lane {
    std::unique_ptr<ImageMaker> maker;
    StopRequest stop_request;
    std::thread thread;
  };
  void work(Lane& lane);
  void generate(const GenerateJob& job, Lane& lane);
  void tell(const Generation& generation) { events_.push(GenerationEvent{generation}); }

  EventQueue& events_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<GenerateJob> jobs_;
  bool ending_ = false;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace tessera
