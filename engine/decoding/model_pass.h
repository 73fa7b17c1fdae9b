// One forward pass over rows of several sequences, built row by row: tokens after what is cached,
// in lines or in trees, and prompts. Owns the cache and the buffers of the pass, and is all that
// decoding loops and draft models have to do with the model. On a device with memory of its own,
// passes of tokens alone are recorded (Backend::begin_recorded), padded to few shapes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/core/index.h"
#include "engine/decoding/pass_padding.h"
#include "engine/model/pass_model.h"

namespace tessera {

class ModelPass {
 public:
  struct Limits {
    std::int64_t sequences = 1;
    std::int64_t capacity = 1;     // cached rows of one sequence, branch_rows apart
    std::int64_t logit_rows = 1;   // rows of one pass that the head runs for
    std::int64_t token_rows = 1;   // tokens of one pass
    std::int64_t prompt_rows = 1;  // prompt rows of one pass
    bool mixed = false;            // a pass may have both
    std::int64_t guest_rows = 0;   // of a pass that a caller runs by itself in arena()
    // Rows of one sequence that a pass may feed next to its line, and see next to those in order.
    std::int64_t branch_rows = 0, branch_seen = 0;
    DType kv = DType::kF32;
  };

  // Allocates everything; nothing is allocated after this. The model must outlive it. Error
  // kMemory.
  ModelPass(const PassModel& model, const Limits& limits);

  // Bytes next to the cache, for a model of this shape; `scratch` is its scratch_bytes() of
  // max_rows().
  static std::size_t buffer_bytes(const ModelConfig& config, std::int64_t logit_ids,
                                  std::size_t scratch, const Backend& backend,
                                  const Limits& limits);
  static std::int64_t max_rows(const Limits& limits);  // without padding
  // The cache, and cache and buffers of a pass over a bare transformer, before one is made.
  static std::size_t cache_bytes(const ModelConfig& config, const Backend& backend,
                                 const Limits& limits);
  static std::size_t bytes(const ModelConfig& config, std::int64_t logit_ids,
                           const Backend& backend, const Limits& limits);

  const PassModel& model() const { return *spaces_[0]; }
  // Another token space over the same body: its table and its head. Returns its number; the model's
  // own is 0, and prompts are of that one. Error kMemory.
  std::size_t add_space(const PassModel& space);
  KvCache& cache() { return cache_; }

  // What the rows of a sequence attend to next to themselves, from now on; borrowed.
  void set_context(std::int32_t sequence, const CrossContext* context) {
    nth(contexts_, sequence) = context;
  }

  // From now on passes keep the hidden states of these layers, ascending: number i is the residual
  // stream that enters layer i, the number of layers what the head reads. Passes that keep some are
  // not recorded. Error kMemory.
  void keep_hidden(std::span<const std::int64_t> layers);
  // [rows, D] on the device, of the layer that is number `i` among those that are kept.
  ConstTensorView kept_hidden(std::size_t i);

  // Forgets the rows of the last pass.
  void begin();
  // A prompt of a sequence. Prompts stand after the tokens of a pass; the rows of one sequence
  // stand together.
  void add_prompt(std::int32_t sequence, std::span<const std::int32_t> ids);
  // The next rows of a prompt that is embedded already: [T, D] f32 on the model's device, and the
  // places of each row in the rotary table, all three alike where it has one axis.
  void add_prompt_rows(std::int32_t sequence, ConstTensorView rows,
                       std::span<const std::array<std::int64_t, 3>> places);
  // Tokens after all that the sequence has cached.
  void add_tokens(std::int32_t sequence, std::span<const std::int32_t> tokens);
  // Tokens in a line, the first one at `position`: they see the first `shared` rows of the
  // sequence, then those of `seen`, then one another. Rows noted earlier in this pass follow the
  // cached ones and may be among them.
  struct Line {
    std::int64_t position = 0, shared = 0;
    std::span<const std::int32_t> seen;
    std::span<const std::int32_t> tokens;
    std::size_t space = 0;  // of the tokens
  };
  void add_line(std::int32_t sequence, const Line& line);
  std::int64_t rows() const { return count_; }
  // Of a row of the pass.
  std::int32_t sequence(std::int64_t row) const { return nth(sequences_, row); }
  std::int64_t position(std::int64_t row) const { return nth(positions_, row); }

  // Runs the rows through the layers; they are cached then.
  void run_layers(const Taps& taps = {});
  // The head: rows [first, first + rows) of the pass give logit rows from `to` on.
  void run_head(std::int64_t first, std::int64_t rows, std::int64_t to, std::size_t space = 0);
  // The head for one hidden row [1, D] that came another way.
  void run_head_of(ConstTensorView hidden, std::int64_t to);
  // Layers and head of all rows, which are of space 0.
  void run();
  // Waits, and brings logits of a space to where the host reads them.
  void fetch_logits(std::size_t space = 0);
  // [logit rows, logit_ids] of a space where they were computed, for work that is enqueued after
  // the run.
  ConstTensorView device_logits(std::size_t space = 0) const { return logits_[space].rows.view(); }
  // The same rows, for work that changes them.
  TensorView logits_to_edit(std::int64_t first, std::int64_t rows, std::size_t space) {
    return rows_of(logits_[space].rows, first, rows);
  }
  // [logit_ids] of a logit row of a space; after fetch_logits(), until the next run.
  std::span<const float> logits(std::int64_t row, std::size_t space = 0) const;

  Arena& arena() { return arena_; }
  TensorView hidden() { return rows_of(hidden_, 0, count_); }

 private:
  static TensorView rows_of(Tensor& matrix, std::int64_t begin, std::int64_t rows);
  // What a recorded pass goes through.
  enum class Part : std::uint8_t { kLayers, kHead, kBoth };

  // Decides whether the rows are padded and recorded.
  void plan(const Taps& taps);
  // What the layers show of this pass besides what a caller asks for.
  Taps kept_taps();
  std::uint64_t key_of_shape() const;
  std::uint64_t key_of(Part part, std::int64_t to) const;
  // Whether a pass of this shape ran lately; notes it.
  bool ran_lately(std::uint64_t shape);
  void run_ops(const Taps& taps);
  void head_ops(std::int64_t first, std::int64_t rows, std::int64_t to, std::size_t space);
  void embed_rows(const TokenRows& rows, std::int64_t tokens);
  TokenRows noted_rows() const;
  // Notes `count` rows at positions from `position` on.
  void note(std::int32_t sequence, std::int64_t position, std::int64_t count);
  // The path of prompt rows, which lines that branch may have before them in the pass.
  void note_prompt_path(std::int32_t sequence, std::int64_t count);
  std::int64_t noted(std::int32_t sequence) const;

  // Logits of one space.
  struct Logits {
    Tensor rows;                  // [logit rows, logit ids]
    Tensor host;                  // empty where they already lie in host memory
    const float* read = nullptr;  // after fetch_logits()
    std::int64_t end = 0;         // rows that fetch_logits() has to bring
  };
  Logits make_logits(const PassModel& space) const;

  std::vector<const PassModel*> spaces_;
  std::int64_t logit_rows_, scratch_rows_ = 0;
  KvCache cache_;
  Arena arena_;
  Tensor rows_, hidden_;                  // [rows, D]
  std::vector<Logits> logits_;            // by space
  bool records_ = false;                  // the device has memory of its own
  std::uint64_t number_ = 0;              // of this object, in keys
  bool recorded_ = false, pads_ = false;  // the pass at hand
  std::uint64_t shape_ = 0;               // its key
  // Of passes that branch: many of their shapes come once.
  std::array<std::uint64_t, 24> lately_ = {};
  std::size_t next_lately_ = 0;
  PaddedRows padded_;
  Tensor padded_hidden_;  // [rows, D] of padded passes, before real ones are gathered
  std::int64_t count_ = 0, token_count_ = 0;  // rows; tokens, which come first
  bool mixed_ = false, lines_branch_ = false;
  bool one_space_ = true;                // all tokens of the pass are of space 0
  std::vector<std::size_t> row_spaces_;  // of each token
  std::vector<std::int32_t> sequences_, tokens_;
  std::vector<std::int64_t> positions_;
  std::vector<std::array<std::int64_t, 3>> places_;
  std::vector<std::int64_t> identity_;  // 0, 1, ...
  std::vector<RowPath> paths_;
  std::vector<std::int32_t> seen_;             // of all paths
  std::vector<const CrossContext*> contexts_;  // by sequence
  std::vector<std::int64_t> kept_layers_;
  std::vector<Tensor> kept_hidden_;     // [rows, D] each; of the last layer none
  std::vector<TensorView> layer_taps_;  // [layers] of the pass at hand; none where nothing is kept
};

}  // namespace tessera
