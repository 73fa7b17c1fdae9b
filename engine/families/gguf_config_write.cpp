// The keys of a text model's configuration as GGUF files have them: gguf_config.cpp backwards.
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/families/gguf_config.h"
#include "engine/nn/rope_divisors.h"

namespace tessera {

namespace {

class ConfigWriter {
 public:
  ConfigWriter(const TextSpec& text, GgufKeys& keys)
      : text_(text), model_(text.model.model.transformer), keys_(keys) {}

  GgufConfigKeys run() {
    const std::string& type = text_.model.family;
    if (model_.result_norms || !model_.windowed.empty()) {
      refuse("model_type", "llama, mistral, qwen2 or qwen3", type);
    }
    out_.architecture = type == "qwen2" || type == "qwen3" ? type : "llama";
    const StreamModelConfig& stream = text_.model.model;
    count("context_length", stream.max_positions);
    if (!text_.limit.empty()) {
      out_.said.push_back("texts of at most " + std::to_string(stream.max_positions) +
                          " tokens: further on config.json's " + text_.limit +
                          " changes them, for which there is no key");
    }
    count("embedding_length", model_.width);
    count("block_count", model_.layers);
    count("feed_forward_length", model_.ffn_width);
    count("attention.head_count", model_.heads);
    count("attention.head_count_kv", model_.kv_heads);
    if (model_.head_dim * model_.heads != model_.width) {
      count("attention.key_length", model_.head_dim);
      count("attention.value_length", model_.head_dim);
    }
    keys_.f32(name("attention.layer_norm_rms_epsilon"), model_.norm_eps);
    count("vocab_size", stream.vocab);
    count("rope.dimension_count", model_.head_dim);
    number("rope.freq_base", model_.rope.theta, "rope_theta");
    write_stretch();
    return std::move(out_);
  }

 private:
  std::string name(const char* key) const { return out_.architecture + "." + key; }
  void count(const char* key, std::int64_t value) {
    keys_.u32(name(key), narrow<std::uint32_t>(value));
  }
  void number(const char* key, double value, const char* own) {
    const float kept = to_float(value);
    keys_.f32(name(key), kept);
    if (double{kept} == value) return;
    out_.said.push_back(std::string(own) + " is kept as " + Json(kept).dump() +
                        " (f32) in place of " + Json(value).dump());
  }

  [[noreturn]] void refuse(std::string where, std::string expected, std::string found) const {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_GGUF_MODEL",
                 .file = (text_.model.folder / "config.json").string(),
                 .where = std::move(where),
                 .expected = std::move(expected),
                 .found = std::move(found),
                 .hint = "it is not written to GGUF files; load the folder with --dtype"});
  }

  void write_stretch() {
    const RopeStretch& stretch = model_.rope.stretch;
    // Readers give YaRN its authors' scale, others none.
    const bool yarn = stretch.kind == RopeKind::kYarn;
    const double usual = yarn && stretch.factor > 1.0 ? 0.1 * std::log(stretch.factor) + 1.0 : 1.0;
    if (std::abs(stretch.scale - usual) > 1e-9) {
      refuse("rope_scaling.attention_factor", Json(usual).dump(), Json(stretch.scale).dump());
    }
    if (yarn && !stretch.whole) refuse("rope_scaling.truncate", "true", "false");
    switch (stretch.kind) {
      case RopeKind::kPlain:
        return;
      case RopeKind::kLlama3:
      case RopeKind::kDivided:
        out_.divisors = rope_divisors(model_.rope, model_.head_dim);
        return;
      case RopeKind::kLinear:
        keys_.text(name("rope.scaling.type"), "linear");
        return number("rope.scaling.factor", stretch.factor, "rope_scaling.factor");
      case RopeKind::kYarn:
        keys_.text(name("rope.scaling.type"), "yarn");
        number("rope.scaling.factor", stretch.factor, "rope_scaling.factor");
        count("rope.scaling.original_context_length", stretch.original);
        number("rope.scaling.yarn_beta_fast", stretch.fast, "rope_scaling.beta_fast");
        number("rope.scaling.yarn_beta_slow", stretch.slow, "rope_scaling.beta_slow");
        return;
    }
  }

  const TextSpec& text_;
  const ModelConfig& model_;
  GgufKeys& keys_;
  GgufConfigKeys out_;
};

}  // namespace

GgufConfigKeys write_gguf_config(const TextSpec& text, GgufKeys& keys) {
  return ConfigWriter(text, keys).run();
}

}  // namespace tessera
