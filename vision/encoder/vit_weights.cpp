// Packs a tower's tensors; fused q, k, v are taken apart so that no row is copied when it runs.
#include "vision/encoder/vit_weights.h"

#include <algorithm>
#include <cstring>

#include "engine/checkpoint/checked_weight.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"

namespace tessera {

void apply(Backend& backend, const RowNorm& norm, ConstTensorView x, TensorView out) {
  if (norm.bias.empty()) {
    ops::rms_norm(backend, x, norm.weight.view(), norm.eps, out);
  } else {
    ops::layer_norm(backend, x, norm.weight.view(), norm.bias.view(), norm.eps, out);
  }
}

std::size_t VitWeights::bytes() const {
  std::size_t sum = patch.bytes() + class_token.bytes() + positions.bytes() + first_norm.bytes() +
                    final_norm.bytes();
  for (const VitLayerWeights& layer : layers) {
    sum += layer.norm1.bytes() + layer.norm2.bytes() + layer.q.bytes() + layer.k.bytes() +
           layer.v.bytes() + layer.out.bytes() + layer.mlp_in.bytes() + layer.mlp_out.bytes();
  }
  return sum;
}

DType encoder_storage(const Checkpoint& weights, std::string_view name, DType storage) {
  if (storage != DType::kFile) return storage;
  const DType own = weights.stored_type(name);
  return storage_of(own).integers ? beside(storage) : own;
}

DType WeightReader::kept(const std::vector<std::string>& stems) const {
  const auto of = [&](const std::string& stem) {
    return encoder_storage(checkpoint_, stem + ".weight", storage_);
  };
  const DType first = of(stems.front());
  const bool alike = std::all_of(stems.begin(), stems.end(),
                                 [&](const std::string& stem) { return of(stem) == first; });
  return alike ? first : DType::kF32;
}

Tensor WeightReader::upload(Tensor host, Shape shape) {
  Tensor out = backend_.allocate(DType::kF32, shape);
  backend_.upload({DType::kF32, shape, host.f32(), Device{}}, out.view());
  return out;
}

Tensor WeightReader::vector(const std::string& name, std::int64_t n) {
  return matrix(name, {n}, {n});
}

Tensor WeightReader::matrix(const std::string& name, const Shape& in_file, Shape shape) {
  Tensor out = upload(widened(checked_weight(checkpoint_, name, in_file)), shape);
  checkpoint_.release(name);
  return out;
}

RowNorm WeightReader::norm(const std::string& stem, std::int64_t width, VitNorm kind, float eps) {
  RowNorm norm;
  norm.weight = vector(stem + ".weight", width);
  if (kind == VitNorm::kLayer) norm.bias = vector(stem + ".bias", width);
  norm.eps = eps;
  return norm;
}

Linear WeightReader::linear(const std::vector<std::string>& stems, std::int64_t out,
                            std::int64_t in, bool bias) {
  std::vector<ConstTensorView> weights;
  for (const std::string& stem : stems) {
    weights.push_back(checked_weight(checkpoint_, stem + ".weight", {out, in}));
  }
  Linear linear{backend_.pack_linear(weights, kept(stems)), {}};
  for (const std::string& stem : stems) checkpoint_.release(stem + ".weight");
  if (!bias) return linear;
  const std::int64_t total = out * std::ssize(stems);
  Tensor joined = Tensor::host(DType::kF32, {total});
  float* to = joined.f32();
  for (const std::string& stem : stems) {
    const Tensor part = widened(checked_weight(checkpoint_, stem + ".bias", {out}));
    std::memcpy(to, part.f32(), part.bytes());
    to += out;
  }
  linear.bias = upload(std::move(joined), {total});
  return linear;
}

Linear WeightReader::linear_part(const std::string& stem, std::int64_t part, std::int64_t parts,
                                 std::int64_t out, std::int64_t in) {
  ConstTensorView weight = checked_weight(checkpoint_, stem + ".weight", {parts * out, in});
  weight.shape = {out, in};
  weight.data = weight.raw() + to_size(part) * weight.bytes();
  Linear linear{backend_.pack_linear({&weight, 1}, kept({stem})), {}};
  const Tensor bias = widened(checked_weight(checkpoint_, stem + ".bias", {parts * out}));
  Tensor own = Tensor::host(DType::kF32, {out});
  std::memcpy(own.f32(), bias.f32() + part * out, own.bytes());
  linear.bias = upload(std::move(own), {out});
  if (part + 1 == parts) checkpoint_.release(stem + ".weight");
  return linear;
}

Linear WeightReader::patch(const std::string& stem, const Shape& kernel, bool bias) {
  ConstTensorView weight = checked_weight(checkpoint_, stem + ".weight", kernel);
  weight.shape = {kernel[0], kernel.elements() / kernel[0]};
  Linear linear{backend_.pack_linear({&weight, 1}, kept({stem})), {}};
  checkpoint_.release(stem + ".weight");
  if (bias) linear.bias = vector(stem + ".bias", kernel[0]);
  return linear;
}

namespace {

VitLayerWeights load_layer(WeightReader& reader, const VitSpec& spec, std::int64_t layer) {
  const VitNames& names = spec.names;
  const std::string stem = vit_layer_name(names, layer);
  const std::int64_t c = spec.width;
  VitLayerWeights out;
  out.norm1 = reader.norm(stem + names.norm1, c, spec.norm, spec.norm_eps);
  out.norm2 = reader.norm(stem + names.norm2, c, spec.norm, spec.norm_eps);
  Linear* parts[] = {&out.q, &out.k, &out.v};
  for (std::size_t i = 0; i < 3; ++i) {
    *parts[i] = names.qkv.size() == 1
                    ? reader.linear_part(stem + names.qkv[0], to_index(i), 3, c, c)
                    : reader.linear({stem + names.qkv.at(i)}, c, c, true);
  }
  out.out = reader.linear({stem + names.out}, c, c, true);
  std::vector<std::string> mlp_in;
  for (const std::string& part : names.mlp_in) mlp_in.push_back(stem + part);
  expects(mlp_in.size() == (spec.gated() ? 2u : 1u), "a gated MLP has a gate and an up matrix");
  out.mlp_in = reader.linear(mlp_in, spec.mlp_width, c, true);
  out.mlp_out = reader.linear({stem + names.mlp_out}, c, spec.mlp_width, true);
  return out;
}

}  // namespace

VitWeights load_vit_weights(Backend& backend, const VitSpec& spec, const Checkpoint& checkpoint,
                            DType storage) {
  WeightReader reader(backend, checkpoint, storage);
  const VitNames& names = spec.names;
  const std::int64_t c = spec.width;
  VitWeights out;
  const Shape still{c, 3, spec.patch, spec.patch};
  out.patch = reader.patch(
      names.prefix + names.patch,
      spec.frames == 1 ? still : Shape{c, 3, spec.frames, spec.patch, spec.patch}, spec.patch_bias);
  if (spec.class_token)
    out.class_token = reader.matrix(names.prefix + names.class_token, {c}, {1, c});
  if (spec.positions == VitPositions::kLearned || spec.positions == VitPositions::kBuckets) {
    const Shape table{spec.places(), c};
    out.positions =
        reader.matrix(names.prefix + names.positions,
                      names.positions_batched ? Shape{1, spec.places(), c} : table, table);
  }
  if (spec.first_norm) {
    out.first_norm = reader.norm(names.prefix + names.first_norm, c, spec.norm, spec.norm_eps);
  }
  for (std::int64_t layer = 0; layer < spec.run_layers; ++layer) {
    out.layers.push_back(load_layer(reader, spec, layer));
  }
  if (spec.final_norm == VitFinalNorm::kApplied) {
    out.final_norm = reader.norm(names.prefix + names.final_norm, c, spec.norm, spec.norm_eps);
  }
  return out;
}

}  // namespace tessera
