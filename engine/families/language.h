// The language half of published checkpoints: Llama, Mistral, Qwen2, Qwen3, Gemma 3, Emu3 and Chameleon
// configurations, and the names and shapes of their tensors.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/json.h"
#include "engine/families/family.h"
#include "engine/model/stream_model.h"

namespace tessera {

// Bounds of what a configuration may ask for.
inline constexpr std::int64_t kMaxHidden = 65536;
inline constexpr std::int64_t kMaxHeads = 1024;
inline constexpr std::int64_t kMaxLayers = 1024;
inline constexpr std::int64_t kMaxFfn = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxVocab = std::int64_t{1} << 22;

inline constexpr std::int32_t kNoEnd = -1;

struct LanguageConfig {
  ModelConfig model;  // rope.positions, of both tables, is for the caller to set
  std::int64_t vocab = 0;
  // Of a text with its prompt: as trained, or fewer, up to which this runtime computes what the
  // reference does (`limit` names the key: a window of attention, short factors of LongRoPE).
  std::int64_t max_positions = 0;
  std::string limit;
  bool tied = false;
  float norm_offset = 0;  // norms in files are less by this
  std::int32_t end = kNoEnd;  // what an absent eos_token_id means
};

// What keys of a rotary embedding mean where they are absent.
struct RopeDefaults {
  double theta = 10000.0;
  double window_theta = 0.0;  // of layers with a window, which have their own; 0 = they do not
  std::int64_t max_positions = 2048;
  bool three_axes = false;  // mrope_section is read
};

// rope_theta with rope_scaling, or all of it in rope_parameters, into model.rope; model.head_dim is
// set. With a window_theta, rope_local_base_freq or rope_parameters' own object for layers with a
// window into model.window_rope. Lowers max_positions, and names the key in `limit`, where longer texts turn otherwise. Error
// kModel naming the key: an unknown kind, or numbers that make no sense.
void read_rope(const JsonReader& text, const RopeDefaults& defaults, LanguageConfig& out);

// `text` is a text_config, or a whole configuration that keeps these keys at its top. Absent keys
// are the defaults of the reference's class for its model_type, the first of `types` without one;
// `type`, if not empty, is the model_type whatever the file says.
// Error kModel for types that are not among these, and for what this runtime does not compute.
LanguageConfig parse_language(const JsonReader& text, std::span<const std::string_view> types,
                              std::string_view type = {});

// A sub-object, or one without keys (so that every field takes its class default) when absent.
JsonReader sub_config(const JsonReader& parent, std::string_view key);

// Table, layers and final norm under `root` ("model.", "language_model.model."); no head.
void list_language(const ModelConfig& model, std::int64_t vocab, const std::string& root,
                   TensorList& list);
WeightNames language_names(const ModelConfig& model, const std::string& root);

// The same of a model that writes text: with its head, if that is not the table.
WeightNames text_names(const StreamModelConfig& model, const TextLayout& layout);
std::vector<TensorSpec> text_tensors(const StreamModelConfig& model, const TextLayout& layout);

// Keeps the first layout of which the checkpoint has the embedding table. Error kModel
// (E_TEXT_LAYOUT) listing the names that were looked for.
void locate_text(std::vector<TextLayout>& layouts, const Checkpoint& checkpoint);

}  // namespace tessera
