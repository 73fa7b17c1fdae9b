// What the self-test saw of an image that is generated: in how many frames, one right after the
// other, rows of tokens grew, and whether the screen showed them. Pure.
#pragma once

#include <cstdint>
#include <optional>

namespace tessera {

class GrowthWatch {
 public:
  // One drawn frame. exact: whether the screen showed exactly the pixels of the image so far; none
  // where that was not looked at.
  void frame(std::int64_t rows, std::int64_t image_rows, std::optional<bool> exact) {
    if (rows < rows_ || image_rows < image_rows_) ++shrinks_;
    if (image_rows > image_rows_) ++image_growths_;
    if (exact.has_value() && !*exact) ++stale_;
    if (rows > rows_) {
      ++run_;
      exact_in_run_ += exact.value_or(false) ? 1 : 0;
    } else {
      run_ = exact_in_run_ = 0;
    }
    if (exact_in_run_ > 0 && run_ >= longest_) {
      longest_ = run_;
      exact_in_longest_ = exact_in_run_;
    }
    rows_ = rows;
    image_rows_ = image_rows;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t image_rows() const { return image_rows_; }
  std::int64_t image_growths() const { return image_growths_; }
  // Most successive frames in each of which rows grew, at least one of them compared and exact.
  std::int64_t longest() const { return longest_; }
  std::int64_t exact_in_longest() const { return exact_in_longest_; }
  std::int64_t shrinks() const { return shrinks_; }  // frames with fewer rows than before
  std::int64_t stale() const { return stale_; }      // frames with other pixels than the image's

 private:
  std::int64_t rows_ = 0, image_rows_ = 0, image_growths_ = 0;
  std::int64_t run_ = 0, exact_in_run_ = 0, longest_ = 0, exact_in_longest_ = 0;
  std::int64_t shrinks_ = 0, stale_ = 0;
};

}  // namespace tessera
