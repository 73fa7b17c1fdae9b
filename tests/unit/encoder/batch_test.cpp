// Images that are encoded together: each gives the bits that it gives alone, whatever stands
// next to it, with signals, with rows dropped and merged, on any number of threads.
#include <cstring>

#include "tests/unit/encoder/encoder_bench.h"
#include "vision/encoder/tower_signals.h"

namespace tessera::testing::batch_test {
namespace {

bool same_bits(ConstTensorView a, ConstTensorView b) {
  return a.shape == b.shape && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

// Image `p` keeps every row whose number within it is no multiple of 4 + p; pairs of neighbours
// merge where `merges`. The class token is row 0 of its image.
class Thinner final : public TowerObserver {
 public:
  // `alone`: this image is encoded by itself; its number in the full list.
  Thinner(const VitSpec& spec, std::int64_t layer, int alone)
      : spec_(spec), layer_(layer), alone_(alone) {}

  void after_attention(LayerState& state) override {
    if (state.layer() != layer_ || !spec_.class_token) return;
    std::vector<std::int32_t> to, stands_for;
    for (const RowRun& run : image_runs(state.places())) {
      for (std::int64_t i = 0; i < run.count(); ++i) {
        if (i == 0 || i % 2 == 1) stands_for.push_back(static_cast<std::int32_t>(run.begin + i));
        to.push_back(static_cast<std::int32_t>(stands_for.size() - 1));
      }
    }
    state.merge(to, stands_for);
  }
  void after_layer(LayerState& state) override {
    if (state.layer() != layer_) return;
    std::vector<std::int32_t> kept;
    for (const RowRun& run : image_runs(state.places())) {
      const int number =
          alone_ >= 0 ? alone_ : state.places()[static_cast<std::size_t>(run.begin)].image;
      for (std::int64_t i = 0; i < run.count(); ++i) {
        if (i == 0 || i % (4 + number) != 0)
          kept.push_back(static_cast<std::int32_t>(run.begin + i));
      }
    }
    state.keep(kept);
  }

 private:
  const VitSpec& spec_;
  std::int64_t layer_;
  int alone_;
};

struct Got {
  std::vector<EncodedImage> images;
  std::vector<TowerSignal> signals;
};

Got encode(const VitSpec& spec, const Checkpoint& weights, const std::vector<Tensor>& decoded_images,
           std::size_t first, std::size_t count, int threads, bool thin) {
  const auto backend = make_backend("cpu", {.threads = threads});
  const VisionEncoder encoder(*backend, spec, weights, DType::kF32);
  std::vector<EncoderInput> inputs;
  std::int64_t patches = 0;
  for (std::size_t i = first; i < first + count; ++i) {
    inputs.push_back({.pixels = decoded_images[i].view()});
    patches += vit_grid(spec, decoded_images[i].shape()).patches();
  }
  std::vector<TowerRequest> requests;
  for (const std::int64_t layer : {std::int64_t{0}, spec.run_layers - 1}) {
    for (const HeadMean heads : {HeadMean::kMean, HeadMean::kPerHead}) {
      for (const AttentionRows rows : {AttentionRows::kMeanOfRows, AttentionRows::kMeanQuery}) {
        requests.push_back({layer, TowerSignalKind::kAttention, rows, heads});
      }
      if (!spec.class_token) continue;
      requests.push_back({layer, TowerSignalKind::kAttention, AttentionRows::kClassToken, heads});
    }
    requests.push_back({layer, TowerSignalKind::kKeys});
    requests.push_back({layer, TowerSignalKind::kValues});
    requests.push_back({layer, TowerSignalKind::kHidden});
  }
  TowerRecorder recorder(requests);
  Thinner thinner(spec, 0, count == 1 ? static_cast<int>(first) : -1);
  std::vector<TowerObserver*> observers = {&recorder};
  if (thin) observers.push_back(&thinner);
  Arena arena(VisionEncoder::scratch_bytes(spec, patches, static_cast<std::int64_t>(count)));
  Got got;
  got.images =
      encoder.encode(inputs, arena, {.observers = observers, .proportional_attention = thin});
  got.signals = recorder.take();
  return got;
}

// Columns (attention) or rows (all else) that belong to image p of a signal of all.
Tensor part_of(const TowerSignal& all, std::int32_t p) {
  std::int64_t begin = 0, end = 0;
  for (const RowRun& run : image_runs(all.places)) {
    if (all.places[static_cast<std::size_t>(run.begin)].image == p) {
      begin = run.begin;
      end = run.end;
    }
  }
  const auto rows = static_cast<std::int64_t>(all.places.size());
  const Shape& shape = all.values.shape();
  const bool columns = shape[shape.rank() - 1] == rows && shape[0] != rows;  // [heads, rows]
  const std::int64_t outer = columns ? shape[0] : 1;
  const std::int64_t width = columns ? 1 : shape.elements() / rows;
  Tensor out = Tensor::host(DType::kF32, {outer, (end - begin) * width});
  for (std::int64_t o = 0; o < outer; ++o) {
    std::copy_n(all.values.f32() + (o * rows + begin) * width, (end - begin) * width,
                out.f32() + o * (end - begin) * width);
  }
  return out;
}

void expect_equal_to_each_alone(const VitSpec& spec, const std::vector<Tensor>& decoded_images) {
  const Checkpoint weights = Checkpoint::from_tensors("random", random_tower(spec));
  for (const bool thin : {false, true}) {
    const Got all = encode(spec, weights, decoded_images, 0, decoded_images.size(), 3, thin);
    ASSERT_EQ(all.images.size(), decoded_images.size());
    for (std::size_t i = 0; i < decoded_images.size(); ++i) {
      const Got one = encode(spec, weights, decoded_images, i, 1, 1, thin);
      EXPECT_TRUE(same_bits(all.images[i].features.view(), one.images[0].features.view()))
          << i << " thin " << thin;
      EXPECT_EQ(all.images[i].sizes, one.images[0].sizes);
      for (std::size_t s = 0; s < one.signals.size(); ++s) {
        const Tensor got = part_of(all.signals[s], static_cast<std::int32_t>(i));
        const Tensor& want = one.signals[s].values;
        ASSERT_EQ(got.bytes(), want.bytes());
        EXPECT_EQ(std::memcmp(got.f32(), want.f32(), want.bytes()), 0)
            << "picture " << i << " signal " << s << " thin " << thin;
      }
    }
    // The same image next to others, twice, is twice the same.
    EXPECT_FALSE(same_bits(all.images[0].features.view(), all.images[1].features.view()));
    EXPECT_EQ(same_bits(all.images[0].features.view(), all.images.back().features.view()), !thin);
  }
}

TEST(Batch, ClassTokenImagesGiveTheirOwnBits) {
  std::vector<Tensor> decoded_images;
  for (const std::uint64_t stream : {1, 2, 3, 1}) decoded_images.push_back(image({3, 20, 20}, stream));
  expect_equal_to_each_alone(class_token_spec(), decoded_images);
}

// Videos and stills of different sizes side by side, with windows.
TEST(Batch, WindowedImagesOfAnySizeGiveTheirOwnBits) {
  std::vector<Tensor> decoded_images;
  decoded_images.push_back(image({3, 12, 20}, 1));
  decoded_images.push_back(image({4, 3, 8, 8}, 2));
  decoded_images.push_back(image({3, 4, 24}, 3));
  decoded_images.push_back(image({3, 12, 20}, 1));
  expect_equal_to_each_alone(window_spec(), decoded_images);
}

TEST(Batch, FeaturesOfSeveralLayersAndTheClassTokenToo) {
  VitSpec spec = class_token_spec();
  spec.taps = {3, 0, 2};
  spec.run_layers = 3;
  spec.final_norm = VitFinalNorm::kUnused;
  const Checkpoint weights = Checkpoint::from_tensors("random", random_tower(spec));
  std::vector<Tensor> decoded_images;
  for (const std::uint64_t stream : {1, 2}) decoded_images.push_back(image({3, 20, 20}, stream));
  const Got all = encode(spec, weights, decoded_images, 0, 2, 2, false);
  for (std::size_t i = 0; i < 2; ++i) {
    const Got one = encode(spec, weights, decoded_images, i, 1, 2, false);
    EXPECT_EQ(all.images[i].features.shape(), Shape({100, 72}));
    EXPECT_TRUE(same_bits(all.images[i].features.view(), one.images[0].features.view()));
  }
}

TEST(Batch, NoImagesGiveNothing) {
  const VitSpec spec = class_token_spec();
  const Checkpoint weights = Checkpoint::from_tensors("random", random_tower(spec));
  EXPECT_TRUE(encode(spec, weights, {}, 0, 0, 1, false).images.empty());
}

}  // namespace
}  // namespace tessera::testing::batch_test
