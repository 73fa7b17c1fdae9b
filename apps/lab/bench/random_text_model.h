// Language models of LlamaGen's dimensions with random weights.
#pragma once

#include <cstdint>
#include <string>

#include "engine/backend/backend.h"
#include "engine/model/stream_model.h"

namespace tessera {

struct RandomTextModel {
  std::string size = "L";  // of LlamaGen
  std::string flag;        // what asked for it, for errors
  std::int64_t vocab = 16384;
  std::int64_t positions = 2048;  // of a prompt and its text
};

// Error kUsage for a size that LlamaGen does not have, kMemory.
StreamModel random_text_model(const RandomTextModel& what, Backend& backend, DType storage);

}  // namespace tessera
