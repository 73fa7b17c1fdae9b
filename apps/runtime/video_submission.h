// Videos through the slots of a lane, each window of theirs a stream: a video begins when a slot is
// free, its windows follow one another, and its frames leave as their grids are committed.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "apps/runtime/video_model.h"
#include "apps/runtime/video_request.h"
#include "apps/runtime/video_windows.h"

namespace tessera {

class VideoSubmission final : public Submission {
 public:
  // The model is borrowed.
  VideoSubmission(VideoModel& model, std::unique_ptr<VideoSource> source);
  ~VideoSubmission() override;

  LoopNeeds needs() const override;
  std::optional<NextStream> next(Wait wait) override;
  bool more() const override { return !between_.empty() || source_->more(); }
  Flow on_pass(const SubmissionPass& pass) override;
  bool drops(std::size_t number) const override;
  std::optional<SlidingStream> on_done(std::size_t number, StreamResult&& result) override;
  void on_stopped(std::size_t number, StreamResult&& result) override;
  bool takes_fewer_slots() const override { return source_->takes_fewer_slots(); }
  void on_fewer_slots(std::int64_t had, std::int64_t have) override {
    source_->on_fewer_slots(had, have);
  }
  void on_no_room(std::size_t number, const ErrorInfo& error) override;
  void on_over(const ErrorInfo* error) override;

 private:
  struct Work;

  std::unique_ptr<Work> begin(VideoOrder order);
  NextStream next_window(std::unique_ptr<Work> work);
  // What a window wrote; the video is no longer in a slot. Null where the video is over.
  std::unique_ptr<Work> end_window(std::size_t number, const StreamResult& result);
  void end(Work& work);

  VideoModel& model_;
  std::unique_ptr<VideoSource> source_;
  std::size_t begun_ = 0;                               // videos
  std::deque<std::unique_ptr<Work>> between_;           // two windows: they wait for a slot
  std::map<std::size_t, std::unique_ptr<Work>> given_;  // to the lane, by number
};

}  // namespace tessera
