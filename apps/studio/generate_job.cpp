#include "apps/studio/generate_job.h"

#include <limits>

#include "apps/studio/settings.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/publish.h"

namespace tessera {

namespace fs = std::filesystem;

GenerateWatch::GenerateWatch(Generation& generation, StopRequest& stop_request, const GenerateTask& task,
                       std::function<void(const Generation&)> tell)
    : generation_(generation),
      stop_request_(stop_request),
      tell_(std::move(tell)),
      rough_(task.code_patches(), task.spec().model.grid_rows, task.spec().model.grid_cols) {}

void GenerateWatch::on_trace(const GenerateProgress& progress, std::span<const ImageTrace> traces) {
  const ImageTrace& trace = traces.front();
  generation_.marks =
      std::make_shared<const std::vector<TokenMark>>(trace.marks.begin(), trace.marks.end());
  generation_.committed = std::make_shared<const std::vector<std::int32_t>>(trace.committed.begin(),
                                                                          trace.committed.end());
  generation_.facts.tokens = trace.tokens;
  generation_.facts.passes = trace.passes;
  if (auto image = rough_.draw(trace, progress.seconds)) {
    drawn_roughly_ = generation_.image_is_rough = true;
    generation_.image = std::move(image);
    generation_.image_rows = trace.rows_done;
  }
  generation_.preview_seconds = budget_.spent() + rough_.spent();
}

Flow GenerateWatch::on_progress(const GenerateProgress& progress) {
  generation_.rows_done = progress.rows_done;
  generation_.seconds = progress.seconds;
  if (progress.seconds > 0 && progress.tokens_done > 0) {
    generation_.tokens_per_second = to_double(progress.tokens_done) / progress.seconds;
    generation_.seconds_left =
        to_double(progress.tokens - progress.tokens_done) / generation_.tokens_per_second;
  }
  tell_(generation_);
  const std::optional<std::int64_t> since = stop_request_.asked(progress.passes);
  if (since) generation_.passes_after_stop = *since;
  // What the budget forbids now it may allow after the next pass: never zero, which would also take
  // the image of a stopped image away.
  const bool allowed = !drawn_roughly_ && budget_.allows(progress.rows_done, progress.seconds);
  preview_rows_ = allowed ? 1 : std::numeric_limits<std::int32_t>::max();
  preview_from_ = monotonic_seconds();
  return since ? Flow::kStop : Flow::kContinue;
}

void GenerateWatch::on_preview(const GenerateProgress& progress, const std::vector<Image>& images) {
  generation_.image = std::make_shared<const Image>(images.front());
  generation_.image_rows = progress.rows_done;
  budget_.count(progress.rows_done, monotonic_seconds() - preview_from_);
  generation_.preview_seconds = budget_.spent() + rough_.spent();
  tell_(generation_);
}

fs::path save_generation(const fs::path& folder, const Image& image, const ImageFacts& facts,
                         bool partial, RecordFacts record) {
  const ImageTexts texts = image_texts(facts, record);
  const std::string data = encode_png(image, texts.texts, texts.xmp);
  const std::string stem = image_slug(facts.prompt) + "_" + std::to_string(facts.seed);
  ensure_output_folder(folder);
  for (std::int64_t count = 1;; ++count) {
    const std::string more = count == 1 ? "" : "_" + std::to_string(count);
    const fs::path path = folder / (stem + more + (partial ? "_partial" : "") + ".png");
    if (file_exists(path)) continue;  // cheaper than a file that is written and not used
    if (publish_file(path, data, Publish::kNew)) return path;
  }
}

}  // namespace tessera
