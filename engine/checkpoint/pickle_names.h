// The names a pickle may mention, and what each stands for.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/core/dtype.h"

namespace tessera {

enum class PickleRole : std::uint8_t {
  kRebuildTensor,     // (storage, offset, size, stride)
  kRebuildTensorV2,   // ... requires_grad, hooks [, metadata]
  kRebuildParameter,  // (tensor, requires_grad, hooks [, state])
  kRebuildFromType,   // (rebuilder, class, its arguments, state)
  kStorage,           // a typed storage class
  kOrderedDict,
  kSize,
  kNamespace,
  kInert,        // a value of its own that says nothing about tensors
  kUnsupported,  // known, harmless, and not an element type we hold
};

struct PickleName {
  std::string_view module;
  std::string_view name;
  PickleRole role;
  DType dtype = DType::kF32;
};

// nullptr: the name is refused. The entry lives for ever.
const PickleName* find_pickle_name(std::string_view module, std::string_view name);

}  // namespace tessera
