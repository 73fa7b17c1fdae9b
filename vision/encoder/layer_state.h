// What an observer of a running encoder sees of one layer and may do to its rows: read hidden
// states, queries, keys, values and attention weights of chosen rows; drop rows; merge rows. Rows
// of images that are encoded together stand one after the other, each with its class token if
// there is one. No attention map is ever held: weights come from the log-sum-exp of the attention
// that ran.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/ops/row_attention.h"
#include "vision/encoder/vit_grid.h"

namespace tessera {

// The rows that are still there and the buffers that hold them. [rows, ...] f32 each.
struct EncoderRows {
  std::vector<VitPlace> places;  // of each row
  std::vector<float> sizes;      // patches that each row stands for
  TensorView x;                  // [rows, C] residual stream
  TensorView spare;              // [rows, C], overwritten at will
  TensorView q, k, v;            // [rows, heads, hd] of the running layer, rotated
  TensorView log_sums;           // [rows, heads]
  TensorView cos, sin;           // [rows, hd / 2], or empty
  ConstTensorView key_bias;      // [rows] of the running layer, or empty

  std::int64_t count() const { return std::ssize(places); }
};

// Rows [begin, end) that belong together.
struct RowRun {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
};
// Rows that attend to each other. `windowed`: by window, else by frame.
std::vector<RowRun> attention_runs(std::span<const VitPlace> places, bool windowed);
std::vector<RowRun> image_runs(std::span<const VitPlace> places);

// Whose attention is asked for, image by image. Encoders without a class token take one of the
// other two, which are not the same thing.
enum class AttentionRows : std::uint8_t {
  kClassToken,
  kMeanOfRows,  // mean of the attention weights of all rows, padding included
  kMeanQuery,   // softmax of the mean query over all keys of the image, windows or not
};
enum class HeadMean : std::uint8_t { kPerHead, kMean };

class LayerState {
 public:
  LayerState(Backend& backend, const VitSpec& spec, std::int64_t layer, EncoderRows& rows)
      : backend_(backend), spec_(spec), layer_(layer), rows_(rows) {}

  Backend& backend() const { return backend_; }  // on whose device the views below lie
  std::int64_t layer() const { return layer_; }
  std::int64_t rows() const { return rows_.count(); }
  std::span<const VitPlace> places() const { return rows_.places; }
  std::span<const float> sizes() const { return rows_.sizes; }
  ConstTensorView hidden() const { return rows_.x; }  // [rows, C]

  // Of this layer's attention, so only until rows were dropped or merged in this layer.
  ConstTensorView queries() const;   // [rows, heads, hd], rotated
  ConstTensorView keys() const;      // [rows, heads, hd], rotated
  ConstTensorView values() const;    // [rows, heads, hd]
  ConstTensorView log_sums() const;  // [rows, heads]
  // Attention weights of query rows [first, first + count) over all rows; shape of out by `mean`
  // (see RowAttentionArgs), on the device. All rows attend to each other: expects() that.
  void attention_of(std::int64_t first, std::int64_t count, AttentionMean mean,
                    TensorView out) const;
  // out [heads, rows] in host memory, or [rows] with the mean over heads: column i is the weight
  // that row i has in its own image. Waits for the device.
  void attention(AttentionRows whose, HeadMean heads, TensorView out) const;

  // Drops every row but these, ascending. Class tokens stay and every image keeps a row:
  // expects() that.
  void keep(std::span<const std::int32_t> rows);
  // Row i goes into new row to[i], weighted by its size: x' = sum size x / sum size. New row j
  // takes the place of row stands_for[j], which must go into it. Rows of one run merge only, runs
  // stay together, class tokens stand for themselves.
  void merge(std::span<const std::int32_t> to, std::span<const std::int32_t> stands_for);

 private:
  // Weights of query rows over the keys of `run` into their columns of out, times `share`.
  void run_attention(ConstTensorView q, ConstTensorView log_sum, const RowRun& run, float share,
                     TensorView out) const;
  void expect_rows_may_go() const;
  // Rows `from` of places and rotary tables become the rows; x and spare shrink to them.
  void take_places(std::span<const std::int32_t> from);

  Backend& backend_;
  const VitSpec& spec_;
  std::int64_t layer_;
  EncoderRows& rows_;
  bool changed_ = false;
};

// Called by the encoder as it runs.
class TowerObserver {
 public:
  virtual ~TowerObserver() = default;
  // Between attention and MLP: hidden() is x + attention.
  virtual void after_attention(LayerState&) {}
  virtual void after_layer(LayerState&) {}
};

}  // namespace tessera
