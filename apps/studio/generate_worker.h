// The thread that generates: images one after the other, each told of after every pass. One model is
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
#include "apps/studio/generate_job.h"
#include "apps/studio/video_worker.h"

namespace tessera {

struct GeneratorOptions {
  std::string model;  // where settings name none
  std::string device = "auto";
  CudaOptions cuda;
  int threads = 0;
  std::optional<DType> storage;
  std::filesystem::path video_helper;  // what encodes videos; empty = next to the program
};

class GenerateWorker {
 public:
  static constexpr std::size_t kMaxQueued = 1000;

  // The queue of events is borrowed and must be closed before the worker ends.
  GenerateWorker(GeneratorOptions options, EventQueue& events);
  // Ends the running image after its pass, as if nobody had wished for it; queued ones are gone.
  ~GenerateWorker();
  // The same without waiting.
  void end();
  GenerateWorker(const GenerateWorker&) = delete;

  // All of them or, when there is no room, none.
  bool queue(std::vector<GenerateJob> jobs);
  // Takes an image out of the queue; false when it is not there any more.
  bool drop(std::uint64_t number);
  // Ends an image after its pass; 0 = the one that runs.
  void stop(std::uint64_t number) { stop_request_.stop_request(number); }

 private:
  void work();
  void generate(const GenerateJob& job);
  void run_task(const GenerateJob& job, Generation& generation);
  void finish(const GenerateJob& job, Generation& generation, GeneratedImage& image);
  void open_for(const GenerateSettings& settings);
  void tell(const Generation& generation) { events_.push(GenerationEvent{generation}); }

  GeneratorOptions options_;
  EventQueue& events_;
  StopRequest stop_request_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<GenerateJob> jobs_;
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
