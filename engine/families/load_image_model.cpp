// Packs the generation half of a model onto a device, one tensor at a time; the largest tables come
// first.
#include "engine/families/open_model.h"
#include "engine/families/weight_loader.h"

namespace tessera {

ImageModel load_image_model(OpenedModel& model, Backend& backend, DType storage) {
  expects(model.source != nullptr, "the model has weights");
  WeightLoader loader(*model.source, backend, storage);
  const WeightNames& names = model.spec.names;
  ImageModelWeights weights;
  if (!names.prompt_table.empty()) {
    weights.prompt_table = loader.table(names.prompt_table, names.prompt_rows);
  }
  weights.code_table = loader.table(names.code_table, names.code_rows);
  weights.head_out = loader.linear(names.head_out, names.head_bias, names.head_rows);
  weights.head_in = loader.linear(names.head_in, names.head_bias);
  weights.align_in = loader.linear(names.align_in, true);
  weights.align_out = loader.linear(names.align_out, true);
  weights.transformer = loader.transformer(names, model.spec.model.transformer.layers);
  if (model.weights) model.weights->verify_unchanged();
  return ImageModel(backend, model.spec.model, std::move(weights));
}

}  // namespace tessera
