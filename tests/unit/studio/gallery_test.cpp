// The gallery and opened images: newest first, bounded, noticed when they change; a whole corpus of bad files
// of bad files becomes as many problems; what an image records is recalled.
#include "apps/studio/gallery.h"
#include "apps/studio/event.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "apps/runtime/facts.h"
#include "apps/runtime/metadata.h"
#include "apps/runtime/visual_tiles.h"
#include "apps/studio/settings.h"
#include "engine/core/io.h"
#include "engine/decoding/rules/grouped_rule.h"
#include "tests/bad_files/image_bad_sample.h"
#include "tests/support/image_files.h"
#include "tests/unit/studio/studio_run.h"
#include "vision/image/png.h"

namespace tessera::gallery_test {
namespace {

namespace fs = std::filesystem;

Image coloured(std::int64_t width, std::int64_t height, std::uint8_t value) {
  Image out(width, height);
  std::fill(out.rgb.begin(), out.rgb.end(), value);
  return out;
}

void set_time(const fs::path& path, std::int64_t seconds) {
  const timespec times[2] = {{seconds, 0}, {seconds, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

std::vector<std::string> names_of(const Gallery& gallery) {
  std::vector<std::string> out;
  for (const GalleryEntry& entry : gallery.entries()) out.push_back(entry.path.filename());
  return out;
}

// Times of files move on in steps of some milliseconds.
void a_tick() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

TEST(Gallery, NewestFirstAndNothingHidden) {
  TempFolder folder;
  for (const char* name : {"a.png", "b.JPG", "c.webp", "notes.txt", ".d.png", "e.png.tmp-1-2"}) {
    put_file(folder / name, "x");
  }
  fs::create_directory(folder / "f.png");
  set_time(folder / "a.png", 100);
  set_time(folder / "b.JPG", 300);
  set_time(folder / "c.webp", 200);
  Gallery gallery(folder.path());
  EXPECT_TRUE(gallery.poll());
  EXPECT_EQ(names_of(gallery), (std::vector<std::string>{"b.JPG", "c.webp", "a.png"}));
  gallery.poll();
  EXPECT_FALSE(gallery.poll()) << "nothing changed";
  a_tick();
  put_file(folder / "g.bmp", "x");
  EXPECT_TRUE(gallery.poll());
  EXPECT_EQ(names_of(gallery).front(), "g.bmp");
  a_tick();
  fs::remove(folder / "b.JPG");
  EXPECT_TRUE(gallery.poll());
  EXPECT_EQ(gallery.entries().size(), 3u);
}

TEST(Gallery, AFolderThatIsNotThereIsEmptyUntilItComes) {
  TempFolder folder;
  Gallery gallery(folder / "later");
  EXPECT_TRUE(gallery.poll());
  EXPECT_TRUE(gallery.entries().empty());
  fs::create_directory(folder / "later");
  put_file(folder / "later/a.png", "x");
  EXPECT_TRUE(gallery.poll());
  EXPECT_EQ(gallery.entries().size(), 1u);
}

TEST(Gallery, ShowsTheNewestOfManyAndCountsTheRest) {
  TempFolder folder;
  for (int i = 0; i < 520; ++i) {
    const fs::path path = folder / (std::to_string(i) + ".png");
    put_file(path, "x");
    set_time(path, 1000 + i);
  }
  Gallery gallery(folder.path());
  gallery.poll();
  EXPECT_EQ(gallery.entries().size(), Gallery::kMaxShown);
  EXPECT_EQ(gallery.left_out(), 20);
  EXPECT_EQ(names_of(gallery).front(), "519.png");
  EXPECT_EQ(names_of(gallery).back(), "20.png");
}

TEST(Gallery, ThumbnailsTextsAndFilesThatChangeInPlace) {
  TempFolder folder;
  save_png(folder / "wide.png", coloured(640, 100, 7));
  put_file(folder / "wide.txt", "a wide one");
  Gallery gallery(folder.path());
  GalleryReaders reader;
  gallery.poll();
  EXPECT_EQ(gallery.entries()[0].caption, "a wide one");
  const auto entry = gallery.read_next(reader);
  ASSERT_TRUE(entry);
  ASSERT_TRUE(entry->thumbnail) << entry->problem;
  EXPECT_EQ(entry->width, 640);
  EXPECT_EQ(entry->thumbnail->width, kThumbnailSide);
  EXPECT_EQ(entry->thumbnail->height, 25);
  EXPECT_EQ(*std::max_element(entry->thumbnail->rgb.begin(), entry->thumbnail->rgb.end()), 7);
  EXPECT_FALSE(gallery.read_next(reader)) << "each is read once";
  put_file(folder / "wide.txt", "\xff not UTF-8");
  EXPECT_TRUE(gallery.poll());
  EXPECT_EQ(gallery.entries()[0].caption, "");
  put_file(folder / "wide.txt", std::string(65537, 'x'));
  EXPECT_EQ(read_caption_file(folder / "wide.png"), "");
  put_file(folder / "wide.txt", std::string(65536, 'x'));
  EXPECT_EQ(read_caption_file(folder / "wide.png").size(), 65536u);
  put_file(folder / "wide.png", "no image any more");
  gallery.poll();
  const auto again = gallery.read_next(reader);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->thumbnail);
  EXPECT_NE(again->problem.find("expected"), std::string::npos) << again->problem;
  EXPECT_EQ(Image(1, 1).rgb.size(), thumbnail_of(coloured(1, 1, 0)).rgb.size());
  EXPECT_EQ(thumbnail_of(coloured(4000, 1, 0)).height, 1);
}

TEST(StudioGallery, ATextNeverTakesItsImagesPlace) {
  StudioRun run;
  put_file(run.folder / "x.txt", "an image");
  run.studio.post(SaveCaptionCommand{run.folder / "x.txt", "a text"});
  run.until([](const Snapshot& now) { return !now.problems.empty(); });
  EXPECT_EQ(run.studio.snapshot().problems[0].code, "E_CAPTION_FILE");
  EXPECT_EQ(get_file(run.folder / "x.txt"), "an image");
}

// Hundreds of hostile files next to two good ones: each its own problem, and the good ones are read.
TEST(StudioGallery, ABadFilesOfBadFilesIsAsManyProblems) {
  TempFolder bad_files;
  std::vector<ImageBadSample> bad_samples;
  for (const auto& room : {png_bad_samples(), jpeg_bad_samples(), webp_bad_samples(), gif_bad_samples(),
                           bmp_bad_samples(), stranger_bad_samples()}) {
    bad_samples.insert(bad_samples.end(), room.begin(), room.end());
  }
  ASSERT_GE(bad_samples.size(), 100u);
  std::set<fs::path> refused;
  for (std::size_t i = 0; i < bad_samples.size(); ++i) {
    const fs::path path = bad_files / (std::to_string(i) + ".png");
    put_file(path, bad_samples[i].file);
    if (!bad_samples[i].code.empty()) refused.insert(path);
  }
  save_png(bad_files / "good1.png", coloured(3, 2, 1));
  save_png(bad_files / "good2.png", coloured(2, 3, 2));
  StudioOptions options;
  options.folder = bad_files.path();
  StudioRun run(options);
  const std::size_t all = std::min(bad_samples.size() + 2, Gallery::kMaxShown);
  run.until([&](const Snapshot& now) {
    const auto known = std::count_if(
        now.gallery.begin(), now.gallery.end(),
        [](const GalleryEntry& one) { return one.thumbnail || !one.problem.empty(); });
    return static_cast<std::size_t>(known) == all;
  });
  std::size_t problems = 0, good = 0;
  for (const GalleryEntry& entry : run.studio.snapshot().gallery) {
    if (refused.contains(entry.path)) {
      EXPECT_FALSE(entry.problem.empty()) << entry.path;
      EXPECT_FALSE(entry.thumbnail) << entry.path;
      EXPECT_EQ(escape_for_terminal(entry.problem), entry.problem);
      ++problems;
    } else {
      EXPECT_TRUE(entry.thumbnail) << entry.path << ": " << entry.problem;
      ++good;
    }
  }
  EXPECT_GE(problems, 100u);
  EXPECT_GE(good, 2u);
  std::printf("%zu bad files, %zu read\n", problems, good);
}

TEST(StudioGallery, GeneratedImagesComeByThemselves) {
  StudioRun run;
  run.studio.post(GenerateCommand{tiny_settings("seen", 4)});
  const Generation generated = run.finished(1);
  run.until([&](const Snapshot& now) {
    return now.gallery.size() == 1 && now.gallery[0].thumbnail && now.gallery[0].facts;
  });
  const GalleryEntry& entry = run.studio.snapshot().gallery[0];
  EXPECT_EQ(entry.path, generated.file);
  EXPECT_EQ(entry.facts->prompt, "seen");
  run.until([](const Snapshot& now) { return now.models_known; });
  run.until([](const Snapshot& now) { return now.status.resident_bytes > (1u << 20); });
  for (const FoundModel& model : run.studio.snapshot().models) EXPECT_GT(model.width, 0);
  run.studio.post(SaveCaptionCommand{generated.file, "a text\xc3\xa9"});
  run.until([](const Snapshot& now) { return now.gallery[0].caption == "a text\xc3\xa9"; });
  EXPECT_EQ(get_file(caption_file_of(generated.file)), "a text\xc3\xa9\n");
  run.studio.post(SaveCaptionCommand{generated.file, "\xff"});
  run.until([](const Snapshot& now) { return !now.problems.empty(); });
  EXPECT_EQ(run.studio.snapshot().problems[0].code, "E_CAPTION_TEXT");
  run.studio.post(FolderCommand{run.folder / "elsewhere"});
  EXPECT_TRUE(run.studio.snapshot().gallery.empty());
  run.studio.post(GenerateCommand{tiny_settings("there", 4)});
  EXPECT_EQ(run.finished(2).file.parent_path(), run.folder / "elsewhere");
}

// A dropped image: whole pixels, and settings that generate the very same file.
TEST(StudioOpen, RecallsEveryFieldAndGeneratesTheSameBytes) {
  StudioRun run;
  GenerateSettings settings = tiny_settings("recall \xc3\xa9\n\x1b[31m", 12);
  settings.negative_prompt = "not this";
  settings.sampling = values_of(DistributionSettings{.guidance = 2.5,
                                            .temperature = 0.9,
                                            .top_k = 20,
                                            .top_p = 0.95,
                                            .min_p = 0.001,
                                            .typical = 0.99});
  settings.method = decode_method("gsd");
  settings.method.window = 5;
  settings.method.set(setting::kGroupSize, 3);
  settings.storage = DType::kBF16;
  run.studio.post(GenerateCommand{settings});
  const Generation first = run.finished(1);
  ASSERT_EQ(first.state, GenerateState::kDone) << format_error(first.error);
  run.studio.post(OpenCommand{first.file, 5});
  run.until([](const Snapshot& now) { return now.recalled.has_value(); });
  const Snapshot& now = run.studio.snapshot();
  ASSERT_EQ(now.opened.size(), 1u);
  EXPECT_EQ(now.opened[0].image->rgb, first.image->rgb);
  EXPECT_EQ(now.recalled->request, 5u);
  EXPECT_EQ(now.recalled->path, first.file);
  ASSERT_TRUE(now.recalled->settings);
  GenerateSettings got = *now.recalled->settings;
  EXPECT_EQ(got.prompt, settings.prompt);
  EXPECT_EQ(got.negative_prompt, settings.negative_prompt);
  EXPECT_EQ(got.sampling, settings.sampling);
  EXPECT_EQ(got.method, settings.method);
  EXPECT_EQ(got.storage, settings.storage);
  EXPECT_EQ(got.seed, settings.seed);
  EXPECT_EQ(got.model, "test:tiny");
  EXPECT_EQ(got.width, first.image->width);
  run.studio.post(GenerateCommand{got});
  EXPECT_EQ(get_file(run.finished(2).file), get_file(first.file));
}

// Its prompt alone would lead to another image.
TEST(StudioOpen, AnImageOfAnAnswerIsNotRecalled) {
  StudioRun run;
  run.studio.post(GenerateCommand{tiny_settings("x", 12)});
  const Generation first = run.finished(1);
  ImageFacts facts = *read_metadata(first.file).facts;
  facts.answer_image = 2;
  const ImageTexts texts = image_texts(facts, RecordFacts::kAll);
  const std::filesystem::path file = run.folder / "of-answer.png";
  save_png(file, *first.image, texts.texts, texts.xmp);
  run.studio.post(OpenCommand{file});
  run.studio.post(OpenCommand{file, 3});
  run.until([](const Snapshot& now) { return now.recalled.has_value(); });
  const Snapshot& now = run.studio.snapshot();
  EXPECT_FALSE(now.recalled->settings);
  ASSERT_EQ(now.problems.size(), 1u);
  EXPECT_NE(now.problems[0].found.find("image 2 of an answer"), std::string::npos);
}

// A file that records nothing answers too, so that nobody waits on; one that is only opened does
// not; the newest answer stands.
TEST(StudioOpen, AnswersCarryTheNumberOfTheirQuestion) {
  StudioRun run;
  run.studio.post(GenerateCommand{tiny_settings("x", 12)});
  const Generation first = run.finished(1);
  put_file(run.folder / "good.jpg", golden_image("exif1.jpg"));
  run.studio.post(OpenCommand{first.file, 1});
  run.studio.post(OpenCommand{run.folder / "good.jpg", 2});
  run.studio.post(OpenCommand{first.file});
  run.until([&](const Snapshot& now) {
    return now.opened.size() == 2 && now.opened.back().path == first.file;
  });
  ASSERT_TRUE(run.studio.snapshot().recalled);
  EXPECT_EQ(run.studio.snapshot().recalled->request, 2u);
  EXPECT_FALSE(run.studio.snapshot().recalled->settings);
}

// Names of files are bytes; what is no UTF-8 opens, shows and is described as any other.
TEST(StudioOpen, NamesThatAreNoUtf8) {
  StudioOptions options;
  options.captioner = "test:tiny";
  StudioRun run(options);
  const std::filesystem::path odd = run.folder / "pictures" / "b\xff\xfe d.png";
  std::filesystem::create_directory(run.folder / "pictures");
  save_png(odd, Image(4, 4));
  run.studio.post(OpenCommand{odd, 1});
  run.studio.post(CaptionCommand{.images = {odd}});
  run.until([&](const Snapshot& now) {
    return now.opened.size() == 1 && now.gallery.size() == 1 && now.gallery[0].width == 4 &&
           !now.captions.empty() && is_final(now.captions[0].state);
  });
  EXPECT_TRUE(run.studio.snapshot().opened[0].image) << run.studio.snapshot().opened[0].problem;
  EXPECT_EQ(run.studio.snapshot().captions[0].state, CaptionState::kDone)
      << format_error(run.studio.snapshot().captions[0].error);
  run.studio.post(SaveCaptionCommand{odd, "a text"});
  run.until([](const Snapshot& now) { return now.gallery[0].caption == "a text"; });
  EXPECT_TRUE(run.studio.snapshot().problems.empty());
}

TEST(StudioOpen, StrangersFilesOpenOrSayWhyNot) {
  StudioRun run;
  put_file(run.folder / "bad.png", "nothing of the kind");
  put_file(run.folder / "good.jpg", golden_image("exif1.jpg"));
  run.studio.post(OpenCommand{run.folder / "bad.png"});
  run.studio.post(OpenCommand{run.folder / "missing.png"});
  run.studio.post(OpenCommand{run.folder / "good.jpg"});
  run.until([](const Snapshot& now) { return now.opened.size() == 3; });
  const auto& opened = run.studio.snapshot().opened;
  EXPECT_FALSE(opened[0].problem.empty());
  EXPECT_FALSE(opened[1].problem.empty());
  EXPECT_TRUE(opened[2].image) << opened[2].problem;
  EXPECT_FALSE(run.studio.snapshot().recalled);
}

TEST(VisualTiles, KeptScoresAndPlaces) {
  const VisualBlock whole = grid_block(2, 3);
  VisualBlock kept = whole;
  kept.tokens = {whole.tokens[1], whole.tokens[5]};
  const std::vector<float> scores = {0.1f, 1.0f, 0.2f, 0.3f, 0.4f, 0.5f};
  const auto tiles = visual_tiles(whole, kept, scores);
  ASSERT_EQ(tiles.size(), 1u);
  EXPECT_EQ(tiles[0].rows, 2);
  EXPECT_EQ(tiles[0].columns, 3);
  EXPECT_EQ(tiles[0].kept, (std::vector<std::uint8_t>{0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(tiles[0].scores, scores);
  EXPECT_EQ(tiles[0].width, 1.0);
  EXPECT_TRUE(std::isnan(visual_tiles(whole, kept, {})[0].scores[0]));
  // A base view and 1 x 2 tiles, the image padded by one column on the left.
  const TileGrid grid{.rows = 1,
                      .columns = 2,
                      .first_tile = 1,
                      .base_tile = 0,
                      .side_rows = 2,
                      .side_columns = 2,
                      .image_rows = 2,
                      .image_columns = 3,
                      .pad_top = 0,
                      .pad_left = 1};
  const VisualBlock next = llava_next_block(grid);
  const auto three = visual_tiles(next, next, {});
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[0].width, 1.0);
  EXPECT_NEAR(three[1].left, -1.0 / 3, 1e-12);
  EXPECT_NEAR(three[2].left, 1.0 / 3, 1e-12);
  EXPECT_NEAR(three[2].width, 2.0 / 3, 1e-12);
}

}  // namespace
}  // namespace tessera::gallery_test
