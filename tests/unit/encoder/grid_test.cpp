// Row orders, windows, buckets and patches against their definitions, and the projector's cells.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "vision/encoder/projector.h"

namespace tessera::grid_test {
namespace {

VitSpec qwen_like(std::int64_t window) {
  VitSpec spec;
  spec.patch = 2;
  spec.frames = 2;
  spec.merge = 2;
  spec.window = window;
  spec.positions = VitPositions::kRotary2d;
  return spec;
}

TEST(VitGrid, BlocksStandTogetherInReferenceOrder) {
  const VitSpec spec = qwen_like(0);
  const VitGrid grid = vit_grid(spec, {4, 3, 8, 12});
  EXPECT_EQ(grid.times, 2);
  EXPECT_EQ(grid.rows, 4);
  EXPECT_EQ(grid.cols, 6);
  const std::vector<VitPlace> places = vit_places(spec, grid);
  ASSERT_EQ(places.size(), 48u);
  std::size_t at = 0;
  for (int time = 0; time < 2; ++time) {
    for (int y = 0; y < 2; ++y) {
      for (int x = 0; x < 3; ++x) {
        for (int dy = 0; dy < 2; ++dy) {
          for (int dx = 0; dx < 2; ++dx, ++at) {
            EXPECT_EQ(places[at].id, static_cast<std::int32_t>(at));
            EXPECT_EQ(places[at].time, time);
            EXPECT_EQ(places[at].row, 2 * y + dy);
            EXPECT_EQ(places[at].col, 2 * x + dx);
            EXPECT_EQ(places[at].frame_group, time);
          }
        }
      }
    }
  }
}

// Rows of one window are the patches whose block falls into it; windows follow each other in raster
// order; every patch is there once. Sizes that windows divide and sizes that they do not.
TEST(VitGrid, WindowsHoldTheirBlocks) {
  for (const std::int64_t window : {1, 2, 3, 4}) {
    for (const std::int64_t high : {1, 2, 4, 5}) {
      for (const std::int64_t wide : {1, 3, 4, 8}) {
        const VitSpec spec = qwen_like(window);
        const VitGrid grid = vit_grid(spec, {6, 3, 4 * high, 4 * wide});
        const std::vector<VitPlace> places = vit_places(spec, grid);
        std::set<std::int32_t> ids;
        std::int32_t last = 0;
        std::int64_t last_key = -1;
        for (const VitPlace& place : places) {
          ids.insert(place.id);
          const std::int64_t columns = (wide + window - 1) / window;
          const std::int64_t key =
              (place.time * ((high + window - 1) / window) + place.row / 2 / window) * columns +
              place.col / 2 / window;
          EXPECT_EQ(place.window_group, key);
          EXPECT_GE(place.window_group, last);
          EXPECT_GE(key, last_key);
          EXPECT_EQ(place.frame_group, place.time);
          last = place.window_group;
          last_key = key;
        }
        EXPECT_EQ(static_cast<std::int64_t>(ids.size()), grid.patches());
        EXPECT_EQ(*ids.rbegin() + 1, grid.patches());
      }
    }
  }
}

// Bucket of fraction i / n among `side` equal parts, in exact integers; where the fraction falls
// on a boundary it belongs to the part that begins there, rounding aside.
TEST(VitGrid, BucketsAreFractionsOfTheTrainedGrid) {
  for (const std::int64_t side : {14, 26, 27, 32}) {
    VitSpec spec;
    spec.patch = 1;
    spec.grid = side;
    spec.positions = VitPositions::kBuckets;
    for (std::int64_t n = 1; n <= 70; ++n) {
      const VitGrid grid = vit_grid(spec, {3, n, n});
      const std::vector<VitPlace> places = vit_places(spec, grid);
      const std::vector<std::int32_t> rows = vit_position_rows(spec, grid, places);
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t exact = i * side / n;
        const std::int64_t got = rows[static_cast<std::size_t>(i)];
        if (i * side % n != 0) {
          EXPECT_EQ(got, exact) << i << " of " << n;
        } else {
          EXPECT_LE(std::abs(got - exact), 1);
        }
        if (n == side) {
          EXPECT_EQ(got, i);
        }
        EXPECT_EQ(rows[static_cast<std::size_t>(i * n)], got * side);
      }
    }
  }
}

TEST(VitGrid, PaddingIsMarkedAndTakesTheFirstPosition) {
  VitSpec spec;
  spec.patch = 4;
  spec.grid = 6;
  spec.positions = VitPositions::kBuckets;
  const VitGrid grid = vit_grid(spec, {3, 24, 26}, 17, 12);
  EXPECT_EQ(grid.cols, 6);
  EXPECT_EQ(grid.filled_rows, 5);
  EXPECT_EQ(grid.filled_cols, 3);
  EXPECT_TRUE(grid.padded());
  const std::vector<VitPlace> places = vit_places(spec, grid);
  const std::vector<std::int32_t> rows = vit_position_rows(spec, grid, places);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool outside = places[i].row >= 5 || places[i].col >= 3;
    EXPECT_EQ(places[i].padding, outside);
    if (outside) {
      EXPECT_EQ(rows[i], 0);
    }
  }
}

TEST(VitGrid, PatchesReadTheirPixels) {
  const VitSpec spec = qwen_like(2);
  const Shape shape{4, 3, 8, 12};
  Tensor video = Tensor::host(DType::kF32, shape);
  for (std::int64_t i = 0; i < shape.elements(); ++i) video.f32()[i] = static_cast<float>(i);
  const std::vector<VitPlace> places = vit_places(spec, vit_grid(spec, shape));
  std::vector<float> out(static_cast<std::size_t>(48 * 24));
  vit_patches(spec, places, video.view(), out.data());
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::int64_t k = 0; k < 24; ++k) {
      const std::int64_t channel = k / 8, frame = k / 4 % 2, y = k / 2 % 2, x = k % 2;
      const std::int64_t from =
          (((places[i].time * 2 + frame) * 3 + channel) * 8 + places[i].row * 2 + y) * 12 +
          places[i].col * 2 + x;
      ASSERT_EQ(out[i * 24 + static_cast<std::size_t>(k)], static_cast<float>(from));
    }
  }
  // A still stands for both frames.
  ConstTensorView still = video.view();
  still.shape = {3, 8, 12};
  const std::vector<VitPlace> one = vit_places(spec, vit_grid(spec, still.shape));
  ASSERT_EQ(one.size(), 24u);
  vit_patches(spec, one, still, out.data());
  for (std::size_t i = 0; i < one.size() * 24; ++i) {
    if (i % 8 < 4) {
      ASSERT_EQ(out[i], out[i + 4]);
    }
  }
}

TEST(VitGrid, WrongImagesAreRefused) {
  const auto refused = [](const VitSpec& spec, const Shape& shape) {
    try {
      vit_grid(spec, shape);
      ADD_FAILURE() << "accepted " << shape.to_string();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2);
      EXPECT_EQ(error.info().code, "E_VIT_PIXELS");
      EXPECT_EQ(error.info().found, shape.to_string());
    }
  };
  const VitSpec rotary = qwen_like(2);
  refused(rotary, {3, 8, 10});    // half a block
  refused(rotary, {3, 2, 8});     // less than a block
  refused(rotary, {1, 8, 8});     // one channel
  refused(rotary, {3, 3, 8, 8});  // three frames, two a patch
  refused(rotary, {8, 8});
  refused(VitSpec{}, {3, 336, 322});     // not the trained grid
  refused(VitSpec{}, {2, 3, 336, 336});  // a video where one frame is known
  EXPECT_EQ(vit_grid(VitSpec{}, {3, 336, 336}).patches(), 576);
}

// A projector whose matrix is the identity shows how the patches of a cell are joined.
TEST(Projector, CellsJoinTheirPatchesRowByRow) {
  const auto backend = make_backend("cpu", {.threads = 1});
  ProjectorSpec spec;
  spec.in_width = 2;
  spec.cell = 3;
  spec.layers = {"proj"};
  spec.widths = {18};
  spec.bias = false;
  Tensor identity = Tensor::host(DType::kF32, {18, 18});
  std::fill_n(identity.f32(), 18 * 18, 0.0f);
  for (int i = 0; i < 18; ++i) identity.f32()[i * 19] = 1.0f;
  std::map<std::string, Tensor> tensors;
  tensors.emplace("proj.weight", std::move(identity));
  const Projector projector(*backend, spec,
                            Checkpoint::from_tensors("identity", std::move(tensors)), DType::kF32);
  EncodedImage image;
  image.grid = {1, 6, 9, 6, 9};
  VitSpec vit;
  image.places = vit_places(vit, {1, 6, 9, 6, 9});
  // Cell 4 (second row, second column) was dropped.
  std::erase_if(image.places,
                [](const VitPlace& place) { return place.row / 3 == 1 && place.col / 3 == 1; });
  const auto count = static_cast<std::int64_t>(image.places.size());
  image.features = backend->allocate(DType::kF32, {count, 2});
  for (std::int64_t i = 0; i < count; ++i) {
    const VitPlace& place = image.places[static_cast<std::size_t>(i)];
    image.features.f32()[2 * i] = static_cast<float>(place.row);
    image.features.f32()[2 * i + 1] = static_cast<float>(place.col);
  }
  Arena arena(Projector::scratch_bytes(spec, count));
  const ProjectedImage out = projector.project(image, arena);
  EXPECT_EQ(out.cells, (std::vector<std::int32_t>{0, 1, 2, 3, 5}));
  EXPECT_EQ(out.cell_rows, 2);
  EXPECT_EQ(out.cell_cols, 3);
  for (std::size_t cell = 0; cell < out.cells.size(); ++cell) {
    for (std::size_t i = 0; i < 9; ++i) {
      const float* got = out.rows.f32() + cell * 18 + 2 * i;
      EXPECT_EQ(got[0], static_cast<float>(out.cells[cell] / 3 * 3 + static_cast<int>(i) / 3));
      EXPECT_EQ(got[1], static_cast<float>(out.cells[cell] % 3 * 3 + static_cast<int>(i) % 3));
    }
  }
  image.places.pop_back();
  image.features = backend->allocate(DType::kF32, {count - 1, 2});
  EXPECT_DEATH(projector.project(image, arena), "all of its patches");
}

}  // namespace
}  // namespace tessera::grid_test
