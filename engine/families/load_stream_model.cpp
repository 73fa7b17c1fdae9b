// Packs transformer and token spaces onto a device, one tensor at a time; the largest tables come
// first.
#include "engine/families/open_model.h"
#include "engine/families/weight_loader.h"

namespace tessera {

namespace {

SpaceWeights image_space(WeightLoader& loader, const WeightNames& names) {
  SpaceWeights out;
  out.table = loader.table(names.code_table, names.code_rows);
  out.head_out = loader.head(names.head_out, names.head_bias, names.head_rows);
  out.head_in = loader.linear(names.head_in, names.head_bias);
  out.align_in = loader.linear(names.align_in, true);
  out.align_out = loader.linear(names.align_out, true);
  return out;
}

}  // namespace

StreamModel load_stream_model(const StreamModelConfig& config, const WeightNames& names,
                              TensorSource& source, Backend& backend, DType storage) {
  WeightLoader loader(source, backend, storage);
  StreamModelWeights weights;
  if (!names.prompt_table.empty()) {
    weights.text.table = loader.table(names.prompt_table, names.prompt_rows);
    if (const float scale = config.transformer.row_scale; scale != 1.0f) {
      weights.text.row_scale = loader.filled(scale, config.transformer.width);
      weights.text.row_shift = loader.filled(0.0f, config.transformer.width);
    }
  }
  if (config.codes > 0) weights.image = image_space(loader, names);
  if (config.vocab > 0) {
    weights.text.head_out.weight =
        loader.pack_head(config.tied_head ? names.prompt_table : names.text_head);
  }
  weights.transformer = loader.transformer(names, config.transformer.layers);
  return StreamModel(backend, config, std::move(weights));
}

StreamModel load_stream_model(OpenedModel& model, Backend& backend, DType storage) {
  expects(model.source != nullptr, "the model has weights");
  StreamModel out =
      load_stream_model(model.spec.model, model.spec.names, *model.source, backend, storage);
  if (model.weights) model.weights->verify_unchanged();
  return out;
}

}  // namespace tessera
