// Images of a model of this process. One model is kept loaded and let go only for another one.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "apps/studio/event_queue.h"
#include "apps/studio/image_maker.h"
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

class LocalImages final : public ImageMaker {
 public:
  // The queue of events is borrowed.
  LocalImages(GeneratorOptions options, EventQueue& events);
  void make(const GenerateJob& job, Generation& generation, StopRequest& stop_request) override;

 private:
  void run_task(const GenerateJob& job, Generation& generation, StopRequest& stop_request);
  void finish(const GenerateJob& job, Generation& generation, GeneratedImage& image);
  void open_for(const GenerateSettings& settings);
  void close();
  void tell(const Generation& generation) { events_.push(GenerationEvent{generation}); }

  GeneratorOptions options_;
  EventQueue& events_;
  Runtime runtime_;
  std::unique_ptr<GenerateTask> task_;
  GenerateOptions opened_;  // what it was opened with
  bool loaded_ = false;     // its weights are whole
  VideoWorker videos_;      // a model is open there or here
};

}  // namespace tessera
