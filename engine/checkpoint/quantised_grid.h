// Numbers of a matrix in codes with scales over cells of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/core/tensor.h"

namespace tessera {

// Where code (row, column) of a stored table stands.
enum class CodeOrder : std::uint8_t {
  kEach,          // one element each: i8, f8
  kAlongRows,     // bit column * bits of a row's words of 32 bits
  kAlongColumns,  // bit row * bits of a column's words
  kAwq            // 8 columns to a word of a row, in AWQ's order of its nibbles
};

struct CodeTable {
  std::string name;
  ConstTensorView view;
  CodeOrder order = CodeOrder::kEach;
  int bits = 8;
  bool across = false;  // stored transposed: its rows are the matrix's columns
};

struct QuantisedGrid {
  std::string file;
  std::int64_t rows = 0, columns = 0;
  CodeTable codes;
  std::int64_t cell_rows = 1, cell_columns = 1;  // of a scale; the last cells may be cut
  std::string scales_name;
  ConstTensorView scales;           // a number a cell
  bool scales_across = false;       // [cells of columns, cells of rows]
  std::optional<CodeTable> zeros;   // a code a cell
  std::int64_t zero_plus = 0;       // is added to each, modulo 2^bits
  float zero = 0;                   // of every cell where there are none
  std::optional<CodeTable> groups;  // the cell of each column, i32; else columns in their order
  float factor = 1;                 // of all numbers, multiplied last

  std::int64_t row_cells() const { return (rows + cell_rows - 1) / cell_rows; }
  std::int64_t column_cells() const { return (columns + cell_columns - 1) / cell_columns; }
};

// All numbers, [rows, columns]. Shapes were checked before. Error kModel, E_QUANTISED_VALUE.
void read_grid(const QuantisedGrid& grid, float* out);

// Error kModel (E_QUANTISED_VALUE) for a NaN or an infinity in a tensor of scales.
void check_scales(const ConstTensorView& scales, const std::string& name, const std::string& file);

}  // namespace tessera
