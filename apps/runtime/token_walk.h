// One sequence through a model, part by part, with nothing drawn: what its rows become, whoever
// asks (dumps, calibration, benchmarks).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/model/token_model.h"

namespace tessera {

class TokenWalk {
 public:
  using Place = std::array<std::int64_t, 3>;  // in time, row and column

  // Room for so many rows. The model is borrowed. Error kMemory.
  TokenWalk(const TokenModel& model, std::int64_t rows, DType cache = DType::kF32);

  // Ids of a prompt or of the stream as rows [M, D], valid until the next call.
  ConstTensorView prompt(std::span<const std::int32_t> ids);
  ConstTensorView tokens(std::span<const std::int32_t> ids);
  // Hidden states of the next rows of the sequence after the final norm, [M, D], valid until the
  // next call. Without places they stand one after the other.
  ConstTensorView pass(ConstTensorView rows, std::span<const Place> places = {},
                       const Taps& taps = {});
  // The logits of these rows, [M, logit_ids()], or of the last of them, on the host.
  void logits(ConstTensorView hidden, float* out);
  void last_logits(ConstTensorView hidden, float* out);

  std::int64_t length() const { return cache_.length(0); }

 private:
  const TokenModel& model_;
  KvCache cache_;
  Arena arena_;
  Tensor rows_, hidden_;
};

}  // namespace tessera
