// Images of what stands so far, drawn from the patches of their codes
// (apps/runtime/code_patches.h) after every pass, within a share of the generation's time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "apps/runtime/code_patches.h"
#include "apps/runtime/generate_request.h"

namespace tessera {

class RoughPreview {
 public:
  static constexpr double kShare = 0.01;       // of a generated image's seconds
  static constexpr double kKnownShare = 0.75;  // of the codes that stand, at least

  // The patches are borrowed.
  RoughPreview(const CodePatches& patches, std::int64_t rows, std::int64_t columns)
      : patches_(patches), rows_(rows), columns_(columns) {}

  // `seconds` into the generation. Null: nothing stands, too few patches are known, or it is too
  // early for another one.
  std::shared_ptr<const Image> draw(const ImageTrace& trace, double seconds);
  double spent() const { return spent_; }  // CPU seconds

 private:
  const CodePatches& patches_;
  std::int64_t rows_, columns_;
  double spent_ = 0, last_ = 0;
  std::vector<std::int32_t> codes_;
};

}  // namespace tessera
