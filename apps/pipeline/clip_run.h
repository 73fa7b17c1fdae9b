// One clip while it is written: the windows of the model's stream, and the frames that leave.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/pipeline/video_pipeline.h"
#include "engine/core/io.h"
#include "engine/sampling/grammar.h"
#include "tokenizers/visual/movq_tokenizer.h"

namespace tessera {

class ClipRun {
 public:
  struct Parts {
    const MovqTokenizer& movq;
    const VocabularyGrammar& grammar;
    std::size_t kept_grids;
  };
  ClipRun(const Parts& parts, std::int64_t frames, ClipListener& listener)
      : parts_(parts),
        frames_(frames),
        listener_(listener),
        decoder_(parts.movq, static_cast<int>(parts.grammar.rows),
                 static_cast<int>(parts.grammar.columns)) {}

  bool done() const { return frames_ > 0 && handed_out_ >= frames_; }
  std::int64_t handed_out() const { return handed_out_; }
  double started() const { return started_; }

  // Codes of grids that begin the clip.
  void begin_with(std::vector<std::int32_t> codes) {
    begin_ = std::move(codes);
    hand_out(begin_, 0);
  }
  // First codes of the next window.
  const std::vector<std::int32_t>& window_begin() const { return begin_; }

  // After a pass: hands out what has come to stand.
  Flow on_pass(const PassEvent& event, std::int64_t earlier_passes);
  bool stopped() const { return stopped_; }

  void begin_window() {
    codes_ = begin_;
    window_grids_ = begin_.size() / parts_.grammar.cells();
  }
  // The last grids begin the next window.
  void end_window() {
    const std::size_t keep = std::min(parts_.kept_grids * parts_.grammar.cells(), codes_.size());
    begin_.assign(codes_.end() - static_cast<std::ptrdiff_t>(keep), codes_.end());
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
  ClipListener& listener_;
  ClipDecoder decoder_;
  std::vector<std::int32_t> begin_, codes_;
  std::size_t window_grids_ = 0;
  double started_ = monotonic_seconds();
  bool stopped_ = false;
};

}  // namespace tessera
