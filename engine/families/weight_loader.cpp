// Scans, converts, packs and uploads weights.
#include "engine/families/weight_loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/families/family.h"

namespace tessera {

namespace {

constexpr std::int64_t kStagingElements = std::int64_t{1} << 18;

// Elements [begin, begin + count) of a row-major tensor, whole blocks.
ConstTensorView part_of(ConstTensorView view, std::int64_t begin, std::int64_t count) {
  const auto* data = view.raw();
  return {view.dtype, Shape{count}, data + dtype_bytes(view.dtype, begin), view.device};
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
  expects(storage == DType::kFile || is_storage(storage), "a type that weights are kept as");
}

void WeightLoader::refuse(const std::string& name, const NonFinite& bad) const {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_WEIGHT_NOT_FINITE",
               .file = source_.file_of(name),
               .where = name + " index " + std::to_string(bad.index),
               .expected = "finite weights",
               .found = std::to_string(bad.count) + " NaN or infinite"});
}

// A matrix or table that will be kept as `storage`: as its file has it where that is the type.
ConstTensorView WeightLoader::fetch(const std::string& name, DType storage) {
  const bool own = storage == DType::kFile || source_.stored_type(name) == storage;
  return own ? source_.get_stored(name) : source_.get(name);
}

// Fetches and scans one tensor of numbers.
ConstTensorView WeightLoader::get(const std::string& name) {
  const ConstTensorView view = source_.get(name);
  if (const auto bad = find_non_finite(view)) refuse(name, *bad);
  return view;
}

// A matrix, or the part of one from number `first` on, that will be kept as `storage`. Its pages are
// warm for the packing that follows.
void WeightLoader::check(const std::string& name, const ConstTensorView& part, std::int64_t first,
                         DType storage) const {
  if (const auto bad = find_non_finite(part)) refuse(name, {first + bad->index, bad->count});
  if (storage != DType::kF16 || part.dtype == DType::kF16) return;
  const Tensor numbers = widened(part);
  const auto all = std::span(numbers.f32(), to_size(part.shape.elements()));
  const auto bad = std::ranges::find_if(all, [](float x) { return std::abs(x) > kMaxF16; });
  if (bad == all.end()) return;
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_WEIGHT_RANGE",
               .file = source_.file_of(name),
               .where = name + " index " + std::to_string(first + (bad - all.begin())),
               .expected = "numbers of f16, up to 65504",
               .found = std::to_string(*bad),
               .hint = "choose another --dtype"});
}

// Scans and uploads a tensor in small parts and gives each back at once, so that the largest
// table of a model never stands in memory twice.
Tensor WeightLoader::converted(const std::string& name, const ConstTensorView& view, DType dtype,
                               const std::vector<RowRange>& rows) {
  const std::int64_t row = view.shape.elements() / view.shape[0];
  std::vector<std::int64_t> extents(view.shape.extents().begin(), view.shape.extents().end());
  std::vector<RowRange> ranges = rows;
  if (ranges.empty()) ranges = {{0, extents[0]}};
  extents[0] = 0;
  for (const RowRange& range : ranges) extents[0] += range.count;
  Tensor out = backend_.allocate(dtype, Shape(extents));
  Tensor staging = Tensor::host(dtype, Shape{std::min(out.shape().elements(), kStagingElements)});
  NonFinite bad;
  auto* to = out.view().raw();
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
      to += dtype_bytes(dtype, count);
      source_.done_part(name, dtype_bytes(view.dtype, begin), dtype_bytes(view.dtype, begin + count));
    }
  }
  if (bad.count > 0) refuse(name, bad);
  source_.done(name);
  return out;
}

Tensor WeightLoader::vector(const std::string& name) {
  return converted(name, source_.get(name), DType::kF32);
}

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
  const bool own = storage_ == DType::kFile;
  const ConstTensorView view = fetch(name, own ? storage_ : beside(storage_));
  return converted(name, view, own ? kept_as(view.dtype, storage_) : beside(storage_), rows);
}

LinearWeight WeightLoader::packed(const std::vector<std::string>& names, DType storage) {
  std::vector<ConstTensorView> views;
  for (const std::string& name : names) {
    views.push_back(fetch(name, storage));
    check(name, views.back(), 0, storage);
  }
  LinearWeight packed = backend_.pack_linear(views, storage);
  for (const std::string& name : names) source_.done(name);
  return packed;
}

// Rows of a matrix, packed one range after the other.
LinearWeight WeightLoader::packed_rows(const std::string& name, const std::vector<RowRange>& rows,
                                       DType storage) {
  const ConstTensorView whole = fetch(name, storage);
  const std::int64_t width = whole.shape[1];
  std::vector<ConstTensorView> views;
  for (const RowRange& range : rows) {
    ConstTensorView part = part_of(whole, range.first * width, range.count * width);
    check(name, part, range.first * width, storage);
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

Tensor WeightLoader::head_rows(const HeadNormNames& names, const std::string& prefix,
                               const char* leaf) {
  const std::int64_t dim = names.head_dim;
  Tensor out = Tensor::host(DType::kF32, Shape{names.heads + names.kv_heads, dim});
  float* to = out.f32();
  for (const auto& [stem, heads] :
       {std::pair(names.q, names.heads), std::pair(names.k, names.kv_heads)}) {
    const std::string name = prefix + stem + leaf;
    const ConstTensorView view = get(name);
    const std::int64_t rows = view.shape.elements() / dim;
    expects(rows > 0 && heads % rows == 0, "rows of norms were checked before they are loaded");
    for (std::int64_t head = 0; head < heads; ++head, to += dim) {
      read_numbers(view, head / (heads / rows) * dim, 1, dim, to);
    }
    source_.done(name);
  }
  return uploaded(out.view());
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
  if (names.head_norms) {
    out.head_scale = head_rows(*names.head_norms, prefix, ".weight");
    out.head_shift = head_rows(*names.head_norms, prefix, ".bias");
  }
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
