// What a generation run will hold in memory, before anything is loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/function_ref.h"
#include "engine/families/model_spec.h"

namespace tessera {

// Of a device: 48 recorded passes with 1 MiB of arguments each, which most stay far below, and 4 MiB
// next to them.
inline constexpr std::size_t kDeviceStagingBytes = std::size_t{52} << 20;
// Code and workspaces of cuBLASLt and cuDNN, kernels, recorded passes: an allowance, not measured.
inline constexpr std::size_t kDeviceLibraryBytes = std::size_t{256} << 20;

struct MemoryRequest {
  DType storage = DType::kF32;
  std::optional<DType> kv = {};     // of the cache; empty = as tables next to such weights
  std::int64_t images = 1;          // at once
  bool guidance = true;             // two sequences an image
  bool images_apart = false;        // three
  std::int64_t prompt_tokens = 64;  // rows of the longest prompt; 1 for a class
  std::int64_t window = 1;          // rows of an image in one pass
  bool dists = false;                // whether drafts keep their distributions
  std::int64_t spare_rows = 0;      // cached rows of a sequence beyond prompt and image

  DType cache() const { return kv.value_or(beside(storage)); }
  std::int64_t branches() const {
    if (!guidance) return 1;
    return images_apart ? 3 : 2;
  }
};

struct MemoryPlan {
  std::size_t weights = 0;  // transformer, tables, heads, rotary tables
  std::size_t kv = 0;
  std::size_t activations = 0;  // arena of the widest pass, logits and hidden rows
  std::size_t vq_weights = 0;   // decoder and codebook, f32
  std::size_t vq_scratch = 0;   // decoding one image
  std::size_t draft = 0;        // a draft model with its cache and buffers
  std::size_t process = 0;      // program, libraries, tokenizer: an allowance, see the .cpp

  // The rest is 0 where the host computes.
  std::size_t captioner = 0;  // a model that describes, next to the one that generates
  std::size_t dists = 0;       // rows that a device verifies
  std::size_t staging = 0;  // arguments on their way, as much on the device as in the host's memory
  std::size_t libraries = 0;  // the vendor's libraries and recorded passes: an allowance
  std::size_t sampling = 0;   // logits and distributions in the host's memory
  bool on_device = false;
  std::string device;                    // its name
  std::size_t device_free = 0;           // bytes of it when the plan was made
  std::vector<MemoryRequest> would_fit;  // where this plan does not
  std::string advice;                    // the same as flags

  std::size_t device_bytes() const {
    return !on_device ? 0
                      : weights + kv + activations + vq_weights + vq_scratch + draft + captioner +
                            dists + staging + libraries;
  }
  std::size_t host_bytes() const {
    return on_device ? process + staging + sampling
                     : weights + kv + activations + vq_weights + vq_scratch + draft + process;
  }
  std::size_t total() const { return device_bytes() + host_bytes(); }
};

// Bytes of the image tokenizer, and of decoding one image or one grid with it.
std::size_t visual_weight_bytes(const ModelSpec& spec, const Backend& backend, DType storage,
                                VqHalves halves = VqHalves::kDecoder);
std::size_t visual_scratch_bytes(const ModelSpec& spec, const Backend& backend);

MemoryPlan plan_memory(const ModelSpec& spec, const Backend& backend, const MemoryRequest& request);

// The same run on a device with memory of its own.
MemoryPlan placed_on_device(MemoryPlan plan, const ModelSpec& spec, const MemoryRequest& request);

// Requests that need at most `free` bytes, each as near to what was asked for as it can be: fewer
// images at once, a narrower window, bf16 in the place of f32, each alone; if none of them is
// enough, several together. Empty: nothing fits. `bytes_of` grows with images and window.
std::vector<MemoryRequest> what_fits(const MemoryRequest& asked, std::size_t free,
                                     FunctionRef<std::size_t(const MemoryRequest&)> bytes_of);
// What would_fit changes of what was asked for, as flags, the choices parted by "or".
std::string fit_advice(const MemoryRequest& asked, const std::vector<MemoryRequest>& would_fit);

}  // namespace tessera
