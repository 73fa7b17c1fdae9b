// The op of docs/adding-an-op.md runs on devices that no line was written for, and the page adds it
// in four files.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "engine/ops/ops.h"
#include "tests/support/guarded_backend.h"
#include "tests/unit/ops/ops_testing.h"

namespace tessera::testing {
namespace {

TEST(AddingAnOp, TakesFourFiles) {
  std::ifstream list(TESSERA_ADDED_TREE "/added.txt");
  std::set<std::string> files;
  for (std::string file; std::getline(list, file);) EXPECT_TRUE(files.insert(file).second) << file;
  EXPECT_EQ(files, (std::set<std::string>{
                       "engine/ops/elementwise.h", "engine/backend/cpu/elementwise.cpp",
                       "engine/backend/cuda/elementwise.cu", "tests/unit/ops/elementwise_test.cpp"}));
}

TEST(AddingAnOp, OnlyAddsLines) {
  std::ifstream diff(TESSERA_ADDED_TREE "/page.diff");
  int added = 0;
  for (std::string line; std::getline(diff, line);) {
    EXPECT_TRUE(line.rfind("---", 0) == 0 || line.rfind('-', 0) != 0) << line;
    added += line.rfind('+', 0) == 0 && line.rfind("+++", 0) != 0 ? 1 : 0;
  }
  EXPECT_GT(added, 20);
  EXPECT_LT(added, 60);
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
