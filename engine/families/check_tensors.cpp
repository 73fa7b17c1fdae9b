// Compares what a checkpoint holds with what its family says it must hold.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "engine/checkpoint/tensor_kinds.h"
#include "engine/core/storage.h"
#include "engine/families/family.h"

namespace tessera {

namespace {

constexpr std::size_t kListed = 10;

// Names of one kind of difference, the first few spelled out.
class Differences {
 public:
  void add(std::string text) {
    if (count_++ < kListed) listed_ += (listed_.empty() ? "" : ", ") + std::move(text);
  }
  std::size_t count() const { return count_; }
  std::string to_string(const char* kind) const {
    if (count_ == 0) return {};
    std::string text = std::to_string(count_) + " " + kind + " (" + listed_;
    if (count_ > kListed) text += ", ...";
    return text + ")";
  }

 private:
  std::size_t count_ = 0;
  std::string listed_;
};

bool is_ignored(const std::vector<std::string>& ignored, std::string_view name) {
  return std::any_of(ignored.begin(), ignored.end(), [&](const std::string& pattern) {
    if (!pattern.ends_with('*')) return name == pattern;
    return name.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1));
  });
}

std::string plural_join(std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (!part.empty()) text += (text.empty() ? "" : "; ") + part;
  }
  return text;
}

void check(const std::vector<TensorSpec>& expected, const std::vector<std::string>& optional,
           const std::vector<std::string>& ignored, const Checkpoint& checkpoint,
           const std::string& file) {
  Differences missing, surplus, wrong;
  std::set<std::string_view> known;
  std::string first;
  const auto note = [&](const std::string& name) {
    if (first.empty()) first = name;
  };
  for (const TensorSpec& tensor : expected) {
    known.insert(tensor.name);
    // The table, not find(), which may read numbers.
    const auto entry = checkpoint.tensors().find(tensor.name);
    const ConstTensorView* found =
        entry == checkpoint.tensors().end() ? nullptr : &entry->second;
    if (found == nullptr) {
      if (std::find(optional.begin(), optional.end(), tensor.name) != optional.end()) continue;
      missing.add(tensor.name);
      note(tensor.name);
    } else if (found->shape != tensor.shape) {
      wrong.add(tensor.name + " " + found->shape.to_string() + " instead of " +
                tensor.shape.to_string());
      note(tensor.name);
    } else if (!is_weight(found->dtype)) {
      wrong.add(tensor.name + " " + std::string(dtype_name(found->dtype)) +
                " instead of " + kWeightTypes);
      note(tensor.name);
    }
  }
  for (const auto& [name, unused] : checkpoint.tensors()) {
    if (known.contains(name) || is_ignored(ignored, name) || checkpoint.is_spare(name)) continue;
    surplus.add(name);
    note(name);
  }
  if (first.empty()) return;
  throw Error(
      {.kind = ErrorKind::kModel,
       .code = "E_TENSORS",
       .file = !file.empty() || checkpoint.tensors().empty()
                   ? file
                   : checkpoint.file_of(checkpoint.tensors().begin()->first),
       .where = first,
       .expected = "the " + std::to_string(expected.size()) + " tensors of its configuration",
       .found = explained(checkpoint,
                          plural_join({missing.to_string("missing"), wrong.to_string("wrong"),
                                       surplus.to_string("surplus")}))});
}

}  // namespace

void check_tensors(const ModelSpec& spec, const Checkpoint& checkpoint) {
  check(spec.tensors, spec.optional_tensors, spec.ignored, checkpoint, spec.weights.string());
}

void check_tensors(const std::vector<TensorSpec>& expected, const Checkpoint& checkpoint,
                   const std::string& file) {
  check(expected, {}, {"*"}, checkpoint, file);
}

void check_vq_tensors(const ModelSpec& spec, const Checkpoint& vq_checkpoint) {
  std::vector<std::string> ignored = spec.vq_ignored;
  ignored.push_back("quantize.codebook_used");
  ignored.push_back(spec.vq.prefix + "quantize.codebook_used");
  check(spec.vq_tensors, spec.vq_optional, ignored, vq_checkpoint, spec.vq_weights.string());
}

}  // namespace tessera
