// The made-up captioner: configuration, tokenizer and weights.
#include "apps/pipeline/made_up_captioner.h"

#include <map>
#include <nlohmann/json.hpp>

#include "apps/pipeline/caption_spec.h"
#include "engine/families/random_weights.h"
#include "engine/families/test_models.h"

namespace tessera {

namespace {

constexpr std::string_view kName = "test:tiny";

}  // namespace

bool is_made_up_captioner(std::string_view name) { return name == kName; }

std::shared_ptr<const Json> made_up_captioner_config() {
  const std::int64_t width = 64;
  // Ids of the test tokenizer: 256 bytes, then its special tokens in order.
  return std::make_shared<const Json>(Json{{"model_type", "janus"},
                                           {"image_token_id", 261},
                                           {"text_config",
                                            {{"model_type", "llama"},
                                             {"hidden_size", width},
                                             {"intermediate_size", 128},
                                             {"num_hidden_layers", 2},
                                             {"num_attention_heads", 4},
                                             {"num_key_value_heads", 4},
                                             {"max_position_embeddings", 8192},
                                             {"vocab_size", 264},
                                             {"eos_token_id", 257}}},
                                           {"vision_config",
                                            {{"model_type", "janus_vision_model"},
                                             {"hidden_size", 32},
                                             {"image_size", 32},
                                             {"patch_size", 8},
                                             {"mlp_ratio", 2.0},
                                             {"num_attention_heads", 4},
                                             {"num_hidden_layers", 3},
                                             {"projection_dim", width},
                                             {"depth", 2}}}});
}

std::string made_up_captioner_tokenizer() { return test_tokenizer_json(); }

std::shared_ptr<const Checkpoint> made_up_captioner_weights(const CaptionSpec& spec) {
  const RandomWeightRule rule{.seed = 11, .matrix_std = 0.0f};
  std::map<std::string, Tensor> tensors;
  for (const auto& list : {spec.text.tensors(), tower_tensors(spec.tower)}) {
    for (const TensorSpec& tensor : list) {
      tensors.emplace(tensor.name, random_weight(tensor.name, tensor.shape, rule));
    }
  }
  return std::make_shared<const Checkpoint>(
      Checkpoint::from_tensors(std::string(kName), std::move(tensors)));
}

}  // namespace tessera
