// What a generation run will hold in memory, before anything is loaded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/backend/backend.h"
#include "engine/families/family_spec.h"

namespace tessera {

struct MemoryRequest {
  DType storage = DType::kF32;
  std::int64_t images = 1;          // at once
  bool guidance = true;             // two sequences an image
  std::int64_t prompt_tokens = 64;  // rows of the longest prompt; 1 for a class
  std::int64_t window = 1;          // rows of a picture in one pass
  bool laws = false;                // whether drafts keep their laws
  std::int64_t spare_rows = 0;      // cached rows of a sequence beyond prompt and picture
};

struct MemoryPlan {
  std::size_t weights = 0;  // transformer, tables, heads, rotary tables
  std::size_t kv = 0;
  std::size_t activations = 0;  // arena of the widest pass, logits and hidden rows
  std::size_t vq_weights = 0;   // decoder and codebook, f32
  std::size_t vq_scratch = 0;   // decoding one picture
  std::size_t draft = 0;        // a draft model with its cache and buffers
  std::size_t process = 0;      // program, libraries, tokenizer: an allowance, see the .cpp
  std::size_t total() const {
    return weights + kv + activations + vq_weights + vq_scratch + draft + process;
  }
};

// Bytes of the picture tokenizer, and of decoding one picture or one grid with it.
std::size_t visual_weight_bytes(const FamilySpec& spec, const Backend& backend, DType storage,
                                VqHalves halves = VqHalves::kDecoder);
std::size_t visual_scratch_bytes(const FamilySpec& spec, const Backend& backend);

MemoryPlan plan_memory(const FamilySpec& spec, const Backend& backend,
                       const MemoryRequest& request);

}  // namespace tessera
