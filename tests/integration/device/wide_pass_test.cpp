// Passes of more rows than a model sends through its layers together, on simulated devices of
// several sizes: the larger the device, the longer the parts.
#include <gtest/gtest.h>

#include <cmath>

#include "apps/lab/models/test_models.h"
#include "engine/decoding/model_pass.h"
#include "tests/support/model_runner.h"
#include "tests/support/simt/simulated_device.h"

namespace tessera::wide_pass_test {
namespace {

class WidePass : public ::testing::Test {
 protected:
  ~WidePass() override { simt::set_device({}); }

  static std::unique_ptr<Backend> device(int multiprocessors, bool deterministic = true) {
    simt::set_device({.multiprocessors = multiprocessors});
    return simt::make_device({.threads = 1}, {.deterministic = deterministic});
  }
  static StreamModel model_on(Backend& backend, DType storage) {
    OpenedModel opened = open_model("test:tiny");
    return load_stream_model(opened, backend, storage);
  }
  // `count` rows of made-up tokens; the same for the same seed.
  static std::vector<float> rows(ModelRunner& any, std::int64_t count, std::int32_t seed) {
    std::vector<std::int32_t> prompt, tokens;
    for (std::int32_t i = 0; i < 9; ++i) prompt.push_back((seed + 5 * i) % 16);
    for (std::int32_t i = 9; i < count; ++i) tokens.push_back((seed * 31 + i * i) % 64);
    return joined(any.prompt_rows(prompt), any.token_rows(tokens));
  }
  static constexpr std::int32_t kPrompts = 4;
  static constexpr std::int64_t kRows = 130;  // of each
  // Hidden rows of prompts [first, kPrompts) in one batch.
  static std::vector<float> forward(const StreamModel& model, DType storage, std::int32_t first) {
    ModelRunner any(model, 1, 160, storage);
    ModelRunner all(model, kPrompts, 160, storage);
    std::vector<ModelRunner::Part> parts;
    for (std::int32_t i = first; i < kPrompts; ++i) parts.push_back({i, rows(any, kRows, i)});
    return all.forward(parts);
  }
};

TEST_F(WidePass, PartsAreAsLongAsTheDeviceIsLarge) {
  const auto rows = [](int multiprocessors) { return device(multiprocessors)->rows_at_once(); };
  EXPECT_EQ(rows(4), 256);
  EXPECT_EQ(rows(16), 512);
  EXPECT_EQ(rows(28), 768);
  EXPECT_EQ(rows(108), 2816);
  EXPECT_EQ(rows(132), 3328);
  EXPECT_EQ(rows(170), 3328);
  EXPECT_EQ(device(132, false)->rows_at_once(), 3328);
}

// The last prompt reaches over the end of the first part.
TEST_F(WidePass, LongPartsChangeNoBit) {
  const auto backend = device(16);
  const StreamModel model = model_on(*backend, DType::kBF16);
  ASSERT_LT(backend->rows_at_once(), kPrompts * kRows);
  ASSERT_GT(backend->rows_at_once(), (kPrompts - 1) * kRows);
  const std::vector<float> all = forward(model, DType::kBF16, 0);
  const std::vector<float> last = forward(model, DType::kBF16, kPrompts - 1);
  EXPECT_EQ(std::vector<float>(all.end() - static_cast<std::ptrdiff_t>(last.size()), all.end()),
            last);
}

// Fast, every product goes to the library and every prompt to the tensor cores: factors are rounded
// to bf16, a unit of 2^-8, in two layers of some ten products each. Errors of a random kind give a
// distance of about sqrt(20) half units; a wrong row or a wrong head is as far as rows are from
// each other, a distance of about 1.
TEST_F(WidePass, FastPartsKeepTheDistribution) {
  const auto backend = device(16, false);
  const auto cpu = make_backend("cpu", {.threads = 1});
  const std::vector<float> got = forward(model_on(*backend, DType::kBF16), DType::kBF16, 0);
  const std::vector<float> want = forward(model_on(*cpu, DType::kBF16), DType::kBF16, 0);
  ASSERT_EQ(got.size(), want.size());
  const std::size_t width = got.size() / (kPrompts * kRows);
  for (std::size_t row = 0; row < kPrompts * kRows; ++row) {
    double off = 0, size = 0;
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      off += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
      size += std::pow(static_cast<double>(want[i]), 2);
    }
    ASSERT_LT(std::sqrt(off / size), 4.5 / 256) << "row " << row;
  }
  EXPECT_NE(got, want);
}

// What a pass of long parts takes of the device was planned, and is more than short parts would
// take.
TEST_F(WidePass, LongPartsArePlanned) {
  const auto backend = device(16);
  const StreamModel model = model_on(*backend, DType::kBF16);
  const ModelConfig& config = model.transformer().config();
  const ModelPass::Limits limits{.sequences = kPrompts,
                                 .capacity = 160,
                                 .logit_rows = kPrompts,
                                 .token_rows = kPrompts,
                                 .prompt_rows = kPrompts * kRows,
                                 .kv = DType::kBF16};
  const auto free = [&] {
    backend->synchronize();
    return backend->memory().value_or(DeviceMemory{}).free;
  };
  const std::size_t before = free();
  ModelPass pass(model, limits);
  std::vector<std::int32_t> prompt(kRows, 3);
  pass.begin();
  for (std::int32_t i = 0; i < kPrompts; ++i) pass.add_prompt(i, prompt);
  pass.run_layers();
  const std::size_t used = before - free();
  const auto planned = [&](const Backend& by) {
    return ModelPass::bytes(config, model.config().codes, by, limits);
  };
  constexpr std::size_t kRounding = 8 * (32 << 10);  // of some eight tensors, in units of the pool
  EXPECT_LE(used, planned(*backend) + kRounding);
  const auto cpu = make_backend("cpu", {.threads = 1});
  EXPECT_GT(used, planned(*cpu)) << "as if parts were of 256 rows";
}

}  // namespace
}  // namespace tessera::wide_pass_test
