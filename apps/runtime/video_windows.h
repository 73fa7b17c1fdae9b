// One clip while it is written: the windows of the model's stream, and the frames that leave.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "apps/runtime/video_pipeline.h"
#include "engine/core/io.h"
#include "engine/sampling/grammar.h"
#include "tokenizers/visual/clip_tokenizer.h"

namespace tessera {

class ClipRun {
 public:
  struct Parts {
    const ClipTokenizer& tokenizer;
    const ClipSpec& clip;
    const VocabularyGrammar& grammar;
    std::size_t kept_grids;
  };
  // `decodes`: frames are handed out, else grids of codes alone.
  ClipRun(const Parts& parts, std::int64_t frames, ClipListener& listener, bool decodes = true)
      : parts_(parts),
        frames_(frames),
        decodes_(decodes),
        listener_(listener),
        decoder_(parts.tokenizer.clip_decoder(static_cast<int>(parts.grammar.rows),
                                              static_cast<int>(parts.grammar.columns))) {}

  bool done() const { return frames_ > 0 && handed_out_ >= frames_; }
  std::int64_t handed_out() const { return handed_out_; }
  double started() const { return started_; }

  // Codes of grids that begin the clip: those of first frames, which are told as the others are, or
  // all that an earlier run was told of.
  void begin_with(std::vector<std::int32_t> codes, bool told_before = false);
  // First codes of the next window.
  const std::vector<std::int32_t>& window_begin() const { return begin_; }

  // After a pass: hands out what has come to stand.
  Flow on_pass(const StreamResult& result, std::int64_t earlier_passes);
  bool stopped() const { return stopped_; }
  // The window that is written next, or being written.
  std::size_t window() const { return window_; }

  void begin_window() {
    codes_ = begin_;
    window_grids_ = begin_.size() / parts_.grammar.cells();
  }
  // The last grids begin the next window.
  void end_window() {
    const std::size_t keep = std::min(parts_.kept_grids * parts_.grammar.cells(), codes_.size());
    begin_.assign(codes_.end() - static_cast<std::ptrdiff_t>(keep), codes_.end());
    ++window_;
  }
  // Of the stream of a window that ended: tokens of its whole grids, and of those before the ones
  // that begin the next window.
  std::size_t whole_tokens() const { return parts_.grammar.tokens_of(window_grids_); }
  std::size_t dropped_tokens() const {
    return whole_tokens() - parts_.grammar.tokens_of(begin_.size() / parts_.grammar.cells());
  }

 private:
  // Frames of the grids from `first` on.
  void hand_out(std::span<const std::int32_t> codes, std::size_t first);

  Parts parts_;
  std::int64_t frames_, handed_out_ = 0;
  bool decodes_;
  ClipListener& listener_;
  std::unique_ptr<GridDecoder> decoder_;
  std::vector<std::int32_t> begin_, codes_;
  std::size_t window_ = 0, window_grids_ = 0;
  std::int64_t grids_ = 0, told_ = 0;  // of the clip: standing; those that need not be told
  std::int64_t passes_ = 0;            // of all windows
  double started_ = monotonic_seconds();
  bool stopped_ = false;
};

}  // namespace tessera
