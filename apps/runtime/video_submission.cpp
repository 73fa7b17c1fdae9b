#include "apps/runtime/clip_writer.h"

#include <utility>

#include "engine/core/io.h"

namespace tessera {

namespace {

// Of the meters of a long clip this many PIT values are kept.
constexpr std::size_t kMostTransforms = std::size_t{1} << 20;

}  // namespace

GeneratedClip begun_clip(const PreparedClip& clip) {
  GeneratedClip out;
  out.facts = clip.facts;
  out.first_frames = static_cast<std::int64_t>(clip.first_frames.size());
  return out;
}

void add_window(GeneratedClip& clip, const StreamResult& window, std::size_t given) {
  clip.facts.tokens += static_cast<std::int64_t>(window.tokens.size() - given);
  clip.prefilled += window.prefilled;
  if (clip.windows++ == 0) {
    clip.meters = window.meters;
  } else {
    clip.meters.add(window.meters);
  }
  if (clip.meters.transforms.size() > kMostTransforms) {
    clip.meters.transforms.resize(kMostTransforms);
  }
  clip.facts.passes += window.passes;
  if (window.status == StreamStatus::kFailed) {
    clip.status = PictureStatus::kFailed;
    clip.error = window.error;
  }
}

void end_clip(GeneratedClip& clip, const ClipRun& run) {
  if (run.stopped() && !run.done() && clip.status == PictureStatus::kDone) {
    clip.status = PictureStatus::kStopped;
  }
  clip.frames = run.handed_out();
  clip.seconds = monotonic_seconds() - run.started();
}

ClipWriter::ClipWriter(Tools tools, std::span<const ClipTask> tasks)
    : tools_(std::move(tools)), tasks_(tasks), results_(tasks.size()) {}

std::vector<GeneratedClip> ClipWriter::run() {
  for (std::size_t next = 0; next < tasks_.size() || !at_work_.empty();) {
    while (next < tasks_.size() && !tools_.loop.full()) begin(next++);
    if (at_work_.empty()) continue;
    tools_.loop.step(*this);
    std::vector<std::size_t> stopped;
    for (const auto& [slot, work] : at_work_) {
      if (work->flow == Flow::kStop) stopped.push_back(slot);
    }
    for (const std::size_t slot : stopped) end_window(slot, tools_.loop.drop(slot));
  }
  return std::move(results_);
}

void ClipWriter::begin(std::size_t number) {
  const ClipTask& task = tasks_[number];
  auto work = std::make_unique<Work>(tools_, task);
  work->number = number;
  if (task.course.standing.empty()) {
    work->run.begin_with(tools_.encode(task.clip->first_frames));
  } else {
    expects(task.clip->continuation == Continuation::kRecompute, "no window of the clip slides");
    work->run.begin_with(task.course.standing, true);
  }
  if (!work->goes_on()) return end(*work);
  if (task.clip->text != nullptr) {
    work->context.emplace(tools_.context_of(*task.clip->text));
    work->item.context = &*work->context;
  }
  work->item.held = task.clip->continuation == Continuation::kSinks;
  begin_window(std::move(work));
}

void ClipWriter::begin_window(std::unique_ptr<Work> work, std::optional<std::size_t> slot) {
  ClipRun& run = work->run;
  work->item.item = run.window();
  work->item.given = tools_.parts.grammar.stream_of(run.window_begin());
  work->flow = Flow::kContinue;
  if (slot) {
    tools_.loop.slide(*slot, run.dropped_tokens(), run.whole_tokens(), work->item);
  } else {
    slot = tools_.loop.add(work->item);
  }
  run.begin_window();
  at_work_[*slot] = std::move(work);
}

void ClipWriter::on_pass(const StreamPass& pass) {
  for (const StreamView& view : pass.streams) {
    Work& work = *at_work_.at(view.slot);
    work.flow = work.run.on_pass(*view.result, work.out.facts.passes);
  }
}

void ClipWriter::on_done(std::size_t slot, StreamResult&& result) {
  end_window(slot, std::move(result));
}

void ClipWriter::end_window(std::size_t slot, StreamResult&& result) {
  std::unique_ptr<Work> work = std::move(at_work_.at(slot));
  at_work_.erase(slot);
  work->run.end_window();
  add_window(work->out, result, work->item.given.size());
  const bool holds = work->item.held && result.status == StreamStatus::kDone;
  if (work->goes_on()) {
    return begin_window(std::move(work), holds ? std::optional(slot) : std::nullopt);
  }
  if (holds) tools_.loop.drop(slot);
  end(*work);
}

void ClipWriter::end(Work& work) {
  end_clip(work.out, work.run);
  work.task.listener->on_over(work.out);
  results_[work.number] = std::move(work.out);
}

}  // namespace tessera
