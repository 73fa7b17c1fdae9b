// From a decoded image to what a vision encoder sees. Each published family resizes, pads, crops
// or tiles in its own way; a policy describes the way as data (engine/spec/preprocess_policy.h),
// plan_preprocess() works out the geometry and the number of visual tokens, preprocess() makes the
// pixels.
//
// Sources: the image processors of Hugging Face transformers (Pillow path), which the tests
// compare with bit for bit, and the authors' code of LLaVA, LLaVA-NeXT and Janus where it differs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/preprocess_policy.h"
#include "vision/image/decoded_image.h"
#include "vision/image/resample.h"

namespace tessera {

enum class BaseView { kOnly, kFirst, kLast };

// What a plan of a video has besides (plan_video): its views show frames in order of time.
struct VideoPlan {
  std::int64_t view_frames = 1;        // frames of a view; the last view repeats the last frame
  std::vector<double> seconds;         // of each frame: when it is shown
  std::vector<std::int64_t> numbers;   // of each frame in its file, from 0
  double length = 0;                   // seconds of the video
  std::vector<std::int32_t> time_ids;  // of each view, for models with an axis of time
  bool operator==(const VideoPlan&) const = default;
};

struct PreprocessPlan {
  std::int64_t width = 0, height = 0;            // pixels of the image
  std::int64_t view_width = 0, view_height = 0;  // pixels; all views are of one size
  std::int64_t views = 1;                        // base view and tiles
  BaseView base = BaseView::kOnly;
  Tiling tiles;  // 0x0 when the base view is the only one
  // kTiles resizes twice: to this size first. 0x0 elsewhere.
  std::int64_t first_width = 0, first_height = 0;
  int halvings = 0;  // kNearestAspect: before it is scaled
  // Pixels of the resized image and where it lies on the canvas, before cutting. The canvas has
  // the size of all tiles, or of the one view.
  std::int64_t resized_width = 0, resized_height = 0;
  std::int64_t canvas_width = 0, canvas_height = 0;
  std::int64_t left = 0, top = 0;  // of the resized image; negative: it is cropped
  // Tokens of one view, in rows and columns.
  std::int64_t view_rows = 0, view_cols = 0;
  // kPinpoints: the part of the tiles' joint token map that shows the image, and its size after
  // shrinking; every row of it ends with one more token.
  std::int64_t map_top = 0, map_left = 0, map_rows = 0, map_cols = 0;
  std::int64_t packed_rows = 0, packed_cols = 0;
  std::int64_t newlines = 0;  // one-more tokens, of rows or of the view, counted in `tokens`
  bool row_newlines = false;  // those of a single view stand after its rows
  std::int64_t tokens = 0;    // visual tokens in the language model's sequence
  // Of a video; none = an image. packed_rows and packed_cols are of a frame then, 0 where the
  // tokens of a frame stay as many as the encoder gives.
  std::optional<VideoPlan> video;
  bool operator==(const PreprocessPlan&) const = default;
};

// Error kGeneral, E_PICTURE_ASPECT, for an image thinner than the policy allows.
PreprocessPlan plan_preprocess(const PreprocessPolicy& policy, std::int64_t width,
                               std::int64_t height);

// One view as the encoder takes it: [3, height, width] f32, normalised; [frames, 3, height, width]
// where a view of a video has several frames.
struct EncoderView {
  std::int64_t width = 0, height = 0;  // pixels
  std::vector<float> values;
  std::int64_t frames = 1;
};

struct PreprocessedImage {
  PreprocessPlan plan;
  std::vector<EncoderView> views;  // in the order the family's encoder output is packed in
};

PreprocessedImage preprocess(const PreprocessPolicy& policy, const DecodedImage& image);

// The steps of preprocess(). Pixels of all views, resized, padded and cut:
std::vector<Image> make_views(const PreprocessPolicy& policy, const PreprocessPlan& plan,
                              const Image& image);
// (pixel * rescale, rounded to f32, minus mean) over std, in f32.
EncoderView normalise(const PreprocessPolicy& policy, const Image& view);

// A view as rows of patches, [view_height/patch * view_width/patch, 3 * frames * patch * patch]:
// each merge x merge cell of patches is contiguous, cells in raster order; a row is ordered
// (channel, frame, y, x) and shows a still image in each frame (Qwen2-VL). A view of a video has
// as many frames as are asked for.
std::vector<float> patch_rows(const PreprocessPolicy& policy, const EncoderView& view,
                              std::int64_t frames);

}  // namespace tessera
