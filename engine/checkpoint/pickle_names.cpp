// The allow-list. A name that is not here is never looked up anywhere else.
#include "engine/checkpoint/pickle_names.h"

namespace tessera {

namespace {

constexpr PickleName kNames[] = {
    {"torch._utils", "_rebuild_tensor", PickleRole::kRebuildTensor},
    {"torch._utils", "_rebuild_tensor_v2", PickleRole::kRebuildTensorV2},
    {"torch._utils", "_rebuild_parameter", PickleRole::kRebuildParameter},
    {"torch._utils", "_rebuild_parameter_with_state", PickleRole::kRebuildParameter},
    {"torch._tensor", "_rebuild_from_type_v2", PickleRole::kRebuildFromType},
    {"torch", "FloatStorage", PickleRole::kStorage, DType::kF32},
    {"torch", "BFloat16Storage", PickleRole::kStorage, DType::kBF16},
    {"torch", "HalfStorage", PickleRole::kStorage, DType::kF16},
    {"torch", "DoubleStorage", PickleRole::kStorage, DType::kF64},
    {"torch", "LongStorage", PickleRole::kStorage, DType::kI64},
    {"torch", "IntStorage", PickleRole::kStorage, DType::kI32},
    {"torch", "ShortStorage", PickleRole::kStorage, DType::kI16},
    {"torch", "CharStorage", PickleRole::kStorage, DType::kI8},
    {"torch", "ByteStorage", PickleRole::kStorage, DType::kU8},
    {"torch", "BoolStorage", PickleRole::kStorage, DType::kBool},
    {"collections", "OrderedDict", PickleRole::kOrderedDict},
    {"torch", "Size", PickleRole::kSize},
    {"argparse", "Namespace", PickleRole::kNamespace},
    {"torch", "Tensor", PickleRole::kInert},
    {"torch.nn.parameter", "Parameter", PickleRole::kInert},
    {"torch", "float32", PickleRole::kInert},
    {"torch", "float16", PickleRole::kInert},
    {"torch", "bfloat16", PickleRole::kInert},
    {"torch", "float64", PickleRole::kInert},
    {"torch", "int64", PickleRole::kInert},
    {"torch", "int32", PickleRole::kInert},
    {"torch", "int16", PickleRole::kInert},
    {"torch", "int8", PickleRole::kInert},
    {"torch", "uint8", PickleRole::kInert},
    {"torch", "bool", PickleRole::kInert},
    {"torch._utils", "_rebuild_tensor_v3", PickleRole::kUnsupported},
    {"torch._utils", "_rebuild_qtensor", PickleRole::kUnsupported},
    {"torch._utils", "_rebuild_sparse_tensor", PickleRole::kUnsupported},
    {"torch.storage", "UntypedStorage", PickleRole::kUnsupported},
    {"torch", "ComplexFloatStorage", PickleRole::kUnsupported},
    {"torch", "ComplexDoubleStorage", PickleRole::kUnsupported},
    {"torch", "QInt8Storage", PickleRole::kUnsupported},
    {"torch", "QUInt8Storage", PickleRole::kUnsupported},
    {"torch", "QInt32Storage", PickleRole::kUnsupported},
};

}  // namespace

const PickleName* find_pickle_name(std::string_view module, std::string_view name) {
  for (const PickleName& entry : kNames) {
    if (entry.module == module && entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace tessera
