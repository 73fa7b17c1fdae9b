#include "apps/runtime/video_windows.h"

namespace tessera {

void VideoWindows::begin_with(std::vector<std::int32_t> codes, bool heard_before) {
  const std::size_t cells = parts_.grammar.cells(), window = parts_.grammar.grids;
  const std::size_t grids = codes.size() / cells;
  if (heard_before) heard_ = static_cast<std::int64_t>(grids);
  emit(codes, 0);
  // Every window but the first adds what the one before it does not lend it.
  const std::size_t step = window - parts_.kept_grids;
  if (grids >= window) window_ = (grids - parts_.kept_grids) / step;
  codes.erase(codes.begin(), codes.begin() + static_cast<std::ptrdiff_t>(window_ * step * cells));
  begin_ = std::move(codes);
}

Flow VideoWindows::on_pass(const StreamResult& result, std::int64_t earlier_passes) {
  const std::size_t whole =
      result.status == StreamStatus::kFailed
          ? 0
          : parts_.grammar.codes_among(result.tokens.size()) / parts_.grammar.cells();
  passes_ = earlier_passes + result.passes;
  if (whole > window_grids_) {
    codes_ = parts_.grammar.picture_codes(result.tokens);
    codes_.resize(whole * parts_.grammar.cells());
    emit(codes_, window_grids_);
    window_grids_ = whole;
  }
  const Flow flow =
      listener_.on_progress({emitted_, frames_, static_cast<std::int64_t>(result.tokens.size()),
                             static_cast<std::int64_t>(parts_.grammar.length()), passes_,
                             monotonic_seconds() - started_});
  stopped_ = stopped_ || flow == Flow::kStop;
  return stopped_ || done() ? Flow::kStop : Flow::kContinue;
}

void VideoWindows::emit(std::span<const std::int32_t> codes, std::size_t first) {
  const std::size_t cells = parts_.grammar.cells();
  for (std::size_t grid = first; (grid + 1) * cells <= codes.size() && !done() && !stopped_;
       ++grid) {
    std::int64_t wanted = grids_ == 0 ? parts_.clip.first_grid : parts_.clip.further_grid;
    if (frames_ > 0) wanted = std::min(wanted, frames_ - emitted_);
    const auto these = codes.subspan(grid * cells, cells);
    const VideoGrid committed{grids_++, these, passes_};
    if (committed.index >= heard_ && listener_.on_grid(committed) == Flow::kStop) stopped_ = true;
    if (!decodes_) {
      emitted_ += wanted;
      continue;
    }
    const auto frames = decoder_->next(these, static_cast<int>(wanted));
    for (const Tensor& frame : frames) {
      listener_.on_frame(emitted_++, {frame.shape()[1], frame.shape()[0],
                                      parts_.tokenizer->to_pixels(frame.view())});
    }
  }
}

}  // namespace tessera
