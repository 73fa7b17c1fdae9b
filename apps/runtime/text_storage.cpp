#include "apps/runtime/text_storage.h"

#include "engine/core/block_types.h"
#include "engine/core/storage.h"
#include "engine/families/language.h"

namespace tessera {

DType text_storage(const OpenedModel& model) {
  const TextLayout& layout = model.spec.layouts.front();
  const StorageType& four = storage_of(DType::kQ4);
  bool blocks = false, all_four = true, all_bf16 = true;
  for (const TensorSpec& tensor : text_tensors(model.spec.model, layout)) {
    if (tensor.shape.rank() != 2) continue;
    const auto found = model.weights->tensors().find(tensor.name);
    expects(found != model.weights->tensors().end(), "the tensors were checked");
    all_bf16 = all_bf16 && found->second.dtype == DType::kBF16;
    if (tensor.name == model.spec.names.prompt_table || tensor.name == layout.head) continue;
    const BlockType* const type = model.weights->blocks_of(tensor.name);
    blocks = blocks || type != nullptr;
    all_four = all_four && type != nullptr && type->numbers == four.block &&
               type->bytes == four.block_bytes;
  }
  if (blocks) return all_four ? DType::kQ4 : DType::kQ8;
  return all_bf16 ? DType::kBF16 : DType::kF32;
}

}  // namespace tessera
