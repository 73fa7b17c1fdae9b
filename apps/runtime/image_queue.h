// Images that are read and prepared ahead of those who need them, by one thread, at most so many
// and no more than a bounded number of bytes next to the one at hand.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "apps/runtime/describe_options.h"
#include "apps/runtime/encoded_images.h"
#include "engine/families/describe_spec.h"
#include "vision/image/image_reader.h"
#include "vision/image/preprocess.h"

namespace tessera {

struct PreparedImages {
  DescribeRequest request;
  std::vector<PreprocessedImage> images;
  std::vector<ImageKey> keys;  // of each, where the queue makes them
  std::vector<std::array<std::int64_t, 2>> sizes;
  std::vector<std::string> notes;
  std::optional<ErrorInfo> error;
  std::optional<RepeatedImage> repeats;  // then it was not prepared
  double seconds = 0;
  // As a draft model's policy has them; none when it sees the same ones or no images at all.
  std::vector<PreprocessedImage> draft_images;
  std::optional<ErrorInfo> draft_error;  // that policy cannot take them
};

class ImageQueue {
 public:
  // `next` is called on the queue's thread, one call at a time; what it throws ends the queue and
  // comes out of take(). `spec` says how images are prepared, `draft` how they are for a draft
  // model, null if for none; both are borrowed. `keyed`: images get keys.
  ImageQueue(DescribeSource next, const DescribeSpec& spec, ImageReaderOptions reader,
               std::size_t ahead, const DescribeSpec* draft = nullptr, bool keyed = false);
  ~ImageQueue();
  ImageQueue(const ImageQueue&) = delete;
  ImageQueue& operator=(const ImageQueue&) = delete;

  // The next one; none when there are no more, when none is ready and the caller would not wait, or
  // when none came for a moment.
  std::optional<PreparedImages> take(bool wait);
  // No new ones; those that are ready can still be taken.
  void stop();
  bool over() const;
  // As ImageReader::confinement() of the process that reads; empty before it was needed.
  std::string confinement() const;

 private:
  void work();
  PreparedImages prepare(DescribeRequest request, ImageReader& reader) const;
  void prepare_scene_of(const ImageSource& source, PreparedImages& out) const;
  void prepare_for_draft(const PreprocessPolicy& policy, const DecodedImage& image,
                         PreparedImages& out) const;

  DescribeSource next_;
  const DescribeSpec& spec_;
  const DescribeSpec* draft_;
  bool keyed_;
  ImageReaderOptions reader_options_;
  std::size_t ahead_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PreparedImages> ready_;
  std::size_t bytes_ = 0;  // of what is ready
  std::string confinement_;
  bool ended_ = false, stopping_ = false;
  std::exception_ptr thrown_;
  std::thread thread_;
};

}  // namespace tessera
