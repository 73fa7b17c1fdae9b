// Reads codes in tiles, so that tables which are stored transposed are read and written by lines.
#include "engine/checkpoint/quantised_grid.h"

#include <algorithm>
#include <array>
#include <vector>

#include "engine/checkpoint/container.h"
#include "engine/checkpoint/non_finite.h"
#include "engine/core/error.h"
#include "engine/core/float8.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"

namespace tessera {

namespace {

constexpr std::int64_t kTile = 64;  // a multiple of what a word holds, of any number of bits

// Codes of a part of a table, as floats: rows [first_row, + rows) and so on of the stored table,
// code (r, c) at out[r * row_step + c * column_step].
struct Tile {
  std::int64_t first_row = 0, rows = 0, first_column = 0, columns = 0;
  float* out = nullptr;
  std::int64_t row_step = 0, column_step = 1;

  float& at(std::int64_t row, std::int64_t column) const {
    return out[row * row_step + column * column_step];
  }
};

using TileReader = void (*)(const ConstTensorView&, const Tile&);

[[noreturn]] void refuse_value(const std::string& file, const std::string& name, std::int64_t at,
                               std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_QUANTISED_VALUE",
               .file = file,
               .where = tensor_place(name) + " index " + std::to_string(at),
               .expected = std::move(expected),
               .found = std::move(found)});
}

std::int64_t width_of(const ConstTensorView& view) {
  return view.shape.rank() < 2 ? 1 : view.shape[view.shape.rank() - 1];
}

template <typename Value>
void read_each(const ConstTensorView& view, const Tile& tile, Value value) {
  const auto* bytes = static_cast<const std::uint8_t*>(view.data);
  const std::int64_t width = width_of(view);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::uint8_t* row = bytes + (tile.first_row + r) * width + tile.first_column;
    for (std::int64_t c = 0; c < tile.columns; ++c) tile.at(r, c) = value(row[c]);
  }
}

template <float (*kWiden)(std::uint8_t)>
void read_floats(const ConstTensorView& view, const Tile& tile) {
  static const auto kNumbers = [] {
    std::array<float, 256> out{};
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = kWiden(low_bits<std::uint8_t>(i));
    return out;
  }();
  read_each(view, tile, [](std::uint8_t code) { return kNumbers[code]; });
}

void read_bytes(const ConstTensorView& view, const Tile& tile) {
  read_each(view, tile,
            [](std::uint8_t code) { return to_float(std::bit_cast<std::int8_t>(code)); });
}

// Code number `index` of those that begin at `words` and go on every `step` words.
template <int kBits>
std::uint32_t packed_code(const std::uint32_t* words, std::int64_t step, std::int64_t index) {
  const std::int64_t bit = index * kBits, word = bit / 32;
  const auto shift = static_cast<unsigned>(bit % 32);
  std::uint32_t out = words[word * step] >> shift;
  if constexpr (32 % kBits != 0) {
    if (shift + kBits > 32) out |= words[(word + 1) * step] << (32 - shift);
  }
  return out & ((1u << kBits) - 1u);
}

template <int kBits>
void read_along_rows(const ConstTensorView& view, const Tile& tile) {
  const auto* words = static_cast<const std::uint32_t*>(view.data);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::uint32_t* row = words + (tile.first_row + r) * view.shape[1];
    for (std::int64_t c = 0; c < tile.columns; ++c) {
      tile.at(r, c) = to_float(packed_code<kBits>(row, 1, tile.first_column + c));
    }
  }
}

template <int kBits>
void read_along_columns(const ConstTensorView& view, const Tile& tile) {
  const auto* words = static_cast<const std::uint32_t*>(view.data) + tile.first_column;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    for (std::int64_t c = 0; c < tile.columns; ++c) {
      tile.at(r, c) = to_float(packed_code<kBits>(words + c, view.shape[1], tile.first_row + r));
    }
  }
}

// Column 0 of eight is in the lowest nibble, 1 in the fifth, 2 in the second and so on.
void read_awq(const ConstTensorView& view, const Tile& tile) {
  constexpr std::array<unsigned, 8> kShifts = {0, 16, 4, 20, 8, 24, 12, 28};
  const auto* words = static_cast<const std::uint32_t*>(view.data);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::uint32_t* row = words + (tile.first_row + r) * view.shape[1];
    for (std::int64_t c = 0; c < tile.columns; ++c) {
      const std::int64_t column = tile.first_column + c;
      tile.at(r, c) = to_float((row[column / 8] >> kShifts[to_size(column % 8)]) & 0xfu);
    }
  }
}

TileReader reader_of(const CodeTable& table) {
  constexpr std::array kRows = {&read_along_rows<1>, &read_along_rows<2>, &read_along_rows<3>,
                                &read_along_rows<4>, &read_along_rows<5>, &read_along_rows<6>,
                                &read_along_rows<7>, &read_along_rows<8>};
  constexpr std::array kColumns = {&read_along_columns<1>, &read_along_columns<2>,
                                   &read_along_columns<3>, &read_along_columns<4>,
                                   &read_along_columns<5>, &read_along_columns<6>,
                                   &read_along_columns<7>, &read_along_columns<8>};
  switch (table.order) {
    case CodeOrder::kAlongRows:
      return nth(kRows, table.bits - 1);
    case CodeOrder::kAlongColumns:
      return nth(kColumns, table.bits - 1);
    case CodeOrder::kAwq:
      return &read_awq;
    case CodeOrder::kEach:
      break;
  }
  if (table.view.dtype == DType::kF8E4M3) return &read_floats<f8_e4m3_to_float>;
  if (table.view.dtype == DType::kF8E5M2) return &read_floats<f8_e5m2_to_float>;
  return &read_bytes;
}

// Rows and columns of the matrix, whichever way the table is stored.
void read_codes(const CodeTable& table, Tile tile) {
  if (table.across) {
    std::swap(tile.first_row, tile.first_column);
    std::swap(tile.rows, tile.columns);
    std::swap(tile.row_step, tile.column_step);
  }
  reader_of(table)(table.view, tile);
}

// [cells of rows, cells of columns]
std::vector<float> read_scales(const QuantisedGrid& grid) {
  check_scales(grid.scales, grid.scales_name, grid.file);
  const std::int64_t down = grid.row_cells(), along = grid.column_cells();
  std::vector<float> stored(to_size(down * along));
  read_numbers(grid.scales, 0, 1, down * along, stored.data());
  if (down * along == 1 && stored[0] == 0) {
    refuse_value(grid.file, grid.scales_name, 0, "a scale other than 0", "0");
  }
  if (!grid.scales_across) return stored;
  std::vector<float> out(stored.size());
  for (std::int64_t g = 0; g < along; ++g) {
    for (std::int64_t r = 0; r < down; ++r) {
      out[to_size(r * along + g)] = stored[to_size(g * down + r)];
    }
  }
  return out;
}

std::vector<float> read_zeros(const QuantisedGrid& grid) {
  const std::int64_t down = grid.row_cells(), along = grid.column_cells();
  std::vector<float> out(to_size(down * along), grid.zero);
  if (!grid.zeros) return out;
  read_codes(*grid.zeros, {0, down, 0, along, out.data(), along, 1});
  if (grid.zero_plus == 0) return out;
  const std::int64_t end = std::int64_t{1} << grid.zeros->bits;
  for (float& zero : out) {
    zero = to_float((truncate<std::int64_t>(zero) + grid.zero_plus) % end);
  }
  return out;
}

// The cell of each column.
std::vector<std::int32_t> read_groups(const QuantisedGrid& grid) {
  std::vector<std::int32_t> out(to_size(grid.columns));
  const std::int32_t* given = nullptr;
  if (grid.groups) given = static_cast<const std::int32_t*>(grid.groups->view.data);
  // compressed-tensors writes -1 everywhere for columns in their order.
  const bool none = given == nullptr || std::all_of(given, given + grid.columns,
                                                    [](std::int32_t group) { return group == -1; });
  const std::int64_t cells = grid.column_cells();
  for (std::int64_t c = 0; c < grid.columns; ++c) {
    const std::int64_t group = none ? c / grid.cell_columns : given[c];
    if (group < 0 || group >= cells) {
      refuse_value(grid.file, grid.groups->name, c,
                   "a group from 0 to " + std::to_string(cells - 1), std::to_string(group));
    }
    out[to_size(c)] = narrow<std::int32_t>(group);
  }
  return out;
}

}  // namespace

void check_scales(const ConstTensorView& scales, const std::string& name, const std::string& file) {
  if (const auto bad = find_non_finite(scales)) {
    refuse_value(file, name, bad->index, "finite scales",
                 std::to_string(bad->count) + " NaN or infinite");
  }
}

void read_grid(const QuantisedGrid& grid, float* out) {
  const std::vector<float> scales = read_scales(grid), zeros = read_zeros(grid);
  const std::vector<std::int32_t> groups = read_groups(grid);
  const std::int64_t cells = grid.column_cells();
  std::array<float, to_size(kTile * kTile)> codes;
  for (std::int64_t row = 0; row < grid.rows; row += kTile) {
    const std::int64_t rows = std::min(kTile, grid.rows - row);
    for (std::int64_t column = 0; column < grid.columns; column += kTile) {
      const std::int64_t columns = std::min(kTile, grid.columns - column);
      read_codes(grid.codes, {row, rows, column, columns, codes.data(), kTile, 1});
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t cell = (row + r) / grid.cell_rows * cells;
        const float *code = codes.data() + r * kTile, *scale = scales.data() + cell,
                    *zero = zeros.data() + cell;
        const std::int32_t* group = groups.data() + column;
        float* to = out + (row + r) * grid.columns + column;
        for (std::int64_t c = 0; c < columns; ++c) {
          to[c] = (code[c] - zero[group[c]]) * scale[group[c]] * grid.factor;
        }
      }
    }
  }
}

}  // namespace tessera
