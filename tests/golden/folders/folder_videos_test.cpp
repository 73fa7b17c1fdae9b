// Video processors of the corpus' folders under other keys (videos.json, written by
// assets/recipes/fixtures_folder_videos.py): frames are prepared as by the reference, or videos are
// refused by file and key where the reference stops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/families/folder_files.h"
#include "engine/families/registry.h"
#include "tests/support/folder_corpus.h"
#include "vision/image/preprocess.h"
#include "vision/image/video_preprocess.h"

namespace tessera::folder_videos_test {
namespace {

std::filesystem::path golden() {
  return std::filesystem::path(TESSERA_SOURCE_DIR) / "tests" / "golden" / "folders";
}

Json rows_of_videos() {
  const std::string file = (golden() / "videos.json").string();
  return parse_json(read_file(file, std::size_t{1} << 20), file);
}

void write_folder(const FolderCorpus& corpus, const Json& video, const std::filesystem::path& to) {
  const auto row = std::ranges::find_if(
      corpus.folders(), [&](const Json& one) { return one["name"] == video["name"]; });
  ASSERT_NE(row, corpus.folders().end());
  corpus.write_texts(*row, to);
  for (const auto& [name, text] : video["files"].items()) {
    std::filesystem::remove(to / name);
    if (!text.is_null()) put_file(to / name, text.get<std::string>());
  }
}

PreprocessedImage prepared(const VideoPolicy& policy, const Json& size) {
  const auto width = size[0].get<std::int64_t>(), height = size[1].get<std::int64_t>();
  VideoFrames frames;
  for (std::int64_t i = 0; i < size[2].get<std::int64_t>(); ++i) {
    frames.seconds.push_back(static_cast<double>(i));
    frames.numbers.push_back(i);
  }
  frames.length = static_cast<double>(frames.seconds.size());
  frames.rate = 1;
  VideoPreprocessor maker(policy, width, height, frames);
  for (const std::int64_t number : frames.numbers) {
    maker.add(corpus_image(width, height, size[3].get<std::int64_t>() + number));
  }
  return maker.finish();
}

void expect_pixels(const DescribeSpec& spec, const Json& row) {
  std::vector<float> pixels;
  for (const EncoderView& view : prepared(spec.video, row["frames"]).views) {
    const std::vector<float> more = spec.policy.mode == ResizeMode::kMultiples
                                        ? patch_rows(spec.video.frame, view, spec.video.view_frames)
                                        : view.values;
    pixels.insert(pixels.end(), more.begin(), more.end());
  }
  ASSERT_EQ(pixels.size(), row["numbers"].get<std::size_t>());
  // The reference rescales and normalises in one step, which rounds otherwise than two.
  const auto samples = row["samples"].get<std::vector<float>>();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::size_t at = i * (pixels.size() - 1) / (samples.size() - 1);
    EXPECT_NEAR(pixels[at], samples[i], 2e-6f * std::max(1.0f, std::abs(samples[i]))) << at;
  }
}

TEST(FolderVideos, FramesAreThoseOfTheReference) {
  const FolderCorpus corpus(golden());
  int same = 0;
  for (const Json& row : rows_of_videos()) {
    if (row.contains("refused")) continue;
    SCOPED_TRACE(row["name"].get<std::string>());
    const TempFolder folder;
    write_folder(corpus, row, folder.path());
    try {
      const ModelSpec spec = load_model_spec(folder.path(), {.use = ModelUse::kDescribe});
      if (spec.describe->no_videos) {
        ADD_FAILURE() << "refused: " << format_error(*spec.describe->no_videos);
        continue;
      }
      EXPECT_EQ(spec.describe->account->warnings(), std::vector<std::string>{});
      expect_pixels(*spec.describe, row);
      ++same;
    } catch (const Error& error) {
      ADD_FAILURE() << "refused: " << error.what();
    }
  }
  EXPECT_GE(same, 45);
}

TEST(FolderVideos, WhatTheReferenceStopsAtIsRefusedByFileAndKey) {
  const FolderCorpus corpus(golden());
  int whole = 0, videos = 0;
  for (const Json& row : rows_of_videos()) {
    if (!row.contains("refused")) continue;
    SCOPED_TRACE(row["name"].get<std::string>() + ": " + row["refused"].get<std::string>());
    const TempFolder folder;
    write_folder(corpus, row, folder.path());
    const bool of_folder =
        row["refused"].get<std::string>().find("load video processor") != std::string::npos;
    try {
      const ModelSpec spec = load_model_spec(folder.path(), {.use = ModelUse::kDescribe});
      EXPECT_FALSE(of_folder);
      const std::optional<ErrorInfo>& refusal = spec.describe->no_videos;
      if (!refusal) {
        ADD_FAILURE() << "not refused";
        continue;
      }
      EXPECT_TRUE(std::filesystem::exists(refusal->file)) << refusal->file;
      EXPECT_FALSE(refusal->where.empty() || refusal->expected.empty());
      EXPECT_TRUE(std::ranges::any_of(spec.describe->account->keys, [&](const KeyAccount& key) {
        return key.use == KeyUse::kRefused && key.key == refusal->where;
      }));
      ++videos;
    } catch (const Error& error) {
      EXPECT_TRUE(of_folder) << error.what();
      EXPECT_EQ(error.info().where, "video_processor");
      ++whole;
    }
  }
  EXPECT_GE(whole, 10);
  EXPECT_GE(videos, 20);
}

}  // namespace
}  // namespace tessera::folder_videos_test
