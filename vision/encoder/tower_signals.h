// Chosen signals of chosen layers of a running encoder, copied out for whoever selects rows.
#pragma once

#include <cstdint>
#include <vector>

#include "vision/encoder/layer_state.h"

namespace tessera {

enum class TowerSignalKind : std::uint8_t { kAttention, kQueries, kKeys, kValues, kHidden };

struct TowerRequest {
  std::int64_t layer = 0;
  TowerSignalKind kind = TowerSignalKind::kAttention;
  AttentionRows whose = AttentionRows::kClassToken;  // kAttention
  HeadMean heads = HeadMean::kMean;                  // kAttention
};

struct TowerSignal {
  Tensor values;                 // f32 in host memory, shape as LayerState gives it
  std::vector<VitPlace> places;  // of the rows it speaks of, class tokens included
};

class TowerRecorder final : public TowerObserver {
 public:
  explicit TowerRecorder(std::vector<TowerRequest> requests);
  // Queries, keys, values and attention are taken before rows go, hidden states after the layer.
  void after_attention(LayerState& state) override;
  void after_layer(LayerState& state) override;
  // In the order of the requests; empty where the layer did not run.
  const std::vector<TowerSignal>& signals() const { return signals_; }
  std::vector<TowerSignal> take() { return std::move(signals_); }

 private:
  std::vector<TowerRequest> requests_;
  std::vector<TowerSignal> signals_;
};

}  // namespace tessera
