#include "apps/studio/preview_listener.h"

#include <limits>

#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

// Of all images of the run so far: never fewer than before.
std::int64_t rows_of(const GenerateProgress& progress) {
  return to_index(progress.first) * progress.rows + progress.rows_done;
}

}  // namespace

PreviewListener::~PreviewListener() {
  for (const auto& [index, one] : shown_) {
    sender_.end(one.number, PreviewState::kFailed, one.progress, nullptr);
  }
}

void PreviewListener::begin(const ImageTrace& trace) {
  const ImageFacts& facts = *trace.facts;
  PreviewBegin begin;
  begin.seed = facts.seed;
  begin.width = narrow<std::uint32_t>(facts.width);
  begin.height = narrow<std::uint32_t>(facts.height);
  begin.grid_rows = narrow<std::uint32_t>(grid_.grid_rows);
  begin.grid_columns = narrow<std::uint32_t>(grid_.grid_cols);
  begin.model = facts.model;
  begin.prompt = facts.prompt;
  const RoughPreview rough(patches_, grid_.grid_rows, grid_.grid_cols);
  shown_.erase(trace.index);
  shown_.emplace(trace.index, Shown{sender_.begin(std::move(begin)), {}, rough});
}

void PreviewListener::on_trace(const GenerateProgress& progress,
                               std::span<const ImageTrace> traces) {
  for (const ImageTrace& trace : traces) {
    if (!shown_.contains(trace.index)) {
      if (shown_.empty()) {  // nothing else is at work
        budget_ = PreviewBudget();
        inner_rows_ = rows_of(progress) - trace.rows_done;
        drawn_roughly_ = false;
      }
      begin(trace);
    }
    Shown& one = shown_.at(trace.index);
    one.progress = {trace.rows_done, trace.passes, trace.tokens, trace.seconds};
    // Images at work share the time.
    std::shared_ptr<const Image> image;
    if (sender_.connected()) {
      image = one.rough.draw(trace, trace.seconds / to_double(traces.size()));
    }
    drawn_roughly_ = drawn_roughly_ || image != nullptr;
    sender_.show(one.number, one.progress, std::move(image));
  }
  if (inner_.wants_trace()) inner_.on_trace(progress, traces);
}

Flow PreviewListener::on_progress(const GenerateProgress& progress) {
  const Flow flow = inner_.on_progress(progress);
  const std::int64_t interval = inner_.preview_rows(), rows = rows_of(progress);
  inner_due_ = interval > 0 && rows >= inner_rows_ + interval;
  const bool due = inner_due_ || (!drawn_roughly_ && sender_.connected() &&
                                  budget_.allows(rows, progress.seconds));
  preview_rows_ = due ? 1 : std::numeric_limits<std::int32_t>::max();
  preview_from_ = monotonic_seconds();
  return flow;
}

void PreviewListener::on_preview(const GenerateProgress& progress,
                                 const std::vector<Image>& images) {
  const double decoding = monotonic_seconds() - preview_from_;
  if (inner_due_) {
    inner_rows_ = rows_of(progress);
    inner_.on_preview(progress, images);
  }
  const double from = monotonic_seconds();  // what the other listener took is not the viewer's
  // Images of failed images are left out; which is whose is known when there are none.
  if (!drawn_roughly_ && images.size() == shown_.size()) {
    auto image = images.begin();
    for (auto& [index, one] : shown_) {
      sender_.show(one.number, one.progress, std::make_shared<const Image>(*image++));
    }
  }
  budget_.count(rows_of(progress), decoding + monotonic_seconds() - from);
}

void PreviewListener::on_image(GeneratedImage&& decoded_image) {
  if (const auto found = shown_.find(decoded_image.index); found != shown_.end()) {
    const PreviewState state = decoded_image.status == ImageStatus::kDone      ? PreviewState::kDone
                               : decoded_image.status == ImageStatus::kStopped ? PreviewState::kStopped
                                                                         : PreviewState::kFailed;
    const PreviewProgress progress{decoded_image.rows_done, decoded_image.facts.passes, decoded_image.facts.tokens,
                                   decoded_image.seconds};
    std::shared_ptr<const Image> image;
    if (!decoded_image.image.rgb.empty()) image = std::make_shared<const Image>(decoded_image.image);
    sender_.end(found->second.number, state, progress, std::move(image));
    shown_.erase(found);
  }
  // Asked for by the viewer alone.
  if (decoded_image.status == ImageStatus::kStopped && inner_.preview_rows() == 0) decoded_image.image = {};
  inner_.on_image(std::move(decoded_image));
}

}  // namespace tessera
