// The tensors of a state dict, wherever training scripts put it.
#include "engine/checkpoint/pickle.h"

#include <algorithm>
#include <utility>

#include "engine/checkpoint/container.h"
#include "engine/checkpoint/pickle_machine.h"

namespace tessera {

bool PickleMachine::holds_tensors(const PickleValue& value) const {
  if (value.kind != PickleKind::kDict) return false;
  const std::vector<PickleValue>& pairs = items(value);
  for (std::size_t i = 1; i < pairs.size(); i += 2) {
    if (pairs[i].kind == PickleKind::kTensor) return true;
  }
  return false;
}

PickledState PickleMachine::collect(const PickleValue& root) const {
  if (root.kind != PickleKind::kDict) {
    refuse("E_PT_NO_TENSORS", "a dict of tensors", std::string(pickle_kind_name(root.kind)));
  }
  PickledState out;
  for (const std::string_view wanted : {"model", "module", "state_dict"}) {
    const std::vector<PickleValue>& pairs = items(root);
    for (std::size_t i = 0; i < pairs.size() && out.tensors.empty(); i += 2) {
      if (pairs[i].kind != PickleKind::kString || text(pairs[i]) != wanted) continue;
      if (!holds_tensors(pairs[i + 1])) continue;
      out.root = wanted;
      add_tensors(pairs[i + 1], out);
    }
    if (!out.tensors.empty()) return out;
  }
  add_tensors(root, out);
  if (out.tensors.empty()) {
    refuse("E_PT_NO_TENSORS", "tensors at the top level or under model, module or state_dict",
           "none there");
  }
  return out;
}

void PickleMachine::add_tensors(const PickleValue& dict, PickledState& out) const {
  const std::vector<PickleValue>& pairs = items(dict);
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (pairs[i + 1].kind != PickleKind::kTensor) continue;  // step counts and the like
    if (pairs[i].kind != PickleKind::kString || !is_tensor_name(text(pairs[i]))) {
      refuse("E_PT_NAME", "tensors under names of printable text",
             std::string(pickle_kind_name(pairs[i].kind)));
    }
    const PickleTensorRecord& record = tensors_[pairs[i + 1].index];
    const PickleStorage& storage = storages_[record.storage];
    PickledTensor tensor{.name = std::string(text(pairs[i])),
                         .dtype = storage.dtype,
                         .storage = std::string(storage.key),
                         .storage_size = storage.size,
                         .offset = record.offset,
                         .reach = record.reach,
                         .shape = record.shape,
                         .strides = {}};
    if (!record.dense) {
      tensor.strides.assign(record.strides.begin(), record.strides.begin() + record.shape.rank());
    }
    out.tensors.push_back(std::move(tensor));
  }
  std::vector<std::string_view> names;
  for (const PickledTensor& tensor : out.tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) refuse("E_PT_DUPLICATE", "each name once", "it again", {}, *twice);
}

PickledState read_pickled_state(std::string_view pickle, const std::string& file) {
  return PickleMachine(pickle, file).read();
}

}  // namespace tessera
