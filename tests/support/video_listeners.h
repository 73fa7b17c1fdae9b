// Listeners and requests that tests of videos share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/support/own_video_task.h"

namespace tessera {

class Frames : public VideoListener {
 public:
  Flow on_progress(const VideoProgress& progress) override {
    passes = progress.passes;  // those that read a part of a prompt alone do not count
    EXPECT_EQ(progress.frames_done, static_cast<std::int64_t>(images.size()));
    if (!images.empty() && first_at == 0) first_at = passes;
    return stop_at > 0 && static_cast<std::int64_t>(images.size()) >= stop_at ? Flow::kStop
                                                                              : Flow::kContinue;
  }
  void on_frame(std::int64_t index, const Image& frame) override {
    EXPECT_EQ(index, static_cast<std::int64_t>(images.size()));
    images.push_back(frame);
  }
  void on_over(GeneratedVideo&& video) override {
    ++over;
    made = std::move(video);
  }
  std::vector<std::vector<std::uint8_t>> bytes() const {
    std::vector<std::vector<std::uint8_t>> out;
    for (const Image& image : images) out.push_back(image.rgb);
    return out;
  }

  std::vector<Image> images;
  std::int64_t passes = 0, first_at = 0, stop_at = 0, over = 0;
  GeneratedVideo made;
};

inline GenerateOptions options_for(const char* model, const char* method = "plain",
                                   int threads = 2) {
  GenerateOptions options;
  options.model = model;
  options.threads = threads;
  options.method = decode_method(method);
  return options;
}

inline VideoRequest request(std::uint64_t seed = 3) {
  return {.prompt = "a red cube", .seed = seed};
}

inline VideoRequest sliding(std::int64_t frames, Continuation how = Continuation::kSinks) {
  VideoRequest out = request();
  out.frames = frames;
  out.continuation = how;
  return out;
}

inline std::vector<Image> drawn(std::size_t count, int shift = 0) {
  std::vector<Image> out;
  for (std::size_t i = 0; i < count; ++i) {
    Image image(24, 16);
    for (std::size_t at = 0; at < image.rgb.size(); ++at) {
      image.rgb[at] =
          static_cast<std::uint8_t>((at * 7 + i * 31 + static_cast<std::size_t>(shift)) % 251);
    }
    out.push_back(std::move(image));
  }
  return out;
}

// Codes of a video as they is committed; stops after a number of grids.
class Grids : public VideoListener {
 public:
  Flow on_grid(const VideoGrid& grid) override {
    EXPECT_EQ(grid.index, first + static_cast<std::int64_t>(passes.size()));
    EXPECT_EQ(grid.codes.size(), 24u);
    codes.insert(codes.end(), grid.codes.begin(), grid.codes.end());
    passes.push_back(grid.passes);
    return grid.index + 1 == stop_after ? Flow::kStop : Flow::kContinue;
  }
  void on_frame(std::int64_t, const Image&) override { ++frames; }

  std::int64_t first = 0, stop_after = 0, frames = 0;
  std::vector<std::int32_t> codes;
  std::vector<std::int64_t> passes;
};

inline void expect_refused(const GenerateOptions& options, VideoRequest wanted, const char* code) {
  try {
    OwnVideoTask pipeline(options);
    pipeline.prepare(std::move(wanted));
    ADD_FAILURE() << "not refused with " << code;
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, code);
    EXPECT_EQ(error.exit_code(), 2);
  }
}

}  // namespace tessera
