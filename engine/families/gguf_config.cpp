// Keys: the gguf package's constants.py. Divisors of frequencies: its converter of Llama 3.
#include "engine/families/gguf_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/gguf_weights.h"
#include "engine/core/index.h"
#include "engine/families/language.h"

namespace tessera {

namespace {

struct Architecture {
  std::string_view name;
  std::string_view missing;  // empty = computed here
};
constexpr std::array kArchitectures = {
    Architecture{"llama", ""},
    Architecture{"qwen2", ""},
    Architecture{"qwen3", ""},
    Architecture{"gemma", "GELU in the feed-forward part, scaled embeddings"},
    Architecture{"gemma2",
                 "GELU in the feed-forward part, norms after attention, scaled embeddings, capped "
                 "logits, windows of every second layer"},
    Architecture{"gemma3", ""},
    Architecture{"phi3", "fused matrices"},
};

// Keys of an architecture that change nothing here.
constexpr std::array kWithoutEffect = {
    std::string_view("vocab_size"), std::string_view("tensor_data_layout"),
    std::string_view("rope.scaling.finetuned"), std::string_view("expert_used_count")};

class KeyReader {
 public:
  KeyReader(const GgufFile& head, std::string architecture, const std::string& file)
      : head_(head), architecture_(std::move(architecture)), file_(file) {}

  [[noreturn]] void fail(std::string_view key, std::string expected, std::string found) const {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_GGUF_MODEL",
                 .file = file_,
                 .where = "key \"" + name_of(key) + "\"",
                 .expected = std::move(expected),
                 .found = std::move(found)});
  }

  const GgufValue* find(std::string_view key) {
    read_.push_back(name_of(key));
    return head_.find(read_.back());
  }

  std::optional<std::int64_t> integer(std::string_view key, std::int64_t low, std::int64_t high) {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::nullopt;
    const std::optional<std::int64_t> found = value->integer();
    if (found && *found >= low && *found <= high) return found;
    const std::string range =
        "a whole number from " + std::to_string(low) + " to " + std::to_string(high);
    if (found) fail(key, range, std::to_string(*found));
    const bool list = value->kind() == GgufKind::kArray;
    fail(key, range + (list ? ", the same for all layers" : ""),
         std::string(gguf_kind_name(value->kind())));
  }
  std::int64_t wanted(std::string_view key, std::int64_t low, std::int64_t high) {
    const std::optional<std::int64_t> found = integer(key, low, high);
    if (!found) {
      fail(key, "a whole number from " + std::to_string(low) + " to " + std::to_string(high),
           "no such key");
    }
    return *found;
  }

  std::optional<double> number(std::string_view key, double low, double high) {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::nullopt;
    const std::optional<double> found = value->number();
    if (found && *found >= low && *found <= high) return found;
    fail(key, "a number from " + Json(low).dump() + " to " + Json(high).dump(),
         found ? Json(*found).dump() : std::string(gguf_kind_name(value->kind())));
  }

  std::string text_or(std::string_view key, std::string_view fallback) {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::string(fallback);
    if (!value->text()) fail(key, "a text", std::string(gguf_kind_name(value->kind())));
    return std::string(*value->text());
  }

  // Every key of the architecture was read or changes nothing.
  void check_all() const {
    const std::string prefix = architecture_ + ".";
    for (const auto& [name, value] : head_.keys) {
      if (!name.starts_with(prefix)) continue;
      const std::string_view key = std::string_view(name).substr(prefix.size());
      const bool known =
          std::find(read_.begin(), read_.end(), name) != read_.end() ||
          std::find(kWithoutEffect.begin(), kWithoutEffect.end(), key) != kWithoutEffect.end();
      if (!known) fail(key, "keys that are known to change nothing or are computed", "this key");
    }
  }

  const std::string& file() const { return file_; }

 private:
  std::string name_of(std::string_view key) const { return architecture_ + "." + std::string(key); }

  const GgufFile& head_;
  std::string architecture_;
  const std::string& file_;
  std::vector<std::string> read_;
};

void check_architecture(const std::string& name, const std::string& file) {
  std::string known;
  std::string_view missing = "an architecture that nobody here knows";
  for (const Architecture& row : kArchitectures) {
    if (row.missing.empty()) {
      if (row.name == name) return;
      known += (known.empty() ? "" : " or ") + std::string(row.name);
    } else if (row.name == name) {
      missing = row.missing;
    }
  }
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_GGUF_ARCHITECTURE",
               .file = file,
               .where = "key \"general.architecture\"",
               .expected = known,
               .found = name + ", for which is missing: " + std::string(missing)});
}

// Divisors of a Llama 3.1 model: one a pair of a head.
Json divided(const Checkpoint& weights, std::int64_t pairs, std::int64_t positions,
             const std::string& file) {
  const ConstTensorView* view = weights.find(kGgufFrequencies);
  const bool right =
      view->dtype == DType::kF32 && view->shape.rank() == 1 && view->shape[0] == pairs;
  if (!right) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_GGUF_MODEL",
                 .file = file,
                 .where = "tensor \"" + std::string(kGgufFrequencies) + "\"",
                 .expected = std::to_string(pairs) + " numbers of F32, one a pair of a head",
                 .found = view->shape.to_string() + " " + std::string(dtype_name(view->dtype))});
  }
  Json list = Json::array();
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double divisor = double{view->f32()[i]};
    if (!(divisor >= 1e-6 && divisor <= 1e6)) {
      throw Error(
          {.kind = ErrorKind::kModel,
           .code = "E_GGUF_MODEL",
           .file = file,
           .where = "tensor \"" + std::string(kGgufFrequencies) + "\", number " + std::to_string(i),
           .expected = "a divisor from 1e-6 to 1e6",
           .found = std::to_string(divisor)});
    }
    list.push_back(divisor);
  }
  return {{"rope_type", "longrope"},
          {"short_factor", list},
          {"attention_factor", 1.0},
          {"original_max_position_embeddings", positions}};
}

Json rope_of(KeyReader& keys, const Checkpoint& weights, std::int64_t head_dim,
             std::int64_t positions) {
  const std::string type = keys.text_or("rope.scaling.type", "none");
  const std::optional<double> factor = keys.number("rope.scaling.factor", 1e-6, 1e6);
  const std::optional<std::int64_t> original =
      keys.integer("rope.scaling.original_context_length", 1, std::int64_t{1} << 30);
  const double attention = keys.number("rope.scaling.attn_factor", 1e-6, 1e6).value_or(1.0);
  if (attention != 1.0) keys.fail("rope.scaling.attn_factor", "1", Json(attention).dump());
  const bool stretched = type == "linear" || type == "yarn";
  if (!stretched && type != "none") {
    keys.fail("rope.scaling.type", "none, linear or yarn", type);
  }
  if (weights.tensors().contains(kGgufFrequencies)) {
    if (stretched)
      keys.fail("rope.scaling.type", "none next to " + std::string(kGgufFrequencies), type);
    return divided(weights, head_dim / 2, positions, keys.file());
  }
  if (!stretched) return nullptr;
  if (!factor)
    keys.fail("rope.scaling.factor", "a number, for scaling of type " + type, "no such key");
  Json out = {{"rope_type", type}, {"factor", *factor}};
  if (type == "yarn") {
    if (!original) {
      keys.fail("rope.scaling.original_context_length", "a whole number, for scaling of type yarn",
                "no such key");
    }
    out["original_max_position_embeddings"] = *original;
    const auto put = [&](const char* key, const char* name) {
      if (const auto value = keys.number(key, 1e-3, 1e6)) out[name] = *value;
    };
    put("rope.scaling.yarn_beta_fast", "beta_fast");
    put("rope.scaling.yarn_beta_slow", "beta_slow");
  }
  return out;
}

// Heads, and that they are as wide as this runtime has them.
std::int64_t read_heads(KeyReader& keys, std::int64_t width, Json& out) {
  const std::int64_t heads = keys.wanted("attention.head_count", 1, kMaxHeads);
  const std::int64_t kv = keys.integer("attention.head_count_kv", 1, kMaxHeads).value_or(heads);
  if (heads % kv != 0) {
    keys.fail("attention.head_count_kv", "a divisor of " + std::to_string(heads),
              std::to_string(kv));
  }
  const std::optional<std::int64_t> given = keys.integer("attention.key_length", 2, 4096);
  if (!given && width % heads != 0) {
    keys.fail("attention.head_count", "a divisor of the width " + std::to_string(width),
              std::to_string(heads));
  }
  const std::int64_t head_dim = given.value_or(width / heads);
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    const std::int64_t found = keys.integer(key, 1, 65536).value_or(head_dim);
    if (found != head_dim) {
      keys.fail(key, std::to_string(head_dim) + ", the width of a head", std::to_string(found));
    }
  }
  out["num_attention_heads"] = heads;
  out["num_key_value_heads"] = kv;
  out["head_dim"] = head_dim;
  return head_dim;
}

// What the format's reference reader knows of Gemma 3 without keys: a window in five layers of six,
// 10000 as their base, and logits scaled by the width of a head, or of the one size of 62 layers by
// a share of the width.
void read_gemma(KeyReader& keys, Json& out) {
  constexpr std::int64_t kEvery = 6, kLargest = 62;
  out["sliding_window"] = keys.wanted("attention.sliding_window", 2, std::int64_t{1} << 30);
  out["sliding_window_pattern"] =
      keys.integer("attention.sliding_window_pattern", 1, kMaxLayers).value_or(kEvery);
  out["rope_local_base_freq"] = keys.number("rope.freq_base_swa", 1.0, 1e9).value_or(10000.0);
  const bool largest = out["num_hidden_layers"] == kLargest;
  out["query_pre_attn_scalar"] =
      largest ? out["hidden_size"].get<std::int64_t>() / out["num_attention_heads"].get<std::int64_t>()
              : out["head_dim"].get<std::int64_t>();
}

}  // namespace

Json gguf_config(const GgufFile& head, const Checkpoint& weights, const std::string& file) {
  const std::string architecture = gguf_architecture(head, file);
  check_architecture(architecture, file);
  KeyReader keys(head, architecture, file);
  if (keys.integer("expert_count", 0, 1 << 20).value_or(0) > 0) {
    keys.fail("expert_count", "0: mixtures of experts are not computed here", "more");
  }
  const std::int64_t width = keys.wanted("embedding_length", 1, kMaxHidden);
  const std::int64_t positions = keys.wanted("context_length", 2, std::int64_t{1} << 24);
  Json out = {{"hidden_size", width},
              {"max_position_embeddings", positions},
              {"num_hidden_layers", keys.wanted("block_count", 1, kMaxLayers)},
              {"intermediate_size", keys.wanted("feed_forward_length", 1, kMaxFfn)}};
  const std::int64_t head_dim = read_heads(keys, width, out);
  const auto eps = keys.number("attention.layer_norm_rms_epsilon", 1e-12, 0.1);
  if (!eps) keys.fail("attention.layer_norm_rms_epsilon", "a number", "no such key");
  out["rms_norm_eps"] = *eps;
  out["rope_theta"] = keys.number("rope.freq_base", 1.0, 1e9).value_or(10000.0);
  const Json rope = rope_of(keys, weights, head_dim, positions);
  if (!rope.is_null()) out["rope_scaling"] = rope;
  const auto table = weights.tensors().find("model.embed_tokens.weight");
  if (table == weights.tensors().end() || table->second.shape.rank() != 2) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_GGUF_MODEL",
                 .file = file,
                 .where = "tensor \"token_embd.weight\"",
                 .expected = "a matrix",
                 .found = table == weights.tensors().end() ? "no such tensor"
                                                           : table->second.shape.to_string()});
  }
  out["vocab_size"] = table->second.shape[0];
  out["tie_word_embeddings"] = !weights.tensors().contains("lm_head.weight");
  out["model_type"] = architecture == "gemma3" ? "gemma3_text" : architecture;
  const bool biases = weights.tensors().contains("model.layers.0.self_attn.o_proj.bias");
  if (architecture != "qwen2") out["attention_bias"] = biases;
  if (architecture == "llama") {
    out["mlp_bias"] = weights.tensors().contains("model.layers.0.mlp.down_proj.bias");
  }
  if (architecture == "gemma3") {
    read_gemma(keys, out);
    keys.check_all();
    return out;
  }
  const std::int64_t window =
      keys.integer("attention.sliding_window", 0, std::int64_t{1} << 30).value_or(0);
  if (window > 0 && window < positions) {
    // Texts end where the window begins to matter: further on it is not computed.
    out["max_position_embeddings"] = std::max<std::int64_t>(window, 2);
  }
  keys.check_all();
  return out;
}

}  // namespace tessera
