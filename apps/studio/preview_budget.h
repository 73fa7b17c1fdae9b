// When an image that grows is worth drawing: decoding codes to pixels costs time that generation
// does not get. The first row is always shown, after that images may take a share of the time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/core/index.h"

namespace tessera {

class PreviewBudget {
 public:
  static constexpr double kShare = 0.02;  // of a generated image's seconds

  explicit PreviewBudget(double share = kShare) : share_(share) {}

  // Whether an image of `rows` rows may be made, `seconds` into the generation. The next one is taken
  // to cost a row what the last one did.
  bool allows(std::int64_t rows, double seconds) const {
    if (rows <= rows_) return false;
    if (rows_ == 0) return true;
    const double expected = last_ * to_double(rows) / to_double(rows_);
    return spent_ + expected <= share_ * seconds;
  }
  void count(std::int64_t rows, double seconds) {
    rows_ = rows;
    last_ = seconds;
    spent_ += seconds;
  }
  double spent() const { return spent_; }  // seconds
  std::int64_t rows() const { return rows_; }

 private:
  double share_, last_ = 0, spent_ = 0;
  std::int64_t rows_ = 0;
};

}  // namespace tessera
