// Recorded passes: what is repeated gives what was enqueued one by one, with the arguments of its
// own run, whatever is under way.
#include "engine/backend/cuda/recorder.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/support/simt/simulated_device.h"

namespace tessera::cuda {
namespace {

__global__ void scale_into(const int* factor, const int* in, int* out, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = in[i] * *factor;
}

class RecorderTest : public ::testing::Test {
 protected:
  static constexpr int kCount = 100;

  RecorderTest() {
    recorder.use(stream.get());
    std::vector<int> numbers(kCount);
    std::iota(numbers.begin(), numbers.end(), 1);
    cudaMemcpyAsync(in.get(), numbers.data(), sizeof(int) * kCount, cudaMemcpyHostToDevice,
                    stream.get());
  }

  void enqueue(const int* factor, const void* from, void* to) {
    if (!recorder.enqueues()) return;
    cudaLaunchConfig_t config;
    config.gridDim = dim3(4);
    config.blockDim = dim3(32);
    config.stream = stream.get();
    check(cudaLaunchKernelEx(&config, scale_into, factor, static_cast<const int*>(from),
                             static_cast<int*>(to), kCount),
          "scale_into");
    ++launches;
  }
  const int* stage(int value) {
    return static_cast<const int*>(recorder.stage(&value, sizeof value));
  }
  // out = in * first * second, by two kernels.
  void pass(std::uint64_t key, int first, int second) {
    recorder.begin(key, stream.get());
    enqueue(stage(first), in.get(), between.get());
    enqueue(stage(second), between.get(), out.get());
    recorder.end();
  }
  std::vector<int> result() {
    std::vector<int> got(kCount);
    cudaMemcpyAsync(got.data(), out.get(), sizeof(int) * kCount, cudaMemcpyDeviceToHost,
                    stream.get());
    return got;
  }
  static std::vector<int> want(int factor) {
    std::vector<int> out(kCount);
    for (int i = 0; i < kCount; ++i) out[static_cast<std::size_t>(i)] = (i + 1) * factor;
    return out;
  }

  Stream stream = make_stream();
  Recorder recorder{RecorderLimits{.passes = 3, .pass_bytes = 256, .loose_bytes = 256}};
  Buffer in = allocate_device(sizeof(int) * kCount);
  Buffer between = allocate_device(sizeof(int) * kCount);
  Buffer out = allocate_device(sizeof(int) * kCount);
  int launches = 0;
};

TEST_F(RecorderTest, EveryRunHasItsOwnArguments) {
  for (int run = 1; run <= 6; ++run) {
    pass(1, run, 10);
    EXPECT_EQ(result(), want(10 * run)) << "run " << run;
  }
  EXPECT_EQ(launches, 4) << "once plainly, once into the graph";
  EXPECT_EQ(recorder.counts().plain, 1);
  EXPECT_EQ(recorder.counts().captured, 1);
  EXPECT_EQ(recorder.counts().repeated, 4);
}

TEST_F(RecorderTest, RunsThatNobodyWaitsForKeepTheirArguments) {
  // Five runs in a row; the result of each goes into the next one's input.
  for (int run = 0; run < 5; ++run) {
    recorder.begin(7, stream.get());
    enqueue(stage(run + 2), in.get(), between.get());
    enqueue(stage(1), between.get(), in.get());
    recorder.end();
  }
  recorder.begin(8, stream.get());
  enqueue(stage(1), in.get(), out.get());
  recorder.end();
  EXPECT_EQ(result(), want(2 * 3 * 4 * 5 * 6));
}

TEST_F(RecorderTest, TheLongestUnusedGraphGoes) {
  for (const std::uint64_t key : {1, 2, 3}) {
    for (int run = 0; run < 3; ++run) pass(key, 1, 1);
  }
  pass(1, 2, 2);  // 2 is now the longest unused
  pass(4, 3, 3);
  EXPECT_EQ(recorder.counts().dropped, 1);
  const std::int64_t repeated = recorder.counts().repeated;
  pass(1, 5, 1);
  EXPECT_EQ(recorder.counts().repeated, repeated + 1);
  pass(2, 6, 1);
  EXPECT_EQ(recorder.counts().repeated, repeated + 1) << "it has to be recorded again";
  EXPECT_EQ(result(), want(6));
}

TEST_F(RecorderTest, ForgottenGraphsAreRecordedAgain) {
  for (int run = 0; run < 3; ++run) pass(1, 1, 1);
  cudaStreamSynchronize(stream.get());
  recorder.forget();
  launches = 0;
  pass(1, 4, 2);
  EXPECT_EQ(launches, 2);
  EXPECT_EQ(result(), want(8));
}

TEST_F(RecorderTest, LooseArraysWaitForRoom) {
  for (int run = 0; run < 100; ++run) {
    enqueue(stage(run), in.get(), out.get());
    if (run % 17 == 0) {
      EXPECT_EQ(result(), want(run));
    }
  }
  EXPECT_EQ(result(), want(99));
}

TEST_F(RecorderTest, AnArrayLargerThanTheBlockFindsRoom) {
  enqueue(stage(7), in.get(), between.get());
  std::vector<int> many(1000, 3);
  many.back() = 5;
  const auto* place =
      static_cast<const int*>(recorder.stage(many.data(), many.size() * sizeof(int)));
  enqueue(place + 999, between.get(), out.get());
  std::fill(many.begin(), many.end(), 0);
  enqueue(stage(2), out.get(), out.get());
  EXPECT_EQ(result(), want(70));
}

TEST_F(RecorderTest, NothingStaysAfter) {
  EXPECT_EQ(recorder.stage(nullptr, 0), nullptr);
  const std::int64_t before = simt::counts().graphs;
  for (int run = 0; run < 5; ++run) pass(1, 1, 1);
  cudaStreamSynchronize(stream.get());
  EXPECT_EQ(simt::counts().graphs, before + 4);
}

TEST_F(RecorderTest, APassWithTooManyArraysIsEnqueuedEveryTime) {
  for (int run = 1; run <= 4; ++run) {
    recorder.begin(1, stream.get());
    const int* factor = nullptr;
    for (int i = 0; i < 20; ++i) factor = stage(run);  // 320 bytes of 256
    enqueue(factor, in.get(), out.get());
    recorder.end();
    EXPECT_EQ(result(), want(run));
  }
  EXPECT_EQ(recorder.counts().plain, 4);
  EXPECT_EQ(recorder.counts().captured, 0);
}

TEST_F(RecorderTest, APassThatBrokeOffIsRecordedAnew) {
  pass(1, 2, 3);
  recorder.begin(1, stream.get());
  enqueue(stage(7), in.get(), between.get());
  recorder.abandon();
  EXPECT_EQ(result(), want(6)) << "nothing of it ran";
  pass(1, 3, 3);
  EXPECT_EQ(result(), want(9));
  EXPECT_EQ(recorder.counts().captured, 1);
}

TEST_F(RecorderTest, APassThatChangedItsShapeIsNotRepeated) {
  for (int run = 0; run < 3; ++run) pass(1, 1, 1);
  EXPECT_DEATH(
      {
        recorder.begin(1, stream.get());
        stage(1);
        recorder.end();
      },
      "stages what it did before");
}

TEST_F(RecorderTest, ErrorsCarryTheNumbers) {
  simt::set_device({.memory = 1 << 20});
  try {
    allocate_device(8 << 20);
    ADD_FAILURE() << "more than there is";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().kind, ErrorKind::kMemory);
    EXPECT_NE(error.info().expected.find("8 MiB"), std::string::npos) << error.what();
    EXPECT_NE(error.info().found.find("free of 1 MiB"), std::string::npos) << error.what();
  }
  simt::set_device({});
}

}  // namespace
}  // namespace tessera::cuda
