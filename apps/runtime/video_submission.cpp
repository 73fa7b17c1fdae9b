#include "apps/runtime/video_submission.h"

#include <utility>

#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

// Of the meters of a long video this many PIT values are kept.
constexpr std::size_t kMaxTransforms = std::size_t{1} << 20;

void add_window(GeneratedVideo& video, const StreamResult& window, std::size_t given) {
  video.facts.tokens += std::ssize(window.tokens) - to_index(given);
  video.prefilled += window.prefilled + window.reused;
  if (video.windows++ == 0) {
    video.meters = window.meters;
  } else {
    video.meters.add(window.meters);
  }
  if (video.meters.transforms.size() > kMaxTransforms) {
    video.meters.transforms.resize(kMaxTransforms);
  }
  video.facts.passes += window.passes;
  if (window.status == StreamStatus::kFailed) {
    video.status = ImageStatus::kFailed;
    video.error = window.error;
  }
}

}  // namespace

// A video at work.
struct VideoSubmission::Work {
  Work(VideoModel& model, VideoOrder&& given)
      : order(std::move(given)),
        windows(model.window_parts(), order.video.frames, *order.listener, order.course.frames),
        item(order.video.item) {
    out.facts = order.video.facts;
    out.first_frames = std::ssize(order.video.first_frames);
  }

  VideoOrder order;
  std::size_t number = 0;  // of the video
  VideoWindows windows;
  Stream item;  // the window that is written
  std::optional<CrossContext> context;
  GeneratedVideo out;
  Flow flow = Flow::kContinue;

  // Whether it goes on after a window.
  bool goes_on() const {
    return !windows.done() && !windows.stopped() && out.status != ImageStatus::kFailed;
  }
};

VideoSubmission::VideoSubmission(VideoModel& model, std::unique_ptr<VideoSource> source)
    : model_(model), source_(std::move(source)) {}
VideoSubmission::~VideoSubmission() = default;

LoopNeeds VideoSubmission::needs() const {
  LoopNeeds out = source_->more() ? source_->needs() : LoopNeeds{.slots = 0};
  out.slots += to_index(between_.size() + given_.size());
  return out;
}

// First the next windows of videos at work, then a new video.
std::optional<NextStream> VideoSubmission::next(Wait /*wait*/) {
  if (!between_.empty()) {
    std::unique_ptr<Work> work = std::move(between_.front());
    between_.pop_front();
    return next_window(std::move(work));
  }
  while (source_->more()) {
    std::optional<VideoOrder> order = source_->next();
    if (!order) break;
    std::unique_ptr<Work> work = begin(std::move(*order));
    if (work->goes_on()) return next_window(std::move(work));
    end(*work);
  }
  return std::nullopt;
}

std::unique_ptr<VideoSubmission::Work> VideoSubmission::begin(VideoOrder order) {
  const bool anew = order.course.committed.empty();
  model_.load_tokenizer(anew && !order.video.first_frames.empty());
  auto work = std::make_unique<Work>(model_, std::move(order));
  work->number = begun_++;
  const PreparedVideo& video = work->order.video;
  if (anew) {
    work->windows.begin_with(model_.encode(video.first_frames));
  } else {
    expects(video.continuation == Continuation::kRecompute, "no window of the video slides");
    work->windows.begin_with(work->order.course.committed, true);
  }
  work->item.held = video.continuation == Continuation::kSinks;
  return work;
}

NextStream VideoSubmission::next_window(std::unique_ptr<Work> work) {
  const PreparedVideo& video = work->order.video;
  if ((video.text != nullptr || !video.text_ids.empty()) && !work->context) {
    model_.load();
    const auto text = video.text != nullptr ? video.text : model_.text_of(video.text_ids);
    work->context.emplace(model_.context_of(*text));
    work->item.context = &*work->context;
  }
  VideoWindows& windows = work->windows;
  work->item.item = windows.window();
  work->item.given = model_.grammar().stream_of(windows.window_begin());
  work->flow = Flow::kContinue;
  windows.begin_window();
  const std::size_t number = work->number;
  NextStream out{.number = number,
                 .stream = work->item,
                 .needs = room_for(video.item, video.draft),
                 .on_slot = [this, at = work.get()](std::size_t slot) {
                   model_.announce(slot, at->order.video.draft);
                 }};
  given_[number] = std::move(work);
  return out;
}

Flow VideoSubmission::on_pass(const SubmissionPass& pass) {
  for (const SubmissionStream& stream : pass.streams) {
    Work& work = *given_.at(stream.number);
    work.flow = work.windows.on_pass(*stream.result, work.out.facts.passes);
  }
  return Flow::kContinue;
}

bool VideoSubmission::drops(std::size_t number) const {
  return given_.at(number)->flow == Flow::kStop;
}

std::unique_ptr<VideoSubmission::Work> VideoSubmission::end_window(std::size_t number,
                                                                   const StreamResult& result) {
  std::unique_ptr<Work> work = std::move(given_.at(number));
  given_.erase(number);
  work->windows.end_window();
  add_window(work->out, result, work->item.given.size());
  if (work->goes_on()) return work;
  end(*work);
  return nullptr;
}

std::optional<SlidingStream> VideoSubmission::on_done(std::size_t number, StreamResult&& result) {
  std::unique_ptr<Work> work = end_window(number, result);
  if (work == nullptr) return std::nullopt;
  if (!work->item.held) {
    between_.push_back(std::move(work));
    return std::nullopt;
  }
  SlidingStream out{
      .next = {}, .first = work->windows.dropped_tokens(), .end = work->windows.whole_tokens()};
  out.next = next_window(std::move(work));
  return out;
}

void VideoSubmission::on_stopped(std::size_t number, StreamResult&& result) {
  Work& work = *given_.at(number);
  if (!work.windows.done()) work.windows.stop();
  end_window(number, result);
}

void VideoSubmission::on_no_room(std::size_t number, const ErrorInfo& error) {
  std::unique_ptr<Work> work = std::move(given_.at(number));
  given_.erase(number);
  work->out.status = ImageStatus::kFailed;
  work->out.error = error;
  end(*work);
}

// What is left: all that was begun where there was an error, else videos that waited for a slot.
void VideoSubmission::on_over(const ErrorInfo* error) {
  for (auto& [number, work] : given_) between_.push_back(std::move(work));
  given_.clear();
  while (!between_.empty()) {
    const std::unique_ptr<Work> work = std::move(between_.front());
    between_.pop_front();
    if (error != nullptr) {
      work->order.listener->on_error(*error);
      continue;
    }
    work->windows.stop();
    end(*work);
  }
}

void VideoSubmission::end(Work& work) {
  GeneratedVideo& out = work.out;
  if (work.windows.stopped() && !work.windows.done() && out.status == ImageStatus::kDone) {
    out.status = ImageStatus::kStopped;
  }
  out.frames = work.windows.emitted();
  out.seconds = monotonic_seconds() - work.windows.started();
  if (work.order.result != nullptr) *work.order.result = out;
  work.order.listener->on_over(std::move(out));
}

}  // namespace tessera
