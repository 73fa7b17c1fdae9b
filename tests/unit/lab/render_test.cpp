// The renderer: the same bytes always, saved work that changes nothing, solids that can be seen.
#include "apps/lab/scene/render.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "apps/lab/scene/tracer.h"

namespace tessera::render_test {
namespace {

// FNV-1a, 64 bits.
std::uint64_t hash_of(const std::vector<std::uint8_t>& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

// The models are trained on this world: not one byte of it may change.
TEST(Render, BytesAreThoseTheModelsWereTrainedOn) {
  EXPECT_EQ(hash_of(render_scene(sample_scene(1, SceneSplit::kTrain, 0), 64).rgb),
            0xb66c0ec1fde8104eu);
  EXPECT_EQ(hash_of(render_scene(sample_scene(2, SceneSplit::kVal, 5), 128).rgb),
            0x6a66e602806c46e7u);
  EXPECT_EQ(hash_of(render_scene(sample_scene(3, SceneSplit::kHoldout, 17), 256).rgb),
            0x5a57cdaa53a6c904u);
}

TEST(Render, OneChangedAttributeChangesTheImage) {
  const Scene scene = sample_scene(2, SceneSplit::kVal, 5);
  const std::uint64_t plain = hash_of(render_scene(scene, 64).rgb);
  Scene other = scene;
  other.solids[0].material = other.solids[0].material == SolidMaterial::kMatte
                                 ? SolidMaterial::kShiny
                                 : SolidMaterial::kMatte;
  EXPECT_NE(hash_of(render_scene(other, 64).rgb), plain);
  other = scene;
  other.solids[0].x += 0.05;
  EXPECT_NE(hash_of(render_scene(other, 64).rgb), plain);
}

TEST(Render, ThreadsChangeNothing) {
  std::vector<Scene> scenes;
  for (int i = 0; i < 48; ++i) scenes.push_back(sample_scene(5, SceneSplit::kTrain, i));
  ThreadPool one(1);
  const std::vector<SceneImage> wanted = render_scenes(scenes, 64, one);
  for (const int threads : {2, 3, 7}) {
    ThreadPool pool(threads);
    const std::vector<SceneImage> images = render_scenes(scenes, 64, pool);
    for (std::size_t i = 0; i < scenes.size(); ++i) {
      EXPECT_EQ(images[i].rgb, wanted[i].rgb) << threads << " threads, scene " << i;
    }
  }
}

// The rectangles that spare rays against it must be wide enough: every solid for every ray gives
// the same bytes.
SceneImage render_without_masks(const Scene& scene, int size) {
  using world::Vec;
  const world::PosedScene posed = world::pose(scene);
  const world::Camera view = world::camera();
  const float scale = 2.0f * world::kTanHalfView / static_cast<float>(size);
  SceneImage image{size, size, {}};
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x) {
      Vec sum;
      for (int sample = 0; sample < 4; ++sample) {
        const float at_x = static_cast<float>(x) + ((sample & 1) != 0 ? 0.75f : 0.25f);
        const float at_y = static_cast<float>(y) + ((sample & 2) != 0 ? 0.75f : 0.25f);
        const Vec ray = view.forward + view.right * (at_x * scale - world::kTanHalfView) +
                        view.up * (world::kTanHalfView - at_y * scale);
        const Vec light = world::radiance(posed, world::kEye, ray, ~0u, ~0u);
        sum = sum + Vec{std::min(light.x, 1.0f), std::min(light.y, 1.0f), std::min(light.z, 1.0f)};
      }
      for (const float channel : {sum.x, sum.y, sum.z}) {
        const float mean = std::clamp(channel * 0.25f, 0.0f, 1.0f);
        image.rgb.push_back(static_cast<std::uint8_t>(std::sqrt(mean) * 255.0f + 0.5f));
      }
    }
  }
  return image;
}

TEST(Render, SparedRaysWouldHaveHitNothing) {
  for (int i = 0; i < 150; ++i) {
    const Scene scene = sample_scene(8, static_cast<SceneSplit>(i % 3), i);
    const int size = i % 2 == 0 ? 64 : 50;
    ASSERT_EQ(render_scene(scene, size).rgb, render_without_masks(scene, size).rgb) << i;
  }
}

// Solids at the edges of the table, where a scene of a user's own may put them.
TEST(Render, SparedRaysAtTheEdgesToo) {
  for (const double x : {-3.0, 3.0}) {
    for (const double z : {-2.4, 2.4}) {
      for (int kind = 0; kind < kSolidKinds; ++kind) {
        Scene scene;
        scene.floor = FloorKind::kCheckered;
        scene.solids.push_back({static_cast<SolidKind>(kind), SolidColour::kCyan, SolidSize::kLarge,
                                SolidMaterial::kShiny, x, z});
        ASSERT_EQ(render_scene(scene, 48).rgb, render_without_masks(scene, 48).rgb);
      }
    }
  }
}

TEST(Visibility, EverySolidKeepsItsShareInSight) {
  double least = 1.0;
  double sum = 0.0;
  int solids = 0;
  for (int i = 0; i < 2000; ++i) {
    const Scene scene = sample_scene(9, static_cast<SceneSplit>(i % 3), i);
    for (const int size : {64, 128}) {
      const std::vector<double> shares = visible_shares(scene, size);
      ASSERT_EQ(shares.size(), scene.solids.size());
      for (const double share : shares) {
        EXPECT_GE(share, kVisibleShare) << "scene " << i << " at " << size;
        least = std::min(least, share);
        sum += share;
        ++solids;
      }
    }
  }
  EXPECT_LT(least, 1.0) << "some solids do overlap, so the check sees something";
  EXPECT_GT(sum / solids, 0.95);
}

TEST(Visibility, AHiddenSolidIsCaught) {
  Scene scene;
  scene.solids.push_back(
      {SolidKind::kCube, SolidColour::kRed, SolidSize::kLarge, SolidMaterial::kMatte, 0.0, -1.0});
  scene.solids.push_back(
      {SolidKind::kSphere, SolidColour::kBlue, SolidSize::kSmall, SolidMaterial::kMatte, 0.1, 0.9});
  const std::vector<double> shares = visible_shares(scene, 64);
  EXPECT_EQ(shares[0], 1.0);
  EXPECT_LT(shares[1], kVisibleShare);
}

// Large and small stay apart whatever the depth: the smallest large silhouette is clearly wider
// than the widest small one of the same kind.
TEST(Visibility, LargeIsWiderThanSmallAtAnyDepth) {
  for (int kind = 0; kind < kSolidKinds; ++kind) {
    const auto width = [&](SolidSize size, double z) {
      Scene scene;
      scene.solids.push_back(
          {static_cast<SolidKind>(kind), SolidColour::kRed, size, SolidMaterial::kMatte, 0.0, z});
      const std::vector<std::uint8_t> ids = id_buffer(scene, 256);
      int left = 256;
      int right = 0;
      for (int i = 0; i < 256 * 256; ++i) {
        if (ids[i] == 0) continue;
        left = std::min(left, i % 256);
        right = std::max(right, i % 256);
      }
      return right - left + 1;
    };
    EXPECT_GT(width(SolidSize::kLarge, 2.4), 1.25 * width(SolidSize::kSmall, -2.4)) << kind;
  }
}

TEST(Visibility, IdBufferAgreesWithShares) {
  for (int i = 0; i < 50; ++i) {
    const Scene scene = sample_scene(10, SceneSplit::kTrain, i);
    const std::vector<std::uint8_t> ids = id_buffer(scene, 64);
    for (std::size_t s = 0; s < scene.solids.size(); ++s) {
      Scene alone = scene;
      alone.solids = {scene.solids[s]};
      const std::vector<std::uint8_t> whole = id_buffer(alone, 64);
      const double share =
          static_cast<double>(std::count(ids.begin(), ids.end(), static_cast<int>(s) + 1)) /
          static_cast<double>(std::count(whole.begin(), whole.end(), 1));
      EXPECT_EQ(share, visible_shares(scene, 64)[s]);
    }
  }
}

TEST(ContactSheet, EveryImageLiesWhereItShould) {
  std::vector<SceneImage> images;
  for (int i = 0; i < 5; ++i) {
    images.push_back({2, 2, std::vector<std::uint8_t>(12, static_cast<std::uint8_t>(10 * i))});
  }
  const SceneImage sheet = contact_sheet(images, 3, 1);
  EXPECT_EQ(sheet.width, 10);
  EXPECT_EQ(sheet.height, 7);
  const auto at = [&](int x, int y) { return sheet.rgb[(y * sheet.width + x) * 3]; };
  EXPECT_EQ(at(0, 0), 225);
  EXPECT_EQ(at(1, 1), 0);
  EXPECT_EQ(at(8, 2), 20);
  EXPECT_EQ(at(3, 1), 225);
  EXPECT_EQ(at(1, 4), 30);
  EXPECT_EQ(at(5, 5), 40);
  EXPECT_EQ(at(7, 4), 225) << "no sixth image";
}

}  // namespace
}  // namespace tessera::render_test
