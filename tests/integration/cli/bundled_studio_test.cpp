// The bundled model in the studio: what a viewer sees while it generates, what the images cost, how a
// image ends that is stopped on its way. Figures are printed, times are not verified.
#include <cstdio>
#include <set>

#include "tests/unit/studio/studio_run.h"
#include "vision/image/png.h"

namespace tessera::bundled_studio_test {
namespace {

StudioOptions bundled() {
  StudioOptions options;
  options.model = TESSERA_SOURCE_DIR "/assets/models/tabletop-janus";
  options.threads = 2;
  return options;
}

GenerateSettings ball() {
  GenerateSettings settings;
  settings.prompt = "a large red shiny sphere on a gray floor";
  settings.seed = 7;
  return settings;
}

TEST(BundledStudio, RowsGrowBeforeTheEyes) {
  StudioRun run(bundled());
  for (const char* method : {"plain", "auto"}) {
    GenerateSettings settings = ball();
    settings.method = decode_method(method);
    run.studio.post(GenerateCommand{settings});
    const std::uint64_t number = run.studio.snapshot().generations.back().number;
    std::set<std::int64_t> rows, images;
    run.until([&](const Snapshot& now) {
      const Generation& one = *now.generation(number);
      if (one.state == GenerateState::kGeneration) {
        rows.insert(one.rows_done);
        if (one.image) images.insert(one.image_rows);
        EXPECT_LE(one.image_rows, one.rows_done);
      }
      return one.state == GenerateState::kDone || one.state == GenerateState::kFailed;
    });
    const Generation done = *run.studio.snapshot().generation(number);
    ASSERT_EQ(done.state, GenerateState::kDone) << format_error(done.error);
    EXPECT_GE(rows.size(), 6u) << "rows of tokens grow in many frames";
    EXPECT_GE(images.size(), 1u) << "the first row is always shown";
    EXPECT_EQ(read_own_png(done.file).rgb, done.image->rgb);
    std::printf(
        "%s: %.2f s, %lld passes, %zu of %lld rows seen, %zu images, previews %.1f ms = "
        "%.2f %% of the time\n",
        method, done.seconds, static_cast<long long>(done.facts.passes), rows.size(),
        static_cast<long long>(done.grid_rows), images.size(), done.preview_seconds * 1e3,
        100 * done.preview_seconds / done.seconds);
  }
}

TEST(BundledStudio, AStoppedImageIsWhatWasSeen) {
  StudioRun run(bundled());
  GenerateSettings settings = ball();
  settings.method = decode_method("sjd");
  run.studio.post(GenerateCommand{settings});
  run.until([](const Snapshot& now) { return now.generations[0].rows_done >= 3; });
  run.studio.post(StopCommand{});
  const Generation partial = run.finished(1);
  ASSERT_EQ(partial.state, GenerateState::kStopped);
  EXPECT_EQ(partial.passes_after_stop, 1);
  EXPECT_GE(partial.rows_done, 3);
  EXPECT_LT(partial.rows_done, partial.grid_rows);
  EXPECT_EQ(read_own_png(partial.file).rgb, partial.image->rgb);
}

// This method keeps the tokens with the highest attention: what is shown is what it read.
TEST(BundledStudio, ScoresAreWhatThePrunerSaw) {
  StudioOptions options = bundled();
  options.captioner = TESSERA_SOURCE_DIR "/assets/models/tabletop-llava";
  StudioRun run(options);
  Image image(224, 160);
  for (std::size_t i = 0; i < image.rgb.size(); ++i) {
    image.rgb[i] = static_cast<std::uint8_t>(i % 3 == 0 ? i / 700 : i / 3 % 224);
  }
  save_png(run.folder / "a.png", image);
  run.studio.post(CaptionCommand{
      .images = {run.folder / "a.png"}, .prune_method = "fastv", .prune_rate = 0.5});
  run.until([](const Snapshot& now) {
    return now.captions[0].state == CaptionState::kDone ||
           now.captions[0].state == CaptionState::kFailed;
  });
  const CaptionEntry& entry = run.studio.snapshot().captions[0];
  ASSERT_EQ(entry.state, CaptionState::kDone) << format_error(entry.error);
  EXPECT_FALSE(entry.text.empty());
  float min_kept = 2, max_pruned = -1;
  std::int64_t kept = 0;
  for (const VisualTile& tile : entry.tiles) {
    for (std::size_t i = 0; i < tile.kept.size(); ++i) {
      kept += tile.kept[i];
      if (tile.kept[i] == 1) min_kept = std::min(min_kept, tile.scores[i]);
      if (tile.kept[i] == 0) max_pruned = std::max(max_pruned, tile.scores[i]);
    }
  }
  EXPECT_EQ(kept, entry.kept_tokens);
  EXPECT_LT(entry.kept_tokens, entry.visual_tokens);
  EXPECT_GE(min_kept, max_pruned);
  EXPECT_GE(max_pruned, 0);
}

}  // namespace
}  // namespace tessera::bundled_studio_test
