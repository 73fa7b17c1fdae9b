// Models without files: seeded, whole, and refused by name when there is no such model.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "apps/lab/models/random_weights.h"
#include "apps/lab/models/test_models.h"
#include "engine/families/memory_plan.h"
#include "engine/families/open_model.h"

namespace tessera::made_up_models_test {
namespace {

TEST(MadeUpModels, AreSeededAndWhole) {
  const auto backend = make_backend("cpu", {.threads = 1});
  for (const std::string name :
       {"test:tiny", "test:rows", "test:null", "test:clip", "test:clip-rows", "test:cosmos",
        "test:cosmos-text", "test:nbp", "test:nbp-frames"}) {
    OpenedModel first = open_model(name);
    const OpenedModel second = open_model(name);
    EXPECT_EQ(first.weights->total_bytes(), second.weights->total_bytes());
    for (const auto& [tensor, view] : first.weights->tensors()) {
      const ConstTensorView* other = second.weights->find(tensor);
      ASSERT_NE(other, nullptr);
      EXPECT_EQ(std::memcmp(view.data, other->data, view.bytes()), 0) << tensor;
    }
    if (first.spec.blocks) {
      EXPECT_NO_THROW(load_block_model(first, *backend, DType::kBF16));
    } else {
      EXPECT_NO_THROW(load_stream_model(first, *backend, DType::kBF16));
    }
    EXPECT_EQ(first.tokenizer_json.empty(),
              name.starts_with("test:cosmos") || name == "test:nbp-frames");
  }
  for (const char* name : {"test:", "test:big", "random:", "random:llamagen", "random:llamagen:M",
                           "random:janus-pro:3B", "random:emu3:8B"}) {
    try {
      open_model(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 4);
      EXPECT_NE(error.info().expected.find("test:tiny"), std::string::npos);
    }
  }
}

// test:rows is test:tiny but for two more rows of the code table and nine positions.
TEST(MadeUpModels, ControlIdsAreInThePlan) {
  const auto backend = make_backend("cpu", {.threads = 1});
  OpenedModel tiny = open_model("test:tiny"), rows = open_model("test:rows");
  EXPECT_EQ(rows.spec.model.image_tokens(), tiny.spec.model.image_tokens() + 8 + 1);
  EXPECT_EQ(rows.spec.model.image_codes(), tiny.spec.model.image_codes());
  const auto planned = [&](const OpenedModel& model) {
    return plan_memory(model.spec, *backend, {.prompt_tokens = 4});
  };
  const MemoryPlan small = planned(tiny), large = planned(rows);
  EXPECT_GT(large.kv, small.kv);
  EXPECT_EQ(large.weights - small.weights,
            load_stream_model(rows, *backend, DType::kF32).weight_bytes() -
                load_stream_model(tiny, *backend, DType::kF32).weight_bytes());
}

// Norms of heads, attention to other rows and added places are in the plan.
TEST(MadeUpModels, WhatATextAddsIsInThePlan) {
  const auto backend = make_backend("cpu", {.threads = 1});
  OpenedModel plain = open_model("test:cosmos"), text = open_model("test:cosmos-text");
  const auto planned = [&](const OpenedModel& model) {
    return plan_memory(model.spec, *backend, {.guidance = false, .prompt_tokens = 1}).weights;
  };
  const auto held = [&](OpenedModel& model) {
    return load_stream_model(model, *backend, DType::kF32).weight_bytes();
  };
  const std::size_t context = CrossContext::bytes(text.spec.model.transformer, 512, DType::kF32);
  // But for what packing rounds up, which is less than the norms of one layer's heads.
  EXPECT_NEAR(static_cast<double>(planned(plain)), static_cast<double>(held(plain)), 100);
  EXPECT_NEAR(static_cast<double>(planned(text)), static_cast<double>(held(text) + context), 100);
  EXPECT_EQ(context, 2u * 2 * 512 * 2 * 16 * 4);
}

TEST(RandomWeights, HaveTheirMomentsAndDependOnName) {
  const Tensor a = random_weight("some.weight", Shape{300, 400}, {.seed = 1, .matrix_std = 0.02f});
  const Tensor b = random_weight("other.weight", Shape{300, 400}, {.seed = 1, .matrix_std = 0.02f});
  const Tensor c = random_weight("some.weight", Shape{300, 400}, {.seed = 2, .matrix_std = 0.02f});
  double mean = 0, square = 0, cross = 0, seeds = 0;
  for (int i = 0; i < 120000; ++i) {
    mean += a.f32()[i];
    square += a.f32()[i] * a.f32()[i];
    cross += a.f32()[i] * b.f32()[i];
    seeds += a.f32()[i] * c.f32()[i];
  }
  EXPECT_NEAR(mean / 120000, 0, 3 * 0.02 / std::sqrt(120000.0));
  EXPECT_NEAR(std::sqrt(square / 120000), 0.02, 0.0002);
  EXPECT_NEAR(cross / square, 0, 0.015);
  EXPECT_NEAR(seeds / square, 0, 0.015);
}

}  // namespace
}  // namespace tessera::made_up_models_test
