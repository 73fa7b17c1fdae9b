// The simulated device itself: what it computes, and that it sees the mistakes it is there for.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/backend/cuda/simt.cuh"
#include "tests/support/simt/machine.h"
#include "tests/support/simt/simulated_device.h"

namespace tessera::simt {
namespace {

struct Device {
  cudaStream_t stream = nullptr;
  Device() { cudaStreamCreateWithFlags(&stream, 0); }
  ~Device() { cudaStreamDestroy(stream); }

  template <typename... Params, typename... Args>
  cudaError_t run(unsigned blocks, unsigned threads, void (*kernel)(Params...), Args... args) {
    cudaLaunchConfig_t config;
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, args...);
  }
  void wait() { cudaStreamSynchronize(stream); }
};

template <typename T>
struct Memory {
  T* at = nullptr;
  explicit Memory(std::size_t count) {
    void* block = nullptr;
    cudaMalloc(&block, count * sizeof(T));
    at = static_cast<T*>(block);
  }
  ~Memory() { cudaFree(at); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::vector<T> read(Device& device, std::size_t count) const {
    std::vector<T> out(count);
    cudaMemcpyAsync(out.data(), at, count * sizeof(T), cudaMemcpyDeviceToHost, device.stream);
    return out;
  }
};

__global__ void number_threads(int* out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] =
      static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

__global__ void reverse_in_block(const int* in, int* out) {
  __shared__ int tile[256];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

__global__ void reverse_without_barrier(const int* in, int* out) {
  __shared__ int tile[256];
  tile[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

__global__ void sums(float* out) {
  __shared__ float scratch[9];
  const float mine = static_cast<float>(threadIdx.x + 1);
  const float all = cuda::block_sum<256>(mine, scratch);
  const float most = cuda::block_max<256>(mine, scratch);
  out[threadIdx.x] = all + 1000000.0f * most;
}

__global__ void lanes(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned up = __shfl_up_sync(0xffffffffu, lane, 1u);
  const unsigned from3 = __shfl_sync(0xffffffffu, lane * 10, 3);
  const unsigned odd = __ballot_sync(0xffffffffu, lane % 2);
  out[threadIdx.x] = up + 100 * from3 + (odd == 0xaaaaaaaau ? 100000 : 0);
}

__global__ void product(const std::uint16_t* a, const std::uint16_t* b, float* d) {
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const auto pair = [](const std::uint16_t* m, unsigned row, unsigned k) {
    return static_cast<std::uint32_t>(m[row * 16 + k]) |
           static_cast<std::uint32_t>(m[row * 16 + k + 1]) << 16;
  };
  const std::uint32_t left[4] = {pair(a, g, 2 * t), pair(a, g + 8, 2 * t), pair(a, g, 2 * t + 8),
                                 pair(a, g + 8, 2 * t + 8)};
  const std::uint32_t right[2] = {pair(b, g, 2 * t), pair(b, g, 2 * t + 8)};
  float sum[4] = {};
  cuda::mma_bf16(sum, left, right);
  for (unsigned i = 0; i < 4; ++i) d[(g + (i >= 2 ? 8 : 0)) * 8 + 2 * t + i % 2] = sum[i];
}

__global__ void half_at_a_barrier() {
  if (threadIdx.x < 32) __syncthreads();
}

__global__ void lanes_missing() {
  if (threadIdx.x % 32 < 16) __shfl_sync(0xffffffffu, 1, 0);
}

__global__ void write_at(int* out, int index) { out[index] = 1; }

__global__ void add_one(int* value) { *value += 1; }

TEST(Simt, RunsEveryThreadOfEveryBlockOnce) {
  Device device;
  Memory<int> out(6 * 64);
  ASSERT_EQ(device.run(6, 64, number_threads, out.at), cudaSuccess);
  std::vector<int> want(6 * 64);
  std::iota(want.begin(), want.end(), 0);
  EXPECT_EQ(out.read(device, want.size()), want);
}

TEST(Simt, BarriersOrderSharedMemoryWhateverTheOrderOfThreads) {
  Device device;
  std::vector<int> in(256);
  std::iota(in.begin(), in.end(), 7);
  Memory<int> from(256), to(256);
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    set_seed(seed);
    cudaMemcpyAsync(from.at, in.data(), 1024, cudaMemcpyHostToDevice, device.stream);
    device.run(1, 256, reverse_in_block, from.at, to.at);
    EXPECT_EQ(to.read(device, 256), std::vector<int>(in.rbegin(), in.rend()));
    device.run(1, 256, reverse_without_barrier, from.at, to.at);
    wrong += to.read(device, 256) != std::vector<int>(in.rbegin(), in.rend()) ? 1 : 0;
    std::reverse(in.begin(), in.end());
  }
  EXPECT_EQ(wrong, 20) << "a missing barrier shows";
}

TEST(Simt, ReducesOverWarpsAndBlocks) {
  Device device;
  Memory<float> out(256);
  device.run(1, 256, sums, out.at);
  EXPECT_EQ(out.read(device, 256), std::vector<float>(256, 256000000.0f + 32896.0f));
}

TEST(Simt, LanesOfAWarpExchange) {
  Device device;
  Memory<unsigned> out(64);
  device.run(1, 64, lanes, out.at);
  const std::vector<unsigned> got = out.read(device, 64);
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned lane = i % 32;
    EXPECT_EQ(got[i], (lane == 0 ? 0 : lane - 1) + 3000 + 100000);
  }
}

TEST(Simt, MultipliesBf16Tiles) {
  Device device;
  std::vector<std::uint16_t> a(256), b(128);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = float_to_bf16(static_cast<float>(i % 13) - 6);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = float_to_bf16(static_cast<float>(i % 7) - 3);
  Memory<std::uint16_t> left(256), right(128);
  Memory<float> out(128);
  cudaMemcpyAsync(left.at, a.data(), 512, cudaMemcpyHostToDevice, device.stream);
  cudaMemcpyAsync(right.at, b.data(), 256, cudaMemcpyHostToDevice, device.stream);
  device.run(1, 32, product, left.at, right.at, out.at);
  const std::vector<float> got = out.read(device, 128);
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      float want = 0;
      for (std::size_t k = 0; k < 16; ++k) {
        want += bf16_to_float(a[row * 16 + k]) * bf16_to_float(b[column * 16 + k]);
      }
      EXPECT_EQ(got[row * 8 + column], want);
    }
  }
}

// Numbers 0 .. 255: matrix, row and column of four matrices of 8 x 8, one after the other.
__global__ void read_matrices(std::uint32_t* out, std::uint32_t* turned) {
  alignas(16) __shared__ std::uint16_t numbers[256];
  for (unsigned i = threadIdx.x; i < 256; i += 32) numbers[i] = static_cast<std::uint16_t>(i);
  __syncthreads();
  std::uint32_t got[4];
  cuda::load_matrices(got, numbers + threadIdx.x * 8);
  for (unsigned i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = got[i];
  cuda::load_matrices_turned(got, numbers + threadIdx.x * 8);
  for (unsigned i = 0; i < 4; ++i) turned[threadIdx.x * 4 + i] = got[i];
}

TEST(Simt, ReadsMatricesInPairs) {
  Device device;
  Memory<std::uint32_t> out(128), turned(128);
  device.run(1, 32, read_matrices, out.at, turned.at);
  const std::vector<std::uint32_t> plain = out.read(device, 128);
  const std::vector<std::uint32_t> other = turned.read(device, 128);
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    const std::uint32_t g = lane / 4, t = lane % 4;
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t row = i * 64 + g * 8 + 2 * t, column = i * 64 + 2 * t * 8 + g;
      EXPECT_EQ(plain[lane * 4 + i], row | (row + 1) << 16) << lane;
      EXPECT_EQ(other[lane * 4 + i], column | (column + 8) << 16) << lane;
    }
  }
}

__global__ void copy_late(const int* in, int* out, int waits) {
  alignas(16) __shared__ int tile[4 * 32];
  int* own = tile + 4 * threadIdx.x;
  own[0] = -1;
  cuda::copy_async(own, in + 4 * threadIdx.x);
  cuda::copy_async_commit();
  if (waits == 0) cuda::copy_async_wait<0>();
  if (waits == 1) cuda::copy_async_wait<1>();
  out[threadIdx.x] = own[0];
}

TEST(Simt, CopiesHappenWhenTheyAreWaitedFor) {
  Device device;
  std::vector<int> in(128);
  std::iota(in.begin(), in.end(), 0);
  Memory<int> from(128), to(32);
  cudaMemcpyAsync(from.at, in.data(), 512, cudaMemcpyHostToDevice, device.stream);
  device.run(1, 32, copy_late, from.at, to.at, 0);
  EXPECT_EQ(to.read(device, 32)[5], 20);
  device.run(1, 32, copy_late, from.at, to.at, 1);
  EXPECT_EQ(to.read(device, 32)[5], -1) << "a wait for too few copies shows";
}

// Every block adds its number to its share of three sums; the last of each writes it down.
__global__ void share_sums(unsigned* tickets, int* shares, int* sums) {
  const unsigned of = blockIdx.x % 3, count = gridDim.x / 3;
  if (threadIdx.x == 7) shares[blockIdx.x] = static_cast<int>(blockIdx.x);
  if (!cuda::is_last_of(tickets + of, count)) return;
  if (threadIdx.x != 0) return;
  for (unsigned i = of; i < gridDim.x; i += 3) sums[of] += shares[i];
}

TEST(Simt, TheLastBlockFindsWhatTheOthersWrote) {
  Device device;
  Memory<unsigned> tickets(3);
  Memory<int> shares(12), sums(3);
  cudaMemsetAsync(tickets.at, 0, 3 * sizeof(unsigned), device.stream);
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    set_seed(seed);
    cudaMemsetAsync(shares.at, 0, 12 * sizeof(int), device.stream);
    cudaMemsetAsync(sums.at, 0, 3 * sizeof(int), device.stream);
    device.run(12, 64, share_sums, tickets.at, shares.at, sums.at);
    EXPECT_EQ(sums.read(device, 3), (std::vector<int>{18, 22, 26})) << "once each";
    EXPECT_EQ(tickets.read(device, 3), std::vector<unsigned>(3, 0)) << "for the next kernel";
  }
}

enum class Reads { kAfter, kInFront, kCopiesInFront, kNeverWaits, kLetsGoFirst };

// out = in + 1 by the thread of the same number, of a kernel that may begin before the one in front
// of it has ended.
__global__ void add_one_to_each(const int* in, int* out, Reads reads) {
  alignas(16) __shared__ int copied[4 * 32];
  int* own = copied + 4 * threadIdx.x;
  const int* from = in + blockIdx.x * blockDim.x + threadIdx.x;
  int value = 0;
  if (reads == Reads::kInFront) value = *from;
  if (reads == Reads::kCopiesInFront) {
    cuda::copy_async(own, in + 4 * (threadIdx.x / 4));
    cuda::copy_async_commit();
  }
  if (reads == Reads::kLetsGoFirst) cuda::let_next_begin();
  if (reads != Reads::kNeverWaits || threadIdx.x != 5) cuda::await_previous();
  if (reads == Reads::kAfter) {
    cuda::let_next_begin();
    value = *from;
  }
  if (reads == Reads::kCopiesInFront) {
    cuda::copy_async_wait<0>();
    value = own[threadIdx.x % 4];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = value + 1;
}

// Two blocks of 32 threads add one, four times over, to numbers that a copy brings.
std::vector<int> chain(Device& device, Reads reads, bool in_graph) {
  constexpr std::size_t kCount = 64;
  const Memory<int> memory(5 * kCount);
  cudaMemsetAsync(memory.at, 0, 5 * kCount * sizeof(int), device.stream);
  if (in_graph) cudaStreamBeginCapture(device.stream, cudaStreamCaptureModeThreadLocal);
  cudaLaunchAttribute overlap{cudaLaunchAttributeProgrammaticStreamSerialization, {1}};
  for (std::size_t i = 0; i < 4; ++i) {
    cudaLaunchConfig_t config;
    config.gridDim = dim3(reads == Reads::kCopiesInFront ? 1 : 2);
    config.blockDim = dim3(32);
    config.stream = device.stream;
    config.attrs = &overlap;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, add_one_to_each, memory.at + i * kCount,
                       memory.at + (i + 1) * kCount, reads);
  }
  if (in_graph) {
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(device.stream, &graph);
    cudaGraphExec_t ready = nullptr;
    cudaGraphInstantiate(&ready, graph, 0);
    cudaGraphDestroy(graph);
    cudaGraphLaunch(ready, device.stream);
    device.wait();
    cudaGraphExecDestroy(ready);
  }
  const std::vector<int> all = memory.read(device, 5 * kCount);
  return {all.end() - kCount, all.end()};
}

TEST(Simt, KernelsThatOverlapReadWhatTheyWaitedFor) {
  Device device;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    set_seed(seed);
    EXPECT_EQ(chain(device, Reads::kAfter, seed % 2 == 1), std::vector<int>(64, 4));
  }
}

TEST(Simt, ReadingBeforeTheWaitShows) {
  Device device;
  for (const bool in_graph : {false, true}) {
    const std::vector<int> got = chain(device, Reads::kInFront, in_graph);
    EXPECT_EQ(std::count(got.begin(), got.end(), 1), 32) << "the block that was early";
    const std::vector<int> copied = chain(device, Reads::kCopiesInFront, in_graph);
    EXPECT_EQ(std::count(copied.begin(), copied.end(), 1), 32) << "copies are early, too";
  }
}

TEST(Simt, CopiesAreWaitedForInFull) {
  Device device;
  Memory<int> from(32), between(32), to(32);
  std::vector<int> sevens(32, 7);
  cudaMemsetAsync(from.at, 0, 128, device.stream);
  device.run(1, 32, write_at, from.at, 3);
  cudaMemcpyAsync(between.at, sevens.data(), 128, cudaMemcpyHostToDevice, device.stream);
  cudaLaunchAttribute overlap{cudaLaunchAttributeProgrammaticStreamSerialization, {1}};
  cudaLaunchConfig_t config;
  config.blockDim = dim3(32);
  config.stream = device.stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, add_one_to_each, between.at, to.at, Reads::kInFront);
  EXPECT_EQ(to.read(device, 32), std::vector<int>(32, 8)) << "it began after the copy";
}

TEST(SimtDeath, KernelsThatOverlapAndDoNotWait) {
  const auto run = [](Reads reads) {
    Device device;
    chain(device, reads, false);
  };
  EXPECT_DEATH(run(Reads::kNeverWaits), "a thread that did not wait for the kernel in front");
  EXPECT_DEATH(run(Reads::kLetsGoFirst), "the next kernel let begin before the one in front");
}

TEST(Simt, WorkRunsWhenSomethingWaits) {
  Device device;
  void* pinned = nullptr;
  cudaMallocHost(&pinned, sizeof(int));
  auto* value = static_cast<int*>(pinned);
  *value = 5;
  Memory<int> on_device(1);
  cudaMemcpyAsync(on_device.at, value, sizeof(int), cudaMemcpyHostToDevice, device.stream);
  *value = 6;  // pinned memory is read when the copy runs
  device.run(1, 32, write_at, on_device.at, 0);
  const DeviceCounts before = counts();
  cudaMemcpyAsync(value, on_device.at, sizeof(int), cudaMemcpyDeviceToHost, device.stream);
  EXPECT_EQ(*value, 6);
  EXPECT_EQ(counts().kernels, before.kernels);
  device.wait();
  EXPECT_EQ(*value, 1);
  EXPECT_EQ(counts().kernels, before.kernels + 1);
  cudaFreeHost(pinned);
}

TEST(Simt, GraphsRepeatWhatWasCaptured) {
  Device device;
  Memory<int> value(1);
  cudaMemsetAsync(value.at, 0, sizeof(int), device.stream);
  ASSERT_EQ(cudaStreamBeginCapture(device.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  device.run(1, 32, write_at, value.at, 0);
  device.run(1, 32, add_one, value.at);
  void* refused = nullptr;
  EXPECT_EQ(cudaMalloc(&refused, 4), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamSynchronize(device.stream), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(device.stream, &graph);
  cudaGraphExec_t ready = nullptr;
  cudaGraphInstantiate(&ready, graph, 0);
  cudaGraphDestroy(graph);
  EXPECT_EQ(value.read(device, 1)[0], 0) << "capturing runs nothing";
  cudaGraphLaunch(ready, device.stream);
  EXPECT_EQ(value.read(device, 1)[0], 33);
  cudaGraphExecDestroy(ready);
}

TEST(Simt, RefusesWhatADeviceRefuses) {
  Device device;
  EXPECT_EQ(device.run(1, 2048, half_at_a_barrier), cudaErrorInvalidConfiguration);
  EXPECT_EQ(device.run(0, 32, half_at_a_barrier), cudaErrorInvalidConfiguration);
  set_device({.memory = 1000});
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 1001), cudaErrorMemoryAllocation);
  set_device({});
  int host = 0;
  EXPECT_EQ(cudaMemcpyAsync(&host, &host, 4, cudaMemcpyDeviceToHost, device.stream),
            cudaErrorInvalidValue);
}

TEST(SimtDeath, BarriersThatNotAllReach) {
  const auto run = [](void (*kernel)()) {
    Device device;
    device.run(1, 64, kernel);
    device.wait();
  };
  EXPECT_DEATH(run(half_at_a_barrier), "a barrier that some threads never reach");
  EXPECT_DEATH(run(lanes_missing), "lanes that never come");
}

TEST(SimtDeath, MemoryThatIsNotTheirs) {
  Device device;
  Memory<int> one(64);
  EXPECT_DEATH(*one.at = 1, "") << "the host cannot touch the device's memory";
  EXPECT_DEATH(
      {
        device.run(1, 32, write_at, one.at, 64);
        device.wait();
      },
      "");
}

}  // namespace
}  // namespace tessera::simt
