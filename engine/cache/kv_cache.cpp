// Bookkeeping of cached rows; the rows themselves are written by the attention layers.
#include "engine/cache/kv_cache.h"

#include <algorithm>

#include "engine/core/cached_type.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

ConstTensorView rows_view(ConstTensorView table, std::int64_t first, std::int64_t rows) {
  const std::int64_t elements = table.shape[1] * table.shape[2];
  const std::size_t bytes = to_size(elements) * dtype_size(table.dtype);
  return {table.dtype, Shape{rows * elements}, table.raw() + to_size(first) * bytes, table.device};
}

TensorView rows_view(TensorView table, std::int64_t first, std::int64_t rows) {
  const ConstTensorView view = rows_view(ConstTensorView(table), first, rows);
  return {view.dtype, view.shape, const_cast<void*>(view.data), view.device};
}

}  // namespace

std::size_t KvCacheShape::bytes() const {
  return to_size(2 * layers * sequences * capacity * kv_heads) * cached_type(dtype).bytes(head_dim);
}

KvCache::KvCache(Backend& backend, const KvCacheShape& shape) : backend_(&backend), shape_(shape) {
  expects(shape.layers > 0 && shape.kv_heads > 0 && shape.head_dim > 0 && shape.capacity > 0 &&
              shape.sequences > 0,
          "a cache has layers, heads, rows and sequences");
  const CachedType& type = cached_type(shape.dtype);
  const Shape slots{shape.sequences * shape.capacity, shape.kv_heads, type.stored(shape.head_dim)};
  keys_.reserve(to_size(shape.layers));
  values_.reserve(to_size(shape.layers));
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    keys_.push_back(backend.allocate(type.element, slots));
    values_.push_back(backend.allocate(type.element, slots));
  }
  lengths_.assign(to_size(shape.sequences), 0);
  positions_.assign(to_size(shape.sequences * shape.capacity), 0);
  missing_.assign(to_size(shape.sequences * shape.layers), 0);
  cut_at_.assign(to_size(shape.sequences), 0);
}

void KvCache::check_sequence(std::int64_t sequence) const {
  expects(sequence >= 0 && sequence < shape_.sequences, "the cache has this sequence");
}

std::int64_t KvCache::length(std::int64_t sequence) const {
  check_sequence(sequence);
  return nth(lengths_, sequence);
}

std::span<const std::int64_t> KvCache::positions(std::int64_t sequence) const {
  return {positions_.data() + slot(sequence, 0), to_size(length(sequence))};
}

std::int64_t KvCache::append(std::int64_t sequence, std::span<const std::int64_t> positions) {
  const std::int64_t first = length(sequence);
  expects(std::ssize(positions) <= room(sequence), "the rows fit the cache");
  std::copy(positions.begin(), positions.end(), positions_.begin() + slot(sequence, first));
  nth(lengths_, sequence) = first + std::ssize(positions);
  return first;
}

void KvCache::truncate(std::int64_t sequence, std::int64_t rows) {
  expects(rows >= 0 && rows <= length(sequence), "truncate keeps rows that are there");
  const auto s = to_size(sequence);
  lengths_[s] = rows;
  if (rows >= cut_at_[s]) return;
  expects(rows == 0, "rows before a cut are forgotten together");
  cut_at_[s] = 0;
  const auto first = missing_.begin() + sequence * shape_.layers;
  std::fill(first, first + shape_.layers, 0);
}

void KvCache::cut(std::int64_t sequence, std::int64_t layer, std::int64_t rows) {
  expects(layer > 0 && layer < shape_.layers, "the layer below a cut keeps its rows");
  expects(rows >= 0 && missing(layer, sequence) + rows <= length(sequence),
          "a cut takes rows that are there");
  expects(missing(shape_.layers - 1, sequence) == missing(layer - 1, sequence),
          "cuts ascend by layer");
  const auto first = missing_.begin() + sequence * shape_.layers;
  for (auto at = first + layer; at != first + shape_.layers; ++at) *at += rows;
  nth(cut_at_, sequence) = length(sequence);
}

std::int64_t KvCache::missing(std::int64_t layer, std::int64_t sequence) const {
  check_sequence(sequence);
  return nth(missing_, sequence * shape_.layers + layer);
}

void KvCache::copy_rows(std::int64_t from_slot, std::int64_t to_slot, std::int64_t rows,
                        std::int64_t layer) {
  if (rows == 0) return;
  for (std::vector<Tensor>* store : {&keys_, &values_}) {
    const TensorView table = nth((*store), layer).view();
    backend_->copy(rows_view(ConstTensorView(table), from_slot, rows),
                   rows_view(table, to_slot, rows));
  }
}

void KvCache::fork(std::int64_t parent, std::int64_t child) {
  check_sequence(child);
  expects(parent != child, "a sequence is not its own child");
  const std::int64_t rows = length(parent);
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
    copy_rows(slot(parent, 0), slot(child, 0), rows - missing(layer, parent), layer);
  }
  const auto copy = [&](std::vector<std::int64_t>& of, std::int64_t each, std::int64_t count) {
    std::copy_n(of.begin() + parent * each, count, of.begin() + child * each);
  };
  copy(positions_, shape_.capacity, rows);
  copy(missing_, shape_.layers, shape_.layers);
  copy(cut_at_, 1, 1);
  nth(lengths_, child) = rows;
}

void KvCache::fork(std::int64_t parent, std::int64_t child, std::int64_t rows) {
  expects(parent != child, "a sequence is not its own child");
  expects(rows >= 0 && rows <= length(parent) && nth(cut_at_, parent) == 0,
          "rows that are there in every layer");
  truncate(child, 0);
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
    copy_rows(slot(parent, 0), slot(child, 0), rows, layer);
  }
  append(child, positions(parent).first(to_size(rows)));
}

void KvCache::compact(std::int64_t sequence, std::span<const std::int64_t> kept,
                      std::int64_t shared) {
  std::int64_t previous = shared - 1;
  for (const std::int64_t row : kept) {
    expects(row > previous && row < length(sequence), "kept rows ascend and are cached");
    previous = row;
  }
  expects(shared >= nth(cut_at_, sequence), "rows before a cut stay");
  std::int64_t to = shared;
  for (const std::int64_t row : kept) {
    if (row != to) {
      for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
        const std::int64_t less = missing(layer, sequence);
        copy_rows(slot(sequence, row - less), slot(sequence, to - less), 1, layer);
      }
      nth(positions_, slot(sequence, to)) = nth(positions_, slot(sequence, row));
    }
    ++to;
  }
  nth(lengths_, sequence) = to;
}

void KvCache::slide(std::int64_t sequence, std::int64_t first, std::int64_t count) {
  const std::int64_t rows = length(sequence);
  expects(first >= 0 && count >= 0 && first + count <= rows, "the window slides over cached rows");
  expects(nth(cut_at_, sequence) == 0, "rows before a cut stay");
  const auto row = positions_.begin() + slot(sequence, 0);
  std::transform(row + first + count, row + rows, row + first,
                 [&](std::int64_t position) { return position - count; });
  nth(lengths_, sequence) = rows - count;
}

ConstTensorView KvCache::sequence_view(const Tensor& table, std::int64_t sequence) const {
  check_sequence(sequence);
  ConstTensorView view = rows_view(table.view(), slot(sequence, 0), 1);
  view.shape = Shape{shape_.capacity, shape_.kv_heads, table.shape()[2]};
  return view;
}

ConstTensorView KvCache::keys(std::int64_t layer, std::int64_t sequence) const {
  return sequence_view(nth(keys_, layer), sequence);
}

ConstTensorView KvCache::values(std::int64_t layer, std::int64_t sequence) const {
  return sequence_view(nth(values_, layer), sequence);
}

TensorView KvCache::key_slots(std::int64_t layer) { return nth(keys_, layer).view(); }

TensorView KvCache::value_slots(std::int64_t layer) { return nth(values_, layer).view(); }

}  // namespace tessera
