// Reads memory at the rate that it has: 16 bytes a thread, eight of them under way; and what a
// device has to do without.
#include <algorithm>

#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/libraries.h"
#include "engine/backend/factories.h"
#include "engine/backend/read_probe.h"

namespace tessera {

namespace cuda {

namespace {

constexpr int kThreads = 512;
constexpr int kUnder = 8;  // loads of a thread at once

__global__ void read_all(const float4* x, std::int64_t count, float* sums) {
  __shared__ float scratch[kThreads / kWarp + 1];
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  float sum = 0.0f;
  for (; i + (kUnder - 1) * step < count; i += kUnder * step) {
    uint4 part[kUnder];
#pragma unroll
    for (int j = 0; j < kUnder; ++j) part[j] = load_once(x + i + j * step);
#pragma unroll
    for (int j = 0; j < kUnder; ++j) {
      sum += __uint_as_float(part[j].x) + __uint_as_float(part[j].y) + __uint_as_float(part[j].z) +
             __uint_as_float(part[j].w);
    }
  }
  for (; i < count; i += step) {
    const float4 part = x[i];
    sum += part.x + part.y + part.z + part.w;
  }
  const float all = block_sum<kThreads>(sum, scratch);
  if (threadIdx.x == 0) sums[blockIdx.x] = all;
}

}  // namespace

int code_version() {
  cudaFuncAttributes has = {};
  check(cudaFuncGetAttributes(&has, reinterpret_cast<const void*>(read_all)),
        "asking what kernels were compiled for");
  return has.ptxVersion;
}

}  // namespace cuda

bool cuda_read_probe(Backend& backend, ConstTensorView x, TensorView sums) {
  auto* device = dynamic_cast<cuda::CudaBackend*>(&backend);
  if (device == nullptr || !device->of_this_library()) return false;
  const std::int64_t count = x.shape.elements();
  expects(count % 4 == 0 && sums.shape.elements() >= kReadProbeSums, "numbers in fours");
  const std::int64_t blocks =
      std::min<std::int64_t>(kReadProbeSums, 4 * std::int64_t{device->multiprocessors()});
  cuda::launch(*device, "reading memory", {.blocks = blocks, .threads = cuda::kThreads},
               cuda::read_all, reinterpret_cast<const float4*>(x.f32()), count / 4, sums.f32());
  return true;
}

std::vector<std::pair<std::string, std::string>> cuda_missing_libraries(Backend& backend) {
  std::vector<std::pair<std::string, std::string>> out;
  auto* device = dynamic_cast<cuda::CudaBackend*>(&backend);
  if (device == nullptr || !device->of_this_library()) return out;
  const std::string& products = device->libraries().without_cublaslt();
  const std::string& convolutions = device->libraries().without_cudnn();
  if (!products.empty()) out.emplace_back("cublaslt", products);
  if (!convolutions.empty()) out.emplace_back("cudnn", convolutions);
  return out;
}

}  // namespace tessera
