// Compares what a checkpoint holds after a tower's prefixes with what the tower must have.
#include <algorithm>
#include <set>

#include "engine/checkpoint/tensor_kinds.h"
#include "engine/core/storage.h"
#include "engine/towers/vision_tower.h"

namespace tessera {

namespace {

constexpr std::size_t kListed = 10;

class Differences {
 public:
  void add(std::string text) {
    if (count_++ < kListed) listed_ += (listed_.empty() ? "" : ", ") + std::move(text);
  }
  void tell(const char* kind, std::string& text) const {
    if (count_ == 0) return;
    text += (text.empty() ? "" : "; ") + std::to_string(count_) + " " + kind + " (" + listed_ +
            (count_ > kListed ? ", ...)" : ")");
  }

 private:
  std::size_t count_ = 0;
  std::string listed_;
};

bool is_ignored(const VisionTower& tower, std::string_view name) {
  const std::string& prefix = tower.vit.names.prefix;
  if (!name.starts_with(prefix)) return false;
  const std::string_view rest = name.substr(prefix.size());
  return std::any_of(tower.ignored.begin(), tower.ignored.end(), [&](const std::string& pattern) {
    if (!pattern.ends_with('*')) return rest == pattern;
    return rest.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1));
  });
}

// The file that has the encoder, or the first of the model's.
std::string file_of(const VisionTower& tower, const Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  if (tensors.empty()) return "";
  const auto own = tensors.lower_bound(tower.vit.names.prefix);
  const bool found = own != tensors.end() && own->first.starts_with(tower.vit.names.prefix);
  return checkpoint.file_of(found ? own->first : tensors.begin()->first);
}

}  // namespace

std::vector<TensorSpec> tower_tensors(const VisionTower& tower) {
  std::vector<TensorSpec> out = vit_tensors(tower.vit);
  for (TensorSpec& tensor : projector_tensors(tower.projector)) out.push_back(std::move(tensor));
  return out;
}

void check_tower_tensors(const VisionTower& tower, const Checkpoint& checkpoint) {
  Differences missing, wrong, surplus;
  const std::vector<TensorSpec> expected = tower_tensors(tower);
  std::set<std::string_view> known;
  std::string first;
  const auto note = [&](Differences& kind, const std::string& name, const std::string& text) {
    if (first.empty()) first = name;
    kind.add(text);
  };
  for (const TensorSpec& tensor : expected) {
    known.insert(tensor.name);
    // The table, not find(), which may read numbers.
    const auto entry = checkpoint.tensors().find(tensor.name);
    const ConstTensorView* found = entry == checkpoint.tensors().end() ? nullptr : &entry->second;
    if (found == nullptr) {
      note(missing, tensor.name, tensor.name);
    } else if (found->shape != tensor.shape) {
      note(
          wrong, tensor.name,
          tensor.name + " " + found->shape.to_string() + " instead of " + tensor.shape.to_string());
    } else if (!is_weight(found->dtype)) {
      note(wrong, tensor.name,
           tensor.name + " " + std::string(dtype_name(found->dtype)) + " instead of " +
               kWeightTypes);
    }
  }
  for (const auto& [name, unused] : checkpoint.tensors()) {
    if (!name.starts_with(tower.vit.names.prefix) && !name.starts_with(tower.projector.prefix)) {
      continue;
    }
    if (known.contains(name) || is_ignored(tower, name) || checkpoint.is_spare(name)) continue;
    note(surplus, name, name);
  }
  if (first.empty()) return;
  std::string text;
  missing.tell("missing", text);
  wrong.tell("wrong", text);
  surplus.tell("surplus", text);
  throw Error{{.kind = ErrorKind::kModel,
               .code = "E_TENSORS",
               .file = file_of(tower, checkpoint),
               .where = first,
               .expected = "the " + std::to_string(expected.size()) +
                           " tensors of its image encoder and projector",
               .found = explained(checkpoint, std::move(text))}};
}

}  // namespace tessera
