#include "engine/decoding/broken_layer.h"

#include <algorithm>
#include <vector>

#include "engine/core/index.h"
#include "engine/sampling/dist.h"

namespace tessera {

namespace {

bool sound(Backend& backend, ConstTensorView rows) {
  Tensor host = Tensor::host(DType::kF32, rows.shape);
  backend.download(rows, host.view());
  backend.synchronize();
  return !first_unsound({host.f32(), to_size(rows.shape.elements())});
}

}  // namespace

std::string broken_layer(ModelPass& pass, FunctionRef<void()> add_rows) {
  const PassModel& model = pass.model();
  Backend& backend = model.backend();
  const auto layers = to_size(model.sizes().layers);
  std::size_t first = layers + 1;  // tap of the first broken number: what enters a layer, then all
  for (pass.begin(), add_rows(); pass.rows() > 0; pass.begin(), add_rows()) {
    std::vector<Tensor> entering;
    std::vector<TensorView> taps;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      entering.push_back(backend.allocate(DType::kF32, Shape{pass.rows(), model.width()}));
      taps.push_back(entering.back().view());
    }
    pass.run_layers({taps});
    taps.push_back(pass.hidden());
    for (std::size_t tap = 0; tap < std::min(first, taps.size()); ++tap) {
      if (!sound(backend, taps[tap])) first = tap;
    }
  }
  if (first > layers) return "image head";
  return first == 0 ? "token embedding" : "layer " + std::to_string(first - 1);
}

}  // namespace tessera
