// T5's encoder in a folder: keys of config.json by transformers 5.24 (class T5Config), tensors by
// the names of T5EncoderModel, which are those of a whole T5ForConditionalGeneration as well.
#include "engine/families/text_encoder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/config_bytes.h"
#include "engine/core/io.h"
#include "engine/families/folder_pointers.h"
#include "engine/families/open_model.h"
#include "engine/families/t5_names.h"
#include "engine/towers/compare_tensors.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSharedTable = "shared.weight";
constexpr const char* kEncoderTable = "encoder.embed_tokens.weight";

// Keys of config.json that change nothing about the encoder; others are as in any folder.
constexpr std::string_view kOfDecoder = "of the decoder, which is not read";
constexpr KnownKey kEncoderKeys[] = {
    {"model_type", KeyUse::kUsed, "chooses the encoder"},
    {"num_decoder_layers", KeyUse::kWithoutEffect, kOfDecoder},
    {"decoder_start_token_id", KeyUse::kWithoutEffect, kOfDecoder},
    {"is_encoder_decoder", KeyUse::kWithoutEffect, kOfDecoder},
    {"is_decoder", KeyUse::kWithoutEffect, kOfDecoder},
    {"scale_decoder_outputs", KeyUse::kWithoutEffect, kOfDecoder},
    {"tie_word_embeddings", KeyUse::kWithoutEffect, kOfDecoder},
    {"dropout_rate", KeyUse::kWithoutEffect, "of training"},
    {"classifier_dropout", KeyUse::kWithoutEffect, "of training"},
    {"gradient_checkpointing", KeyUse::kWithoutEffect, "of training"},
    {"n_positions", KeyUse::kWithoutEffect, "distances have no end"},
    {"output_past", KeyUse::kWithoutEffect, "what the reference's calls return"},
    {"num_labels", KeyUse::kWithoutEffect, "no texts are classified"},
    {"pad_token_id", KeyUse::kWithoutEffect, "texts are not padded"},
    {"eos_token_id", KeyUse::kWithoutEffect, "the tokenizer ends texts"},
};

// Of both files that T5 folders have about texts they write.
void settle_account(const std::string& folder, FolderAccount& account) {
  const std::string config(folder_file_name(FolderFile::kConfig));
  for (KeyAccount& key : account.keys) {
    if (key.file == folder_file_name(FolderFile::kGeneration)) {
      key.use = KeyUse::kWithoutEffect;
      key.why = "an encoder writes no texts";
    } else if (key.file == config) {
      const KnownKey* row = find_known_key(kEncoderKeys, key.key);
      if (row != nullptr) {
        key.use = row->use;
        key.why = row->why;
      }
    }
    key.file = folder + "/" + key.file;
  }
}

// feed_forward_proj decides; what older files say besides must not differ.
bool read_gate(const JsonReader& config) {
  constexpr std::string_view kForms[] = {"relu", "gated-gelu"};
  const std::string form = config.has("feed_forward_proj")
                               ? config.choice("feed_forward_proj", kForms)
                               : std::string(kForms[0]);
  const bool gated = form == kForms[1];
  if (config.boolean_or("is_gated_act", gated) != gated) {
    config.fail("is_gated_act",
                gated ? "true, as feed_forward_proj" : "false, as feed_forward_proj",
                gated ? "false" : "true");
  }
  const std::string activation = gated ? "gelu_new" : "relu";
  const std::string said = config.string_or("dense_act_fn", activation);
  if (said != activation) {
    config.fail("dense_act_fn", "\"" + activation + "\", as feed_forward_proj", said);
  }
  return gated;
}

void check_width(const TextEncoderConfig& config, const JsonReader& reader, std::int64_t width,
                 const std::string& fitting) {
  if (width == 0 || config.width == width) return;
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_TEXT_ENCODER_WIDTH",
               .file = reader.file(),
               .where = "d_model",
               .expected = std::to_string(width) + ", which the model reads",
               .found = std::to_string(config.width),
               .hint = fitting.empty() ? "" : "what fits: " + fitting});
}

}  // namespace

TextEncoderConfig parse_text_encoder(const JsonReader& config) {
  constexpr std::string_view kTypes[] = {"t5"};
  config.choice("model_type", kTypes);
  TextEncoderConfig out;
  out.width = config.integer_or("d_model", 512, 1, 65536);
  out.head_dim = config.integer_or("d_kv", 64, 1, 4096);
  out.ffn_width = config.integer_or("d_ff", 2048, 1, std::int64_t{1} << 20);
  out.layers = config.integer_or("num_layers", 6, 1, 1024);
  out.heads = config.integer_or("num_heads", 8, 1, 1024);
  out.vocabulary = config.integer_or("vocab_size", 32128, 1, std::int64_t{1} << 22);
  out.buckets = config.integer_or("relative_attention_num_buckets", 32, 4, 4096);
  const std::int64_t nearest = out.buckets / 4 + 1;
  out.max_distance =
      config.integer_or("relative_attention_max_distance", std::max<std::int64_t>(nearest, 128),
                        nearest, std::int64_t{1} << 30);
  out.norm_eps = to_float(config.number_or("layer_norm_epsilon", 1e-6, 1e-12, 0.1));
  out.gated = read_gate(config);
  return out;
}

std::vector<TensorSpec> text_encoder_tensors(const TextEncoderConfig& config,
                                             const std::string& table) {
  const std::int64_t width = config.width, inner = config.inner_width();
  std::vector<TensorSpec> out = {{table, {config.vocabulary, width}},
                                 {kT5Distances, {config.buckets, config.heads}},
                                 {kT5Norm, {width}}};
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string block = t5_block(i), attention = block + "layer.0.SelfAttention.";
    for (const char* part : {"q", "k", "v"}) {
      out.push_back({attention + part + ".weight", {inner, width}});
    }
    out.push_back({attention + "o.weight", {width, inner}});
    const std::string dense = block + "layer.1.DenseReluDense.";
    if (config.gated) {
      out.push_back({dense + "wi_0.weight", {config.ffn_width, width}});
      out.push_back({dense + "wi_1.weight", {config.ffn_width, width}});
    } else {
      out.push_back({dense + "wi.weight", {config.ffn_width, width}});
    }
    out.push_back({dense + "wo.weight", {width, config.ffn_width}});
    out.push_back({block + "layer.0.layer_norm.weight", {width}});
    out.push_back({block + "layer.1.layer_norm.weight", {width}});
  }
  return out;
}

OpenedTextEncoder open_text_encoder(const fs::path& folder, std::int64_t width,
                                    const std::string& fitting) {
  const fs::path path = folder / folder_file_name(FolderFile::kConfig);
  if (!file_exists(path)) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TEXT_ENCODER",
                 .file = folder.string(),
                 .where = "text encoder",
                 .expected = "a folder with config.json, weights and tokenizer of a T5" +
                             (fitting.empty() ? "" : " (" + fitting + ")"),
                 .found = "no config.json there"});
  }
  refuse_pointers(folder);
  auto config = std::make_shared<const Json>(
      parse_json(read_file(path, kConfigBytes), path.string(), {.max_bytes = kConfigBytes}));
  FolderFiles files = FolderFiles::read(folder, std::move(config));
  const JsonReader reader = files.reader(FolderFile::kConfig);
  OpenedTextEncoder out;
  out.folder = folder;
  out.name = fs::absolute(folder).lexically_normal().filename().string();
  if (out.name.empty()) out.name = fs::absolute(folder).parent_path().filename().string();
  out.config = parse_text_encoder(reader);
  check_width(out.config, reader, width, fitting);
  out.title =
      "T5 encoder " + std::to_string(out.config.layers) + "x" + std::to_string(out.config.width);
  auto weights = std::make_shared<const Checkpoint>(Checkpoint::open(folder));
  // A whole T5 may have the one table twice.
  const bool shared = weights->find(kSharedTable) != nullptr;
  out.table = shared ? kSharedTable : kEncoderTable;
  out.tensors = text_encoder_tensors(out.config, out.table);
  const std::vector<std::string> others = {"decoder.*", "lm_head.*", kEncoderTable};
  compare_tensors({.tensors = out.tensors,
                   .of = "its configuration",
                   .optional = {},
                   .foreign = [&](const std::string& name) { return matches_any(others, name); },
                   .file = folder.string()},
                  *weights);
  const DType dtype = weights->find(t5_block(0) + "layer.0.SelfAttention.q.weight")->dtype;
  out.stored = dtype == DType::kBF16 ? dtype : DType::kF32;
  out.weights = std::move(weights);
  out.account = files.account(FolderHalf::kGenerating);
  settle_account(out.name, out.account);
  return out;
}

fs::path find_text_encoder(const fs::path& folder, std::span<const std::string> names) {
  if (folder.empty()) return {};
  for (const fs::path& parent : {folder, folder / ".."}) {
    for (const std::string& name : names) {
      if (file_exists(parent / name / folder_file_name(FolderFile::kConfig))) return parent / name;
    }
  }
  return {};
}

}  // namespace tessera
