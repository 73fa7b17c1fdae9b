// Packs the generation half of a model onto a device, one tensor at a time: no more than one source
// tensor is resident beside what is packed already, and the largest tables come first.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "engine/checkpoint/non_finite.h"
#include "engine/families/family.h"
#include "engine/families/open_model.h"

namespace tessera {

namespace {

constexpr std::int64_t kStagingElements = std::int64_t{1} << 18;

float element(ConstTensorView view, std::int64_t at) {
  switch (view.dtype) {
    case DType::kF32:
      return static_cast<const float*>(view.data)[at];
    case DType::kBF16:
      return bf16_to_float(static_cast<const std::uint16_t*>(view.data)[at]);
    case DType::kF16:
      return f16_to_float(static_cast<const std::uint16_t*>(view.data)[at]);
    default:
      break;
  }
  expects(false, "weights are f32, f16 or bf16");
  return 0.0f;
}

// Elements [begin, begin + count) of a row-major tensor.
ConstTensorView part_of(ConstTensorView view, std::int64_t begin, std::int64_t count) {
  const auto* data = static_cast<const std::byte*>(view.data);
  return {view.dtype, Shape{count}, data + static_cast<std::size_t>(begin) * dtype_size(view.dtype),
          view.device};
}

// Uploads a small part, converted through `staging` where the types differ.
void upload_part(Backend& backend, ConstTensorView from, Tensor& staging, TensorView to) {
  if (from.dtype == to.dtype) return backend.upload(from, to);
  for (std::int64_t i = 0; i < from.shape.elements(); ++i) {
    const float value = element(from, i);
    if (to.dtype == DType::kF32) {
      staging.view().as<float>()[i] = value;
    } else {
      staging.view().as<std::uint16_t>()[i] = float_to_bf16(value);
    }
  }
  backend.upload({to.dtype, to.shape, staging.view().data, Device{}}, to);
}

class Loader {
 public:
  Loader(OpenedModel& model, Backend& backend, DType storage)
      : spec_(model.spec), source_(*model.source), backend_(backend), storage_(storage) {}

  ImageModel load() {
    const WeightNames& names = spec_.names;
    ImageModelWeights weights;
    weights.prompt_table = table(names.prompt_table);
    weights.code_table = table(names.code_table);
    weights.head_out = linear(names.head_out, names.head_bias);
    weights.head_in = linear(names.head_in, names.head_bias);
    weights.align_in = linear(names.align_in, true);
    weights.align_out = linear(names.align_out, true);
    for (std::int64_t i = 0; i < spec_.model.transformer.layers; ++i) {
      weights.transformer.layers.push_back(layer(layer_name(names.layer_prefix, i)));
    }
    weights.transformer.final_norm = vector(names.final_norm);
    return ImageModel(backend_, spec_.model, std::move(weights));
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const NonFinite& bad) const {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_WEIGHT_NOT_FINITE",
                 .file = source_.file_of(name),
                 .where = name + " index " + std::to_string(bad.index),
                 .expected = "finite weights",
                 .found = std::to_string(bad.count) + " NaN or infinite"});
  }

  // Fetches and scans one tensor; its pages are warm for the packing that follows.
  ConstTensorView get(const std::string& name) {
    const ConstTensorView view = source_.get(name);
    if (const auto bad = find_non_finite(view)) refuse(name, *bad);
    return view;
  }

  // Scans and uploads a tensor in small parts and gives each back at once, so that the largest
  // table of a model never stands in memory twice.
  Tensor converted(const std::string& name, DType dtype) {
    const ConstTensorView view = source_.get(name);
    Tensor out = backend_.allocate(dtype, view.shape);
    const std::int64_t total = view.shape.elements();
    Tensor staging = Tensor::host(dtype, Shape{std::min(total, kStagingElements)});
    NonFinite bad;
    for (std::int64_t begin = 0; begin < total; begin += kStagingElements) {
      const std::int64_t count = std::min(kStagingElements, total - begin);
      const ConstTensorView part = part_of(view, begin, count);
      if (const auto found = find_non_finite(part)) {
        if (bad.count == 0) bad.index = begin + found->index;
        bad.count += found->count;
      }
      auto* to = static_cast<std::byte*>(out.view().data) +
                 static_cast<std::size_t>(begin) * dtype_size(dtype);
      upload_part(backend_, part, staging, {dtype, Shape{count}, to, out.view().device});
      const std::size_t width = dtype_size(view.dtype);
      source_.done_part(name, static_cast<std::size_t>(begin) * width,
                        static_cast<std::size_t>(begin + count) * width);
    }
    if (bad.count > 0) refuse(name, bad);
    source_.done(name);
    return out;
  }

  Tensor vector(const std::string& name) { return converted(name, DType::kF32); }
  Tensor table(const std::string& name) { return converted(name, storage_); }

  LinearWeight pack(const std::vector<std::string>& names) {
    std::vector<ConstTensorView> views;
    for (const std::string& name : names) views.push_back(get(name));
    LinearWeight packed = backend_.pack_linear(views, storage_);
    for (const std::string& name : names) source_.done(name);
    return packed;
  }

  Linear linear(const std::string& stem, bool bias) {
    if (stem.empty()) return {};
    Linear out;
    out.weight = pack({stem + ".weight"});
    if (bias) out.bias = vector(stem + ".bias");
    return out;
  }

  LayerWeights layer(const std::string& prefix) {
    const WeightNames& names = spec_.names;
    const auto full = [&](const std::vector<std::string>& leaves) {
      std::vector<std::string> out;
      for (const std::string& leaf : leaves) out.push_back(prefix + leaf);
      return out;
    };
    LayerWeights out;
    out.attention_norm = vector(prefix + names.attention_norm);
    out.qkv = pack(full(names.qkv));
    out.out = pack({prefix + names.out});
    out.ffn_norm = vector(prefix + names.ffn_norm);
    out.gate_up = pack(full(names.gate_up));
    out.down = pack({prefix + names.down});
    return out;
  }

  const FamilySpec& spec_;
  TensorSource& source_;
  Backend& backend_;
  DType storage_;
};

}  // namespace

ImageModel load_image_model(OpenedModel& model, Backend& backend, DType storage) {
  expects(storage == DType::kF32 || storage == DType::kBF16, "weights are stored as f32 or bf16");
  expects(model.source != nullptr, "the model has weights");
  ImageModel loaded = Loader(model, backend, storage).load();
  if (model.weights) model.weights->verify_unchanged();
  return loaded;
}

}  // namespace tessera
