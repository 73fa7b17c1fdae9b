// Images of a submission as files: each is saved as it is finished, and reported in the order of the
// requests, also where an error or a stop ends the submission.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/runtime/generate_request.h"
#include "apps/runtime/in_order.h"

namespace tessera {

// An image that is over, and the hash of its file; "" where there is none: kStopped, kFailed.
struct SavedImage {
  GeneratedImage image;  // without codes; one that is done without pixels, unless they are kept
  std::string sha256;
};

class SavedImageListener {
 public:
  virtual ~SavedImageListener() = default;
  // As GenerateListener's.
  virtual Flow on_progress(const GenerateProgress&) { return Flow::kContinue; }
  virtual std::int64_t preview_rows() const { return 0; }
  virtual void on_preview(const std::vector<Image>&) {}
  virtual bool keeps_pixels() const { return false; }
  // In the order of the requests; images that others were not finished in front of come last.
  virtual void on_saved(SavedImage&&) {}
};

class ImageSaver final : public GenerateListener {
 public:
  // `paths`: of each request, folders are there. Error kStorage leaves on_image().
  ImageSaver(SavedImageListener& listener, std::vector<std::filesystem::path> paths,
             RecordFacts record)
      : listener_(listener), paths_(std::move(paths)), record_(record) {}

  Flow on_progress(const GenerateProgress& progress) override {
    return listener_.on_progress(progress);
  }
  std::int64_t preview_rows() const override { return listener_.preview_rows(); }
  void on_preview(const GenerateProgress&, const std::vector<Image>& images) override {
    listener_.on_preview(images);
  }
  void on_image(GeneratedImage&& image) override;
  void on_over(bool whole) override;

  // All images are done or have failed.
  bool whole() const { return whole_; }

 private:
  SavedImageListener& listener_;
  std::vector<std::filesystem::path> paths_;
  RecordFacts record_;
  InOrder<SavedImage> order_;
  bool whole_ = false;
};

}  // namespace tessera
