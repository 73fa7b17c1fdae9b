// Videos of the studio's queue, for the thread that generates: a model of videos is opened, writes one
// video after the other, and is let go for another model. Frames are shown as they are committed,
// the grid that comes as far as the budget of previews goes; the file is that of `tessera video`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "apps/runtime/video_task.h"
#include "apps/studio/event_queue.h"
#include "apps/studio/generate_job.h"
#include "video/video_process.h"

namespace tessera {

// Follows one video, and puts its frames into the file.
class VideoWatch final : public VideoListener {
 public:
  // `tell` is called with the video as it is; all others are borrowed.
  VideoWatch(Generation& generation, StopRequest& stop_request, const VideoTask& task, std::string path,
             const VideoProcessOptions& process, std::function<void(const Generation&)> tell);
  ~VideoWatch() override;

  Flow on_progress(const VideoProgress& progress) override;
  std::int64_t preview_rows() const override;
  void on_preview(const VideoProgress& progress, const Image& frame) override;
  Flow on_grid(const VideoGrid& grid) override;
  void on_frame(std::int64_t index, const Image& frame) override;
  void on_over(GeneratedVideo&& video) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class VideoWorker {
 public:
  // The queue of events is borrowed.
  VideoWorker(EventQueue& events, VideoProcessOptions process)
      : events_(events), process_(std::move(process)) {}

  // Whether a model of that name writes videos. It is opened for that, once for a name.
  bool writes(const std::string& model);
  // Writes the video to its end, or to the wish to stop; whole frames are kept then. Opens and
  // loads the model where another one was open. Error kUsage, kModel, kMemory, kStorage, kGeneral.
  void write(const GenerateOptions& options, const GenerateJob& job, Generation& generation,
             StopRequest& stop_request);
  // Lets the model go.
  void close();

 private:
  void open_for(const GenerateOptions& options);

  EventQueue& events_;
  VideoProcessOptions process_;
  std::string asked_;  // the last name, and what is known of it
  bool writes_ = false;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<VideoTask> task_;  // in it
  GenerateOptions opened_;           // what it was opened with
};

}  // namespace tessera
