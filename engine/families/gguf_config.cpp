// Keys: the gguf package's constants.py. Divisors of frequencies: its converter of Llama 3.
#include "engine/families/gguf_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/gguf_weights.h"
#include "engine/families/gguf_keys.h"
#include "engine/families/language.h"

namespace tessera {

namespace {

void read_gemma(GgufKeyReader& keys, Json& out);

struct Architecture {
  std::string_view name;
  std::string_view missing;    // empty = computed here
  std::string_view type = {};  // the model_type of such a folder; empty = the name
  // The same where it writes texts alone: without images all axes of a place are alike, as if there
  // was one.
  std::string_view alone = {};
  // Keys of a folder that say whether there are biases of attention, of the feed-forward part.
  bool attention_bias = true, ffn_bias = false;
  bool axes = false;  // places have three of them
  // Of architectures with windows that are computed: those and what else they have.
  void (*read)(GgufKeyReader& keys, Json& out) = nullptr;
};
constexpr std::array kArchitectures = {
    Architecture{.name = "llama", .missing = "", .ffn_bias = true},
    Architecture{.name = "qwen2", .missing = "", .attention_bias = false},
    Architecture{.name = "qwen2vl",
                 .missing = "",
                 .type = "qwen2_vl_text",
                 .alone = "qwen2",
                 .attention_bias = false,
                 .axes = true},
    Architecture{"qwen3", ""},
    Architecture{"gemma", "GELU in the feed-forward part, scaled embeddings"},
    Architecture{"gemma2",
                 "GELU in the feed-forward part, norms after attention, scaled embeddings, capped "
                 "logits, windows of every second layer"},
    Architecture{.name = "gemma3", .missing = "", .type = "gemma3_text", .read = read_gemma},
    Architecture{"phi3", "fused matrices"},
    Architecture{
        "clip", "a language model: this is an image encoder, for `caption -m MODEL --mmproj FILE`"},
};

// Keys of an architecture that change nothing here.
constexpr std::array kIdleOfText = {
    IdleGgufKey{"vocab_size", "the table of tokens has it"},
    IdleGgufKey{"tensor_data_layout", "describes the file"},
    IdleGgufKey{"rope.scaling.finetuned", "describes the model's training"},
    IdleGgufKey{"expert_used_count", "there are no experts"}};

const Architecture* find_architecture(std::string_view name) {
  const auto* const found = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                         [&](const Architecture& row) { return row.name == name; });
  return found == kArchitectures.end() ? nullptr : found;
}

const Architecture& known_architecture(const std::string& name, const std::string& file) {
  const std::string missing = missing_of_architecture(name);
  if (missing.empty()) return *find_architecture(name);
  std::string known;
  for (const Architecture& row : kArchitectures) {
    if (row.missing.empty()) known += (known.empty() ? "" : " or ") + std::string(row.name);
  }
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_GGUF_ARCHITECTURE",
               .file = file,
               .where = "key \"general.architecture\"",
               .expected = known,
               .found = name + ", for which is missing: " + missing});
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

Json rope_of(GgufKeyReader& keys, const Checkpoint& weights, std::int64_t head_dim,
             std::int64_t positions) {
  const std::string type = keys.text("rope.scaling.type").value_or("none");
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

// The pairs of a head that turn by time, row and column. A fourth entry of files is nobody's.
Json three_axes(GgufKeyReader& keys, const Json& rope, std::int64_t pairs) {
  constexpr std::string_view kKey = "rope.dimension_sections";
  if (!rope.is_null()) {
    keys.fail("rope.scaling.type", "none next to " + std::string(kKey),
              rope["rope_type"].get<std::string>());
  }
  std::vector<std::int64_t> parts =
      keys.integers(kKey, 0, pairs, 4).value_or(std::vector<std::int64_t>{});
  if (parts.size() == 4 && parts.back() == 0) parts.pop_back();
  std::int64_t sum = 0;
  for (const std::int64_t part : parts) sum += part;
  if (parts.size() != 3 || sum != pairs) {
    keys.fail(kKey, "three numbers that add up to " + std::to_string(pairs),
              std::to_string(parts.size()) + " of " + std::to_string(sum));
  }
  return {{"type", "mrope"}, {"mrope_section", parts}};
}

// Heads, and that they are as wide as this runtime has them.
std::int64_t read_heads(GgufKeyReader& keys, std::int64_t width, Json& out) {
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
void read_gemma(GgufKeyReader& keys, Json& out) {
  constexpr std::int64_t kEvery = 6, kLargest = 62;
  out["sliding_window"] = keys.wanted("attention.sliding_window", 2, std::int64_t{1} << 30);
  out["sliding_window_pattern"] =
      keys.integer("attention.sliding_window_pattern", 1, kMaxLayers).value_or(kEvery);
  out["rope_local_base_freq"] = keys.number("rope.freq_base_swa", 1.0, 1e9).value_or(10000.0);
  const bool largest = out["num_hidden_layers"] == kLargest;
  out["query_pre_attn_scalar"] = largest ? out["hidden_size"].get<std::int64_t>() /
                                               out["num_attention_heads"].get<std::int64_t>()
                                         : out["head_dim"].get<std::int64_t>();
}

// Texts end where the window begins to matter: further on it is not computed.
void end_at_window(GgufKeyReader& keys, std::int64_t positions, Json& out) {
  const std::int64_t window =
      keys.integer("attention.sliding_window", 0, std::int64_t{1} << 30).value_or(0);
  if (window > 0 && window < positions) {
    out["max_position_embeddings"] = std::max<std::int64_t>(window, 2);
  }
}

}  // namespace

std::string missing_of_architecture(std::string_view name) {
  const Architecture* const row = find_architecture(name);
  return row == nullptr ? "an architecture that nobody here knows" : std::string(row->missing);
}

Json gguf_config(const GgufFile& head, const Checkpoint& weights, const std::string& file,
                 GgufUse use, FolderAccount& account) {
  const std::string architecture = gguf_architecture(head, file);
  const Architecture& row = known_architecture(architecture, file);
  GgufKeyReader keys(head, architecture, file, "E_GGUF_MODEL");
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
  out["rms_norm_eps"] = keys.wanted_number("attention.layer_norm_rms_epsilon", 1e-12, 0.1);
  out["rope_theta"] = keys.number("rope.freq_base", 1.0, 1e9).value_or(10000.0);
  const bool alone = use == GgufUse::kTexts && !row.alone.empty();
  Json rope = rope_of(keys, weights, head_dim, positions);
  if (row.axes) {
    Json axes = three_axes(keys, rope, head_dim / 2);
    if (!alone) rope = std::move(axes);
  }
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
  out["model_type"] = alone ? row.alone : row.type.empty() ? row.name : row.type;
  if (row.attention_bias) {
    out["attention_bias"] = weights.tensors().contains("model.layers.0.self_attn.o_proj.bias");
  }
  if (row.ffn_bias) {
    out["mlp_bias"] = weights.tensors().contains("model.layers.0.mlp.down_proj.bias");
  }
  if (row.read != nullptr) {
    row.read(keys, out);
  } else {
    end_at_window(keys, positions, out);
  }
  keys.check_all(kIdleOfText);
  keys.account(kIdleOfText, account);
  return out;
}

}  // namespace tessera
