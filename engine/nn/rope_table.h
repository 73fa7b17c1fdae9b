// Rotary embedding tables (Su et al. 2021): one row of cosines and sines per position.
//   1-D:  row p, pair i turns by p * theta^(-2 i / hd).
//   2-D (LlamaGen): `condition_rows` rows of ZERO cosine and sine (the rotated q and k of a
//   condition position are zero vectors, not unrotated ones), then one row per grid place in raster
//   order; the first half of the pairs turns with the row r, the second with the column c, both by
//   theta^(-2 k / (hd / 2)).
//   3-D (Cosmos): `condition_rows` rows that turn nothing (cosine 1, sine 0), then one row per place
//   of a video's grids, grid by grid in raster order. dh = dw = 2 (hd / 6), dt = hd - 2 dh elements of
//   a head turn with time, row and column, in the order t, h, w, each axis by theta^(-2 k / dx). The
//   table ends in rows that turn nothing, up to a multiple of `multiple_of`.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/tensor.h"
#include "engine/ops/rope.h"

namespace tessera {

enum class RopeLayout : std::uint8_t { kOneD, kGrid2d, kGrid3d };

// How the frequencies of a 1-D table are stretched for longer texts than the model was first trained
// on. All in f32 and in the order of operations that Hugging Face's modeling_rope_utils.py has.
enum class RopeKind : std::uint8_t {
  kPlain,
  kLinear,  // every pair turns `factor` times slower (Chen et al. 2023)
  // Llama 3.1: a pair that turns once in more than original / low positions turns `factor` times
  // slower, one that turns in fewer than original / high as before, those between in between.
  kLlama3,
  // YaRN (Peng et al. 2023): the same between pairs that turn `slow` and `fast` times within the
  // original positions, linear in the pair's number.
  kYarn,
  kDivided,  // every pair has a divisor of its own (LongRoPE, Ding et al. 2024)
};

struct RopeStretch {
  RopeKind kind = RopeKind::kPlain;
  double factor = 1.0;
  double low = 1.0, high = 4.0;     // kLlama3
  double fast = 32.0, slow = 1.0;   // kYarn
  bool whole = true;                // kYarn: the ramp begins and ends at whole pairs
  std::int64_t original = 8192;     // kLlama3, kYarn: positions
  std::vector<double> divisors;     // kDivided: one a pair
  double scale = 1.0;               // of cosines and sines, thus squared of attention's logits
};

// YaRN (Peng et al. 2023) on each axis of a 3-D table, as Cosmos has it, in Llama 3.1's form: a
// frequency of fewer than `slow` turns over the original extent is divided by `factor`, one of more
// than `fast` stays, linear in the frequency between them. Attention is not rescaled.
struct RopeYarn {
  double factor = 1.0;  // 1 = none
  double fast = 4.0, slow = 1.0;
  std::int64_t original_times = 0, original_rows = 0;  // grids, and rows of one; columns as rows
};

struct RopeSpec {
  RopeLayout layout = RopeLayout::kOneD;
  RopePairing pairing = RopePairing::kHalfSplit;
  double theta = 10000.0;
  std::int64_t positions = 0;       // rows of a 1-D table
  RopeStretch stretch = {};         // 1-D
  std::int64_t condition_rows = 0;  // 2-D: zero rows in front; 3-D: rows that turn nothing
  std::int64_t grid_times = 1;      // 3-D
  std::int64_t grid_rows = 0;       // 2-D, 3-D
  std::int64_t grid_cols = 0;       // 2-D, 3-D
  RopeYarn yarn = {};               // 3-D
  std::int64_t multiple_of = 1;     // 3-D: rows of the table
  bool rounded = false;             // cosine and sine to bf16, as a bf16 reference keeps them
  // M-RoPE (Wang et al. 2024, Qwen2-VL): of a row's pairs the first so many turn with its place in
  // time, the next with its row, the last with its column, each by its own frequency in the 1-D
  // table. All 0: one position a row.
  std::array<std::int64_t, 3> sections = {};

  bool three_axes() const { return sections[0] + sections[1] + sections[2] > 0; }
  std::int64_t rows() const {
    if (layout == RopeLayout::kOneD) return positions;
    const std::int64_t places = condition_rows + grid_times * grid_rows * grid_cols;
    return (places + multiple_of - 1) / multiple_of * multiple_of;
  }
};

struct RopeTable {
  Tensor cos;  // [rows, head_dim / 2] f32
  Tensor sin;
  RopePairing pairing = RopePairing::kHalfSplit;
  double scale = 1.0;  // of both, RopeStretch::scale

  std::size_t bytes() const { return cos.bytes() + sin.bytes(); }
};

// Pairs of a head of this width that turn with time, row and column in the 3-D layout.
std::array<std::int64_t, 3> axis_pairs(std::int64_t head_dim);

// head_dim is even, a multiple of 4 for the 2-D layout and at least 6 for the 3-D one. Frequencies and angles are rounded to
// f32 where the reference rounds them; cosine and sine are those of the f32 angle, correctly
// rounded in all but a few cases in a thousand million.
RopeTable make_rope_table(Backend& backend, const RopeSpec& spec, std::int64_t head_dim);

// Sine and cosine of the places of a 3-D table, to be added to rows of `width`: [spec.rows(), width]
// bf16. Of a row dh = dw = 2 (width / 6) and the rest dt belong to time, row and column, in the order
// t, h, w; each axis has the sines, then the cosines, of place / 10000^(2 k / dx), in f64. Rows that
// turn nothing add nothing. width is even and at least 6.
Tensor make_place_table(Backend& backend, const RopeSpec& spec, std::int64_t width);

// The turns that lead from rows `from` of a table to rows `to`, which is as many: cosines and sines
// [turns, head_dim / 2] in host memory. What was rotated by a row of the table and is turned so
// differs from what the other row gives by rounding alone, wherever the rows are: both rows are read,
// so that the rounding of their angles is in the turn. Turns have length 1, whatever the table's
// scale. No row is a condition's.
void fill_turns(Backend& backend, const RopeTable& table, std::span<const std::int64_t> from,
                std::span<const std::int64_t> to, float* cos, float* sin);

// One place of a grid of patches.
struct GridPlace {
  std::int32_t row = 0;
  std::int32_t col = 0;
};

// The 2-D angles for places in any order, without condition rows: cos and sin [places, head_dim/2]
// in host memory, the first half of the pairs by row, the second by column. head_dim is a multiple
// of 4. (Qwen2-VL, Wang et al. 2024, with half-split pairs.)
void fill_grid_rope(std::span<const GridPlace> places, double theta, std::int64_t head_dim,
                    float* cos, float* sin);

}  // namespace tessera
