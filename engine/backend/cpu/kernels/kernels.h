// The inner loops of the CPU backend, one table per instruction set. The tables hold the same
// source compiled for another vector width: every loop works on 16 virtual lanes in one order, so
// all tables give the same bits. Plain data only: the files that define the tables are compiled
// for instructions that the machine may not have and must emit no shared inline function.
#pragma once

#include <cstdint>

namespace tessera::cpu {

inline constexpr int kLanes = 16;      // columns of a weight panel, lanes of a sum
inline constexpr int kBlock = 256;     // inputs summed in one chain before the total takes them
inline constexpr int kKeyBlock = 64;   // keys of one online-softmax step, aligned to position 0
inline constexpr int kFewRows = 4;     // query rows up to which memory decides, not arithmetic
inline constexpr int kQueryRows = 16;  // query rows over all heads of an attention task of few rows
inline constexpr int kTaskRows = 64;   // query rows of an attention task of many rows, of one head

// One block of a product: out[r, c] (+)= sum over runs and k of a[r, offset + k] * b[k, c].
// b holds panels of 16 columns, [inputs][16] each, `b_stride` elements apart.
struct TileArgs {
  const float* a = nullptr;
  std::int64_t a_stride = 0;                  // floats between rows
  const std::int64_t* run_offsets = nullptr;  // [runs], floats from a
  int runs = 1;
  std::int64_t run_length = 0;  // inputs of one run
  const void* b = nullptr;      // f32, f16, or bf16 in panel order (see panel_slot)
  std::int64_t b_stride = 0;
  const void* b_next = nullptr;  // panels read after this block's, if they are others
  bool from_memory = false;      // no earlier rows brought these panels into a cache
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t columns = 0;     // columns to write, at most 16 * panels
  const float* bias = nullptr;  // [columns], added after this block; may be null
  bool first = true;            // out is written, else added to
};

inline constexpr int kQuantBlock = 32;  // inputs that share a scale in weights of blocks

// A whole product with one panel of weights of blocks: out[r, c] = sum over blocks of
// scales[block, r] * weight scale[block, c] * sum over the block of a[r, k] * b[k, c].
// Rows of a tile stand side by side, so that one address reaches all of them.
struct IntegerTileArgs {
  const std::int8_t* a = nullptr;      // [blocks][rows][32], in -127..127
  const float* scales = nullptr;       // [blocks][rows]
  const std::int32_t* sums = nullptr;  // [blocks][rows], sum of a block's inputs * sum_factor
  const std::int32_t* half_sums = nullptr;  // the same of its first 16, for forms that ask for it
  std::int64_t blocks = 0;
  const void* b = nullptr;  // see panel_quad
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t columns = 0;     // columns to write, at most 16
  const float* bias = nullptr;  // [columns], added last; may be null
};

struct IntegerTile {
  void (*run)(const IntegerTileArgs& args, int rows);
  std::int32_t sum_factor;
  bool halves;  // reads half_sums
  // So many blocks of 32 inputs of a panel as f32, [inputs][16]: the numbers that readers make of
  // them.
  void (*expand)(const void* panel, std::int64_t blocks, float* out);
};

// Where input i of a block stands for column c, in a panel's block of weights of 8 bits.
constexpr int panel_quad(int i, int column) { return (i / 4 * kLanes + column) * 4 + i % 4; }

// One row of rounded inputs, with `stride` rows between two of its blocks.
struct RoundedRow {
  std::int8_t* numbers = nullptr;  // [blocks][stride][32]
  float* scales = nullptr;         // [blocks][stride]
  std::int32_t* sums = nullptr;    // [blocks][stride], times sum_factor
  std::int32_t* half_sums = nullptr;  // the same of the first 16 inputs of a block, or null
  std::int64_t stride = 1;
  std::int32_t sum_factor = 1;
};

// Products with weights of blocks, for one instruction set; the same bits in all of them.
struct IntegerKernels {
  int tile_rows;  // rows of the largest register tile
  IntegerTile tile_q8, tile_q4;
  // Of weights with scales and offsets of groups (affine_panel.h).
  IntegerTile tile_q4_1, tile_q5_0, tile_q5_1, tile_q2_k, tile_q3_k, tile_q4_k, tile_q5_k,
      tile_q6_k;
  // Inputs of so many blocks to 8 bits.
  void (*round_inputs)(const float* x, std::int64_t blocks, const RoundedRow& out);
};

// Products with inputs and weights of bf16, two inputs at a time (pair_tile.h).
struct PairArgs {
  // Rounded inputs, two in a word, the first one in its low half; a last one that is alone has a
  // zero next to it. Blocks of kBlock inputs one after the other, in each the tiles, in each its
  // pairs, in each its rows: [blocks][tiles][pairs][rows of the tile].
  const std::uint32_t* a = nullptr;
  std::int64_t rows = 0;  // cut evenly into pair_tiles() tiles
  std::int64_t k = 0;     // inputs
  // Panels one after the other, each [pairs][16][2] and a last input that is alone as [16].
  const std::uint16_t* b = nullptr;
  std::int64_t panels = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t columns = 0;     // columns to write, at most 16 * panels
  const float* bias = nullptr;  // [columns], added last; may be null
};
constexpr std::int64_t pair_tiles(std::int64_t rows, int tile_rows) {
  return (rows + tile_rows - 1) / tile_rows;
}

// For one instruction set; the same bits in all of them.
struct PairKernels {
  int tile_rows;  // rows of the largest register tile
  void (*multiply)(const PairArgs& args);
  // At most kBlock inputs of a row to bf16, `stride` words from pair to pair.
  void (*round)(const float* x, std::int64_t count, std::int64_t stride, std::uint32_t* out);
};

// Where column c of a panel stands among the 16 stored bf16 values of one input: columns c and
// c + 8 are neighbours, so that a shift and a mask expand a 32-byte load.
constexpr int panel_slot(int column) { return column < 8 ? 2 * column : 2 * (column - 8) + 1; }

// How heads of keys and values are kept: kScaled are integers of 8 bits, an f32 scale after them.
enum class HeadNumbers : std::uint8_t { kF32, kBF16, kScaled };

// Neighbouring key and value heads of one sequence, and the query rows that see each of them. Entry
// head * rows + row is one query row; at most kTaskRows entries.
struct AttentionTask {
  const float* q[kTaskRows];        // [head_dim] each
  float* out[kTaskRows];            // [head_dim] each
  std::int64_t visible[kTaskRows];  // keys [0, visible) are seen, at least one
  int heads = 0;
  int rows = 0;                // of each head
  const void* keys = nullptr;  // head h of position p at p * kv_stride + h * head_stride
  const void* values = nullptr;
  std::int64_t kv_stride = 0, head_stride = 0;  // elements
  // Key i >= listed_from stands at position listed[i - listed_from] - listed_base; null = all in
  // order.
  const std::int32_t* listed = nullptr;
  std::int64_t listed_from = 0, listed_base = 0;
  const float* key_bias[kTaskRows];  // [keys] each, added to scores; where `biased`
  bool biased = false;
  // Per entry the largest score and the sum of exp(score - largest); may be null.
  float* peak = nullptr;
  float* total = nullptr;
  std::int64_t head_dim = 0;
  float scale = 1.0f;
  HeadNumbers numbers = HeadNumbers::kF32;
  float* scratch = nullptr;  // attention_scratch_floats(head_dim), 64-byte aligned
};

// Floats between two rows of one head in the scratch of an attention task: a gap keeps the rows out
// of each other's cache sets.
constexpr std::int64_t attention_pitch(std::int64_t head_dim) {
  return (head_dim + kLanes - 1) / kLanes * kLanes + kLanes;
}
// Queries, sums, and one block of keys and values, keys turned too.
constexpr std::int64_t attention_scratch_floats(std::int64_t head_dim) {
  return (2 * kTaskRows + 3 * kKeyBlock) * attention_pitch(head_dim);
}

struct Kernels {
  const char* name;
  int tile_rows;        // rows of the largest register tile
  int tile_panels[17];  // panels of the tile with so many rows; index 0 unused
  void (*tile_f32)(const TileArgs& args, int rows, int panels);
  void (*tile_bf16)(const TileArgs& args, int rows, int panels);
  void (*tile_f16)(const TileArgs& args, int rows, int panels);
  // [count][16] bf16 in panel order to f32 in column order.
  void (*expand_panel)(const std::uint16_t* in, float* out, std::int64_t count);
  // The same of f16, in column order.
  void (*expand_halves)(const std::uint16_t* in, float* out, std::int64_t count);
  void (*attention)(const AttentionTask& task);
  void (*rms_norm)(const float* x, const float* weight, float eps, float* out, std::int64_t n);
  void (*silu_mul)(const float* gate, const float* up, float* out, std::int64_t n);
  void (*gelu)(const float* x, float* out, std::int64_t n);
  void (*gelu_tanh)(const float* x, float* out, std::int64_t n);
  void (*quick_gelu)(const float* x, float* out, std::int64_t n);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, float* out,
                     std::int64_t n);
  float (*dot)(const float* a, const float* b, std::int64_t n);  // in the order of a score
  // out = act(scale[c] * x + shift[c]); scale and shift may both be null.
  void (*affine)(const float* x, const float* scale, const float* shift, bool swish, float* out,
                 std::int64_t channels, std::int64_t pixels);
};

const Kernels& portable_kernels();
const Kernels& avx2_kernels();    // call only where AVX2, FMA and F16C are there
const Kernels& avx512_kernels();  // AVX-512 F, BW, DQ and VL
const IntegerKernels& portable_integer_kernels();
const IntegerKernels& avx2_integer_kernels();
const IntegerKernels& vnni_integer_kernels();  // those of avx512_kernels() and AVX-512 VNNI
const PairKernels& portable_pair_kernels();
const PairKernels& avx2_pair_kernels();
const PairKernels& avx512_pair_kernels();
const PairKernels& bf16_pair_kernels();  // those of avx512_kernels() and AVX-512 BF16

}  // namespace tessera::cpu
