// AWQ, GPTQ, FP8 and compressed-tensors: codes in a grid of scales.
#include <algorithm>
#include <array>

#include "engine/checkpoint/container.h"
#include "engine/checkpoint/quantised_parts.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"

namespace tessera {

namespace {

std::int64_t cells(std::int64_t extent, std::int64_t cell) { return (extent + cell - 1) / cell; }

// Words that hold so many codes.
std::int64_t words(std::int64_t codes, int bits) { return cells(codes * bits, 32); }

CodeTable table(const QuantisedParts& parts, std::string_view leaf, const ConstTensorView& view,
                CodeOrder order, int bits, bool across) {
  return {parts.name(leaf), view, order, bits, across};
}

void set_cells(QuantisedGrid& grid, const QuantisedKind& kind) {
  grid.cell_rows = kind.cell_rows > 0 ? kind.cell_rows : grid.rows;
  grid.cell_columns = kind.cell_columns > 0 ? kind.cell_columns : grid.columns;
}

// Shapes that a table of one number a cell may have.
std::vector<Shape> cell_shapes(std::int64_t down, std::int64_t along) {
  std::vector<Shape> out = {Shape{down, along}};
  if (along == 1) out.push_back(Shape{down});
  if (down == 1 && along == 1) out.push_back(Shape{});
  return out;
}

bool is_one_of(const Shape& shape, const std::vector<Shape>& shapes) {
  return std::find(shapes.begin(), shapes.end(), shape) != shapes.end();
}

// --- AWQ and GPTQ: [inputs, outputs] in words, scales [groups, outputs]

struct PackedSizes {
  std::int64_t inputs = 0, outputs = 0, groups = 0;
  int bits = 0;
};

// Bits of a code, of those that may be: by the words of zeros that a group has.
int bits_of_zeros(QuantisedParts& parts, std::int64_t zero_words, const PackedSizes& sizes) {
  std::vector<int> bits;
  for (const QuantisedKind& kind : parts.scheme().kinds) bits.push_back(kind.bits);
  if (bits.empty()) bits = {2, 3, 4, 8};
  std::string expected;
  for (const int each : bits) {
    if (sizes.outputs * each == zero_words * 32) return each;
    expected += (expected.empty() ? "" : " or ") +
                Shape{sizes.groups, words(sizes.outputs, each)}.to_string();
  }
  parts.refuse("qzeros", expected, Shape{sizes.groups, zero_words}.to_string());
}

// Groups of inputs as the scheme says, or, where it leaves that to the tensors, all of one size.
std::int64_t group_of(QuantisedParts& parts, const PackedSizes& sizes, bool even) {
  const auto& kinds = parts.scheme().kinds;
  std::string expected;
  for (const QuantisedKind& kind : kinds) {
    const std::int64_t group = kind.cell_columns > 0 ? kind.cell_columns : sizes.inputs;
    if (even && sizes.inputs % group != 0) {
      parts.refuse("qweight", "inputs in whole groups of " + std::to_string(group),
                   std::to_string(sizes.inputs) + " inputs");
    }
    if (kind.bits == sizes.bits && cells(sizes.inputs, group) == sizes.groups) return group;
    expected += (expected.empty() ? "" : " or ") +
                Shape{cells(sizes.inputs, group), sizes.outputs}.to_string();
  }
  if (kinds.empty() && sizes.inputs % sizes.groups == 0) return sizes.inputs / sizes.groups;
  parts.refuse("scales", expected.empty() ? "groups of one size" : expected,
               Shape{sizes.groups, sizes.outputs}.to_string());
}

}  // namespace

QuantisedWeight read_packed(QuantisedParts& parts) {
  const bool awq = parts.scheme().form == QuantisedForm::kAwq;
  const ConstTensorView codes = parts.matrix("qweight", kWordTypes);
  const ConstTensorView zeros = parts.matrix("qzeros", kWordTypes);
  const ConstTensorView scales = parts.matrix("scales", kScaleTypes);
  PackedSizes sizes{.outputs = scales.shape[1], .groups = scales.shape[0]};
  parts.want_shape("qzeros", zeros, Shape{sizes.groups, zeros.shape[1]});
  sizes.bits = bits_of_zeros(parts, zeros.shape[1], sizes);
  if (awq) {
    sizes.inputs = codes.shape[0];
    parts.want_shape("qweight", codes, Shape{sizes.inputs, zeros.shape[1]});
  } else {
    if (codes.shape[0] * 32 % sizes.bits != 0) {
      parts.refuse("qweight",
                   "rows that hold whole codes of " + std::to_string(sizes.bits) + " bits",
                   codes.shape.to_string());
    }
    sizes.inputs = codes.shape[0] * 32 / sizes.bits;
    parts.want_shape("qweight", codes, Shape{codes.shape[0], sizes.outputs});
  }
  const CodeOrder down = awq ? CodeOrder::kAwq : CodeOrder::kAlongColumns;
  const CodeOrder along = awq ? CodeOrder::kAwq : CodeOrder::kAlongRows;
  QuantisedGrid grid{.rows = sizes.outputs, .columns = sizes.inputs};
  grid.codes = table(parts, "qweight", codes, down, sizes.bits, true);
  grid.zeros = table(parts, "qzeros", zeros, along, sizes.bits, true);
  grid.zero_plus = parts.scheme().zeros_less_one ? 1 : 0;
  grid.scales = scales;
  grid.scales_name = parts.name("scales");
  grid.scales_across = true;
  grid.cell_rows = 1;
  grid.cell_columns = group_of(parts, sizes, awq);
  if (!awq && parts.has("g_idx")) {
    const ConstTensorView groups = parts.get("g_idx", kWordTypes);
    parts.want_shape("g_idx", groups, Shape{sizes.inputs});
    grid.groups = table(parts, "g_idx", groups, CodeOrder::kEach, 32, false);
  }
  return parts.weight(std::move(grid));
}

namespace {

// --- FP8 and compressed-tensors: [outputs, inputs], scales by cells

// Of the packed codes.
Shape stated_shape(QuantisedParts& parts, const ConstTensorView& packed) {
  constexpr std::array kTypes = {DType::kI64, DType::kI32};
  const ConstTensorView view = parts.get("weight_shape", kTypes);
  parts.want_shape("weight_shape", view, Shape{2});
  const auto extent = [&](int at) {
    return view.dtype == DType::kI64 ? view.as<std::int64_t>()[at]
                                     : std::int64_t{view.as<std::int32_t>()[at]};
  };
  // A row of `packed` words holds at most 32 codes a word.
  if (extent(0) != packed.shape[0] || extent(1) < 1 || extent(1) > packed.shape[1] * 32) {
    parts.refuse(
        "weight_shape",
        std::to_string(packed.shape[0]) + " rows of 1 to " + std::to_string(packed.shape[1] * 32),
        std::to_string(extent(0)) + " of " + std::to_string(extent(1)));
  }
  return Shape{extent(0), extent(1)};
}

// The scheme's first kind that codes and scales fit.
QuantisedKind fitting(QuantisedParts& parts, const QuantisedGrid& grid, bool floats,
                      std::int64_t packed_words, std::string_view scale) {
  std::string shapes, widths;
  for (const QuantisedKind& kind : parts.scheme().kinds) {
    if (kind.floats != floats) continue;
    if (packed_words > 0 && words(grid.columns, kind.bits) != packed_words) {
      widths += (widths.empty() ? "" : " or ") +
                Shape{grid.rows, words(grid.columns, kind.bits)}.to_string();
      continue;
    }
    QuantisedGrid cut{.rows = grid.rows, .columns = grid.columns};
    set_cells(cut, kind);
    const bool whole = kind.cell_rows != 1 || grid.columns % cut.cell_columns == 0;
    const auto wanted = cell_shapes(cut.row_cells(), cut.column_cells());
    if (whole && is_one_of(grid.scales.shape, wanted)) return kind;
    shapes += (shapes.empty() ? "" : " or ") +
              (whole ? wanted.front().to_string()
                     : "inputs in whole groups of " + std::to_string(cut.cell_columns));
  }
  if (shapes.empty() && !widths.empty()) {
    parts.refuse("weight_packed", widths, Shape{grid.rows, packed_words}.to_string());
  }
  parts.refuse(scale, shapes.empty() ? "codes of a type that the configuration names" : shapes,
               grid.scales.shape.to_string());
}

void set_zeros(QuantisedParts& parts, QuantisedGrid& grid, bool packed, int bits) {
  constexpr std::string_view kLeaf = "weight_zero_point";
  if (packed) grid.zero = to_float(1 << (bits - 1));
  if (!parts.has(kLeaf)) return;
  constexpr std::array kTypes = {DType::kI32, DType::kI8};
  const ConstTensorView view = parts.get(kLeaf, kTypes);
  const bool words_of = view.dtype == DType::kI32;
  if (words_of && packed) {
    // Codes and zeros are stored with the same added to both.
    parts.want_shape(kLeaf, view, Shape{words(grid.row_cells(), bits), grid.column_cells()});
    grid.zeros = table(parts, kLeaf, view, CodeOrder::kAlongColumns, bits, false);
    grid.zero = 0;
    return;
  }
  const auto wanted = cell_shapes(grid.row_cells(), grid.column_cells());
  if (words_of || packed || !is_one_of(view.shape, wanted)) {
    parts.refuse(kLeaf, (packed ? "i32 " : "i8 ") + wanted.front().to_string(),
                 std::string(dtype_name(view.dtype)) + " " + view.shape.to_string());
  }
  grid.zeros = table(parts, kLeaf, view, CodeOrder::kEach, 8, false);
}

void set_groups(QuantisedParts& parts, QuantisedGrid& grid) {
  if (!parts.has("weight_g_idx")) return;
  const ConstTensorView view = parts.get("weight_g_idx", kWordTypes);
  parts.want_shape("weight_g_idx", view, Shape{grid.columns});
  grid.groups = table(parts, "weight_g_idx", view, CodeOrder::kEach, 32, false);
}

}  // namespace

QuantisedWeight read_compressed(QuantisedParts& parts) {
  constexpr std::array kTypes = {DType::kF8E4M3, DType::kF8E5M2, DType::kI8};
  const bool packed = parts.has("weight_packed");
  const std::string_view leaf = packed ? "weight_packed" : "weight";
  const bool fp8 = parts.scheme().form == QuantisedForm::kFloat8;
  const ConstTensorView codes = packed ? parts.matrix(leaf, kWordTypes)
                                       : parts.matrix(leaf, std::span(kTypes).first(fp8 ? 2 : 3));
  const Shape shape = packed ? stated_shape(parts, codes) : codes.shape;
  if (!packed) parts.skip("weight_shape");
  QuantisedGrid grid{.rows = shape[0], .columns = shape[1]};
  const std::string_view scale =
      parts.has("weight_scale_inv") ? "weight_scale_inv" : "weight_scale";
  grid.scales = parts.get(scale, kScaleTypes);
  grid.scales_name = parts.name(scale);
  const bool floats = !packed && codes.dtype != DType::kI8;
  const QuantisedKind kind = fitting(parts, grid, floats, packed ? codes.shape[1] : 0, scale);
  set_cells(grid, kind);
  grid.codes = table(parts, leaf, codes, packed ? CodeOrder::kAlongRows : CodeOrder::kEach,
                     packed ? kind.bits : 8, false);
  set_zeros(parts, grid, packed, kind.bits);
  set_groups(parts, grid);
  return parts.weight(std::move(grid));
}

}  // namespace tessera
