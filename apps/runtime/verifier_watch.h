// What the model that judges drafts looked at while it read its prompt: the attention that the text
// behind the pictures paid each visual token, mean over all layers, heads and text rows
// (vision/pruning/verifier.h). Drops nothing.
#pragma once

#include <map>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/decoding/prompt_cuts.h"
#include "engine/model/transformer.h"

namespace tessera {

class VerifierWatch final : public PromptCuts {
 public:
  // Rows of the prompt: of each picture's tokens, and of the text behind the last picture,
  // ascending. Model and backend are borrowed.
  VerifierWatch(const ModelConfig& model, Backend& backend,
                std::vector<std::vector<std::int64_t>> pictures,
                std::vector<std::int64_t> text_rows);

  std::vector<std::int64_t> layers() const override;
  LayerObserver* observer() override { return &observer_; }
  std::vector<std::int64_t> keep(const PromptPause& pause) override;

  // Tokens of each picture.
  std::vector<std::int64_t> picture_sizes() const;
  // Of each picture's tokens, once the prompt was read and while its cache stands; called once.
  // Nothing when the prompt was not read.
  std::vector<std::vector<float>> take_scores();

 private:
  class Observer final : public LayerObserver {
   public:
    explicit Observer(VerifierWatch& owner) : owner_(owner) {}
    void queries(std::int64_t layer, std::int64_t first, ConstTensorView q) override;

   private:
    VerifierWatch& owner_;
  };

  void add_layer(std::int64_t layer);

  const ModelConfig& model_;
  Backend& backend_;
  std::vector<std::vector<std::int64_t>> pictures_;
  std::vector<std::int64_t> text_rows_;
  Observer observer_;
  std::map<std::int64_t, std::vector<float>> queries_;  // of the layer at hand, by row
  const KvCache* cache_ = nullptr;
  std::int64_t sequence_ = 0, rows_ = 0;
  std::vector<double> sums_;  // by row of the prompt
};

}  // namespace tessera
