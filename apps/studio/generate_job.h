// One image of the studio's queue: how its generation is watched, and how it becomes a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>

#include "apps/runtime/generate_task.h"
#include "apps/studio/preview_budget.h"
#include "apps/studio/rough_preview.h"
#include "apps/studio/snapshot.h"

namespace tessera {

struct GenerateJob {
  std::uint64_t number = 0;
  GenerateSettings settings;
  std::filesystem::path folder;  // for its file
};

// The wish to end an image, between the thread that has it and the one that generates, which asks
// after every pass.
class StopRequest {
 public:
  // From the generation thread: which image is at work now; 0 = none.
  void begin(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    running_ = number;
    passes_ = 0;
  }
  // number 0: what runs.
  void stop_request(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    if (number == 0) number = running_;
    if (number == 0 || number == requested_) return;
    requested_ = number;
    requested_at_ = running_ == number ? passes_ : 0;
  }
  // From the generation thread after a pass, `passes` in all. Passes since the wish; none: go on.
  std::optional<std::int64_t> asked(std::int64_t passes) {
    const std::lock_guard lock(mutex_);
    passes_ = passes;
    if (running_ == 0 || requested_ != running_) return std::nullopt;
    return passes - requested_at_;
  }

 private:
  std::mutex mutex_;
  std::uint64_t running_ = 0, requested_ = 0;
  std::int64_t passes_ = 0, requested_at_ = 0;
};

// Follows one image through the task and tells of it after every pass.
class GenerateWatch final : public GenerateListener {
 public:
  // `tell` is called with the image as it is; all others are borrowed.
  GenerateWatch(Generation& generation, StopRequest& stop_request, const GenerateTask& task,
             std::function<void(const Generation&)> tell);

  bool wants_trace() const override { return true; }
  void on_trace(const GenerateProgress& progress, std::span<const ImageTrace> traces) override;
  Flow on_progress(const GenerateProgress& progress) override;
  std::int64_t preview_rows() const override { return preview_rows_; }
  void on_preview(const GenerateProgress& progress, const std::vector<Image>& images) override;
  void on_image(GeneratedImage&& image) override { image_ = std::move(image); }

  GeneratedImage& image() { return image_; }

 private:
  Generation& generation_;
  StopRequest& stop_request_;
  std::function<void(const Generation&)> tell_;
  PreviewBudget budget_;
  RoughPreview rough_;
  bool drawn_roughly_ = false;
  std::int64_t preview_rows_ = 1;
  double preview_from_ = 0;  // seconds of the clock when an image was about to be made
  GeneratedImage image_;
};

// Saves the image with what `generate` records as "{slug}_{seed}.png", with _2, _3 ... where that
// is taken, "_partial" at the end for one that was stopped. Nothing is ever replaced. Error
// kStorage.
std::filesystem::path save_generation(const std::filesystem::path& folder, const Image& image,
                                      const ImageFacts& facts, bool partial,
                                      RecordFacts record = RecordFacts::kAll);

}  // namespace tessera
