// The op of docs/adding-an-op.md runs on devices that no line was written for, and the page adds it
// in four files.
#include <gtest/gtest.h>

#include "engine/ops/ops.h"
#include "tests/adding/page.h"
#include "tests/support/guarded_backend.h"
#include "tests/unit/ops/ops_testing.h"

namespace tessera::testing {
namespace {

TEST(AddingAnOp, TakesFourFiles) {
  EXPECT_EQ(files_of("adding-an-op"),
            (std::set<std::string>{"engine/ops/elementwise.h", "engine/backend/cpu/elementwise.cpp",
                                   "engine/backend/cuda/elementwise.cu",
                                   "tests/unit/ops/elementwise_test.cpp"}));
}

TEST(AddingAnOp, OnlyAddsLines) {
  EXPECT_TRUE(lines_of("adding-an-op", '-').empty());
  const std::size_t added = lines_of("adding-an-op", '+').size();
  EXPECT_GT(added, 20u);
  EXPECT_LT(added, 60u);
}

TEST(AddingAnOp, TheCpuTableHasItAndItShowsItsFields) {
  const auto backend = make_backend("cpu", {.threads = 1});
  EXPECT_NE(backend->ops().find(op_id("scale")), nullptr);
  EXPECT_EQ(kFieldsOf<ScaleArgs>, 3u);
}

// The guarded double: memory that the host cannot touch, ops that run late, passes that are held to
// what they did the first time.
class OnTheDouble : public ::testing::TestWithParam<bool> {};

TEST_P(OnTheDouble, ScaleRunsLateWithTheBitsOfTheCpu) {
  GuardedBackend device({.threads = 1}, {.late = GetParam()});
  const auto cpu = make_backend("cpu", {.threads = 1});
  std::vector<float> x = normal(77, 3), want(77), got(77);
  ops::scale(*cpu, view_of(x, {77}), 0.7f, view_of(want, {77}));
  Tensor in = device.allocate(DType::kF32, {77}), out = device.allocate(DType::kF32, {77});
  device.upload(view_of(x, {77}), in.view());
  const std::int64_t before = guarded_counts().ops;
  ops::scale(device, in.view(), 0.7f, out.view());
  EXPECT_EQ(guarded_counts().ops, before + 1);
  device.download(out.view(), view_of(got, {77}));
  EXPECT_EQ(got != want, GetParam()) << "a late op has not run before somebody waits";
  device.synchronize();
  EXPECT_EQ(got, want);
}

TEST_P(OnTheDouble, ScaleIsHeldToWhatARecordedPassDid) {
  GuardedBackend device({.threads = 1}, {.late = GetParam()});
  Tensor in = device.allocate(DType::kF32, {4}), out = device.allocate(DType::kF32, {4});
  const auto pass = [&](float factor, const Tensor& from) {
    const RecordedPass recorded(device, 3);
    ops::scale(device, from.view(), factor, out.view());
  };
  pass(2.0f, in);
  pass(2.0f, in);
  EXPECT_DEATH(pass(3.0f, in), "the same key means the same ops");
  EXPECT_DEATH(pass(2.0f, out), "the same key means the same ops");
}

INSTANTIATE_TEST_SUITE_P(AddingAnOp, OnTheDouble, ::testing::Bool(),
                         [](const auto& late) { return late.param ? "late" : "at_once"; });

}  // namespace
}  // namespace tessera::testing
