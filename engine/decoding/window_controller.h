// How wide the next pass should be. A pass of more rows costs more time, and brings more tokens
// only as far as drafts are right; the controller measures both while it decodes and takes the
// width with the most tokens a second, one row when drafting does not pay. It looks at past passes
// alone, never at the drafts at hand, so that no method loses its guarantee by it.
//
// Time is kept by rows of a pass, tokens by depth: the hazard a_j that draft j is right when all
// before it were, so that a window of w rows brings A(w) = 1 + sum_{j<w} prod_{i<=j} a_i.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

class WindowController {
 public:
  // Windows 1 to `most` rows a sequence, 128 at most.
  explicit WindowController(std::int64_t most);

  // The width of the next pass; `rows_per_window` rows are run for each row of the window (running
  // images times branches). Changes rarely: a change of width costs what the tail had kept.
  std::int64_t next(std::int64_t rows_per_window);
  // What a pass of that width and so many rows took, in seconds.
  void observe_time(std::int64_t rows, double seconds);
  // One image's tests in it: `tested` drafts, of which the first `accepted` were right.
  void observe_tests(std::int64_t tested, std::int64_t accepted);

  // Expected tokens of a pass and the time of one with this many rows, from what is known; the time
  // is that of a machine and of a place in the image where the pace is 1.
  double tokens(std::int64_t window) const;
  double seconds(std::int64_t rows) const;

  // "window 4: 1.90 tokens a pass in 1.20 of a plain pass's time, 1.58 times plain; best of 14
  // widths, 8 would be 1.31": the last one is the widest that was timed.
  std::string why() const;
  std::int64_t window() const { return window_; }
  const std::vector<std::int64_t>& widths() const { return widths_; }

 private:
  struct Point {
    std::int64_t rows = 0;
    double seconds = 0;  // moving mean, at pace 1
    std::int64_t count = 0;
  };

  double rate(std::int64_t window, std::int64_t rows_per_window) const;
  std::int64_t best(std::int64_t rows_per_window) const;
  std::int64_t unmeasured(std::int64_t rows_per_window) const;
  std::int64_t probe(std::int64_t rows_per_window);
  void move_to(std::int64_t window);

  std::vector<std::int64_t> widths_;
  std::vector<double> right_, tried_;       // by depth, decaying counts
  std::vector<Point> points_;               // by rows, ascending
  double pace_ = 1;                         // what passes take now, next to what they took at first
  std::int64_t last_rows_ = 0, alike_ = 0;  // of the last pass; passes of so many rows in a row
  bool probe_plain_ = true;
  std::int64_t window_ = 1, passes_ = 0, held_ = 0, rows_per_window_ = 1;
  std::int64_t next_probe_ = 16, idle_gap_ = 16, next_slow_ = 256;  // passes
};

}  // namespace tessera
