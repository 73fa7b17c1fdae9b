#include "apps/runtime/generate_run.h"

#include <algorithm>
#include <chrono>

#include "engine/core/io.h"

namespace tessera {

GenerateRun::GenerateRun(const Tools& tools, std::span<const PreparedRequest> requests,
                         GenerateListener& listener)
    : tools_(tools),
      requests_(requests),
      listener_(listener),
      traced_(listener.wants_trace()),
      started_(monotonic_seconds()),
      work_(static_cast<std::size_t>(tools.loop.limits().items)) {}

bool GenerateRun::run() {
  while (flow_ == Flow::kContinue && (next_ < requests_.size() || !tools_.loop.idle())) {
    fill();
    step_began_ = monotonic_seconds();
    tools_.loop.step(*this);
  }
  if (pending_) show_preview();
  std::vector<std::size_t> left;  // slots, in the order of their requests
  for (std::size_t slot = 0; slot < work_.size(); ++slot) {
    if (work_[slot].begun) left.push_back(slot);
  }
  std::sort(left.begin(), left.end(),
            [&](std::size_t a, std::size_t b) { return work_[a].index < work_[b].index; });
  for (const std::size_t slot : left) {
    emit(std::exchange(work_[slot], {}), tools_.loop.drop(slot));
  }
  return flow_ == Flow::kContinue;
}

void GenerateRun::fill() {
  while (next_ < requests_.size() && !tools_.loop.full()) {
    Stream stream = requests_[next_].item;
    stream.traced = traced_;
    const std::size_t slot = tools_.loop.add(std::move(stream));
    if (tools_.drafter != nullptr) {
      tools_.drafter->set_stream(slot, tools_.draft->stream(requests_[next_].draft));
    }
    work_[slot] = {.index = next_++, .begun = true, .began = monotonic_seconds()};
  }
}

// What a pass took, to the images in it.
void GenerateRun::count(const StreamPass& pass) {
  const auto images = static_cast<double>(pass.streams.size());
  const double share = (monotonic_seconds() - step_began_) / images;
  ++passes_;
  for (const StreamView& view : pass.streams) {
    Work& work = work_[view.slot];
    (work.prefilled ? work.phases.decode : work.phases.prefill) += share;
    if (work.prefilled) {
      work.times.draft += pass.times.draft / images;
      work.times.forward += pass.times.forward / images;
      work.times.judge += pass.times.judge / images;
    }
    work.prefilled = view.result->passes > 0;
  }
}

void GenerateRun::sort_views(const StreamPass& pass) {
  views_.assign(pass.streams.begin(), pass.streams.end());
  std::sort(views_.begin(), views_.end(), [&](const StreamView& a, const StreamView& b) {
    return work_[a.slot].index < work_[b.slot].index;
  });
}

GenerateProgress GenerateRun::progress_of(const StreamPass& pass) const {
  GenerateProgress progress;
  progress.first = over_;
  progress.pictures = pass.streams.size();
  progress.rows = progress.rows_done = rows();
  progress.run_tokens = over_tokens_;
  progress.picture_passes = over_passes_;
  for (const StreamView& view : views_) {
    const StreamResult& result = *view.result;
    if (result.status == StreamStatus::kFailed) continue;
    progress.rows_done = std::min(progress.rows_done, rows_among(result.tokens.size()));
    progress.tokens_done += static_cast<std::int64_t>(result.tokens.size());
    progress.tokens += static_cast<std::int64_t>(tools_.grammar.length());
    progress.picture_passes += result.passes;
  }
  progress.run_tokens += progress.tokens_done;
  progress.passes = passes_;
  progress.seconds = monotonic_seconds() - started_;
  return progress;
}

// Marks by position in the grid.
void GenerateRun::tell_traces(const StreamPass& pass, const GenerateProgress& progress) {
  const std::size_t cells = tools_.grammar.cells();
  grid_.assign(cells * pass.streams.size(), TokenMark{});
  std::vector<PictureTrace> traces;
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const StreamResult& result = *views_[i].result;
    const Work& work = work_[views_[i].slot];
    const std::span<TokenMark> own = std::span(grid_).subspan(i * cells, cells);
    for (std::size_t at = 0; at < result.trace.marks.size(); ++at) {
      if (const auto cell = tools_.grammar.cell(at)) own[*cell] = result.trace.marks[at];
    }
    traces.push_back({work.index, static_cast<std::int64_t>(result.tokens.size()), result.passes,
                      rows_among(result.tokens.size()), monotonic_seconds() - work.began, own,
                      result.trace.committed});
  }
  listener_.on_trace(progress, traces);
}

// Whether the images at work gained the interval's rows since the last preview, in the mean.
bool GenerateRun::preview_due(const StreamPass& pass, const GenerateProgress& progress) {
  const std::int64_t interval = listener_.preview_rows();
  if (interval <= 0 || pending_ || progress.rows_done >= progress.rows) return false;
  std::int64_t gained = 0;
  for (const StreamView& view : pass.streams) {
    gained += rows_among(view.result->tokens.size()) - work_[view.slot].shown_rows;
  }
  return gained >= interval * static_cast<std::int64_t>(pass.streams.size());
}

// On a device with memory of its own pixels have a stream and a thread of their own, so that
// decoding does not wait for them; the image is shown by a later pass.
void GenerateRun::preview(const StreamPass& pass, const GenerateProgress& progress) {
  struct Part {
    std::vector<std::int32_t> codes;
    int ready = 0;
  };
  for (const StreamView& view : pass.streams) {
    work_[view.slot].shown_rows = rows_among(view.result->tokens.size());
  }
  std::vector<Part> shown;
  for (const StreamView& view : views_) {
    if (view.result->status == StreamStatus::kFailed) continue;
    shown.push_back({tools_.grammar.picture_codes(view.result->tokens),
                     static_cast<int>(rows_among(view.result->tokens.size()))});
  }
  if (shown.empty()) return;
  const auto launch = tools_.pixels_apart ? std::launch::async : std::launch::deferred;
  pending_.emplace(PendingPreview{progress, std::async(launch, [this, parts = std::move(shown)] {
                                    std::vector<Image> images;
                                    for (const Part& part : parts) {
                                      images.push_back(to_image(decode_partial(
                                          tools_.vq, part.codes, part.ready, rows(), cols())));
                                    }
                                    return images;
                                  })});
  if (!tools_.pixels_apart) show_preview();
}

// Waits for it if it is not ready.
void GenerateRun::show_preview() {
  PendingPreview shown = std::move(*pending_);
  pending_.reset();
  listener_.on_preview(shown.progress, shown.images.get());
}

void GenerateRun::on_pass(const StreamPass& pass) {
  count(pass);
  sort_views(pass);
  const GenerateProgress progress = progress_of(pass);
  if (traced_) tell_traces(pass, progress);
  flow_ = listener_.on_progress(progress);
  if (pending_ && pending_->images.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    show_preview();
  }
  if (flow_ == Flow::kContinue && preview_due(pass, progress)) preview(pass, progress);
}

void GenerateRun::on_done(std::size_t slot, StreamResult&& result) {
  // The images of a preview are those that were at work when it was made.
  if (pending_) show_preview();
  emit(std::exchange(work_[slot], {}), std::move(result));
}

Image GenerateRun::to_image(const Tensor& pixels) const {
  return {pixels.shape()[1], pixels.shape()[0], tools_.vq.to_pixels(pixels.view())};
}

void GenerateRun::emit(const Work& work, StreamResult&& result) {
  const double began = monotonic_seconds();
  GeneratedPicture picture;
  picture.index = work.index;
  picture.facts = requests_[work.index].facts;
  picture.facts.tokens = static_cast<std::int64_t>(result.tokens.size());
  picture.facts.passes = result.passes;
  picture.meters = std::move(result.meters);
  picture.times = work.times;
  picture.rows_done = rows_among(result.tokens.size());
  picture.codes = tools_.grammar.picture_codes(result.tokens);
  ++over_;
  over_passes_ += result.passes;
  if (result.status == StreamStatus::kFailed) {
    picture.status = PictureStatus::kFailed;
    picture.error = std::move(result.error);
  } else if (result.status == StreamStatus::kStopped) {
    picture.status = PictureStatus::kStopped;
    if (listener_.preview_rows() > 0 && picture.rows_done > 0) {
      picture.image = to_image(decode_partial(tools_.vq, picture.codes,
                                              static_cast<int>(picture.rows_done), rows(), cols()));
    }
  } else {
    over_tokens_ += picture.facts.tokens;
    picture.image = to_image(tools_.vq.decode(picture.codes, rows(), cols()));
    if (traced_) tools_.patches.learn(picture.codes, rows(), cols(), picture.image);
  }
  picture.phases = work.phases;
  picture.phases.pixels = monotonic_seconds() - began;
  picture.seconds = picture.phases.prefill + picture.phases.decode + picture.phases.pixels;
  listener_.on_picture(std::move(picture));
}

}  // namespace tessera
