// Whole images on a CUDA device: the equality rule gives plain decoding's tokens, whatever the
// window, the redraft policy, the drafter and the batch, in both storages; and what crosses the bus
// in a pass.
#include <gtest/gtest.h>

#include <iostream>
#include <set>

#include "engine/backend/row_verifier.h"
#include "engine/ops/ops.h"
#include "tests/support/devices.h"
#include "tests/unit/decoding/tiny_run.h"
#include "tokenizers/visual/device_maps.h"

namespace tessera::testing::cuda_loop_test {
namespace {

struct Setting {
  TestDevice device;
  DType storage;

  friend std::ostream& operator<<(std::ostream& out, const Setting& setting) {
    return out << setting.device << " " << dtype_name(setting.storage);
  }
};

class CudaLoop : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    auto backend = GetParam().device.open();
    if (backend == nullptr) GTEST_SKIP() << "no usable " << GetParam().device << " device here";
    tiny = std::make_unique<TinyRun>(std::move(backend), GetParam().storage);
  }
  // f32 products of the simulated device cost a second a pass.
  bool slow() const {
    return GetParam().device.name == "simt" && GetParam().storage == DType::kF32;
  }
  std::vector<Tokens> tokens(int items, const DecodeMethod& method) const {
    return tokens_of(tiny->run_method(first_items(*tiny, items), method));
  }

  std::unique_ptr<TinyRun> tiny;
};

INSTANTIATE_TEST_SUITE_P(Simulated, CudaLoop,
                         ::testing::Values(Setting{{"simt"}, DType::kF32},
                                           Setting{{"simt"}, DType::kBF16}));
INSTANTIATE_TEST_SUITE_P(Cuda, CudaLoop,
                         ::testing::Values(Setting{{"cuda"}, DType::kF32},
                                           Setting{{"cuda"}, DType::kBF16}));

TEST_P(CudaLoop, EqualityGivesPlainTokens) {
  std::vector<DecodeMethod> methods = {combine("context", "gumbel", "gumbel", 17)};
  if (!slow()) {
    methods.push_back(combine("uniform", "gumbel", "gumbel", 8));
    methods.push_back(combine("above", "drop", "gumbel", 3));
    methods.push_back(combine("lookup", "resample", "gumbel", 33));
  }
  const int items = slow() ? 1 : 2;
  const std::vector<Tokens> plain = tokens(items, combine("none", "drop", "exact", 1));
  EXPECT_GT(std::set<std::int32_t>(plain[0].begin(), plain[0].end()).size(), 5u);
  for (const DecodeMethod& method : methods) {
    EXPECT_EQ(tokens(items, method), plain) << method.drafter << " " << method.window;
  }
}

TEST_P(CudaLoop, BatchesChangeNothing) {
  const DecodeMethod method = combine("uniform", "gumbel", "exact", 6);
  const int items = slow() ? 2 : 3;
  const std::vector<Tokens> together = tokens(items, method);
  for (int number = slow() ? 1 : 0; number < items; ++number) {
    const auto alone = tokens_of(tiny->run_method({tiny->item(number)}, method));
    EXPECT_EQ(alone[0], together[static_cast<std::size_t>(number)]) << number;
  }
}

#ifdef TESSERA_SIMULATED_DEVICE
// The counts of one pass, from the middle of an image.
TEST_P(CudaLoop, APassIsAGraphAndOneSmallRead) {
  if (GetParam().device.name != "simt") GTEST_SKIP() << "the simulated device counts";
  for (const DecodeMethod& method :
       {combine("none", "drop", "exact", 1), combine("uniform", "maximal", "exact", 8)}) {
    std::vector<simt::DeviceCounts> after;
    const std::vector<Stream> items = first_items(*tiny, 1);
    const OwnedParts<float, KeyedRandom> owned(method, tiny->aids());
    StreamLoop loop(
        tiny->model,
        image_limits(
            tiny->model,
            {.items = 1, .prompt_rows = 8, .window = method.window, .dists = keeps_dists(method)}),
        owned.parts());
    const auto run = [&] {
      run_streams(loop, items, [&](const RunPass&) {
        after.push_back(simt::counts());
        return Flow::kContinue;
      });
    };
    run();
    const std::size_t passes = after.size();
    ASSERT_GT(passes, 12u);
    // After the first passes, which are enqueued plainly and recorded, up to the ragged end.
    for (std::size_t pass = 6; pass + 8 < passes; ++pass) {
      const simt::DeviceCounts &a = after[pass - 1], &b = after[pass];
      EXPECT_EQ(b.graphs - a.graphs, 1) << pass;
      EXPECT_EQ(b.downloads - a.downloads, 1) << pass;
      EXPECT_EQ(b.waits - a.waits, 1) << pass;
      EXPECT_EQ(b.allocations - a.allocations, 0) << pass;
      EXPECT_EQ(b.pageable - a.pageable, 0) << pass;
      EXPECT_LE(b.launches - a.launches, 4) << "the distribution and the commit length; pass " << pass;
      const std::size_t logits = static_cast<std::size_t>(method.window * tiny->model.logit_ids());
      EXPECT_LE(b.bytes_down - a.bytes_down,
                sizeof(RowRecord) * static_cast<std::size_t>(method.window + 1));
      EXPECT_LT(b.bytes_down - a.bytes_down, logits * sizeof(float)) << "no logits on the bus";
    }
  }
}

// Pixels on their way to the host hold nobody up, and cost the driver nothing the second time.
TEST_P(CudaLoop, PixelsComeDownNextToTheHost) {
  if (GetParam().device.name != "simt") GTEST_SKIP() << "the simulated device counts";
  Backend& backend = tiny->model.backend();
  const Shape shape{96, 96, 3};
  std::vector<float> values(static_cast<std::size_t>(shape.elements()), 0.25f);
  values.back() = 7;
  Tensor one = backend.allocate(DType::kF32, shape);
  backend.upload({DType::kF32, shape, values.data(), {}}, one.view());
  Tensor sum = backend.allocate(DType::kF32, shape);
  backend.synchronize();
  const void* first = nullptr;
  for (const bool again : {false, true}) {
    const simt::DeviceCounts before = simt::counts();
    Tensor host = backend.allocate_host(DType::kF32, shape);
    ops::add(backend, one.view(), one.view(), sum.view());
    backend.download(sum.view(), host.view());
    EXPECT_EQ(simt::counts().kernels, before.kernels) << "the host did not wait";
    backend.synchronize();
    EXPECT_EQ(simt::counts().kernels, before.kernels + 1);
    EXPECT_EQ(host.f32()[0], 0.5f);
    EXPECT_EQ(host.f32()[values.size() - 1], 14);
    EXPECT_EQ(simt::counts().pageable, before.pageable);
    if (again) {
      EXPECT_EQ(host.f32(), first);
      EXPECT_EQ(simt::counts().allocations, before.allocations);
    }
    first = host.f32();
  }
  const std::int64_t before = simt::counts().pageable;
  EXPECT_EQ(to_host(backend, sum.view()).f32()[1], 0.5f);
  EXPECT_EQ(simt::counts().pageable, before) << "a tokenizer's pixels";
}
#endif

}  // namespace
}  // namespace tessera::testing::cuda_loop_test
