#include "apps/studio/preview_listener.h"

#include <limits>

#include "engine/core/io.h"

namespace tessera {

PreviewListener::~PreviewListener() {
  for (const auto& [index, one] : shown_) {
    sender_.end(one.number, PreviewState::kFailed, one.progress, nullptr);
  }
}

void PreviewListener::begin(std::size_t index) {
  const PictureFacts& facts = requests_[index].facts;
  PreviewBegin begin;
  begin.seed = facts.seed;
  begin.width = static_cast<std::uint32_t>(facts.width);
  begin.height = static_cast<std::uint32_t>(facts.height);
  begin.grid_rows = static_cast<std::uint32_t>(grid_.grid_rows);
  begin.grid_columns = static_cast<std::uint32_t>(grid_.grid_cols);
  begin.model = facts.model;
  begin.prompt = facts.prompt;
  shown_[index].number = sender_.begin(std::move(begin));
}

void PreviewListener::on_trace(const GenerateProgress& progress,
                               std::span<const PictureTrace> traces) {
  for (const PictureTrace& trace : traces) {
    if (!shown_.contains(trace.index)) {
      if (shown_.empty()) {  // a new batch
        budget_ = PreviewBudget();
        inner_rows_ = 0;
      }
      begin(trace.index);
    }
    Shown& one = shown_[trace.index];
    one.progress = {trace.rows_done, trace.passes, trace.tokens, progress.seconds};
    sender_.show(one.number, one.progress, nullptr);
  }
  if (inner_.wants_trace()) inner_.on_trace(progress, traces);
}

Flow PreviewListener::on_progress(const GenerateProgress& progress) {
  const Flow flow = inner_.on_progress(progress);
  const std::int64_t interval = inner_.preview_rows();
  inner_due_ = interval > 0 && progress.rows_done >= inner_rows_ + interval;
  const bool due =
      inner_due_ || (sender_.connected() && budget_.allows(progress.rows_done, progress.seconds));
  preview_rows_ = due ? 1 : std::numeric_limits<std::int32_t>::max();
  preview_from_ = monotonic_seconds();
  return flow;
}

void PreviewListener::on_preview(const GenerateProgress& progress,
                                 const std::vector<Image>& images) {
  const double decoding = monotonic_seconds() - preview_from_;
  if (inner_due_) {
    inner_rows_ = progress.rows_done;
    inner_.on_preview(progress, images);
  }
  const double from = monotonic_seconds();  // what the other listener took is not the viewer's
  // Images of failed pictures are left out; which is whose is known when there are none.
  if (images.size() == shown_.size()) {
    auto image = images.begin();
    for (auto& [index, one] : shown_) {
      sender_.show(one.number, one.progress, std::make_shared<const Image>(*image++));
    }
  }
  budget_.count(progress.rows_done, decoding + monotonic_seconds() - from);
}

void PreviewListener::on_picture(GeneratedPicture&& picture) {
  if (const auto found = shown_.find(picture.index); found != shown_.end()) {
    const PreviewState state = picture.status == PictureStatus::kDone      ? PreviewState::kDone
                               : picture.status == PictureStatus::kStopped ? PreviewState::kStopped
                                                                           : PreviewState::kFailed;
    const PreviewProgress progress{picture.rows_done, picture.facts.passes, picture.facts.tokens,
                                   picture.seconds};
    std::shared_ptr<const Image> image;
    if (!picture.image.rgb.empty()) image = std::make_shared<const Image>(picture.image);
    sender_.end(found->second.number, state, progress, std::move(image));
    shown_.erase(found);
  }
  // Asked for by the viewer alone.
  if (picture.status == PictureStatus::kStopped && inner_.preview_rows() == 0) picture.image = {};
  inner_.on_picture(std::move(picture));
}

}  // namespace tessera
