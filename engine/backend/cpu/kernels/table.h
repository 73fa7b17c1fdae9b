// Joins the inner loops into the table of one instruction set.
#pragma once

#include "engine/backend/cpu/kernels/attention.h"
#include "engine/backend/cpu/kernels/elementwise.h"
#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/backend/cpu/kernels/tile.h"

namespace tessera::cpu {
namespace {

constexpr Kernels make_table(const char* name) {
  Kernels table{};
  table.name = name;
  table.tile_rows = kTileRows;
  for (int rows = 1; rows <= kTileRows; ++rows) table.tile_panels[rows] = panels_of(rows);
  table.tile_f32 = &run_tile<float>;
  table.tile_bf16 = &run_tile<std::uint16_t>;
  table.tile_f16 = &run_tile<Half>;
  table.expand_panel = &expand_panel<std::uint16_t>;
  table.expand_halves = &expand_panel<Half>;
  table.attention = &attention;
  table.rms_norm = &rms_norm;
  table.silu_mul = &silu_mul;
  table.gelu = &gelu_row;
  table.gelu_tanh = &gelu_tanh_row;
  table.quick_gelu = &quick_gelu_row;
  table.layer_norm = &layer_norm;
  table.dot = &dot;
  table.affine = &affine;
  return table;
}

}  // namespace
}  // namespace tessera::cpu
