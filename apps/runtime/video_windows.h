// One video while it is written: the windows of the model's stream, and the frames that leave.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "apps/runtime/video_request.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/sampling/grammar.h"
#include "tokenizers/visual/video_tokenizer.h"

namespace tessera {

class VideoWindows {
 public:
  struct Parts {
    std::shared_ptr<const VideoTokenizer> tokenizer;
    const VideoSpec& video;
    const VocabularyGrammar& grammar;
    std::size_t kept_grids;  // of a window, that begin the next one
  };
  // `decodes`: frames are emitted, else grids of codes alone.
  VideoWindows(Parts parts, std::int64_t frames, VideoListener& listener, bool decodes = true)
      : parts_(std::move(parts)),
        frames_(frames),
        decodes_(decodes),
        listener_(listener),
        decoder_(parts_.tokenizer->video_decoder(narrow<int>(parts_.grammar.rows),
                                                 narrow<int>(parts_.grammar.columns))) {}

  bool done() const { return frames_ > 0 && emitted_ >= frames_; }
  bool stopped() const { return stopped_; }
  void stop() { stopped_ = true; }
  std::int64_t emitted() const { return emitted_; }  // frames
  double started() const { return started_; }

  // Codes of grids that begin the video: those of first frames, which the listener hears of as of
  // the others, or all that it heard of in an earlier run.
  void begin_with(std::vector<std::int32_t> codes, bool heard_before = false);
  // First codes of the next window.
  const std::vector<std::int32_t>& window_begin() const { return begin_; }
  // The window that is written next, or being written.
  std::size_t window() const { return window_; }

  // After a pass: emits the grids that were committed.
  Flow on_pass(const StreamResult& result, std::int64_t earlier_passes);

  void begin_window() {
    codes_ = begin_;
    window_grids_ = begin_.size() / parts_.grammar.cells();
    shown_rows_ = window_grids_ * parts_.grammar.rows;
  }
  // The last grids begin the next window.
  void end_window() {
    const std::size_t keep = std::min(parts_.kept_grids * parts_.grammar.cells(), codes_.size());
    begin_.assign(codes_.end() - to_index(keep), codes_.end());
    ++window_;
  }
  // Of the stream of a window that ended: tokens of its whole grids, and of those before the ones
  // that begin the next window.
  std::size_t whole_tokens() const { return parts_.grammar.tokens_of(window_grids_); }
  std::size_t dropped_tokens() const {
    return whole_tokens() - parts_.grammar.tokens_of(begin_.size() / parts_.grammar.cells());
  }

 private:
  void preview(const StreamResult& result, const VideoProgress& progress);
  // The grids from `first` on.
  void emit(std::span<const std::int32_t> codes, std::size_t first);

  Parts parts_;
  std::int64_t frames_, emitted_ = 0;
  bool decodes_;
  VideoListener& listener_;
  std::unique_ptr<GridDecoder> decoder_;
  std::vector<std::int32_t> begin_, codes_;
  std::size_t window_ = 0, window_grids_ = 0;
  std::size_t shown_rows_ = 0;          // of the window's grids, in previews and frames
  std::int64_t grids_ = 0, heard_ = 0;  // of the video: committed; those heard of before
  std::int64_t passes_ = 0;             // of all windows
  double started_ = monotonic_seconds();
  bool stopped_ = false;
};

}  // namespace tessera
