// Pruners inside the language model: what they want to see of its layers, and the rows that leave
// between them, for all images of one prompt.
#pragma once

#include <map>
#include <vector>

#include "apps/runtime/prune_session.h"
#include "engine/decoding/prompt_cuts.h"

namespace tessera {

// An image's tokens in the prompt as it enters layer 0.
struct PlacedImage {
  PruneSession* session = nullptr;
  VisualBlock block;               // with the ids of the prompt
  std::vector<std::int64_t> rows;  // of the prompt, one a token of the block
  std::int64_t total = 0;          // tokens before any pruning
};

class LlmPruning final : public PromptCuts {
 public:
  // `text_rows`: rows of the prompt after the last image, ascending; `places` of all rows.
  LlmPruning(const ModelConfig& model, Backend& backend, std::vector<PlacedImage> images,
             std::vector<std::int64_t> text_rows, std::vector<std::array<std::int64_t, 3>> places);

  // Whether any image is pruned inside the model.
  bool needed() const { return !layers_.empty(); }

  std::vector<std::int64_t> layers() const override { return layers_; }
  LayerObserver* observer() override { return &observer_; }
  std::vector<std::int64_t> keep(const PromptPause& pause) override;

  // What is left of each image.
  std::vector<VisualBlock> blocks() const;

 private:
  // Keeps the layer before a cut: queries of text rows, core neurons of all rows.
  class Observer final : public LayerObserver {
   public:
    explicit Observer(LlmPruning& owner) : owner_(owner) {}
    void queries(std::int64_t layer, std::int64_t first, ConstTensorView q) override;
    void activations(std::int64_t layer, std::int64_t first, ConstTensorView gated) override;

   private:
    LlmPruning& owner_;
  };
  struct Served;  // what one selection was given, owned

  bool before_cut(std::int64_t layer) const;
  bool wants(SignalKind kind, std::int64_t layer) const;
  void serve(const PlacedImage& image, const SignalNeed& need, const PromptPause& pause,
             const std::vector<std::int64_t>& row_at, Served& served) const;
  void attention_rows(const SignalNeed& need, const PromptPause& pause,
                      const std::vector<std::int64_t>& columns, Served& served) const;

  const ModelConfig& model_;
  Backend& backend_;
  std::vector<PlacedImage> images_;
  std::vector<std::int64_t> text_rows_;
  std::vector<std::array<std::int64_t, 3>> places_;
  std::vector<std::array<std::int32_t, 3>> text_positions_;
  std::vector<std::int64_t> layers_;
  Observer observer_;
  // Of the layer before the next cut, by place among the rows that are left.
  std::map<std::int64_t, std::vector<float>> queries_;          // text rows: [H hd]
  std::map<std::int64_t, std::vector<std::uint64_t>> neurons_;  // all rows: bits
  std::int64_t neuron_bits_ = 0;
  std::vector<std::int64_t> left_;  // rows of the prompt that are left
  PruneScratch scratch_;
};

}  // namespace tessera
