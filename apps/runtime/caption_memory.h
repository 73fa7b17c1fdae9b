// What writing texts with a model holds in memory, before any weight is read: about images, or of a
// model of texts alone.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "engine/backend/backend.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/decoding/stream_limits.h"
#include "engine/families/describe.h"
#include "vision/image/preprocess.h"

namespace tessera {

struct CaptionMemoryPlan {
  std::size_t language = 0;  // weights and rotary tables of the language model
  std::size_t tower = 0;     // weights of image encoder and projector
  std::size_t texts = 0;     // cache and buffers of all texts at once
  std::size_t encoding = 0;  // of one image
  std::size_t images = 0;    // prepared ahead of their turn; rows kept for when one comes again
  std::size_t drafts = 0;    // a draft model, with its cache and buffers
  std::size_t process = 0;   // program, libraries, tokenizer: an allowance
  // On a device with memory of its own: arguments on their way, and the vendor's libraries.
  std::size_t staging = 0, libraries = 0;
  bool on_device = false;

  std::size_t device_bytes() const {
    return on_device ? language + tower + texts + encoding + drafts + staging + libraries : 0;
  }
  std::size_t host_bytes() const {
    return on_device ? images + process + staging
                     : language + tower + texts + encoding + drafts + images + process;
  }
  std::size_t total() const { return device_bytes() + host_bytes(); }
};

// How a model's weights are kept; `weights`, of which kFile takes the types, may be null for
// others.
struct KeptWeights {
  explicit KeptWeights(DType all, const Checkpoint* files = nullptr)
      : storage(all), weights(files) {}
  DType storage;
  const Checkpoint* weights;

  DType matrix(const std::string& name) const { return own(name).value_or(storage); }
  DType head(const std::string& name) const { return own(name).value_or(head_storage(storage)); }
  DType table(const std::string& name) const { return own(name).value_or(beside(storage)); }
  // What encoders next to such a language model are given, and a matrix of one.
  DType encoder() const { return storage == DType::kFile ? storage : beside(storage); }
  DType encoder(const std::string& name) const;

 private:
  std::optional<DType> own(const std::string& name) const {
    if (storage != DType::kFile) return std::nullopt;
    return weights->stored_type(name);
  }
};

// `limits` as the loop will have them; `image`: one like all others, not read for a model of texts.
CaptionMemoryPlan plan_captioning(const ModelSpec& spec, const Backend& backend,
                                  const KeptWeights& kept, const StreamLimits& limits,
                                  const PreprocessPlan& image);

// Weights and rotary tables of the language model alone; of the image encoder and its projector.
std::size_t text_weight_bytes(const ModelSpec& spec, const Backend& backend,
                              const KeptWeights& kept);
std::size_t tower_weight_bytes(const ModelSpec& spec, const Backend& backend,
                               const KeptWeights& kept);

// The same run on a device with memory of its own.
CaptionMemoryPlan placed_on_device(CaptionMemoryPlan plan);

// Cache and buffers of a loop of texts.
std::size_t text_loop_bytes(const StreamModelConfig& config, const Backend& backend,
                            const StreamLimits& limits);

// `kv`: how keys and values are cached, nothing as tables next to the weights.
// Error kMemory (exit 5) when not even one short text about a small image fits the backend's device
// or the host's memory, before weights are read.
void check_caption_memory(const ModelSpec& spec, const Backend& backend, const KeptWeights& kept,
                          std::optional<DType> kv, StreamLimits limits,
                          const std::string& model_name);

}  // namespace tessera
