#include "engine/families/gguf_encoder.h"

#include <nlohmann/json.hpp>

#include "engine/families/language.h"
#include "engine/towers/tower_configs.h"

namespace tessera {

std::int64_t GgufEncoder::rows(std::string_view tensor) const {
  const auto found = weights.tensors().find(tensor);
  const bool matrix = found != weights.tensors().end() && found->second.shape.rank() == 2;
  if (matrix) return found->second.shape[0];
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_GGUF_PAIR",
               .file = keys.file(),
               .where = "tensor \"" + std::string(tensor) + "\"",
               .expected = "a matrix",
               .found = found == weights.tensors().end() ? "no such tensor"
                                                         : found->second.shape.to_string()});
}

std::int64_t GgufEncoder::token(std::string_view text) const {
  const GgufValue* const tokens = model.find("tokenizer.ggml.tokens");
  std::optional<GgufArray> list = tokens == nullptr ? std::nullopt : tokens->array();
  for (std::int64_t id = 0; list && list->left() > 0; ++id) {
    if (list->next().text() == text) return id;
  }
  return -1;
}

Json clip_sizes(GgufEncoder& encoder) {
  GgufKeyReader& keys = encoder.keys;
  return {
      {"hidden_size", keys.wanted("vision.embedding_length", 1, kMaxTowerWidth)},
      {"intermediate_size", keys.wanted("vision.feed_forward_length", 1, kMaxTowerWidth)},
      {"num_hidden_layers", keys.wanted("vision.block_count", 1, 1024)},
      {"num_attention_heads", keys.wanted("vision.attention.head_count", 1, kMaxHeads)},
      {"image_size", keys.wanted("vision.image_size", 1, 16384)},
      {"patch_size", keys.wanted("vision.patch_size", 1, 256)},
      {"layer_norm_eps", keys.wanted_number("vision.attention.layer_norm_epsilon", 1e-12, 0.1)}};
}

std::string clip_activation(GgufEncoder& encoder) {
  if (encoder.keys.boolean("use_silu").value_or(false)) return "silu";
  return encoder.keys.boolean("use_gelu").value_or(false) ? "gelu" : "quick_gelu";
}

void clip_levels(GgufEncoder& encoder, Json& processor) {
  for (const char* name : {"image_mean", "image_std"}) {
    const std::string key = std::string("vision.") + name;
    const auto three = encoder.keys.numbers(key, 3);
    if (!three || three->size() != 3) {
      encoder.keys.fail(key, "three numbers",
                        three ? std::to_string(three->size()) : "no such key");
    }
    processor[name] = *three;
  }
}

}  // namespace tessera
