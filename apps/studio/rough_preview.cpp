#include "apps/studio/rough_preview.h"

#include <time.h>

#include "engine/core/index.h"

namespace tessera {

namespace {
// CPU seconds of this thread: other programs' turns on its core are no cost of an image.
double thread_seconds() {
  struct timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return to_double(now.tv_sec) + to_double(now.tv_nsec) * 1e-9;
}
}  // namespace

std::shared_ptr<const Image> RoughPreview::draw(const ImageTrace& trace, double seconds) {
  if (spent_ > 0 && spent_ + last_ > kShare * seconds) return nullptr;
  const double from = thread_seconds();
  codes_.clear();
  for (const TokenMark& mark : trace.marks) codes_.push_back(mark.id);
  std::shared_ptr<const Image> image;
  if (patches_.known_share(codes_) >= kKnownShare) {
    image = std::make_shared<const Image>(patches_.draw(codes_, rows_, columns_));
  }
  last_ = thread_seconds() - from;
  spent_ += last_;
  return image;
}

}  // namespace tessera
