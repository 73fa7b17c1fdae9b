#include "engine/decoding/hidden_signal.h"
#include "engine/core/index.h"

namespace tessera {

void HiddenSignal::ask(LoopDrafter* drafter, ModelPass& pass, std::int64_t rows) {
  drafter_ = drafter;
  layers_.clear();
  if (drafter != nullptr) layers_ = drafter->needs().hidden_layers;
  pass.keep_hidden(layers_);
  if (!wanted()) return;
  rows_.reserve(to_size(rows));
  positions_.reserve(to_size(rows));
  states_.reserve(layers_.size());
}

void HiddenSignal::begin(ModelPass& pass) {
  states_.clear();
  for (std::size_t i = 0; i < layers_.size(); ++i) states_.push_back(pass.kept_hidden(i));
}

void HiddenSignal::show(ModelPass& pass, std::size_t slot, int branch, std::int64_t first,
                        std::span<const std::int32_t> kept) {
  rows_.clear();
  for (const std::int32_t row : kept) rows_.push_back(first + row);
  emit(pass, slot, branch);
}

void HiddenSignal::show(ModelPass& pass, std::size_t slot, int branch, std::int64_t first,
                        std::int64_t count) {
  rows_.clear();
  for (std::int64_t i = 0; i < count; ++i) rows_.push_back(first + i);
  emit(pass, slot, branch);
}

void HiddenSignal::emit(const ModelPass& pass, std::size_t slot, int branch) {
  if (rows_.empty()) return;
  positions_.clear();
  for (const std::int64_t row : rows_) positions_.push_back(pass.position(row));
  drafter_->observe({slot, branch, layers_, states_, rows_, positions_});
}

}  // namespace tessera
