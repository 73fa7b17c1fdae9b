#include "apps/runtime/generate_submission.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

GenerateSubmission::GenerateSubmission(MakeTools make_tools, MakeRows make_rows,
                                       std::unique_ptr<GenerateSource> source,
                                       GenerateListener& listener, bool* whole)
    : make_tools_(std::move(make_tools)),
      make_rows_(std::move(make_rows)),
      source_(std::move(source)),
      listener_(listener),
      whole_(whole),
      traced_(listener_.wants_trace()),
      started_(monotonic_seconds()) {}

const GenerateSubmission::Tools& GenerateSubmission::tools() {
  if (!tools_) tools_.emplace(make_tools_());
  return *tools_;
}

std::optional<NextStream> GenerateSubmission::next(Wait wait) {
  std::optional<PreparedRequest> request = source_->next(wait);
  if (!request) return std::nullopt;
  const std::size_t number = next_++;
  work_[number].facts = std::move(request->facts);
  NextStream out{.number = number,
                 .stream = {},
                 .needs = room_for(request->item, request->draft),
                 .on_slot = {}};
  out.stream = std::move(request->item);
  out.stream.traced = traced_;
  make_rows_(out.stream);
  work_[number].prompt_tokens = out.stream.prompt.length();
  out.on_slot = [this, number, draft = std::move(request->draft)](std::size_t slot) {
    begin(number, slot, draft);
  };
  return out;
}

void GenerateSubmission::begin(std::size_t number, std::size_t slot, const DraftRequest& draft) {
  tools().announce(slot, draft);
  work_.at(number).began = monotonic_seconds();
}

// What a pass took, to the images in it.
void GenerateSubmission::count(const SubmissionPass& pass) {
  const auto images = to_double(pass.streams_of_all);
  for (const SubmissionStream& stream : pass.streams) {
    Work& work = work_.at(stream.number);
    (work.prefilled ? work.phases.decode : work.phases.prefill) += pass.seconds / images;
    if (work.prefilled) {
      work.times.draft += pass.times.draft / images;
      work.times.forward += pass.times.forward / images;
      work.times.verify += pass.times.verify / images;
    }
    work.prefilled = stream.result->passes > 0;
  }
}

GenerateProgress GenerateSubmission::progress_of(const SubmissionPass& pass) {
  GenerateProgress progress;
  progress.first = over_;
  progress.images = pass.streams.size();
  progress.rows = progress.rows_done = rows();
  progress.run_tokens = over_tokens_;
  progress.image_passes = over_passes_;
  for (const SubmissionStream& stream : pass.streams) {
    const StreamResult& result = *stream.result;
    if (result.status == StreamStatus::kFailed) continue;
    progress.rows_done = std::min(progress.rows_done, rows_among(result.tokens.size()));
    progress.tokens_done += std::ssize(result.tokens);
    progress.tokens += to_index(tools().grammar.length());
    progress.image_passes += result.passes;
  }
  progress.run_tokens += progress.tokens_done;
  progress.passes = progress_.passes + 1;
  progress.seconds = monotonic_seconds() - started_;
  return progress;
}

// Marks by position in the grid.
void GenerateSubmission::notify_traces(const SubmissionPass& pass,
                                       const GenerateProgress& progress) {
  const std::size_t cells = tools().grammar.cells();
  grid_.assign(cells * pass.streams.size(), TokenMark{});
  std::vector<ImageTrace> traces;
  for (const SubmissionStream& stream : pass.streams) {
    const StreamResult& result = *stream.result;
    const Work& work = work_.at(stream.number);
    const std::span<TokenMark> own = std::span(grid_).subspan(traces.size() * cells, cells);
    for (std::size_t at = 0; at < result.trace.marks.size(); ++at) {
      if (const auto cell = tools().grammar.cell(at)) own[*cell] = result.trace.marks[at];
    }
    traces.push_back({stream.number, &work.facts, std::ssize(result.tokens), result.passes,
                      rows_among(result.tokens.size()), monotonic_seconds() - work.began, own,
                      result.trace.committed});
  }
  listener_.on_trace(progress, traces);
}

// Whether the images at work gained the interval's rows since the last preview, in the mean.
bool GenerateSubmission::preview_due(const SubmissionPass& pass, const GenerateProgress& progress) {
  const std::int64_t interval = listener_.preview_rows();
  if (interval <= 0 || pending_ || progress.rows_done >= progress.rows) return false;
  std::int64_t gained = 0;
  for (const SubmissionStream& stream : pass.streams) {
    gained += rows_among(stream.result->tokens.size()) - work_.at(stream.number).shown_rows;
  }
  return gained >= interval * std::ssize(pass.streams);
}

// On a device with memory of its own pixels have a stream and a thread of their own, so that
// decoding does not wait for them; the image is shown by a later pass.
void GenerateSubmission::preview(const SubmissionPass& pass, const GenerateProgress& progress) {
  struct Part {
    std::vector<std::int32_t> codes;
    std::int64_t ready = 0;
  };
  std::vector<Part> shown;
  for (const SubmissionStream& stream : pass.streams) {
    const std::int64_t ready = rows_among(stream.result->tokens.size());
    work_.at(stream.number).shown_rows = ready;
    if (stream.result->status == StreamStatus::kFailed) continue;
    shown.push_back({tools().grammar.image_codes(stream.result->tokens), ready});
  }
  if (shown.empty()) return;
  const PixelDecoder& pixels = tools().pixels;
  const auto launch = pixels.apart() ? std::launch::async : std::launch::deferred;
  pending_.emplace(PendingPreview{progress, std::async(launch, [&pixels, parts = std::move(shown)] {
                                    std::vector<Image> images;
                                    for (const Part& part : parts) {
                                      images.push_back(pixels.decode_first(part.codes, part.ready));
                                    }
                                    return images;
                                  })});
  if (!pixels.apart()) show_preview();
}

// Waits for it if it is not ready.
void GenerateSubmission::show_preview() {
  if (!pending_) return;
  PendingPreview shown = std::move(*pending_);
  pending_.reset();
  listener_.on_preview(shown.progress, shown.images.get());
}

Flow GenerateSubmission::on_pass(const SubmissionPass& pass) {
  if (pass.streams.empty()) {
    // None of its images is at work: the listener can stop it all the same.
    progress_.seconds = monotonic_seconds() - started_;
    return flow_ = listener_.on_progress(progress_);
  }
  count(pass);
  progress_ = progress_of(pass);
  if (traced_) notify_traces(pass, progress_);
  flow_ = listener_.on_progress(progress_);
  if (pending_ && pending_->images.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    show_preview();
  }
  if (flow_ == Flow::kContinue && preview_due(pass, progress_)) preview(pass, progress_);
  return flow_;
}

std::optional<SlidingStream> GenerateSubmission::on_done(std::size_t number,
                                                         StreamResult&& result) {
  show_preview();  // its images are those that were at work when it was made
  emit(number, std::move(result));
  return std::nullopt;
}

void GenerateSubmission::on_stopped(std::size_t number, StreamResult&& result) {
  stopped_ = true;
  on_done(number, std::move(result));
}

void GenerateSubmission::on_over(const ErrorInfo* /*error*/) {
  const bool whole = flow_ == Flow::kContinue && !stopped_ && !source_->more() && over_ == next_;
  if (whole_ != nullptr) *whole_ = whole;
  listener_.on_over(whole);
}

void GenerateSubmission::emit(std::size_t number, StreamResult&& result) {
  const double began = monotonic_seconds();
  Work work = std::move(work_.extract(number).mapped());
  GeneratedImage out;
  out.index = number;
  out.facts = std::move(work.facts);
  out.facts.tokens = std::ssize(result.tokens);
  out.facts.passes = result.passes;
  out.prompt_tokens = work.prompt_tokens;
  out.meters = std::move(result.meters);
  out.times = work.times;
  out.rows_done = rows_among(result.tokens.size());
  out.codes = tools().grammar.image_codes(result.tokens);
  over_passes_ += result.passes;
  if (result.status == StreamStatus::kFailed) {
    out.status = ImageStatus::kFailed;
    out.error = std::move(result.error);
  } else if (result.status == StreamStatus::kStopped) {
    out.status = ImageStatus::kStopped;
    if (listener_.preview_rows() > 0 && out.rows_done > 0) {
      out.image = tools().pixels.decode_first(out.codes, out.rows_done);
    }
  } else {
    over_tokens_ += out.facts.tokens;
    out.image = tools().pixels.decode(out.codes);
    if (traced_) tools().patches.learn(out.codes, rows(), cols(), out.image);
  }
  out.phases = work.phases;
  out.phases.pixels = monotonic_seconds() - began;
  out.seconds = out.phases.prefill + out.phases.decode + out.phases.pixels;
  listener_.on_image(std::move(out));
  ++over_;
}

}  // namespace tessera
