// Runs that do not fit a device's 8 GiB are refused before weights are read, with what would fit.
#include <gtest/gtest.h>

#include "apps/runtime/describe_task.h"
#include "apps/runtime/generate_task.h"
#include "apps/runtime/memory.h"
#include "tests/support/guarded_backend.h"

namespace tessera::memory_test {
namespace {

GenerateOptions on_device(const char* model, DType storage, std::int64_t batch) {
  static const bool offered = [] {
    offer_guarded_devices();
    return true;
  }();
  GenerateOptions options;
  options.model = model;
  options.device = offered ? "guarded:0" : "";
  options.threads = 1;
  options.storage = storage;
  options.batch_size = batch;
  return options;
}

MemoryPlan plan_of(const GenerateOptions& options) {
  Runtime runtime;
  const GenerateTask task(runtime, options);
  PreparedRequest request;
  request.item.dist.guidance = 5;
  request.item.prompt.ids.resize(32);
  return task.plan(std::vector(static_cast<std::size_t>(options.batch_size), request));
}

ErrorInfo refusal(const MemoryPlan& plan) {
  try {
    check_memory(plan, "a model");
  } catch (const Error& error) {
    return error.info();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

TEST(DeviceMemory, PlanIsTheDevices) {
  const MemoryPlan plan = plan_of(on_device("test:tiny", DType::kF32, 2));
  EXPECT_TRUE(plan.on_device);
  EXPECT_EQ(plan.device, "guarded:0");
  EXPECT_EQ(plan.device_free, std::size_t{8} << 30);
  EXPECT_GT(plan.device_bytes(), plan.weights + plan.kv);
  EXPECT_LT(plan.host_bytes(), plan.device_bytes());
  EXPECT_NO_THROW(check_memory(plan, "a model"));
  EXPECT_EQ(plan.advice, "");
}

TEST(DeviceMemory, FewerAtOnceIsProposedAndFits) {
  const ErrorInfo info = refusal(plan_of(on_device("random:janus-pro:1B", DType::kF32, 16)));
  EXPECT_EQ(info.kind, ErrorKind::kMemory);
  EXPECT_EQ(info.code, "E_MEMORY_PLAN");
  EXPECT_EQ(info.where, "memory of guarded:0");
  EXPECT_NE(info.expected.find("GiB (weights "), std::string::npos) << info.expected;
  EXPECT_EQ(info.found, "8.0 GiB free");
  const std::string flag = "would fit: --batch-size ";
  ASSERT_EQ(info.hint.substr(0, flag.size()), flag);
  const std::int64_t fewer = std::stoll(info.hint.substr(flag.size()));
  EXPECT_NO_THROW(check_memory(plan_of(on_device("random:janus-pro:1B", DType::kF32, fewer)), "x"));
  EXPECT_THROW(check_memory(plan_of(on_device("random:janus-pro:1B", DType::kF32, fewer + 1)), "x"),
               Error);
  EXPECT_NO_THROW(check_memory(plan_of(on_device("random:janus-pro:1B", DType::kBF16, 16)), "x"))
      << "the other proposal: " << info.hint;
}

TEST(DeviceMemory, WhatNeverFitsIsSaid) {
  const ErrorInfo info = refusal(plan_of(on_device("random:janus-pro:7B", DType::kBF16, 1)));
  EXPECT_NE(info.hint.find("another device"), std::string::npos) << info.hint;
}

TEST(DeviceMemory, AnotherModelNextToItCounts) {
  Runtime runtime;
  const GenerateTask task(runtime, on_device("test:tiny", DType::kF32, 1));
  const PreparedRequest request = task.prepare({.prompt = "one"});
  const std::vector<PreparedRequest> one = {request};
  EXPECT_NO_THROW(check_memory(task.plan(one, std::size_t{1} << 30), "x"));
  EXPECT_THROW(check_memory(task.plan(one, std::size_t{8} << 30), "x"), Error);
}

}  // namespace
}  // namespace tessera::memory_test
