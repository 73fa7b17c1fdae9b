// T5's encoder from its files onto a device, and what makes a prompt of its rows.
#include "engine/checkpoint/checked_weight.h"
#include "engine/core/storage.h"
#include "engine/families/open_model.h"
#include "engine/families/t5_names.h"
#include "engine/families/text_encoder.h"
#include "engine/families/weight_loader.h"

namespace tessera {

namespace {

LinearWeight packed(WeightLoader& loader, const std::string& block,
                    std::initializer_list<const char*> leaves) {
  std::vector<std::string> names;
  for (const char* leaf : leaves) names.push_back(block + leaf + ".weight");
  return loader.pack(names);
}

}  // namespace

TextEncoder load_text_encoder(const OpenedTextEncoder& encoder, Backend& backend, DType storage) {
  expects(encoder.weights != nullptr, "the encoder is open");
  const std::unique_ptr<TensorSource> source = source_of(encoder.weights);
  WeightLoader loader(*source, backend, storage);
  TextEncoderWeights out;
  out.table = loader.table(encoder.table);
  const Tensor distances = widened(checked_weight(*encoder.weights, kT5Distances,
                                                  {encoder.config.buckets, encoder.config.heads}));
  out.distance_bias.assign(distances.f32(), distances.f32() + distances.shape().elements());
  for (std::int64_t i = 0; i < encoder.config.layers; ++i) {
    const std::string block = t5_block(i);
    TextEncoderLayer layer;
    layer.attention_norm = loader.vector(block + "layer.0.layer_norm.weight");
    layer.qkv = packed(loader, block + "layer.0.SelfAttention.", {"q", "k", "v"});
    layer.out = packed(loader, block + "layer.0.SelfAttention.", {"o"});
    layer.ffn_norm = loader.vector(block + "layer.1.layer_norm.weight");
    const std::string dense = block + "layer.1.DenseReluDense.";
    layer.up = encoder.config.gated ? packed(loader, dense, {"wi_0", "wi_1"})
                                    : packed(loader, dense, {"wi"});
    layer.down = packed(loader, dense, {"wo"});
    out.layers.push_back(std::move(layer));
  }
  out.final_norm = loader.vector(kT5Norm);
  encoder.weights->verify_unchanged();
  return TextEncoder(backend, encoder.config, std::move(out));
}

CaptionRows load_caption_rows(OpenedModel& model, Backend& backend, DType storage) {
  expects(model.source != nullptr && model.spec.context && model.spec.context->caption,
          "the model has weights, and a prompt of an encoder's rows");
  const CaptionNames& names = *model.spec.context->caption;
  WeightLoader loader(*model.source, backend, storage);
  CaptionWeights out;
  out.unconditional = loader.vector(names.unconditional);
  out.fc1 = loader.linear(names.fc1, false);
  out.fc2 = loader.linear(names.fc2, false);
  return CaptionRows(backend, std::move(out));
}

}  // namespace tessera
