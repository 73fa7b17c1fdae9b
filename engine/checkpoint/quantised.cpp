// Finds the matrices by the ends of their tensors' names.
#include "engine/checkpoint/quantised.h"

#include <algorithm>
#include <limits>
#include <set>

#include "engine/checkpoint/container.h"
#include "engine/checkpoint/quantised_parts.h"
#include "engine/core/storage.h"

namespace tessera {

namespace {

constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max();

using FormReader = QuantisedWeight (*)(QuantisedParts&);

// A name that ends so belongs to a matrix that is read so.
struct PartName {
  QuantisedForm form;
  std::string_view leaf;
  FormReader read;
};

constexpr PartName kPartNames[] = {
    {QuantisedForm::kAwq, "qweight", read_packed},
    {QuantisedForm::kAwq, "qzeros", read_packed},
    {QuantisedForm::kAwq, "scales", read_packed},
    {QuantisedForm::kGptq, "qweight", read_packed},
    {QuantisedForm::kGptq, "qzeros", read_packed},
    {QuantisedForm::kGptq, "scales", read_packed},
    {QuantisedForm::kGptq, "g_idx", read_packed},
    {QuantisedForm::kFloat8, "weight_scale_inv", read_compressed},
    {QuantisedForm::kFloat8, "weight_scale", read_compressed},
    {QuantisedForm::kCompressed, "weight_packed", read_compressed},
    {QuantisedForm::kCompressed, "weight_scale", read_compressed},
    {QuantisedForm::kCompressed, "weight_zero_point", read_compressed},
    {QuantisedForm::kCompressed, "weight_shape", read_compressed},
    {QuantisedForm::kCompressed, "weight_g_idx", read_compressed},
    {QuantisedForm::kBitsAndBytes, "SCB", read_bytes_row},
    {QuantisedForm::kBitsAndBytes, "weight_format", read_bytes_row},
    {QuantisedForm::kBitsAndBytes, "weight.absmax", read_blocks},
    {QuantisedForm::kBitsAndBytes, "weight.quant_map", read_blocks},
    {QuantisedForm::kBitsAndBytes, "weight.nested_absmax", read_blocks},
    {QuantisedForm::kBitsAndBytes, "weight.nested_quant_map", read_blocks},
    {QuantisedForm::kBitsAndBytes, "weight.quant_state.bitsandbytes__nf4", read_blocks},
    {QuantisedForm::kBitsAndBytes, "weight.quant_state.bitsandbytes__fp4", read_blocks},
};

// Of inputs, outputs and caches.
constexpr std::string_view kUnread[] = {"input_scale",    "input_zero_point", "activation_scale",
                                        "input_scale_ub", "output_scale",     "k_scale",
                                        "v_scale",        "q_scale",          "output_zero_point",
                                        "k_zero_point",   "v_zero_point",     "q_zero_point"};

// What comes before ".leaf"; empty where the name does not end so.
std::string_view stem_of(std::string_view name, std::string_view leaf) {
  if (name.size() < leaf.size() + 2 || !name.ends_with(leaf)) return {};
  name.remove_suffix(leaf.size());
  if (!name.ends_with('.')) return {};
  return name.substr(0, name.size() - 1);
}

bool is_unread(QuantisedForm form, std::string_view name) {
  if (form != QuantisedForm::kFloat8 && form != QuantisedForm::kCompressed) return false;
  return std::any_of(std::begin(kUnread), std::end(kUnread),
                     [&](std::string_view leaf) { return !stem_of(name, leaf).empty(); });
}

// The matrices of a form by their stems.
std::map<std::string, FormReader, std::less<>> stems_of(QuantisedForm form,
                                                        const Checkpoint& checkpoint) {
  std::map<std::string, FormReader, std::less<>> out;
  for (const auto& [name, view] : checkpoint.tensors()) {
    for (const PartName& part : kPartNames) {
      if (part.form != form) continue;
      if (const std::string_view stem = stem_of(name, part.leaf); !stem.empty()) {
        out.emplace(stem, part.read);
      }
    }
    // Without a scale it is refused for that.
    const bool float8 = view.dtype == DType::kF8E4M3 || view.dtype == DType::kF8E5M2;
    if (const std::string_view stem = stem_of(name, "weight"); float8 && !stem.empty()) {
      out.emplace(stem, read_compressed);
    }
  }
  return out;
}

bool is_zeros(const ConstTensorView& view) {
  if (!is_weight(view.dtype) || dtype_size(view.dtype) == 0 || view.empty()) return false;
  const Tensor numbers = widened(view);
  return std::all_of(numbers.f32(), numbers.f32() + view.shape.elements(),
                     [](float number) { return number == 0; });
}

std::string types_text(std::span<const DType> types) {
  std::string out;
  for (const DType type : types) out += (out.empty() ? "" : " or ") + std::string(dtype_name(type));
  return out;
}

}  // namespace

ConstTensorView QuantisedParts::get(std::string_view leaf, std::span<const DType> types) {
  const auto found = checkpoint_.tensors().find(name(leaf));
  if (found == checkpoint_.tensors().end()) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_QUANTISED_TENSOR",
                 .file = scheme_.file,
                 .where = tensor_place(name(leaf)),
                 .expected = "this tensor, as " + stem_ + " is quantised by " + scheme_.name,
                 .found = "none"});
  }
  const ConstTensorView& view = found->second;
  if (!types.empty() && std::find(types.begin(), types.end(), view.dtype) == types.end()) {
    refuse(leaf, types_text(types), std::string(dtype_name(view.dtype)));
  }
  parts_.push_back(found->first);
  return view;
}

ConstTensorView QuantisedParts::matrix(std::string_view leaf, std::span<const DType> types) {
  const ConstTensorView view = get(leaf, types);
  const auto fits = [](std::int64_t extent) { return extent >= 1 && extent <= kMostRows; };
  if (view.shape.rank() != 2 || !fits(view.shape[0]) || !fits(view.shape[1])) {
    refuse(leaf, "two dimensions from 1 to " + std::to_string(kMostRows), view.shape.to_string());
  }
  return view;
}

void QuantisedParts::want_shape(std::string_view leaf, const ConstTensorView& view,
                                const Shape& shape) const {
  if (view.shape != shape) refuse(leaf, shape.to_string(), view.shape.to_string());
}

void QuantisedParts::skip(std::string_view leaf) {
  if (has(leaf)) parts_.push_back(name(leaf));
}

void QuantisedParts::refuse(std::string_view leaf, std::string expected, std::string found) const {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_QUANTISED_TENSOR",
               .file = file(leaf),
               .where = tensor_place(name(leaf)),
               .expected = std::move(expected) + " (" + scheme_.name + ")",
               .found = std::move(found)});
}

QuantisedWeight QuantisedParts::weight(QuantisedGrid grid) const {
  grid.file = checkpoint_.file_of(grid.codes.name);
  const Shape shape{grid.rows, grid.columns};
  return weight(shape, [grid = std::move(grid)](float* out) { read_grid(grid, out); });
}

QuantisedWeight QuantisedParts::weight(Shape shape, std::function<void(float*)> read) const {
  const std::string plain = name("weight");
  const bool own = std::find(parts_.begin(), parts_.end(), plain) != parts_.end();
  if (has("weight") && !own) refuse("weight", "no such tensor beside the quantised one", "both");
  return {plain, shape, parts_, std::move(read)};
}

QuantisedTensors find_quantised(const QuantisedScheme& scheme, const Checkpoint& checkpoint) {
  QuantisedTensors out;
  for (const auto& [stem, read] : stems_of(scheme.form, checkpoint)) {
    QuantisedParts parts(scheme, checkpoint, stem);
    out.weights.push_back(read(parts));
    const auto bias = checkpoint.tensors().find(stem + ".bias");
    if (bias != checkpoint.tensors().end() && is_zeros(bias->second)) {
      out.spare.push_back(bias->first);
    }
  }
  for (const auto& [name, view] : checkpoint.tensors()) {
    if (is_unread(scheme.form, name)) out.unread.push_back(name);
  }
  if (!out.weights.empty()) return out;
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_QUANTISED_TENSOR",
               .file = scheme.file,
               .where = scheme.key,
               .expected = "weights quantised by " + scheme.name,
               .found = "none among the tensors",
               .hint = "take " + scheme.key + " away if the weights are plain"});
}

}  // namespace tessera
