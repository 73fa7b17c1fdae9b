// The preprocessing of published families as data.
#include <utility>

#include "vision/image/preprocess.h"

namespace tessera {

namespace {

constexpr std::array<double, 3> kClipMean = {0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, 3> kClipStd = {0.26862954, 0.26130258, 0.27577711};

PreprocessPolicy clip(std::string name, ResizeMode mode) {
  PreprocessPolicy out;
  out.name = std::move(name);
  out.mode = mode;
  out.mean = kClipMean;
  out.std = kClipStd;
  return out;
}

PreprocessPolicy llava_pad() {
  PreprocessPolicy out = clip("llava-1.5", ResizeMode::kPadToSquare);
  out.background = {122, 116, 104};  // the mean colour, truncated
  return out;
}

// The authors list widths before heights, so at a tie a square becomes two rows; Hugging Face
// lists heights first, which makes it two columns.
PreprocessPolicy llava_next(std::string name, bool heights_first) {
  PreprocessPolicy out = clip(std::move(name), ResizeMode::kPinpoints);
  out.pinpoints = {{1, 2}, {2, 1}, {2, 2}, {3, 1}, {1, 3}};
  if (!heights_first) {
    for (Tiling& grid : out.pinpoints) std::swap(grid.rows, grid.cols);
  }
  return out;
}

PreprocessPolicy llava_onevision() {
  PreprocessPolicy out;
  out.name = "llava-onevision";
  out.mode = ResizeMode::kPinpoints;
  out.side = 384;
  for (std::int64_t rows = 1; rows <= 6; ++rows) {
    for (std::int64_t cols = 1; cols <= 6; ++cols) out.pinpoints.push_back({rows, cols});
  }
  out.most_map_tiles = 9;
  return out;
}

PreprocessPolicy janus(std::string name, SideRounding rounding) {
  PreprocessPolicy out;
  out.name = std::move(name);
  out.mode = ResizeMode::kLongestSide;
  out.side = 384;
  out.patch = 16;
  out.shortest = 14;
  out.rounding = rounding;
  out.background = {127, 127, 127};
  return out;
}

PreprocessPolicy qwen2_vl() {
  PreprocessPolicy out = clip("qwen2-vl", ResizeMode::kMultiples);
  out.side = 0;
  out.merge = 2;
  out.min_pixels = 4 * 28 * 28;
  out.max_pixels = 16384 * 28 * 28;
  return out;
}

PreprocessPolicy idefics(std::string name, std::int64_t side, std::int64_t patch,
                         std::int64_t merge) {
  PreprocessPolicy out;
  out.name = std::move(name);
  out.mode = ResizeMode::kTiles;
  out.filter = ResampleFilter::kLanczos;
  out.side = side;
  out.patch = patch;
  out.merge = merge;
  out.longest = 4 * side;
  return out;
}

std::vector<PreprocessPolicy> all_policies() {
  return {llava_pad(),
          clip("llava-1.5-hf", ResizeMode::kShortestSide),
          llava_next("llava-next", true),
          llava_next("llava-next-authors", false),
          llava_onevision(),
          janus("janus", SideRounding::kTruncate),
          janus("janus-hf", SideRounding::kHalfToEven),
          qwen2_vl(),
          idefics("idefics3", 364, 14, 2),
          idefics("smolvlm", 384, 14, 3),
          idefics("smolvlm-500m", 512, 16, 4)};
}

}  // namespace

PreprocessPolicy preprocess_policy(std::string_view name) {
  std::string known;
  for (PreprocessPolicy& policy : all_policies()) {
    if (policy.name == name) return std::move(policy);
    known += (known.empty() ? "" : ", ") + policy.name;
  }
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_POLICY",
               .expected = "a preprocessing policy (" + known + ")",
               .found = std::string(name)});
}

std::vector<std::string> preprocess_policy_names() {
  std::vector<std::string> names;
  for (const PreprocessPolicy& policy : all_policies()) names.push_back(policy.name);
  return names;
}

}  // namespace tessera
