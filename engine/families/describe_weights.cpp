// The weight file of a model that describes images, against its configuration: where the names of
// its parts stand, and that every tensor of both halves is there, in its shape, and none next to.
#include <nlohmann/json.hpp>
#include <set>

#include "engine/checkpoint/tensor_kinds.h"
#include "engine/core/storage.h"
#include "engine/families/describe.h"
#include "engine/families/language.h"

namespace tessera {

namespace {

// Newer files put everything under "model.".
void locate_newline(ModelSpec& spec, const Checkpoint& checkpoint) {
  std::string& newline = spec.describe->newline_name;
  if (newline.empty()) return;
  ErrorInfo why{.kind = ErrorKind::kModel,
                .code = "E_CAPTION_MODEL",
                .file = spec.folder.string(),
                .where = newline,
                .expected = "a tensor of that name",
                .found = "none"};
  for (const std::string& name : {newline, "model." + newline}) {
    const ConstTensorView* view = checkpoint.find(name);
    if (view == nullptr) continue;
    newline = name;
    const Shape wanted{spec.model.transformer.width};
    if (view->shape == wanted && is_weight(view->dtype)) return;
    why.file = checkpoint.file_of(name);
    why.where = name;
    why.expected = wanted.to_string() + " of " + kWeightTypes;
    why.found = view->shape.to_string() + " " + std::string(dtype_name(view->dtype));
    break;
  }
  throw Error(why);
}

// Layers that the configuration does not speak of would be another model's. Older files keep a
// table of the rotary embedding in every layer, which nobody reads.
void refuse_surplus_layers(const ModelSpec& spec, const Checkpoint& checkpoint) {
  const std::string layers = spec.layouts.front().root + "layers.";
  std::set<std::string_view> known;
  const std::vector<TensorSpec> tensors = text_tensors(spec.model, spec.layouts.front());
  for (const TensorSpec& tensor : tensors) known.insert(tensor.name);
  std::size_t count = 0;
  std::string first;
  for (const auto& [name, unused] : checkpoint.tensors()) {
    if (!name.starts_with(layers) || known.contains(name)) continue;
    if (name.ends_with(".rotary_emb.inv_freq") || checkpoint.is_spare(name)) continue;
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

// Weights of the text where the first layout has them.
void name_text(ModelSpec& spec) {
  const WeightNames names = text_names(spec.model, spec.layouts.front());
  if (!spec.generates()) {
    spec.names = names;
    return;
  }
  expects(spec.names.prompt_table == names.prompt_table, "both halves share the language model");
  spec.names.text_head = names.text_head;
}

}  // namespace

void refuse_missing_head(const Json& config, HeadTie rule, const std::string& file,
                         const std::string& head, const Checkpoint& weights) {
  const Json::json_pointer whole("/tie_word_embeddings"), text("/text_config/tie_word_embeddings");
  if (rule == HeadTie::kWholeOrAbsent && !config.contains(whole)) return;
  if (config.contains(whole) && config[whole] == Json(true)) return;
  const bool half = rule == HeadTie::kEither && config.contains(text);
  if (half && config[text] == Json(true)) return;
  const bool given = config.contains(whole) || half;
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_TIED_HEAD",
               .file = file,
               .where = half && !config.contains(whole) ? "text_config.tie_word_embeddings"
                                                        : "tie_word_embeddings",
               .expected = "true, as the weights have no " + head,
               .found = explained(weights, given ? "false" : "none, which means false"),
               .hint = "with false the file must have a head of its own"});
}

void settle_describing(ModelSpec& spec, const Checkpoint& weights) {
  if (spec.layouts.empty()) {  // its family listed its tensors
    locate_tower(spec.describe->tower, weights);
    check_tensors(spec, weights);
    check_tower_tensors(spec.describe->tower, weights);
    return;
  }
  locate_text(spec.layouts, weights);
  const TextLayout& layout = spec.layouts.front();
  // A file with a head of its own has it, whatever its configuration says.
  spec.model.tied_head = !weights.tensors().contains(layout.head);
  if (spec.model.tied_head && spec.describe->config != nullptr) {
    refuse_missing_head(*spec.describe->config, spec.describe->head_tie,
                        (spec.folder / "config.json").string(), layout.head, weights);
  }
  name_text(spec);
  locate_tower(spec.describe->tower, weights);
  locate_newline(spec, weights);
  check_tensors(text_tensors(spec.model, layout), weights, spec.folder.string());
  refuse_surplus_layers(spec, weights);
  check_tower_tensors(spec.describe->tower, weights);
}

std::vector<TensorSpec> language_tensors(const ModelSpec& spec) {
  if (!spec.layouts.empty()) return text_tensors(spec.model, spec.layouts.front());
  std::vector<TensorSpec> out = spec.tensors;
  std::erase_if(out, [&](const TensorSpec& tensor) {
    return tensor.name.starts_with(spec.vq.prefix) ||
           (spec.model.tied_head && tensor.name == spec.names.text_head);
  });
  return out;
}

std::vector<TensorSpec> describing_tensors(const ModelSpec& spec) {
  std::vector<TensorSpec> out = language_tensors(spec);
  for (TensorSpec& tensor : tower_tensors(spec.describe->tower)) out.push_back(std::move(tensor));
  if (!spec.describe->newline_name.empty()) {
    out.push_back({spec.describe->newline_name, Shape{spec.model.transformer.width}});
  }
  return out;
}

std::int64_t describing_parameters(const ModelSpec& spec) {
  std::int64_t sum = 0;
  for (const TensorSpec& tensor : describing_tensors(spec)) sum += tensor.shape.elements();
  return sum;
}

}  // namespace tessera
