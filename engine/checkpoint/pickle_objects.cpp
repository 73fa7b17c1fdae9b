// What stands for calls: each admitted name is a pattern over plain values that yields a
// description.
#include "engine/checkpoint/container.h"
#include "engine/checkpoint/pickle_machine.h"
#include "engine/core/checked.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxNames = 1'500'000;

}  // namespace

void PickleMachine::mention(std::string_view module, std::string_view name) {
  const PickleName* entry = find_pickle_name(module, name);
  const std::string full =
      std::string(module.substr(0, 100)) + "." + std::string(name.substr(0, 100));
  if (entry == nullptr) {
    refuse("E_PT_GLOBAL", "only tensors, storages and plain data", full,
           "other names could run code; get the weights as safetensors");
  }
  if (entry->role == PickleRole::kUnsupported) {
    refuse("E_PT_DTYPE", "dense tensors of f32, bf16, f16, f64, integers or bool", full);
  }
  names_.push_back(entry);
  if (names_.size() > kMaxNames) refuse("E_PT_MEMORY", "fewer names", "too many");
  push({PickleKind::kName, narrow<std::uint32_t>(names_.size() - 1), 0});
}

const PickleName& PickleMachine::name_of(const PickleValue& value) const {
  if (value.kind != PickleKind::kName) refuse_type("a rebuilder", value);
  return *names_[value.index];
}

PickleValue PickleMachine::argument(const PickleValue& arguments, std::size_t i,
                                    PickleKind kind) const {
  if (i >= items(arguments).size()) {
    refuse("E_PT_CALL", "more than " + std::to_string(i) + " arguments",
           std::to_string(items(arguments).size()));
  }
  const PickleValue value = items(arguments)[i];
  if (value.kind != kind) refuse_type(std::string(pickle_kind_name(kind)), value);
  return value;
}

PickleValue PickleMachine::rebuild(const PickleValue& callee, const PickleValue& arguments) {
  const PickleName& name = name_of(callee);
  switch (name.role) {
    case PickleRole::kRebuildTensor:
    case PickleRole::kRebuildTensorV2:
      return rebuild_tensor(arguments);
    case PickleRole::kRebuildParameter:
      return argument(arguments, 0, PickleKind::kTensor);
    case PickleRole::kRebuildFromType: {
      const PickleValue inner = argument(arguments, 0, PickleKind::kName);
      if (name_of(inner).role == PickleRole::kRebuildFromType) {
        refuse("E_PT_CALL", "a tensor rebuilder", "one that calls another");
      }
      return rebuild(inner, argument(arguments, 2, PickleKind::kTuple));
    }
    case PickleRole::kOrderedDict:
      return ordered_dict(arguments);
    case PickleRole::kSize:
      return argument(arguments, 0, PickleKind::kTuple);
    case PickleRole::kNamespace:
      return {PickleKind::kRecord};
    default:
      refuse("E_PT_CALL", "a rebuilder", std::string(name.module) + "." + std::string(name.name));
  }
}

PickleValue PickleMachine::ordered_dict(const PickleValue& arguments) {
  std::vector<PickleValue> flat;
  if (!items(arguments).empty()) {
    for (const PickleValue& pair : items(argument(arguments, 0, PickleKind::kList))) {
      const bool is_pair = (pair.kind == PickleKind::kList || pair.kind == PickleKind::kTuple) &&
                           items(pair).size() == 2;
      if (!is_pair) refuse_type("a pair of key and value", pair);
      flat.insert(flat.end(), items(pair).begin(), items(pair).end());
    }
  }
  return make_sequence(PickleKind::kDict, std::move(flat));
}

// ("storage", class, key, device, size)
PickleValue PickleMachine::persistent(const PickleValue& id) {
  if (id.kind != PickleKind::kTuple) refuse_type("a tuple that names a storage", id);
  const std::string_view word = text(argument(id, 0, PickleKind::kString));
  const PickleName& type = name_of(argument(id, 1, PickleKind::kName));
  const std::string_view key = text(argument(id, 2, PickleKind::kString));
  const PickleValue size = argument(id, 4, PickleKind::kInt);
  if (word != "storage" || type.role != PickleRole::kStorage || size.number < 0 ||
      !is_tensor_name(key)) {
    refuse("E_PT_STORAGE_ID", "(\"storage\", class, key, device, size)",
           "another tuple, size " + std::to_string(size.number));
  }
  if (storages_.size() >= 2 * kMaxTensors) {
    refuse("E_PT_COUNT", "at most " + std::to_string(2 * kMaxTensors) + " storages", "one more");
  }
  storages_.push_back({type.dtype, key, narrow<std::uint64_t>(size.number)});
  return {PickleKind::kStorage, narrow<std::uint32_t>(storages_.size() - 1), 0};
}

PickleValue PickleMachine::rebuild_tensor(const PickleValue& arguments) {
  const PickleValue storage = argument(arguments, 0, PickleKind::kStorage);
  const PickleValue offset = argument(arguments, 1, PickleKind::kInt);
  const std::vector<PickleValue>& size = items(argument(arguments, 2, PickleKind::kTuple));
  const std::vector<PickleValue>& stride = items(argument(arguments, 3, PickleKind::kTuple));
  if (size.size() > kMaxRank || stride.size() != size.size() || offset.number < 0) {
    refuse("E_PT_SHAPE",
           "at most " + std::to_string(kMaxRank) + " dimensions, a stride each, an offset >= 0",
           std::to_string(size.size()) + " sizes, " + std::to_string(stride.size()) +
               " strides, offset " + std::to_string(offset.number));
  }
  PickleTensorRecord tensor{.storage = storage.index,
                            .offset = narrow<std::uint64_t>(offset.number)};
  std::array<std::int64_t, kMaxRank> extents{};
  for (std::size_t i = 0; i < size.size(); ++i) {
    if (size[i].kind != PickleKind::kInt || stride[i].kind != PickleKind::kInt ||
        size[i].number < 0 || stride[i].number < 0) {
      refuse("E_PT_SHAPE", "sizes and strides of integers >= 0",
             std::to_string(size[i].number) + " and " + std::to_string(stride[i].number));
    }
    extents[i] = size[i].number;
    tensor.strides[i] = stride[i].number;
  }
  tensor.shape = Shape(std::span<const std::int64_t>(extents.data(), size.size()));
  place_in_storage(tensor);
  if (tensors_.size() >= kMaxTensors) {
    refuse("E_PT_COUNT", "at most " + std::to_string(kMaxTensors) + " tensors", "one more");
  }
  tensors_.push_back(tensor);
  return {PickleKind::kTensor, narrow<std::uint32_t>(tensors_.size() - 1), 0};
}

// Works out how far into its storage a tensor reaches and whether it is dense.
void PickleMachine::place_in_storage(PickleTensorRecord& tensor) const {
  const std::uint64_t size = storages_[tensor.storage].size;
  const auto elements = checked_product(tensor.shape.extents());
  if (!elements || !checked_mul(*elements, 8)) {
    refuse("E_PT_SHAPE", "fewer than 2^61 elements", "shape " + tensor.shape.to_string());
  }
  std::optional<std::uint64_t> reach = tensor.offset;
  std::int64_t dense_stride = 1;
  if (*elements > 0) {
    for (int axis = tensor.shape.rank() - 1; axis >= 0 && reach; --axis) {
      const std::int64_t extent = tensor.shape[axis];
      const std::int64_t stride = nth(tensor.strides, axis);
      tensor.dense = tensor.dense && (extent == 1 || stride == dense_stride);
      dense_stride *= extent;
      const auto step =
          checked_mul(narrow<std::uint64_t>(extent - 1), narrow<std::uint64_t>(stride));
      reach = step ? checked_add(*reach, *step) : std::nullopt;
    }
    if (reach) reach = checked_add(*reach, 1);
  }
  if (!reach || *reach > size) {
    refuse("E_PT_STRIDE", "elements inside a storage of " + std::to_string(size),
           "shape " + tensor.shape.to_string() + " from element " + std::to_string(tensor.offset) +
               (reach ? " to " + std::to_string(*reach) : ""));
  }
  tensor.reach = *reach;
  if (!tensor.dense && *elements > tensor.reach - tensor.offset) {
    refuse("E_PT_STRIDE", "a tensor that holds each element once",
           "shape " + tensor.shape.to_string() + " over " +
               std::to_string(tensor.reach - tensor.offset) + " elements",
           "save it as tensor.contiguous()");
  }
}

}  // namespace tessera
