#include "apps/studio/paint_job.h"

#include <limits>

#include "apps/studio/settings.h"
#include "engine/core/io.h"
#include "engine/core/publish.h"

namespace tessera {

namespace fs = std::filesystem;

PaintWatch::PaintWatch(Painting& painting, StopWish& wish, const GenerateTask& task,
                       std::function<void(const Painting&)> tell)
    : painting_(painting),
      wish_(wish),
      tell_(std::move(tell)),
      rough_(task.code_patches(), task.spec().model.grid_rows, task.spec().model.grid_cols) {}

void PaintWatch::on_trace(const GenerateProgress& progress, std::span<const ImageTrace> traces) {
  const ImageTrace& trace = traces.front();
  painting_.marks =
      std::make_shared<const std::vector<TokenMark>>(trace.marks.begin(), trace.marks.end());
  painting_.committed = std::make_shared<const std::vector<std::int32_t>>(trace.committed.begin(),
                                                                          trace.committed.end());
  painting_.facts.tokens = trace.tokens;
  painting_.facts.passes = trace.passes;
  if (auto image = rough_.draw(trace, progress.seconds)) {
    drawn_roughly_ = painting_.image_is_rough = true;
    painting_.image = std::move(image);
    painting_.image_rows = trace.rows_done;
  }
  painting_.preview_seconds = budget_.spent() + rough_.spent();
}

Flow PaintWatch::on_progress(const GenerateProgress& progress) {
  painting_.rows_done = progress.rows_done;
  painting_.seconds = progress.seconds;
  if (progress.seconds > 0 && progress.tokens_done > 0) {
    painting_.tokens_per_second = static_cast<double>(progress.tokens_done) / progress.seconds;
    painting_.seconds_left =
        static_cast<double>(progress.tokens - progress.tokens_done) / painting_.tokens_per_second;
  }
  tell_(painting_);
  const std::optional<std::int64_t> since = wish_.asked(progress.passes);
  if (since) painting_.passes_after_stop = *since;
  // What the budget forbids now it may allow after the next pass: never zero, which would also take
  // the image of a stopped picture away.
  const bool allowed = !drawn_roughly_ && budget_.allows(progress.rows_done, progress.seconds);
  preview_rows_ = allowed ? 1 : std::numeric_limits<std::int32_t>::max();
  preview_from_ = monotonic_seconds();
  return since ? Flow::kStop : Flow::kContinue;
}

void PaintWatch::on_preview(const GenerateProgress& progress, const std::vector<Image>& images) {
  painting_.image = std::make_shared<const Image>(images.front());
  painting_.image_rows = progress.rows_done;
  budget_.count(progress.rows_done, monotonic_seconds() - preview_from_);
  painting_.preview_seconds = budget_.spent() + rough_.spent();
  tell_(painting_);
}

fs::path save_painting(const fs::path& folder, const Image& image, const ImageFacts& facts,
                       bool partial) {
  const PictureTexts texts = picture_texts(facts, RecordFacts::kAll);
  const std::string data = encode_png(image, texts.texts, texts.xmp);
  const std::string stem = picture_slug(facts.prompt) + "_" + std::to_string(facts.seed);
  ensure_output_folder(folder);
  for (std::int64_t count = 1;; ++count) {
    const std::string more = count == 1 ? "" : "_" + std::to_string(count);
    const fs::path path = folder / (stem + more + (partial ? "_partial" : "") + ".png");
    if (file_exists(path)) continue;  // cheaper than a file that is written and not used
    if (publish_file(path, data, Publish::kNew)) return path;
  }
}

}  // namespace tessera
