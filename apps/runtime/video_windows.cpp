#include "apps/runtime/video_windows.h"
#include "engine/core/index.h"

namespace tessera {

void VideoWindows::begin_with(std::vector<std::int32_t> codes, bool heard_before) {
  const std::size_t cells = parts_.grammar.cells(), window = parts_.grammar.grids;
  const std::size_t grids = codes.size() / cells;
  if (heard_before) heard_ = to_index(grids);
  emit(codes, 0);
  // Every window but the first adds what the one before it does not lend it.
  const std::size_t step = window - parts_.kept_grids;
  if (grids >= window) window_ = (grids - parts_.kept_grids) / step;
  codes.erase(codes.begin(), codes.begin() + to_index(window_ * step * cells));
  begin_ = std::move(codes);
}

Flow VideoWindows::on_pass(const StreamResult& result, std::int64_t earlier_passes) {
  const std::size_t whole =
      result.status == StreamStatus::kFailed
          ? 0
          : parts_.grammar.codes_among(result.tokens.size()) / parts_.grammar.cells();
  passes_ = earlier_passes + result.passes;
  if (whole > window_grids_) {
    codes_ = parts_.grammar.image_codes(result.tokens);
    codes_.resize(whole * parts_.grammar.cells());
    emit(codes_, window_grids_);
    window_grids_ = whole;
  }
  const VideoProgress progress{emitted_,
                               frames_,
                               std::ssize(result.tokens),
                               to_index(parts_.grammar.length()),
                               passes_,
                               monotonic_seconds() - started_};
  stopped_ = listener_.on_progress(progress) == Flow::kStop || stopped_;
  if (stopped_ || done()) return Flow::kStop;
  preview(result, progress);
  return Flow::kContinue;
}

void VideoWindows::preview(const StreamResult& result, const VideoProgress& progress) {
  const std::int64_t interval = listener_.preview_rows();
  if (interval <= 0 || !decodes_ || result.status == StreamStatus::kFailed) return;
  const VocabularyGrammar& grammar = parts_.grammar;
  const std::size_t rows = grammar.codes_among(result.tokens.size()) / grammar.columns;
  const std::size_t ready = rows - window_grids_ * grammar.rows;
  if (ready == 0) {
    shown_rows_ = rows;
    return;
  }
  if (rows < shown_rows_ + to_size(interval)) return;
  shown_rows_ = rows;
  const std::vector<std::int32_t> codes = grammar.image_codes(result.tokens);
  const Tensor pixels =
      decode_partial(*parts_.tokenizer, std::span(codes).subspan(window_grids_ * grammar.cells()),
                     narrow<int>(ready), narrow<int>(grammar.rows), narrow<int>(grammar.columns));
  listener_.on_preview(
      progress, {pixels.shape()[1], pixels.shape()[0], parts_.tokenizer->to_pixels(pixels.view())});
}

void VideoWindows::emit(std::span<const std::int32_t> codes, std::size_t first) {
  const std::size_t cells = parts_.grammar.cells();
  for (std::size_t grid = first; (grid + 1) * cells <= codes.size() && !done() && !stopped_;
       ++grid) {
    std::int64_t wanted = grids_ == 0 ? parts_.video.first_grid : parts_.video.further_grid;
    if (frames_ > 0) wanted = std::min(wanted, frames_ - emitted_);
    const auto these = codes.subspan(grid * cells, cells);
    const VideoGrid committed{grids_++, these, passes_};
    if (committed.index >= heard_ && listener_.on_grid(committed) == Flow::kStop) stopped_ = true;
    if (!decodes_) {
      emitted_ += wanted;
      continue;
    }
    const auto frames = decoder_->next(these, narrow<int>(wanted));
    for (const Tensor& frame : frames) {
      listener_.on_frame(emitted_++, {frame.shape()[1], frame.shape()[0],
                                      parts_.tokenizer->to_pixels(frame.view())});
    }
  }
}

}  // namespace tessera
