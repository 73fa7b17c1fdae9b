// Copies of what a layer shows.
#include "vision/encoder/tower_signals.h"

namespace tessera {

TowerRecorder::TowerRecorder(std::vector<TowerRequest> requests)
    : requests_(std::move(requests)), signals_(requests_.size()) {}

namespace {

Tensor host_copy(const LayerState& state, ConstTensorView view) {
  Tensor out = Tensor::host(DType::kF32, view.shape);
  state.backend().download(view, out.view());
  state.backend().synchronize();
  return out;
}

Tensor read_signal(const TowerRequest& request, const LayerState& state) {
  switch (request.kind) {
    case TowerSignalKind::kQueries:
      return host_copy(state, state.queries());
    case TowerSignalKind::kKeys:
      return host_copy(state, state.keys());
    case TowerSignalKind::kValues:
      return host_copy(state, state.values());
    case TowerSignalKind::kHidden:
      return host_copy(state, state.hidden());
    case TowerSignalKind::kAttention:
      break;
  }
  const std::int64_t heads = state.queries().shape[1];
  Tensor out =
      Tensor::host(DType::kF32, request.heads == HeadMean::kMean ? Shape{state.rows()}
                                                                 : Shape{heads, state.rows()});
  state.attention(request.whose, request.heads, out.view());
  return out;
}

void record(const std::vector<TowerRequest>& requests, const LayerState& state, bool hidden,
            std::vector<TowerSignal>& signals) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].layer != state.layer()) continue;
    if ((requests[i].kind == TowerSignalKind::kHidden) != hidden) continue;
    signals[i] = {read_signal(requests[i], state), {state.places().begin(), state.places().end()}};
  }
}

}  // namespace

void TowerRecorder::after_attention(LayerState& state) {
  record(requests_, state, false, signals_);
}
void TowerRecorder::after_layer(LayerState& state) { record(requests_, state, true, signals_); }

}  // namespace tessera
