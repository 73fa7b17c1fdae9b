// Lumina-mGPT's images: sizes, halvings, scaled sides and pixels of the authors' var_center_crop
// (Alpha-VLLM/Lumina-mGPT at 104abe4, target_size 768), whose place of the cut is the middle here.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/families/registry.h"
#include "vision/image/preprocess.h"

namespace tessera::nearest_aspect_test {
namespace {

struct Row {
  std::int64_t width, height, view_width, view_height;
  int halvings;
  std::int64_t resized_width, resized_height;
  std::uint64_t pixels;
};

constexpr Row kRows[] = {
    {768, 768, 768, 768, 0, 768, 768, 0x6fe153dc4195e165ull},
    {640, 480, 864, 640, 0, 864, 648, 0xf034e7cf5f2a92abull},
    {480, 640, 640, 864, 0, 648, 864, 0xc5a08211f591e853ull},
    {1000, 300, 1376, 416, 0, 1387, 416, 0x0de312a2a3abd035ull},
    {300, 1000, 416, 1376, 0, 416, 1387, 0xa7ced5c931b6940full},
    {100, 100, 768, 768, 0, 768, 768, 0xf8d784bb231fb5c8ull},
    {33, 7, 1536, 384, 0, 1810, 384, 0xe77fa1b7fb1e8643ull},
    {5, 90, 384, 1536, 0, 384, 6912, 0xfe01aac55739d379ull},
    {1537, 1536, 768, 768, 1, 768, 768, 0x43eb0f6d6cde39e5ull},
    {1800, 1301, 896, 640, 1, 896, 647, 0x1af14a222f3e8a76ull},
    {801, 767, 768, 736, 0, 769, 736, 0x5f44cbf56541daffull},
};

// Over little-endian words of 32 bits.
std::uint64_t fnv(const std::vector<std::uint8_t>& bytes) {
  std::uint64_t hash = 14695981039346656037ull;
  for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data() + at, 4);
    hash = (hash ^ word) * 1099511628211ull;
  }
  return hash;
}

TEST(NearestAspect, EqualsTheAuthorsCode) {
  const PreprocessPolicy policy = preprocess_policy("lumina-mgpt");
  for (const Row& row : kRows) {
    SCOPED_TRACE(std::to_string(row.width) + "x" + std::to_string(row.height));
    Image image(row.width, row.height);
    for (std::int64_t y = 0; y < row.height; ++y) {
      for (std::int64_t x = 0; x < row.width; ++x) {
        std::uint8_t* const pixel = image.at(x, y);
        pixel[0] = static_cast<std::uint8_t>(x * 7 + y * 13);
        pixel[1] = static_cast<std::uint8_t>(x * x / 16 + y);
        pixel[2] = static_cast<std::uint8_t>(x + y * y / 32);
      }
    }
    const PreprocessPlan plan = plan_preprocess(policy, row.width, row.height);
    EXPECT_EQ(plan.view_width, row.view_width);
    EXPECT_EQ(plan.view_height, row.view_height);
    EXPECT_EQ(plan.halvings, row.halvings);
    EXPECT_EQ(plan.resized_width, row.resized_width);
    EXPECT_EQ(plan.resized_height, row.resized_height);
    EXPECT_EQ(plan.tokens, row.view_height / 16 * (row.view_width / 16 + 1));
    EXPECT_EQ(fnv(make_views(policy, plan, image).front().rgb), row.pixels);
  }
}

}  // namespace
}  // namespace tessera::nearest_aspect_test
