// The thread that paints: pictures one after the other, each told of after every pass. One model is
// kept loaded and let go only for another one.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "apps/studio/event_queue.h"
#include "apps/studio/paint_job.h"
#include "apps/studio/video_worker.h"

namespace tessera {

struct PainterOptions {
  std::string model;  // where settings name none
  std::string device = "auto";
  CudaOptions cuda;
  int threads = 0;
  std::optional<DType> storage;
  std::filesystem::path clip_helper;  // what encodes videos; empty = beside the program
};

class PaintWorker {
 public:
  static constexpr std::size_t kMostQueued = 1000;

  // The queue of events is borrowed and must be closed before the worker ends.
  PaintWorker(PainterOptions options, EventQueue& events);
  // Ends the running picture after its pass, as if nobody had wished for it; queued ones are gone.
  ~PaintWorker();
  // The same without waiting.
  void end();
  PaintWorker(const PaintWorker&) = delete;

  // All of them or, when there is no room, none.
  bool queue(std::vector<PaintJob> jobs);
  // Takes a picture out of the queue; false when it is not there any more.
  bool drop(std::uint64_t number);
  // Ends a picture after its pass; 0 = the one that runs.
  void stop(std::uint64_t number) { wish_.wish(number); }

 private:
  void work();
  void paint(const PaintJob& job);
  void run_task(const PaintJob& job, Painting& painting);
  void finish(const PaintJob& job, Painting& painting, GeneratedImage& picture);
  void open_for(const PaintSettings& settings);
  void tell(const Painting& painting) { events_.push(PaintingEvent{painting}); }

  PainterOptions options_;
  EventQueue& events_;
  StopWish wish_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PaintJob> jobs_;
  bool ending_ = false;
  // Of the thread alone.
  Runtime runtime_;
  std::unique_ptr<GenerateTask> task_;
  GenerateOptions opened_;  // what it was opened with
  bool loaded_ = false;     // its weights are whole
  VideoWorker videos_;      // a model is open there or here
  std::thread thread_;
};

}  // namespace tessera
