// Looks a weight up and refuses, by name, whatever a network could not compute with.
#include "engine/checkpoint/checked_weight.h"

#include "engine/checkpoint/non_finite.h"

namespace tessera {

namespace {

[[noreturn]] void refuse_weight(const Checkpoint& checkpoint, const std::string& name,
                                std::string code, std::string expected, std::string found) {
  throw Error{{.kind = ErrorKind::kModel,
               .code = std::move(code),
               .file = checkpoint.file_of(name),
               .where = "tensor " + name,
               .expected = std::move(expected),
               .found = std::move(found)}};
}

}  // namespace

ConstTensorView checked_weight(const Checkpoint& checkpoint, const std::string& name,
                               const Shape& shape) {
  const ConstTensorView* tensor = checkpoint.find(name);
  if (tensor == nullptr) {
    refuse_weight(checkpoint, name, "E_WEIGHT_MISSING", "a tensor " + shape.to_string(), "none");
  }
  if (tensor->shape != shape) {
    refuse_weight(checkpoint, name, "E_WEIGHT_SHAPE", shape.to_string(), tensor->shape.to_string());
  }
  if (!is_weight(tensor->dtype)) {
    refuse_weight(checkpoint, name, "E_WEIGHT_DTYPE", kWeightTypes,
                  std::string(dtype_name(tensor->dtype)));
  }
  if (const auto bad = find_non_finite(*tensor)) {
    refuse_weight(checkpoint, name, "E_WEIGHT_NOT_FINITE", "finite numbers",
                  std::to_string(bad->count) + " NaN or infinite, the first at index " +
                      std::to_string(bad->index));
  }
  return *tensor;
}

}  // namespace tessera
