// One forward pass over rows of several pictures, built row by row: prompts, or picture tokens
// behind what is cached, in lines or in trees. Owns the cache and the buffers of the pass, and is
// all that decoding loops and draft models have to do with the model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/model/image_model.h"

namespace tessera {

class ModelPass {
 public:
  struct Limits {
    std::int64_t sequences = 1;
    std::int64_t token_rows = 1;     // picture tokens of one pass
    std::int64_t prompt_rows = 1;    // prompt tokens of one pass
    std::int64_t prompt_tokens = 1;  // of one sequence
    // Rows of one sequence that a pass may feed beside its line, and see beside those in order.
    std::int64_t branch_rows = 0, branch_seen = 0;
    DType kv = DType::kF32;
  };

  // Allocates everything; nothing is allocated after this. The model must outlive it. Error
  // kMemory.
  ModelPass(const ImageModel& model, const Limits& limits);

  // Bytes beside the cache.
  static std::size_t buffer_bytes(const ImageModelConfig& config, const Backend& backend,
                                  const Limits& limits);

  const ImageModel& model() const { return model_; }
  KvCache& cache() { return cache_; }

  // Forgets the rows of the last pass.
  void begin();
  // A prompt of a sequence. One pass has prompts or picture tokens, not both; the rows of one
  // sequence stand together.
  void add_prompt(std::int32_t sequence, std::span<const std::int32_t> ids);
  // Picture tokens behind all that the sequence has cached.
  void add_tokens(std::int32_t sequence, std::span<const std::int32_t> tokens);
  // Picture tokens in a line, the first one at `position`: they see the first `shared` rows of the
  // sequence, then those of `seen`, then one another. Rows noted earlier in this pass follow the
  // cached ones and may be among them.
  struct Line {
    std::int64_t position = 0, shared = 0;
    std::span<const std::int32_t> seen;
    std::span<const std::int32_t> tokens;
  };
  void add_line(std::int32_t sequence, const Line& line);
  std::int64_t rows() const { return count_; }

  // Runs the rows through the layers; they are cached then.
  void run_layers(const Taps& taps = {});
  // The picture head: rows [first, first + rows) of the pass give logit rows from `to` on.
  void run_head(std::int64_t first, std::int64_t rows, std::int64_t to);
  // Layers and head of all rows.
  void run();
  // Waits, and brings logits to where the host reads them.
  void fetch_logits();
  // [codes] of a logit row; after fetch_logits(), until the next run.
  std::span<const float> logits(std::int64_t row) const;

  TensorView hidden() { return rows_of(hidden_, 0, count_); }

 private:
  static TensorView rows_of(Tensor& matrix, std::int64_t begin, std::int64_t rows);
  // Notes `count` rows at positions from `position` on.
  void note(std::int32_t sequence, std::int64_t position, std::int64_t count);
  std::int64_t noted(std::int32_t sequence) const;

  const ImageModel& model_;
  KvCache cache_;
  Arena arena_;
  Tensor rows_, hidden_, logits_;  // [rows, D], [rows, D], [token rows, codes]
  Tensor host_logits_;             // empty where logits already lie in host memory
  std::int64_t count_ = 0;
  bool prompts_ = false, lines_branch_ = false;
  std::vector<std::int32_t> sequences_, tokens_;
  std::vector<std::int64_t> positions_;
  std::vector<RowPath> paths_;
  std::vector<std::int32_t> seen_;  // of all paths
  const float* host_ = nullptr;
};

}  // namespace tessera
