// Packs a model of blocks onto a device, tensor by tensor.
#include "engine/families/family.h"
#include "engine/families/open_model.h"
#include "engine/families/weight_loader.h"

namespace tessera {

BlockModel load_block_model(OpenedModel& model, Backend& backend, DType storage) {
  expects(model.source != nullptr && model.spec.blocks, "the model has weights, of blocks");
  const BlockModelConfig& config = *model.spec.blocks;
  const WeightNames& names = model.spec.names;
  WeightLoader loader(*model.source, backend, storage);
  BlockModelWeights weights;
  weights.token_table = loader.table(names.code_table);
  weights.head = loader.head(names.head_out, false, names.head_rows);
  weights.position_table = loader.table(kNbpPositions);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = layer_name(names.layer_prefix, i);
    const auto full = [&](const std::vector<std::string>& leaves) {
      std::vector<std::string> out;
      for (const std::string& leaf : leaves) out.push_back(layer + leaf);
      return out;
    };
    BlockLayerWeights out;
    out.attention_norm = loader.vector(layer + "ln1.weight");
    out.attention_norm_bias = loader.vector(layer + "ln1.bias");
    out.qkv.weight = loader.pack(full(names.qkv));
    out.qkv.bias = loader.joined(full(names.qkv_bias));
    out.out = loader.linear(layer + "attn.proj", true);
    out.ffn_norm = loader.vector(layer + "ln2.weight");
    out.ffn_norm_bias = loader.vector(layer + "ln2.bias");
    out.up = loader.linear(layer + "mlp.0", true);
    out.down = loader.linear(layer + "mlp.2", true);
    weights.layers.push_back(std::move(out));
  }
  weights.final_norm = loader.vector("transformer.ln_f.weight");
  weights.final_norm_bias = loader.vector("transformer.ln_f.bias");
  if (model.weights) model.weights->verify_unchanged();
  return BlockModel(backend, config, std::move(weights));
}

}  // namespace tessera
