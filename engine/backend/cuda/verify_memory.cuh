// The kernels of distributions that outlive passes: a block a distribution keeps it, and a block a draft runs the
// race of a position over a kept distribution's logarithms. Device code of row_verifier.cu alone.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/backend/cuda/verify_chance.cuh"
#include "engine/core/fixed_math.h"
#include "engine/core/index.h"

namespace tessera::cuda {

struct MemoryArrays {
  const KeptDistribution* kept;
  const VerifiedDraw* draws;
  const float* dists;  // of the last pass
  float* memory;      // [kept for good, codes]
  float* logits;      // [draws, codes], scratch
  DrawnId* drawn;     // [draws]
  int codes;
};

__global__ __launch_bounds__(kVerifyLanes, 1) void keep_dists(MemoryArrays arrays) {
  const KeptDistribution& dist = arrays.kept[blockIdx.x];
  const float* const from = arrays.dists + std::int64_t{dist.from} * arrays.codes;
  float* const to = arrays.memory + std::int64_t{dist.to} * arrays.codes;
  for (int id = verify_thread(); id < arrays.codes; id += verify_threads()) to[id] = from[id];
}

__global__ __launch_bounds__(kVerifyLanes, 1) void race_dists(MemoryArrays arrays,
                                                            const std::uint32_t* fewest) {
  __shared__ VerifyScratch s;
  const int number = static_cast<int>(blockIdx.x);
  const VerifiedDraw& draw = arrays.draws[number];
  const BlockRow row{arrays.logits + std::int64_t{number} * arrays.codes,
                     arrays.memory + std::int64_t{draw.dist_row} * arrays.codes, arrays.codes};
  for (int id = verify_thread(); id < row.codes; id += verify_threads()) {
    const float p = row.probs[id];
    if (p > 0) {
      row.logits[id] = to_float(fixed_log(double{p}));
    } else {
      row.drop(id);
    }
  }
  __syncthreads();
  const BlockChance noise{{draw.key[0], draw.key[1]}, draw.position, 0, Purpose::kSample};
  const int token = race(row, noise, fewest, s);
  if (verify_thread() == 0) arrays.drawn[number] = {token, row.probs[token]};
}

}  // namespace tessera::cuda
