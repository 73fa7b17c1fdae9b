// Adds up what a captioning run holds, tensor by tensor from the shapes of the model.
#include "apps/runtime/caption_memory.h"

#include <algorithm>

#include "apps/runtime/memory.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/families/describe.h"
#include "engine/nn/vq_graph.h"
#include "vision/encoder/vision_encoder.h"

namespace tessera {

namespace {

// Program, libraries, tokenizer and small blocks, as measured with test:tiny and the bundled
// captioner, where it is what remains next to the plan's other parts.
constexpr std::size_t kCaptionProgramBytes = (std::size_t{14} << 20) + (std::size_t{1} << 18);

std::size_t floats(std::int64_t count) { return to_size(count) * sizeof(float); }

// Matrices of layers are packed for the backend, tables stay as they are stored, all else is f32.
std::size_t weight_bytes(const Backend& backend, const TensorSpec& tensor, DType storage,
                         DType table) {
  const Shape& shape = tensor.shape;
  if (tensor.name.ends_with("embed_tokens.weight")) return dtype_bytes(table, shape.elements());
  const bool positions = tensor.name.find("pos") != std::string::npos;
  if (shape.rank() < 2 || positions) return floats(shape.elements());
  return backend.packed_linear_bytes(shape[0], shape.elements() / shape[0], storage);
}

// The image encoder and what it works on.
void add_images(const ModelSpec& spec, const Backend& backend, const KeptWeights& kept,
                const StreamLimits& limits, const PreprocessPlan& image, CaptionMemoryPlan& plan) {
  plan.tower = tower_weight_bytes(spec, backend, kept);
  // One view at a time; its rows, those of the image, and the prompt's on their way.
  const VisionTower& tower = spec.describe->tower;
  const VitSpec& vit = tower.vit;
  const std::int64_t patches = image.view_width / vit.patch * (image.view_height / vit.patch);
  const std::int64_t width = spec.model.transformer.width;
  const int rows = narrow<int>(image.view_height / vit.patch);
  const int columns = narrow<int>(image.view_width / vit.patch);
  plan.encoding = (tower.codes ? vq_encode_scratch_bytes(tower.codes->vq, backend, rows, columns)
                               : VisionEncoder::scratch_bytes(vit, patches) +
                                     floats(image.views * patches * vit.feature_width())) +
                  floats(2 * image.tokens * width) + floats(2 * limits.prompt_rows * width);
  const std::int64_t ahead = std::max<std::int64_t>(limits.items, 2) + 1;
  plan.images = floats(ahead * image.views * 3 * image.view_width * image.view_height) +
                to_size(2 * 3 * image.width * image.height);
}

}  // namespace

DType KeptWeights::encoder(const std::string& name) const {
  return storage == DType::kFile ? encoder_storage(*weights, name, storage) : beside(storage);
}

std::size_t text_loop_bytes(const StreamModelConfig& config, const Backend& backend,
                            const StreamLimits& limits) {
  const auto scratch = [&](std::int64_t rows) {
    return Transformer::scratch_bytes(config.transformer, rows, backend);
  };
  const StreamModelShape model{config.transformer, config.vocab, scratch};
  const bool on_device = backend.device().kind != DeviceKind::kCpu;
  return stream_cache_bytes(model, backend, limits) +
         stream_activation_bytes(model, backend, limits) +
         (on_device ? stream_verifier_bytes(model, limits) : 0);
}

std::size_t tower_weight_bytes(const ModelSpec& spec, const Backend& backend,
                               const KeptWeights& kept) {
  std::size_t out = 0;
  for (const TensorSpec& tensor : tower_tensors(spec.describe->tower)) {
    const DType own = kept.encoder(tensor.name);
    out += weight_bytes(backend, tensor, own, own);
  }
  return out;
}

std::size_t text_weight_bytes(const ModelSpec& spec, const Backend& backend,
                              const KeptWeights& kept) {
  const StreamModelConfig& text = spec.model;
  std::size_t out = floats(text.transformer.rope_numbers());
  const std::string& head_name =
      spec.layouts.empty() ? spec.names.text_head : spec.layouts.front().head;
  for (const TensorSpec& tensor : language_tensors(spec)) {
    const bool head = tensor.name == head_name;
    const DType own = head ? kept.head(tensor.name) : kept.matrix(tensor.name);
    out += weight_bytes(backend, tensor, own, kept.table(tensor.name));
  }
  if (text.tied_head) {  // packed next to the table
    out += backend.packed_linear_bytes(text.vocab, text.transformer.width,
                                       kept.head(spec.names.prompt_table));
  }
  return out;
}

CaptionMemoryPlan plan_captioning(const ModelSpec& spec, const Backend& backend,
                                  const KeptWeights& kept, const StreamLimits& limits,
                                  const PreprocessPlan& image) {
  CaptionMemoryPlan plan;
  plan.language = text_weight_bytes(spec, backend, kept);
  plan.texts = text_loop_bytes(spec.model, backend, limits);
  if (spec.describe) add_images(spec, backend, kept, limits, image, plan);
  plan.process = kCaptionProgramBytes;
  return backend.device().kind == DeviceKind::kCpu ? plan : placed_on_device(plan);
}

CaptionMemoryPlan placed_on_device(CaptionMemoryPlan plan) {
  plan.on_device = true;
  plan.staging = kDeviceStagingBytes;
  plan.libraries = kDeviceLibraryBytes;
  return plan;
}

namespace {

std::string parts_of(const CaptionMemoryPlan& plan) {
  return " (weights " + format_bytes(plan.language + plan.tower) + ", texts " +
         format_bytes(plan.texts) + ", images " + format_bytes(plan.encoding) +
         ", libraries and staging " + format_bytes(plan.libraries + plan.staging) + ")";
}

// Where not all of it is there. `narrower`: what would be held with bf16.
void check_room(std::size_t needed, const std::string& parts, std::uint64_t room,
                std::size_t narrower, const std::string& memory, const std::string& model_name) {
  if (needed <= room) return;
  throw Error({.kind = ErrorKind::kMemory,
               .code = "E_MEMORY_PLAN",
               .file = model_name,
               .where = memory + ", one text at a time",
               .expected = format_bytes(needed) + parts,
               .found = format_bytes(room) + " free",
               .hint = narrower <= room
                           ? "would fit: --dtype bf16"
                           : "no smaller run of this model fits either: choose another device"});
}

}  // namespace

void check_caption_memory(const ModelSpec& spec, const Backend& backend, const KeptWeights& kept,
                          std::optional<DType> kv, StreamLimits limits,
                          const std::string& model_name) {
  // A small image and its prompt: larger ones are refused one by one.
  PreprocessPlan image;
  if (spec.describe) image = plan_preprocess(spec.describe->policy, 64, 64);
  constexpr std::int64_t kShortPrompt = 32;
  limits.items = 1;
  limits.prompt_rows = std::max(limits.prompt_rows, image.tokens + kShortPrompt);
  const auto plan_as = [&](DType dtype) {
    limits.kv = kv.value_or(beside(dtype));
    return plan_captioning(spec, backend, KeptWeights(dtype, kept.weights), limits, image);
  };
  const CaptionMemoryPlan plan = plan_as(kept.storage);
  const CaptionMemoryPlan narrow = kept.storage == DType::kF32 ? plan_as(DType::kBF16) : plan;
  if (const std::optional<DeviceMemory> memory = backend.memory()) {
    check_room(plan.device_bytes(), parts_of(plan), memory->free, narrow.device_bytes(),
               "memory of " + backend.name(), model_name);
  }
  if (const std::optional<std::uint64_t> room = available_memory()) {
    check_room(plan.host_bytes(), plan.on_device ? "" : parts_of(plan), *room, narrow.host_bytes(),
               "memory", model_name);
  }
}

}  // namespace tessera
