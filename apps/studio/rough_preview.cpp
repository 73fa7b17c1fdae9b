#include "apps/studio/rough_preview.h"

#include "engine/core/io.h"

namespace tessera {

std::shared_ptr<const Image> RoughPreview::draw(const PictureTrace& trace, double seconds) {
  if (spent_ > 0 && spent_ + last_ > kShare * seconds) return nullptr;
  const double from = monotonic_seconds();
  codes_.clear();
  for (const TokenMark& mark : trace.marks) codes_.push_back(mark.id);
  std::shared_ptr<const Image> image;
  if (patches_.known_share(codes_) >= kKnownShare) {
    image = std::make_shared<const Image>(patches_.draw(codes_, rows_, columns_));
  }
  last_ = monotonic_seconds() - from;
  spent_ += last_;
  return image;
}

}  // namespace tessera
