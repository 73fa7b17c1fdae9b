#include "apps/runtime/text_storage.h"

#include "engine/core/storage.h"
#include "engine/families/language.h"

namespace tessera {

DType stored_as_filed(std::span<const TensorSpec> tensors, const Checkpoint& weights) {
  bool all_bf16 = true, all_f16 = true;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.shape.rank() != 2) continue;
    const DType own = weights.stored_type(tensor.name);
    if (storage_of(own).integers) return DType::kFile;
    all_bf16 = all_bf16 && own == DType::kBF16;
    all_f16 = all_f16 && own == DType::kF16;
  }
  return all_bf16 ? DType::kBF16 : all_f16 ? DType::kF16 : DType::kF32;
}

DType stored_as_filed(const ModelSpec& pair, const Checkpoint& weights) {
  const DType text = stored_as_filed(text_tensors(pair.model, pair.layouts.front()), weights);
  if (beside(text) == DType::kF32) return text;
  const VisionTower& tower = pair.describe->tower;
  const std::string positions = tower.vit.names.prefix + tower.vit.names.positions;
  for (const TensorSpec& tensor : tower_tensors(tower)) {
    const bool kept = tensor.shape.rank() > 1 && tensor.name != positions;  // the others are f32
    if (kept && weights.stored_type(tensor.name) != beside(text)) return DType::kFile;
  }
  return text;
}

}  // namespace tessera
