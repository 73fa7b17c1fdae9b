// A captioner without files for tests and soaks: configuration and weights of test:tiny as `tessera
// caption` takes it.
#include <map>
#include <nlohmann/json.hpp>

#include "apps/lab/models/random_weights.h"
#include "apps/lab/models/test_models.h"
#include "engine/families/describe.h"

namespace tessera {

namespace {

constexpr std::string_view kName = "test:tiny";

std::shared_ptr<const Json> config() {
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

}  // namespace

bool is_made_up_captioner(std::string_view name) { return name == kName; }

OpenedModel make_up_captioner(const std::string& name) {
  if (!is_made_up_captioner(name)) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_MODEL_MISSING",
                 .file = name,
                 .expected = "test:tiny, the one made-up model that describes images",
                 .found = "another"});
  }
  OpenedModel out;
  out.spec = parse_describing_config(config(), std::nullopt, std::nullopt, name);
  const RandomWeightRule rule{.seed = 11, .matrix_std = 0.0f};
  std::map<std::string, Tensor> tensors;
  for (const TensorSpec& tensor : describing_tensors(out.spec)) {
    tensors.emplace(tensor.name, random_weight(tensor.name, tensor.shape, rule));
  }
  out.weights = std::make_shared<const Checkpoint>(
      Checkpoint::from_tensors(std::string(kName), std::move(tensors)));
  settle_describing(out.spec, *out.weights);
  out.source = source_of(out.weights);
  out.tokenizer_json = test_tokenizer_json();
  return out;
}

}  // namespace tessera
