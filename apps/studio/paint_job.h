// One picture of the studio's queue: how its painting is watched, and how it becomes a file.
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

struct PaintJob {
  std::uint64_t number = 0;
  PaintSettings settings;
  std::filesystem::path folder;  // for its file
};

// The wish to end a picture, between the thread that has it and the one that paints, which asks
// after every pass.
class StopWish {
 public:
  // From the painting thread: which picture is at work now; 0 = none.
  void begin(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    running_ = number;
    passes_ = 0;
  }
  // number 0: what runs.
  void wish(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    if (number == 0) number = running_;
    if (number == 0 || number == wished_) return;
    wished_ = number;
    wished_at_ = running_ == number ? passes_ : 0;
  }
  // From the painting thread after a pass, `passes` in all. Passes since the wish; none: go on.
  std::optional<std::int64_t> asked(std::int64_t passes) {
    const std::lock_guard lock(mutex_);
    passes_ = passes;
    if (running_ == 0 || wished_ != running_) return std::nullopt;
    return passes - wished_at_;
  }

 private:
  std::mutex mutex_;
  std::uint64_t running_ = 0, wished_ = 0;
  std::int64_t passes_ = 0, wished_at_ = 0;
};

// Follows one picture through the task and tells of it after every pass.
class PaintWatch final : public GenerateListener {
 public:
  // `tell` is called with the picture as it is; all others are borrowed.
  PaintWatch(Painting& painting, StopWish& wish, const GenerateTask& task,
             std::function<void(const Painting&)> tell);

  bool wants_trace() const override { return true; }
  void on_trace(const GenerateProgress& progress, std::span<const ImageTrace> traces) override;
  Flow on_progress(const GenerateProgress& progress) override;
  std::int64_t preview_rows() const override { return preview_rows_; }
  void on_preview(const GenerateProgress& progress, const std::vector<Image>& images) override;
  void on_image(GeneratedImage&& picture) override { picture_ = std::move(picture); }

  GeneratedImage& picture() { return picture_; }

 private:
  Painting& painting_;
  StopWish& wish_;
  std::function<void(const Painting&)> tell_;
  PreviewBudget budget_;
  RoughPreview rough_;
  bool drawn_roughly_ = false;
  std::int64_t preview_rows_ = 1;
  double preview_from_ = 0;  // seconds of the clock when an image was about to be made
  GeneratedImage picture_;
};

// Saves the picture with what `generate` records as "{slug}_{seed}.png", with _2, _3 ... where that
// is taken, "_partial" at the end for one that was stopped. Nothing is ever replaced. Error
// kStorage.
std::filesystem::path save_painting(const std::filesystem::path& folder, const Image& image,
                                    const ImageFacts& facts, bool partial);

}  // namespace tessera
