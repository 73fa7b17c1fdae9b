// Clips through the slots of a loop, each window of theirs a stream: a clip begins when a slot is
// free, its windows follow one another, and its frames leave as their grids are committed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "apps/runtime/clip_run.h"
#include "apps/runtime/video_pipeline.h"
#include "engine/decoding/stream_loop.h"

namespace tessera {

// What a clip has so far, and a window's part of it.
GeneratedClip begun_clip(const PreparedClip& clip);
void add_window(GeneratedClip& clip, const StreamResult& window, std::size_t given);
void end_clip(GeneratedClip& clip, const ClipRun& run);

class ClipWriter final : public StreamListener {
 public:
  struct Tools {
    StreamLoop& loop;
    ClipRun::Parts parts;
    // Codes of whole grids of frames; what a text's rows are to the model.
    std::function<std::vector<std::int32_t>(const std::vector<Image>&)> encode;
    std::function<CrossContext(const Tensor&)> context_of;
  };

  ClipWriter(Tools tools, std::span<const ClipTask> tasks);

  // One result a task, in their order.
  std::vector<GeneratedClip> run();

  void on_pass(const StreamPass& pass) override;
  void on_done(std::size_t slot, StreamResult&& result) override;

 private:
  // A clip at work.
  struct Work {
    Work(const Tools& tools, const ClipTask& of)
        : task(of),
          run(tools.parts, of.clip->frames, *of.listener, of.course.frames),
          item(of.clip->item),
          out(begun_clip(*of.clip)) {}

    const ClipTask& task;
    std::size_t number = 0;  // of the task
    ClipRun run;
    Stream item;  // the window that is written
    std::optional<CrossContext> context;
    GeneratedClip out;
    Flow flow = Flow::kContinue;
    // Whether it goes on behind a window.
    bool goes_on() const {
      return !run.done() && !run.stopped() && out.status != PictureStatus::kFailed;
    }
  };

  void begin(std::size_t number);
  // In a free slot, or behind what is cached in `slot`.
  void begin_window(std::unique_ptr<Work> work, std::optional<std::size_t> slot = {});
  void end_window(std::size_t slot, StreamResult&& result);
  void end(Work& work);

  Tools tools_;
  std::span<const ClipTask> tasks_;
  std::vector<GeneratedClip> results_;
  std::map<std::size_t, std::unique_ptr<Work>> at_work_;  // by slot
};

}  // namespace tessera
