// A pruner inside and after the image encoder: collects the signals it asks for while the
// encoder runs, drops and merges rows where it says so.
#pragma once

#include <vector>

#include "apps/runtime/prune_session.h"
#include "vision/encoder/vision_encoder.h"

namespace tessera {

class EncoderPruning final : public TowerObserver {
 public:
  // `rows`: what the encoder runs on, tile by tile, class tokens included.
  EncoderPruning(PruneSession& session, const VitSpec& spec, VisualBlock rows);

  void after_attention(LayerState& state) override;
  void after_layer(LayerState& state) override;

  // Whether merged rows must count more in attention (ToMe).
  bool merges() const { return session_.asks(HookPoint::kInEncoderBlock); }
  // The plan of a hook after the encoder for a block whose patches all ran.
  PrunePlan select_after(const Hook& hook, const VisualBlock& block,
                          std::span<const Signal> more = {});

 private:
  // One signal of one layer, a row (or, for attention, a column) for each row of the encoder.
  struct Gathered {
    SignalKind kind{};
    int layer = 0;
    std::int64_t heads = 1, width = 0;  // width 0: attention weights, [1, rows]
    RowSource source = RowSource::kCls;
    std::vector<float> values;
    std::vector<VitPlace> places;
  };
  bool wanted(SignalKind kind, int layer) const;
  void gather(const LayerState& state, SignalKind kind);
  void gather_all(const LayerState& state, bool hidden);
  Signal signal_of(const Gathered& gathered) const;
  std::vector<Signal> all_signals() const;
  void carry_out(const Hook& hook, LayerState& state);

  PruneSession& session_;
  const VitSpec& spec_;
  VisualBlock rows_;
  std::vector<SignalNeed> needs_;  // of all hooks that are asked without a state
  std::vector<Gathered> gathered_;
};

}  // namespace tessera
