// What describing pictures with a model holds in memory, before any weight is read.
#pragma once

#include <cstddef>

#include "apps/pipeline/caption_spec.h"
#include "engine/backend/backend.h"
#include "engine/decoding/text_loop.h"

namespace tessera {

struct CaptionMemoryPlan {
  std::size_t language = 0;  // weights and rotary tables of the language model
  std::size_t tower = 0;     // weights of picture encoder and projector
  std::size_t texts = 0;     // cache and buffers of all texts at once
  std::size_t encoding = 0;  // of one picture
  std::size_t pictures = 0;  // prepared ahead of their turn
  std::size_t process = 0;   // program, libraries, tokenizer: an allowance
  std::size_t total() const { return language + tower + texts + encoding + pictures + process; }
};

// `limits` as the loop will have them; `picture`: one like all others.
CaptionMemoryPlan plan_captioning(const CaptionSpec& spec, const Backend& backend, DType storage,
                                  const TextLimits& limits, const PreprocessPlan& picture);

// Places in the rotary table: not all that was trained, but what prompts and texts here may need.
std::int64_t rotary_places(const CaptionSpec& spec);

}  // namespace tessera
