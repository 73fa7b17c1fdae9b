#include "engine/towers/compare_tensors.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/checkpoint/tensor_kinds.h"
#include "engine/core/storage.h"

namespace tessera {

namespace {

constexpr std::size_t kListed = 10;

// Names of one kind of difference, the first few spelled out.
class Differences {
 public:
  void add(std::string text) {
    if (count_++ < kListed) listed_ += (listed_.empty() ? "" : ", ") + std::move(text);
  }
  void append_to(std::string& text, const char* kind) const {
    if (count_ == 0) return;
    text += (text.empty() ? "" : "; ") + std::to_string(count_) + " " + kind + " (" + listed_ +
            (count_ > kListed ? ", ...)" : ")");
  }

 private:
  std::size_t count_ = 0;
  std::string listed_;
};

// How a tensor differs from its spec, or nothing.
std::string difference_of(const TensorSpec& spec, const ConstTensorView& found) {
  if (found.shape != spec.shape) {
    return spec.name + " " + found.shape.to_string() + " instead of " + spec.shape.to_string();
  }
  if (is_weight(found.dtype)) return {};
  return spec.name + " " + std::string(dtype_name(found.dtype)) + " instead of " + kWeightTypes;
}

}  // namespace

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    if (!pattern.ends_with('*')) return name == pattern;
    return name.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1));
  });
}

void compare_tensors(const TensorDemand& demand, const Checkpoint& checkpoint) {
  Differences missing, wrong, surplus;
  std::set<std::string_view> known;
  std::string first;
  const auto note = [&](Differences& kind, const std::string& name, std::string text) {
    if (first.empty()) first = name;
    kind.add(std::move(text));
  };
  // The table, not find(), which may read numbers.
  const auto& held = checkpoint.tensors();
  for (const TensorSpec& spec : demand.tensors) {
    known.insert(spec.name);
    const auto entry = held.find(spec.name);
    if (entry == held.end()) {
      if (!demand.optional || !demand.optional(spec.name)) note(missing, spec.name, spec.name);
    } else if (std::string text = difference_of(spec, entry->second); !text.empty()) {
      note(wrong, spec.name, std::move(text));
    }
  }
  for (const auto& [name, unused] : held) {
    if (known.contains(name) || demand.foreign(name) || checkpoint.is_spare(name)) continue;
    note(surplus, name, name);
  }
  if (first.empty()) return;
  std::string text;
  missing.append_to(text, "missing");
  wrong.append_to(text, "wrong");
  surplus.append_to(text, "surplus");
  const bool named = !demand.file.empty() || held.empty();
  throw Error(
      {.kind = ErrorKind::kModel,
       .code = "E_TENSORS",
       .file = named ? demand.file : checkpoint.file_of(held.begin()->first),
       .where = first,
       .expected = "the " + std::to_string(demand.tensors.size()) + " tensors of " + demand.of,
       .found = explained(checkpoint, std::move(text))});
}

}  // namespace tessera
