// Packs a text model onto a device, the embedding table first.
#include "engine/families/language.h"
#include "engine/families/weight_loader.h"

namespace tessera {

TextModel load_text_model(const TextSpec& spec, TensorSource& source, Backend& backend,
                          DType storage) {
  WeightLoader loader(source, backend, storage);
  const WeightNames names = spec.names();
  TextModelWeights weights;
  weights.table = loader.table(names.prompt_table);
  const std::string& head = spec.model.tied_head ? names.prompt_table : spec.layouts.front().head;
  weights.head.weight = loader.pack({head});
  weights.transformer = loader.transformer(names, spec.model.transformer.layers);
  return TextModel(backend, spec.model, std::move(weights));
}

}  // namespace tessera
