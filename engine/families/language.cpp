// Llama (Touvron et al. 2023), Mistral, Qwen2, Qwen3, Gemma 3 (Gemma Team 2025), Emu3 and Chameleon
// as one thing: pre-norm blocks that differ in sizes, biases, norms, gates, windows and rotary frequencies.
#include "engine/families/language.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "engine/checkpoint/tensor_kinds.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

// Which layers attend to no more than the last sliding_window rows.
enum class WindowRule : std::uint8_t {
  kNotRead,   // the key is not read
  kAlways,    // all, 4096 rows where the key is absent
  kAskedFor,  // from max_window_layers on, or by layer_types, if use_sliding_window is set
  kPattern,   // by layer_types, or all but every sliding_window_pattern-th; computed as they are
};
constexpr std::int64_t kWindowRows = 4096;  // class default of all of them

// Which matrices have biases.
enum class BiasRule : std::uint8_t {
  kNever,
  kInputs,          // queries, keys and values, always
  kAskedAttention,  // those of attention, by attention_bias
  kAsked,           // the same, and the feed-forward part by mlp_bias
};

// What absent keys mean to the reference's class of a model_type.
struct LanguageDefaults {
  std::string_view type;
  std::int64_t hidden = 4096, layers = 32, heads = 32, kv_heads = 0, ffn = 11008, vocab = 32000;
  std::int64_t positions = 2048;
  std::int64_t head_dim = 0;  // 0 = hidden / heads
  BiasRule bias = BiasRule::kNever;
  bool head_norms = false;  // queries and keys are normalised, each head by itself
  // GELU in the gate, norms of what a part gives, which files keep less by 1, scaled rows of the
  // table, and logits of attention scaled by a key.
  bool gemma = false;
  double theta = 10000.0, eps = 1e-6;
  WindowRule window = WindowRule::kNotRead;
  std::int64_t max_window_layers = 28;  // kAskedFor
  bool three_axes = false;
  bool tied = false;
  std::int32_t end = 2;  // eos_token_id; kNoEnd = none
};
constexpr double kWindowTheta = 10000.0;   // kPattern: class default of layers with a window
constexpr std::int64_t kWindowEvery = 6;   // kPattern: of the layers without one
constexpr double kQueryScalar = 256.0;     // gemma
// The configurations of Qwen2-VL and Qwen2.5-VL, whole or their text halves, have the same
// defaults.
constexpr LanguageDefaults qwen_vl(std::string_view type) {
  return {.type = type,
          .hidden = 8192,
          .layers = 80,
          .heads = 64,
          .kv_heads = 8,
          .ffn = 29568,
          .vocab = 152064,
          .positions = 32768,
          .bias = BiasRule::kInputs,
          .theta = 1e6,
          .eps = 1e-5,
          .window = WindowRule::kAskedFor,
          .max_window_layers = 80,
          .three_axes = true,
          .end = 151645};
}

constexpr std::array<LanguageDefaults, 12> kDefaults = {{
    {.type = "llama", .bias = BiasRule::kAsked},
    {.type = "mistral",
     .kv_heads = 8,
     .ffn = 14336,
     .positions = 131072,
     .window = WindowRule::kAlways},
    {.type = "emu3_text_model",
     .kv_heads = 8,
     .ffn = 14336,
     .vocab = 184622,
     .positions = 9216,
     .bias = BiasRule::kAsked,
     .theta = 1e6,
     .eps = 1e-5,
     .end = 151850},
    {.type = "chameleon",
     .kv_heads = 32,
     .vocab = 65536,
     .positions = 4096,
     .bias = BiasRule::kAsked,
     .eps = 1e-5},
    {.type = "Emu3",
     .kv_heads = 8,
     .ffn = 14336,
     .vocab = 184622,
     .positions = 9216,
     .theta = 1e6,
     .eps = 1e-5},
    {.type = "qwen2",
     .kv_heads = 32,
     .ffn = 22016,
     .vocab = 151936,
     .positions = 32768,
     .bias = BiasRule::kInputs,
     .window = WindowRule::kAskedFor,
     .end = kNoEnd},
    {.type = "qwen3",
     .kv_heads = 32,
     .ffn = 22016,
     .vocab = 151936,
     .positions = 32768,
     .head_dim = 128,
     .bias = BiasRule::kAskedAttention,
     .head_norms = true,
     .window = WindowRule::kAskedFor,
     .end = kNoEnd},
    {.type = "gemma3_text",
     .hidden = 2304,
     .layers = 26,
     .heads = 8,
     .kv_heads = 4,
     .ffn = 9216,
     .vocab = 262208,
     .positions = 131072,
     .head_dim = 256,
     .bias = BiasRule::kAskedAttention,
     .head_norms = true,
     .gemma = true,
     .theta = 1e6,
     .window = WindowRule::kPattern,
     .tied = true,
     .end = 1},
    qwen_vl("qwen2_vl"),
    qwen_vl("qwen2_vl_text"),
    qwen_vl("qwen2_5_vl"),
    qwen_vl("qwen2_5_vl_text"),
}};

const LanguageDefaults& defaults_of(const JsonReader& text, std::span<const std::string_view> types,
                                    std::string_view given) {
  const std::string type =
      given.empty() ? text.string_or("model_type", std::string(types.front())) : std::string(given);
  const auto row = std::find_if(kDefaults.begin(), kDefaults.end(),
                                [&](const LanguageDefaults& d) { return d.type == type; });
  if (row != kDefaults.end() && std::find(types.begin(), types.end(), type) != types.end()) {
    return *row;
  }
  std::string list;
  for (const std::string_view name : types) {
    list += (list.empty() ? "\"" : ", \"") + std::string(name) + "\"";
  }
  text.fail("model_type", list, type);
}

void read_heads(const JsonReader& text, const LanguageDefaults& defaults, ModelConfig& model) {
  model.heads = text.integer_or("num_attention_heads", defaults.heads, 1, kMaxHeads);
  const bool own = defaults.kv_heads > 0 && !text.is_null("num_key_value_heads");
  const std::int64_t kv = own ? defaults.kv_heads : model.heads;
  model.kv_heads = text.integer_or("num_key_value_heads", kv, 1, kMaxHeads);
  if (model.heads % model.kv_heads != 0) {
    text.fail("num_key_value_heads", "a divisor of " + std::to_string(model.heads),
              std::to_string(model.kv_heads));
  }
  const bool stated = text.has("head_dim") || defaults.head_dim > 0;
  if (!stated && model.width % model.heads != 0) {
    text.fail("hidden_size", "a multiple of " + std::to_string(model.heads) + " heads",
              std::to_string(model.width));
  }
  // All heads together stay below 2^18, so that no derived size can leave 64 bits.
  const std::int64_t widest = std::min<std::int64_t>(4096, (std::int64_t{1} << 18) / model.heads);
  model.head_dim = text.integer_or(
      "head_dim", defaults.head_dim > 0 ? defaults.head_dim : model.width / model.heads, 2, widest);
  if (model.head_dim > widest) {
    text.fail(stated ? "head_dim" : "hidden_size",
              "heads of at most " + std::to_string(widest) + " elements",
              std::to_string(model.head_dim));
  }
  if (model.head_dim % 2 != 0) {
    text.fail(stated ? "head_dim" : "hidden_size", "an even head width",
              std::to_string(model.head_dim));
  }
}

// layer_types: whether each layer has a window; nothing without the key.
std::optional<std::vector<bool>> listed_windows(const JsonReader& text, std::int64_t layers) {
  if (!text.has("layer_types")) return std::nullopt;
  const std::vector<std::string> types = text.strings("layer_types", 1024);
  if (std::ssize(types) != layers) {
    text.fail("layer_types", "as many as layers, " + std::to_string(layers),
              std::to_string(types.size()));
  }
  std::vector<bool> out;
  for (const std::string& type : types) {
    if (type != "sliding_attention" && type != "full_attention") {
      text.fail("layer_types", "sliding_attention or full_attention", type);
    }
    out.push_back(type == "sliding_attention");
  }
  return out;
}

// The layers with a window, each to its number.
std::vector<bool> pattern_of(const JsonReader& text, std::int64_t layers) {
  if (auto listed = listed_windows(text, layers)) return *listed;
  std::vector<bool> out;
  const std::int64_t every =
      text.integer_or("sliding_window_pattern", kWindowEvery, 1, kMaxLayers);
  for (std::int64_t i = 0; i < layers; ++i) out.push_back((i + 1) % every != 0);
  return out;
}

void read_windows(const JsonReader& text, ModelConfig& model) {
  const std::vector<bool> windowed = pattern_of(text, model.layers);
  if (std::find(windowed.begin(), windowed.end(), true) == windowed.end()) return;
  if (text.is_null("sliding_window")) {
    text.fail("sliding_window", "a number, as layer_types has windows", "null");
  }
  model.windowed = windowed;
  model.window = text.integer_or("sliding_window", kWindowRows, 2, std::int64_t{1} << 30);
}

// What Gemma 3 does otherwise.
void read_gemma(const JsonReader& text, ModelConfig& model) {
  const std::string act = text.string_or("hidden_activation", "gelu_pytorch_tanh");
  if (act != "gelu_pytorch_tanh") text.fail("hidden_activation", "\"gelu_pytorch_tanh\"", act);
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (text.has(key)) text.fail(key, "null: caps of logits are not computed here", "a number");
  }
  if (text.boolean_or("use_bidirectional_attention", false)) {
    text.fail("use_bidirectional_attention", "false", "true");
  }
  model.gate = GateKind::kGeluTanh;
  model.result_norms = true;
  model.row_scale = to_float(std::sqrt(to_double(model.width)));
  model.query_scale =
      1.0 / std::sqrt(text.number_or("query_pre_attn_scalar", kQueryScalar, 1e-3, 1e6));
}

// Whether any layer has a window that is not computed.
bool has_window(const JsonReader& text, const LanguageDefaults& defaults, std::int64_t layers) {
  if (defaults.window == WindowRule::kPattern) return false;
  if (defaults.window != WindowRule::kAskedFor) return defaults.window == WindowRule::kAlways;
  const bool asked = text.boolean_or("use_sliding_window", false);
  if (const auto listed = listed_windows(text, layers)) {
    const bool any = std::find(listed->begin(), listed->end(), true) != listed->end();
    if (any && !asked) text.fail("use_sliding_window", "true, as layer_types has windows", "false");
    return any;
  }
  return asked &&
         text.integer_or("max_window_layers", defaults.max_window_layers, 0, kMaxLayers) < layers;
}

// A text that ends within the window is computed alike with and without it.
void end_at_window(const JsonReader& text, const LanguageDefaults& defaults, LanguageConfig& out) {
  if (!has_window(text, defaults, out.model.layers) || text.is_null("sliding_window")) return;
  const std::int64_t window =
      text.integer_or("sliding_window", kWindowRows, 2, std::int64_t{1} << 30);
  if (window >= out.max_positions) return;
  out.max_positions = window;
  out.limit = text.path_of("sliding_window");
}

void read_biases(const JsonReader& text, const LanguageDefaults& defaults, ModelConfig& model) {
  const BiasRule rule = defaults.bias;
  model.qkv_bias = rule == BiasRule::kInputs;
  if (rule != BiasRule::kAskedAttention && rule != BiasRule::kAsked) return;
  model.qkv_bias = model.out_bias = text.boolean_or("attention_bias", false);
  if (rule == BiasRule::kAsked) model.ffn_bias = text.boolean_or("mlp_bias", false);
}

}  // namespace

JsonReader sub_config(const JsonReader& parent, std::string_view key) {
  static const Json kEmpty = Json::object();
  if (parent.has(key)) return parent.object(key);
  return JsonReader(kEmpty, parent.file(), parent.path_of(key));
}

LanguageConfig parse_language(const JsonReader& text, std::span<const std::string_view> types,
                              std::string_view type) {
  const LanguageDefaults& defaults = defaults_of(text, types, type);
  LanguageConfig out;
  ModelConfig& model = out.model;
  if (!defaults.gemma) {
    const std::string act = text.string_or("hidden_act", "silu");
    if (act != "silu" && act != "swish") text.fail("hidden_act", "\"silu\"", act);
  }
  model.width = text.integer_or("hidden_size", defaults.hidden, 1, kMaxHidden);
  model.layers = text.integer_or("num_hidden_layers", defaults.layers, 1, kMaxLayers);
  read_heads(text, defaults, model);
  model.ffn_width = text.integer_or("intermediate_size", defaults.ffn, 1, kMaxFfn);
  model.norm_eps = to_float(text.number_or("rms_norm_eps", defaults.eps, 1e-12, 0.1));
  read_biases(text, defaults, model);
  model.qk_norm = defaults.head_norms;
  if (defaults.gemma) {
    read_gemma(text, model);
    out.norm_offset = 1.0f;
  }
  if (defaults.window == WindowRule::kPattern) read_windows(text, model);
  out.vocab = text.integer_or("vocab_size", defaults.vocab, 1, kMaxVocab);
  const std::int64_t positions =
      text.integer_or("max_position_embeddings", defaults.positions, 2, std::int64_t{1} << 24);
  out.max_positions = positions;
  end_at_window(text, defaults, out);
  read_rope(text,
            {.theta = defaults.theta,
             .window_theta = defaults.window == WindowRule::kPattern ? kWindowTheta : 0.0,
             .max_positions = positions,
             .three_axes = defaults.three_axes},
            out);
  out.tied = text.boolean_or("tie_word_embeddings", defaults.tied);
  out.end = defaults.end;
  return out;
}

void list_language(const ModelConfig& model, std::int64_t vocab, const std::string& root,
                   TensorList& list) {
  list.add(root + "embed_tokens.weight", {vocab, model.width});
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::string layer = root + "layers." + std::to_string(i) + ".";
    list.add(layer + "self_attn.q_proj.weight", {model.q_width(), model.width});
    list.add(layer + "self_attn.k_proj.weight", {model.kv_width(), model.width});
    list.add(layer + "self_attn.v_proj.weight", {model.kv_width(), model.width});
    if (model.qkv_bias) {
      list.add(layer + "self_attn.q_proj.bias", {model.q_width()});
      list.add(layer + "self_attn.k_proj.bias", {model.kv_width()});
      list.add(layer + "self_attn.v_proj.bias", {model.kv_width()});
    }
    if (model.qk_norm) {
      list.add(layer + "self_attn.q_norm.weight", {model.head_dim});
      list.add(layer + "self_attn.k_norm.weight", {model.head_dim});
    }
    list.add(layer + "self_attn.o_proj.weight", {model.width, model.q_width()});
    if (model.out_bias) list.add(layer + "self_attn.o_proj.bias", {model.width});
    list.add(layer + "mlp.gate_proj.weight", {model.ffn_width, model.width});
    list.add(layer + "mlp.up_proj.weight", {model.ffn_width, model.width});
    list.add(layer + "mlp.down_proj.weight", {model.width, model.ffn_width});
    if (model.ffn_bias) {
      list.add(layer + "mlp.gate_proj.bias", {model.ffn_width});
      list.add(layer + "mlp.up_proj.bias", {model.ffn_width});
      list.add(layer + "mlp.down_proj.bias", {model.width});
    }
    list.add(layer + "input_layernorm.weight", {model.width});
    list.add(layer + "post_attention_layernorm.weight", {model.width});
    if (model.result_norms) {
      list.add(layer + "pre_feedforward_layernorm.weight", {model.width});
      list.add(layer + "post_feedforward_layernorm.weight", {model.width});
    }
  }
  list.add(root + "norm.weight", {model.width});
}

WeightNames language_names(const ModelConfig& model, const std::string& root) {
  WeightNames names;
  names.layer_prefix = root + "layers.{}.";
  names.attention_norm = "input_layernorm.weight";
  names.ffn_norm = "post_attention_layernorm.weight";
  if (model.result_norms) {
    names.attention_result_norm = "post_attention_layernorm.weight";
    names.ffn_norm = "pre_feedforward_layernorm.weight";
    names.ffn_result_norm = "post_feedforward_layernorm.weight";
  }
  names.qkv = {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"};
  if (model.qkv_bias) {
    names.qkv_bias = {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"};
  }
  if (model.qk_norm) {
    names.q_norm = "self_attn.q_norm.weight";
    names.k_norm = "self_attn.k_norm.weight";
  }
  names.out = "self_attn.o_proj.weight";
  names.gate_up = {"mlp.gate_proj.weight", "mlp.up_proj.weight"};
  names.down = "mlp.down_proj.weight";
  if (model.out_bias) names.out_bias = "self_attn.o_proj.bias";
  if (model.ffn_bias) {
    names.gate_up_bias = {"mlp.gate_proj.bias", "mlp.up_proj.bias"};
    names.down_bias = "mlp.down_proj.bias";
  }
  names.final_norm = root + "norm.weight";
  names.prompt_table = root + "embed_tokens.weight";
  return names;
}

WeightNames text_names(const StreamModelConfig& model, const TextLayout& layout) {
  WeightNames names = language_names(model.transformer, layout.root);
  if (!model.tied_head) names.text_head = layout.head;
  return names;
}

std::vector<TensorSpec> text_tensors(const StreamModelConfig& model, const TextLayout& layout) {
  TensorList list;
  list_language(model.transformer, model.vocab, layout.root, list);
  if (!model.tied_head) list.add(layout.head, {model.vocab, model.transformer.width});
  return list.take();
}

void locate_text(std::vector<TextLayout>& layouts, const Checkpoint& checkpoint) {
  std::string looked_for;
  for (const TextLayout& layout : layouts) {
    const std::string table = layout.root + "embed_tokens.weight";
    if (checkpoint.tensors().contains(table)) {
      layouts = {TextLayout(layout)};
      return;
    }
    looked_for += (looked_for.empty() ? "" : " or ") + table;
  }
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_TEXT_LAYOUT",
               .file = checkpoint.tensors().empty()
                           ? std::string("weights")
                           : checkpoint.file_of(checkpoint.tensors().begin()->first),
               .expected = looked_for,
               .found = explained(checkpoint, "none of them")});
}

}  // namespace tessera
