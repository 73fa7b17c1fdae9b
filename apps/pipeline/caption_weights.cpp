// Checks and names of a captioning model's weight file.
#include "apps/pipeline/caption_weights.h"

#include <set>

namespace tessera {

namespace {

// Newer files put everything under "model.".
void locate_newline(CaptionSpec& spec, const Checkpoint& checkpoint) {
  if (spec.newline_name.empty()) return;
  ErrorInfo why{.kind = ErrorKind::kModel,
                .code = "E_CAPTION_MODEL",
                .file = spec.folder.string(),
                .where = spec.newline_name,
                .expected = "a tensor of that name",
                .found = "none"};
  for (const std::string& name : {spec.newline_name, "model." + spec.newline_name}) {
    const ConstTensorView* view = checkpoint.find(name);
    if (view == nullptr) continue;
    spec.newline_name = name;
    const Shape wanted{spec.text.model.transformer.width};
    const bool real =
        view->dtype == DType::kF32 || view->dtype == DType::kBF16 || view->dtype == DType::kF16;
    if (view->shape == wanted && real) return;
    why.file = checkpoint.file_of(name);
    why.where = name;
    why.expected = wanted.to_string() + " of f32, f16 or bf16";
    why.found = view->shape.to_string() + " " + std::string(dtype_name(view->dtype));
    break;
  }
  throw Error(why);
}

// Layers that the configuration does not speak of would be another model's. Older files keep a
// table of the rotary embedding in every layer, which nobody reads.
void refuse_surplus_layers(const CaptionSpec& spec, const Checkpoint& checkpoint) {
  const std::string layers = spec.text.layouts.front().root + "layers.";
  std::set<std::string_view> known;
  const std::vector<TensorSpec> tensors = spec.text.tensors();
  for (const TensorSpec& tensor : tensors) known.insert(tensor.name);
  std::size_t count = 0;
  std::string first;
  for (const auto& [name, unused] : checkpoint.tensors()) {
    if (!name.starts_with(layers) || known.contains(name)) continue;
    if (name.ends_with(".rotary_emb.inv_freq")) continue;
    if (count++ == 0) first = name;
  }
  if (count == 0) return;
  throw Error(
      {.kind = ErrorKind::kModel,
       .code = "E_TENSORS",
       .file = checkpoint.file_of(first),
       .where = first,
       .expected =
           "the " + std::to_string(known.size()) + " tensors of the language model's configuration",
       .found = std::to_string(count) + " surplus (" + first + (count > 1 ? ", ...)" : ")")});
}

}  // namespace

void settle_caption_weights(CaptionSpec& spec, const Checkpoint& weights) {
  locate_text(spec.text, weights);
  if (weights.find(spec.text.layouts.front().head) == nullptr) spec.text.model.tied_head = true;
  locate_tower(spec.tower, weights);
  locate_newline(spec, weights);
  check_tensors(spec.text.tensors(), weights, spec.folder.string());
  refuse_surplus_layers(spec, weights);
  check_tower_tensors(spec.tower, weights);
}

std::int64_t parameter_count(const CaptionSpec& spec) {
  std::int64_t sum = spec.newline_name.empty() ? 0 : spec.text.model.transformer.width;
  for (const auto& list : {spec.text.tensors(), tower_tensors(spec.tower)}) {
    for (const TensorSpec& tensor : list) sum += tensor.shape.elements();
  }
  return sum;
}

}  // namespace tessera
