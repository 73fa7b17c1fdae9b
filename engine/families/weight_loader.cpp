// Scans, converts, packs and uploads weights.
#include "engine/families/weight_loader.h"

#include <algorithm>
#include <cstring>

#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/families/family.h"

namespace tessera {

namespace {

constexpr std::int64_t kStagingElements = std::int64_t{1} << 18;

// Elements [begin, begin + count) of a row-major tensor.
ConstTensorView part_of(ConstTensorView view, std::int64_t begin, std::int64_t count) {
  const auto* data = static_cast<const std::byte*>(view.data);
  return {view.dtype, Shape{count}, data + to_size(begin) * dtype_size(view.dtype), view.device};
}

// Uploads a small part, converted through `staging` where the types differ.
void upload_part(Backend& backend, ConstTensorView from, Tensor& staging, TensorView to) {
  if (from.dtype == to.dtype) return backend.upload(from, to);
  const std::int64_t count = from.shape.elements();
  if (to.dtype == DType::kF32) {
    read_numbers(from, 0, 1, count, staging.f32());
  } else {
    kept_storage(to.dtype).write(widened(from).f32(), count, staging.view().data);
  }
  backend.upload({to.dtype, to.shape, staging.view().data, Device{}}, to);
}

}  // namespace

WeightLoader::WeightLoader(TensorSource& source, Backend& backend, DType storage)
    : source_(source), backend_(backend), storage_(storage) {
  kept_storage(storage);
}

void WeightLoader::refuse(const std::string& name, const NonFinite& bad) const {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_WEIGHT_NOT_FINITE",
               .file = source_.file_of(name),
               .where = name + " index " + std::to_string(bad.index),
               .expected = "finite weights",
               .found = std::to_string(bad.count) + " NaN or infinite"});
}

// Fetches and scans one tensor; its pages are warm for the packing that follows.
ConstTensorView WeightLoader::get(const std::string& name) {
  const ConstTensorView view = source_.get(name);
  if (const auto bad = find_non_finite(view)) refuse(name, *bad);
  return view;
}

// Scans and uploads a tensor in small parts and gives each back at once, so that the largest
// table of a model never stands in memory twice.
Tensor WeightLoader::converted(const std::string& name, DType dtype,
                               const std::vector<RowRange>& rows) {
  const ConstTensorView view = source_.get(name);
  const std::int64_t row = view.shape.elements() / view.shape[0];
  std::vector<std::int64_t> extents(view.shape.extents().begin(), view.shape.extents().end());
  std::vector<RowRange> ranges = rows;
  if (ranges.empty()) ranges = {{0, extents[0]}};
  extents[0] = 0;
  for (const RowRange& range : ranges) extents[0] += range.count;
  Tensor out = backend_.allocate(dtype, Shape(extents));
  Tensor staging = Tensor::host(dtype, Shape{std::min(out.shape().elements(), kStagingElements)});
  NonFinite bad;
  auto* to = static_cast<std::byte*>(out.view().data);
  for (const RowRange& range : ranges) {
    const std::int64_t end = (range.first + range.count) * row;
    for (std::int64_t begin = range.first * row; begin < end; begin += kStagingElements) {
      const std::int64_t count = std::min(kStagingElements, end - begin);
      const ConstTensorView part = part_of(view, begin, count);
      if (const auto found = find_non_finite(part)) {
        if (bad.count == 0) bad.index = begin + found->index;
        bad.count += found->count;
      }
      upload_part(backend_, part, staging, {dtype, Shape{count}, to, out.view().device});
      to += to_size(count) * dtype_size(dtype);
      const std::size_t width = dtype_size(view.dtype);
      source_.done_part(name, to_size(begin) * width, to_size(begin + count) * width);
    }
  }
  if (bad.count > 0) refuse(name, bad);
  source_.done(name);
  return out;
}

Tensor WeightLoader::vector(const std::string& name) { return converted(name, DType::kF32); }

Tensor WeightLoader::norm(const std::string& name, float offset) {
  if (offset == 0) return vector(name);
  Tensor numbers = widened(get(name));
  for (std::int64_t i = 0; i < numbers.shape().elements(); ++i) numbers.f32()[i] += offset;
  source_.done(name);
  return uploaded(numbers.view());
}

Tensor WeightLoader::filled(float value, std::int64_t count) {
  Tensor numbers = Tensor::host(DType::kF32, Shape{count});
  std::fill_n(numbers.f32(), count, value);
  return uploaded(numbers.view());
}

Tensor WeightLoader::uploaded(ConstTensorView numbers) {
  Tensor out = backend_.allocate(DType::kF32, numbers.shape);
  backend_.upload(numbers, out.view());
  backend_.synchronize();
  return out;
}

Tensor WeightLoader::table(const std::string& name, const std::vector<RowRange>& rows) {
  return converted(name, beside(storage_), rows);
}

LinearWeight WeightLoader::packed(const std::vector<std::string>& names, DType storage) {
  std::vector<ConstTensorView> views;
  for (const std::string& name : names) views.push_back(get(name));
  LinearWeight packed = backend_.pack_linear(views, storage);
  for (const std::string& name : names) source_.done(name);
  return packed;
}

// Rows of a matrix, packed one range after the other.
LinearWeight WeightLoader::packed_rows(const std::string& name, const std::vector<RowRange>& rows,
                                       DType storage) {
  const ConstTensorView whole = source_.get(name);
  const std::int64_t width = whole.shape[1];
  std::vector<ConstTensorView> views;
  for (const RowRange& range : rows) {
    ConstTensorView part = part_of(whole, range.first * width, range.count * width);
    if (const auto bad = find_non_finite(part)) {
      refuse(name, {range.first * width + bad->index, bad->count});
    }
    part.shape = {range.count, width};
    views.push_back(part);
  }
  LinearWeight packed = backend_.pack_linear(views, storage);
  source_.done(name);
  return packed;
}

LinearWeight WeightLoader::pack(const std::vector<std::string>& names) {
  return packed(names, storage_);
}

LinearWeight WeightLoader::pack_head(const std::string& name) {
  return packed({name}, head_storage(storage_));
}

Linear WeightLoader::linear(const std::string& stem, bool bias) {
  if (stem.empty()) return {};
  Linear out;
  out.weight = pack({stem + ".weight"});
  if (bias) out.bias = vector(stem + ".bias");
  return out;
}

Linear WeightLoader::head(const std::string& stem, bool bias, const std::vector<RowRange>& rows) {
  if (stem.empty()) return {};
  Linear out;
  const std::string name = stem + ".weight";
  out.weight = rows.empty() ? pack_head(name) : packed_rows(name, rows, head_storage(storage_));
  if (bias) out.bias = vector(stem + ".bias");
  return out;
}

Tensor WeightLoader::joined(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::vector<float> all;
  for (const std::string& name : names) {
    const ConstTensorView view = get(name);
    const std::size_t begin = all.size();
    all.resize(begin + static_cast<std::size_t>(view.shape.elements()));
    read_numbers(view, 0, 1, view.shape.elements(), all.data() + begin);
    source_.done(name);
  }
  return uploaded({DType::kF32, Shape{std::ssize(all)}, all.data(), Device{}});
}

CrossWeights WeightLoader::cross(const CrossNames& names, const std::string& prefix) {
  CrossWeights out;
  out.norm = vector(prefix + names.norm);
  out.q = pack({prefix + names.q});
  out.kv = pack({prefix + names.kv[0], prefix + names.kv[1]});
  out.out = pack({prefix + names.out});
  if (!names.q_norm.empty()) out.q_norm = vector(prefix + names.q_norm);
  if (!names.k_norm.empty()) out.k_norm = vector(prefix + names.k_norm);
  return out;
}

LayerWeights WeightLoader::layer(const WeightNames& names, const std::string& prefix) {
  const auto full = [&](const std::vector<std::string>& leaves) {
    std::vector<std::string> out;
    for (const std::string& leaf : leaves) out.push_back(prefix + leaf);
    return out;
  };
  LayerWeights out;
  const auto norm_of = [&](const std::string& name) {
    return name.empty() ? Tensor() : norm(prefix + name, names.norm_offset);
  };
  out.attention_norm = norm_of(names.attention_norm);
  out.attention_result_norm = norm_of(names.attention_result_norm);
  out.ffn_norm = norm_of(names.ffn_norm);
  out.ffn_result_norm = norm_of(names.ffn_result_norm);
  out.q_norm = norm_of(names.q_norm);
  out.k_norm = norm_of(names.k_norm);
  out.qkv = pack(full(names.qkv));
  out.qkv_bias = joined(full(names.qkv_bias));
  if (names.cross) out.cross = cross(*names.cross, prefix);
  out.out = pack({prefix + names.out});
  if (!names.out_bias.empty()) out.out_bias = vector(prefix + names.out_bias);
  out.gate_up = pack(full(names.gate_up));
  out.gate_up_bias = joined(full(names.gate_up_bias));
  out.down = pack({prefix + names.down});
  if (!names.down_bias.empty()) out.down_bias = vector(prefix + names.down_bias);
  return out;
}

TransformerWeights WeightLoader::transformer(const WeightNames& names, std::int64_t layers) {
  TransformerWeights out;
  for (std::int64_t i = 0; i < layers; ++i) {
    out.layers.push_back(layer(names, layer_name(names.layer_prefix, i)));
  }
  out.final_norm = norm(names.final_norm, names.norm_offset);
  return out;
}

}  // namespace tessera
