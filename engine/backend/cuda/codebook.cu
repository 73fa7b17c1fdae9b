// Vector quantisation: the nearest code by squared distance (van den Oord et al. 2017). Sums are in
// double, so that rounding decides no tie that the numbers do not hold.
#include "engine/ops/codebook.h"

#include "engine/backend/cuda/launch.cuh"

namespace tessera::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kRows = 4;  // rows of a block: each code is read once for all of them

struct Nearest {
  double distance;
  std::int32_t code;
};

__device__ inline Nearest nearer(const Nearest& a, const Nearest& b) {
  const bool second = b.distance < a.distance || (b.distance == a.distance && b.code < a.code);
  return second ? b : a;
}

__global__ void nearest_codes(const float* z, const float* codebook, std::int64_t rows,
                              std::int64_t codes, std::int64_t width, std::int32_t* ids) {
  __shared__ double distances[kThreads / kWarp];
  __shared__ std::int32_t places[kThreads / kWarp];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first = blockIdx.x * std::int64_t{kRows};
  const float* x[kRows];
  Nearest best[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t row = first + r < rows ? first + r : rows - 1;
    x[r] = z + row * width;
    best[r] = {HUGE_VAL, 0};
  }
  for (std::int64_t code = thread; code < codes; code += kThreads) {
    const float* e = codebook + code * width;
    double distance[kRows] = {};
    for (std::int64_t i = 0; i < width; ++i) {
      const double value = e[i];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const double gap = x[r][i] - value;
        distance[r] = fma(gap, gap, distance[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (distance[r] < best[r].distance) best[r] = {distance[r], static_cast<std::int32_t>(code)};
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    Nearest mine = best[r];
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      const double distance = __shfl_xor_sync(kAllLanes, mine.distance, offset);
      const std::int32_t code = __shfl_xor_sync(kAllLanes, mine.code, offset);
      mine = nearer(mine, {distance, code});
    }
    if (thread % kWarp == 0) {
      distances[thread / kWarp] = mine.distance;
      places[thread / kWarp] = mine.code;
    }
    __syncthreads();
    if (thread == 0 && first + r < rows) {
      for (int i = 1; i < kThreads / kWarp; ++i) mine = nearer(mine, {distances[i], places[i]});
      ids[first + r] = mine.code;
    }
    __syncthreads();
  }
}

// Waits for the device: the ids are the host's.
void nearest_code(CudaBackend& backend, const NearestCodeArgs& op) {
  const std::int64_t rows = op.z.shape[0];
  if (rows == 0) return;
  auto* found = static_cast<std::int32_t*>(backend.scratch(op.ids.size_bytes()));
  launch(backend, "nearest code", {.blocks = divide_up(rows, kRows), .threads = kThreads},
         nearest_codes, op.z.f32(), op.codebook.f32(), rows, op.codebook.shape[0], op.z.shape[1],
         found);
  check(cudaMemcpyAsync(op.ids.data(), found, op.ids.size_bytes(), cudaMemcpyDeviceToHost,
                        backend.stream()),
        "copying ids from the device");
  backend.synchronize();
}

}  // namespace

void add_codebook_ops(OpTable& table) { table.add<nearest_code>(); }

}  // namespace tessera::cuda
