// Joins the patches of a cell and runs the projector's layers.
#include "vision/encoder/projector.h"

#include <algorithm>

#include "engine/core/index.h"
#include "vision/encoder/row_views.h"

namespace tessera {

Projector::Projector(Backend& backend, const ProjectorSpec& spec, const Checkpoint& checkpoint,
                     DType storage)
    : backend_(&backend), spec_(spec) {
  expects(!spec.layers.empty() && spec.layers.size() == spec.widths.size() && spec.cell >= 1,
          "a projector has layers and their widths");
  WeightReader reader(backend, checkpoint, storage);
  if (!spec.norm.empty()) {
    norm_ = reader.norm(spec.prefix + spec.norm, spec.in_width, spec.norm_kind, spec.norm_eps);
  }
  std::int64_t width = spec.joined_width();
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    layers_.push_back(
        reader.linear({spec.prefix + spec.layers[i]}, spec.widths[i], width, spec.bias));
    width = spec.widths[i];
  }
}

std::size_t Projector::weight_bytes() const {
  std::size_t sum = norm_.bytes();
  for (const Linear& layer : layers_) sum += layer.bytes();
  return sum;
}

std::size_t Projector::scratch_bytes(const ProjectorSpec& spec, std::int64_t features) {
  const std::int64_t cells = features / (spec.cell * spec.cell);
  std::int64_t floats = 2 * features * spec.in_width;  // joined, and normalised before that
  for (const std::int64_t width : spec.widths) floats += cells * width;
  return to_size(floats) * sizeof(float) + 64 * (spec.widths.size() + 2);
}

namespace {

// Feature rows cell by cell, and the number of each cell.
struct CellOrder {
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> cells;
};

CellOrder cell_order(const EncodedImage& image, std::int64_t cell) {
  const VitGrid& grid = image.grid;
  CellOrder out;
  if (cell == 1) {
    for (const VitPlace& place : image.places) {
      out.rows.push_back(narrow<std::int32_t>(out.rows.size()));
      out.cells.push_back(place.id);
    }
    return out;
  }
  expects(grid.rows % cell == 0 && grid.cols % cell == 0, "the grid is whole cells");
  const std::int64_t cols = grid.cols / cell;
  struct Entry {
    std::int64_t cell, offset;
    std::int32_t row;
  };
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < image.places.size(); ++i) {
    const VitPlace& place = image.places[i];
    entries.push_back(
        {(place.time * (grid.rows / cell) + place.row / cell) * cols + place.col / cell,
         place.row % cell * cell + place.col % cell, narrow<std::int32_t>(i)});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.cell != b.cell ? a.cell < b.cell : a.offset < b.offset;
  });
  const auto patches = to_size(cell * cell);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::size_t first = i / patches * patches;
    expects(entries[i].cell == entries[first].cell && entries[i].offset == to_index(i - first),
            "a cell has all of its patches or none");
    if (i == first) out.cells.push_back(narrow<std::int32_t>(entries[i].cell));
    out.rows.push_back(entries[i].row);
  }
  expects(out.rows.size() == out.cells.size() * patches, "a cell has all of its patches or none");
  return out;
}

void activate(Backend& backend, VitActivation activation, TensorView x) {
  switch (activation) {
    case VitActivation::kGelu:
      return ops::gelu(backend, x, x);
    case VitActivation::kGeluTanh:
      return ops::gelu_tanh(backend, x, x);
    case VitActivation::kQuickGelu:
      return ops::quick_gelu(backend, x, x);
    case VitActivation::kSiluGated:
      expects(false, "a projector's activation is not gated");
  }
}

}  // namespace

Tensor Projector::project_rows(ConstTensorView features, Arena& arena) const {
  const std::size_t mark = arena.used();
  const std::int64_t patches = spec_.cell * spec_.cell;
  expects(features.shape.rank() == 2 && features.shape[1] == spec_.in_width &&
              features.shape[0] % patches == 0,
          "features have the encoder's width and are whole cells");
  const std::int64_t cells = features.shape[0] / patches;
  ConstTensorView x = features;
  if (!norm_.weight.empty()) {
    const TensorView normed = arena.take(DType::kF32, x.shape);
    apply(*backend_, norm_, x, normed);
    x = normed;
  }
  x.shape = {cells, spec_.joined_width()};
  Tensor out = backend_->allocate(DType::kF32, {cells, spec_.out_width()});
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const bool last = i + 1 == layers_.size();
    const TensorView y = last ? out.view() : arena.take(DType::kF32, {cells, spec_.widths[i]});
    apply(*backend_, layers_[i], x, y);
    if (!last) activate(*backend_, spec_.activation, y);
    x = y;
  }
  arena.rewind(mark);
  return out;
}

ProjectedImage Projector::project(const EncodedImage& image, Arena& arena) const {
  const std::size_t mark = arena.used();
  CellOrder order = cell_order(image, spec_.cell);
  const ConstTensorView features = image.features.view();
  expects(features.shape == Shape({std::ssize(image.places), spec_.in_width}),
          "features have the encoder's width and a row a place");
  ProjectedImage out;
  const TensorView joined = arena.take(DType::kF32, features.shape);
  ops::embedding(*backend_, features, order.rows, joined);
  out.rows = project_rows(joined, arena);
  out.cells = std::move(order.cells);
  out.cell_rows = image.grid.rows / spec_.cell;
  out.cell_cols = image.grid.cols / spec_.cell;
  arena.rewind(mark);
  return out;
}

}  // namespace tessera
