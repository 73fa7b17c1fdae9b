// Goes between a task and its listener, and shows a viewer every image on its way.
// Images that only the viewer sees keep to the budget of previews.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "apps/runtime/generate_task.h"
#include "apps/studio/preview_budget.h"
#include "apps/studio/preview_sender.h"
#include "apps/studio/rough_preview.h"

namespace tessera {

class PreviewListener final : public GenerateListener {
 public:
  // `task` generates the images. All are borrowed.
  PreviewListener(GenerateListener& inner, PreviewSender& sender, const GenerateTask& task)
      : inner_(inner), sender_(sender), patches_(task.code_patches()), grid_(task.spec().model) {}
  // Images that an error left on their way have failed.
  ~PreviewListener() override;
  PreviewListener(const PreviewListener&) = delete;

  bool wants_trace() const override { return true; }
  void on_trace(const GenerateProgress& progress, std::span<const ImageTrace> traces) override;
  Flow on_progress(const GenerateProgress& progress) override;
  std::int64_t preview_rows() const override { return preview_rows_; }
  void on_preview(const GenerateProgress& progress, const std::vector<Image>& images) override;
  void on_image(GeneratedImage&& image) override;
  void on_over(bool whole) override { inner_.on_over(whole); }

 private:
  struct Shown {
    std::uint64_t number = 0;  // as the sender counts
    PreviewProgress progress;
    RoughPreview rough;
  };
  void begin(const ImageTrace& trace);

  GenerateListener& inner_;
  PreviewSender& sender_;
  const CodePatches& patches_;
  const StreamModelConfig& grid_;
  std::map<std::size_t, Shown> shown_;  // images at work, by request
  PreviewBudget budget_;
  std::int64_t preview_rows_ = 1, inner_rows_ = 0;
  bool inner_due_ = false, drawn_roughly_ = false;
  double preview_from_ = 0;
};

}  // namespace tessera
