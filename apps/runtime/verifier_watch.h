// What the model that verifies drafts looked at while it read its prompt: the attention that the text
// after the images paid each visual token, mean over all layers, heads and text rows
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
  // Rows of the prompt: of each image's tokens, and of the text after the last image,
  // ascending. Model and backend are borrowed.
  VerifierWatch(const ModelConfig& model, Backend& backend,
                std::vector<std::vector<std::int64_t>> images,
                std::vector<std::int64_t> text_rows);

  std::vector<std::int64_t> layers() const override;
  LayerObserver* observer() override { return &observer_; }
  std::vector<std::int64_t> keep(const PromptPause& pause) override;

  // Tokens of each image.
  std::vector<std::int64_t> image_sizes() const;
  // Of each image's tokens, once the prompt was read and while its cache stands; called once.
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
  std::vector<std::vector<std::int64_t>> images_;
  std::vector<std::int64_t> text_rows_;
  Observer observer_;
  std::map<std::int64_t, std::vector<float>> queries_;  // of the layer at hand, by row
  const KvCache* cache_ = nullptr;
  std::int64_t sequence_ = 0, rows_ = 0;
  std::vector<double> sums_;  // by row of the prompt
};

}  // namespace tessera
