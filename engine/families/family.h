// What the registry and the family files share: the opened folder a family looks at, and the checks
// that several families need.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/json.h"
#include "engine/families/folder_files.h"
#include "engine/families/gguf_encoder.h"
#include "engine/families/model_spec.h"
#include "engine/families/registry.h"

namespace tessera {

// Image codes of any model.
inline constexpr std::int64_t kMaxCodes = std::int64_t{1} << 20;

// A model as found on disk, before anyone knows its family.
struct ModelSource {
  std::filesystem::path folder;  // of config and weights; may be empty
  std::filesystem::path file;    // the weight file when one was named, else empty
  const Json* config = nullptr;  // config.json, if there is one
  std::string config_file;       // its name in messages
  FolderFiles* files = nullptr;  // of the folder; of its config.json alone for config_only
  bool config_only = false;      // parse_family_config: there are no weights to look at
  FamilyOptions options;
};

// TextLayout in static storage.
struct LayoutNames {
  std::string_view root, head;
};

// Preprocessing as published; sizes and constants of a folder's files come on top.
using PolicyMaker = PreprocessPolicy (*)();

// image_id of a Describer whose models' tokenizers have no token for an image: prompts are encoded
// in the pieces around images, and the id beyond the vocabulary stands for a visual token.
inline constexpr std::int64_t kNoToken = -2;

// A token by its role in tokenizer_config.json.
struct FixedToken {
  std::string_view role, token;
};

// How models of one model_type describe images: what their configuration does not say.
struct Describer {
  std::string_view type;  // model_type
  // Configurations of this row have this key, and name their encoder by it; before other rows of
  // the type. Empty = they have a vision_config.
  std::string_view key;
  // And none has this key; empty = any.
  std::string_view without;
  // And this is true of it; null = of any.
  bool (*fits)(const JsonReader& config) = nullptr;
  // Other weights of the same configuration generate: asked for both, such a model generates.
  bool apart = false;
  // The text is what the family's parse() makes of it, for ModelUse::kDescribe; else that of a
  // plain language model under `layouts`.
  bool own_text = false;
  std::string_view title;  // empty = its image encoder is known, nothing is described with it
  // From the whole config.json; finish_tower() follows.
  VisionTower (*tower)(const JsonReader& config) = nullptr;
  std::string_view text_key;  // of the language model's keys; empty = "text_config", or at the top
  std::span<const std::string_view> languages;  // its model_types
  std::string_view language;  // its model_type, where the configuration does not say; or empty
  std::span<const LayoutNames> layouts;
  PolicyMaker policy = nullptr;
  // Classes of image processors that its folders name; the first where they name none. Empty: its
  // folders' processor files are not followed.
  std::span<const std::string_view> processors;
  std::string_view size_key;  // of image_size within vision_config; empty = at its top
  FrameSampling video_frames = {.rule = FrameRule::kRate};
  std::span<const ChatChoice> chats;
  std::string_view image_key;  // of the placeholder's id, next to image_token_id
  std::int64_t image_id = -1;  // the class default; -1 = by token
  std::string_view image_token;
  // Tokens of the chat form that the tokenizer's files may name, and may not name otherwise.
  std::span<const FixedToken> fixed_tokens;
  // The processor's key that counts the tokens of an image, and what it means where absent.
  std::string_view count_key = {};
  std::int64_t default_count = 0;
  HeadTie head_tie = HeadTie::kEither;
  // generation_config.json's guidance_scale is of the images that the model generates.
  bool guides_images = false;
  // Tokens that the processor adds to the tokenizer again, as special ones and without flags.
  std::span<const std::string_view> tokens_again;
  std::int64_t video_id = -1;  // the class default; -1 = videos are shown as images
  // What ends texts where no file names an id; empty = the class default of its language.
  std::string_view end_token;
  // Releases without config.json: the image half, of what parse() made of their text; the keys above
  // that speak of configurations are not read. Null = there are none.
  void (*release)(const ModelSpec& text, DescribeSpec& spec) = nullptr;
  // What the type does in its own way, after all else was read; null = nothing.
  void (*finish)(const JsonReader& config, DescribeSpec& spec) = nullptr;
};

// A model_type that looks like the family's and is not read, with what a person can do.
struct UnreadType {
  std::string_view type, hint;
};

// A row of the table in registry.cpp, one a family file.
struct Family {
  std::string_view name;
  // Whether the source generates images as this family, and how; null = it does not.
  bool (*detect)(const ModelSource& source) = nullptr;
  ModelSpec (*parse)(const ModelSource& source) = nullptr;
  std::span<const Describer> describers;
  // By name for tools and tests; those that folders use are in the describers.
  std::span<const PolicyMaker> policies;
  std::span<const ChatForm> forms;  // those of published templates
  std::span<const UnreadType> unread;
  std::span<const GgufProjector> projectors;  // its encoders in GGUF files
};

// Of all families.
std::vector<const GgufProjector*> gguf_projectors();

// model_type of the configuration, or nothing.
std::string model_type(const Json& config);
std::string model_type(const ModelSource& source);

// Collects the expected tensors of a model.
class TensorList {
 public:
  void add(std::string name, std::initializer_list<std::int64_t> shape) {
    tensors_.push_back({std::move(name), Shape(shape)});
  }
  // name.weight [out, in] and name.bias [out]
  void linear(const std::string& name, std::int64_t out, std::int64_t in) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {out});
  }
  void norm(const std::string& name, std::int64_t width) {
    add(name + ".weight", {width});
    add(name + ".bias", {width});
  }
  void append(std::vector<TensorSpec> more) {
    for (TensorSpec& tensor : more) tensors_.push_back(std::move(tensor));
  }
  std::vector<TensorSpec> take() { return std::move(tensors_); }

 private:
  std::vector<TensorSpec> tensors_;
};

// The learned positions of a model of blocks, [1, positions, D].
inline constexpr const char* kNbpPositions = "transformer.pos_emb";

// Names of a Llama as its authors' code has them, under `root`: norms, matrices, head; no tables.
WeightNames original_names(const std::string& root);

// One layer's name: `{}` of the prefix replaced by the number.
std::string layer_name(const std::string& prefix, std::int64_t layer);

// The spec of a VQGAN read off names and shapes of its tensors. Under LlamaGen's names blocks attend as
// published. Error kModel naming the tensor that is missing or impossible.
VqSpec infer_vq_spec(const Checkpoint& checkpoint, const std::string& prefix,
                     VqNames names = VqNames::kLlamaGen);

// Emu3's video tokenizer by its configuration, in the port's or the authors' keys; its names follow
// `layout`. Batch norms' counters, which hold no weights, in movq_counters().
MovqSpec parse_movq(const JsonReader& config, MovqNames layout);
std::vector<std::string> movq_counters(const MovqSpec& spec);

// Cosmos' video tokenizer by the authors' keys (channels, channels_mult, levels ...).
FsqVideoSpec parse_fsq_video(const JsonReader& config);

// One more than the highest number after `prefix` ("layers.") in any name, so that a tensor
// missing from a layer is found missing rather than counted as a shorter model.
std::int64_t layer_count(const Checkpoint& weights, std::string_view prefix);

// The whole config.json, which there is.
JsonReader config_reader(const ModelSource& source);
// The other files of the folder; objects without keys where they are absent.
JsonReader file_reader(const ModelSource& source, FolderFile file);

// guidance_scale, temperature, top_k, top_p and draft_model of generation_config.json, where given.
void read_sampling(const ModelSource& source, const SamplingDefaults& defaults, ModelSpec& spec);
// The same file as transformers' generate() takes it for images: do_sample comes first, an absent
// top_k of a sampling file is 50. Without do_sample nothing changes.
void follow_do_sample(const ModelSource& source, ModelSpec& spec);

// A token by its role ("boi_token"), as tokenizer_config.json names it; releases differ in where.
std::string named_token(const ModelSource& source, std::string_view role, std::string fallback);
// The levels of pixels by the image processor of these files, if they have one.
void follow_levels(FolderFiles& files, std::span<const std::string_view> classes, ModelSpec& spec);

// "24x2048": layers x width, for models that are no published size.
std::string size_label(const ModelConfig& config);

}  // namespace tessera
