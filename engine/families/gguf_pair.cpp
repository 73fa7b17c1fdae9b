// From two files to the configuration that a folder of the same model would have, and from there on
// as for folders: sizes, preprocessing and prompts are the family's.
#include "engine/families/gguf_pair.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/checkpoint/gguf_weights.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/families/describe.h"
#include "engine/families/family.h"
#include "engine/families/gguf_config.h"
#include "engine/families/gguf_encoder.h"
#include "engine/families/language.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPairCode = "E_GGUF_PAIR";
constexpr std::string_view kImageEncoder = "clip";
constexpr std::string_view kPatch = "v.patch_embd.weight", kNextPatch = "v.patch_embd.weight.1";
// Where tensors stand that these files name or cut otherwise than an encoder is loaded by.
constexpr std::string_view kWholePatch = "v.patch", kProjectorNorm = "norm";

constexpr std::array kIdleOfImages = {
    IdleGgufKey{"has_llava_projector", "the projector's type says it"},
    IdleGgufKey{"has_qwen2vl_merger", "the projector's type says it"},
    IdleGgufKey{"vision.projection_dim", "the projector's tensors say it"},
    IdleGgufKey{"vision.feed_forward_length", "the tensors say it"},
    IdleGgufKey{"vision.image_size", "images have any size"},
    IdleGgufKey{"vision.image_crop_resolution", "a view has the size of the encoder's"},
    IdleGgufKey{"vision.image_split_resolution", "a view has the size of the encoder's"},
};

[[noreturn]] void refuse_pair(const std::string& file, std::string where, std::string expected,
                              std::string found, std::string hint = {}) {
  throw Error({.kind = ErrorKind::kModel,
               .code = kPairCode,
               .file = file,
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

std::string listed(const auto& names) {
  std::string out;
  for (const std::string_view name : names) out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

// One file of a pair, opened.
struct PairFile {
  std::string name;
  Checkpoint weights;
  std::string architecture;

  const GgufFile& head() const { return *weights.gguf(); }
};

PairFile open_half(const fs::path& path) {
  PairFile out{path.string(), Checkpoint::open(path), ""};
  if (out.weights.gguf() == nullptr) refuse_pair(out.name, "", "a GGUF file", "another one");
  out.name = gguf_parts(path).front().string();
  out.architecture = gguf_architecture(out.head(), out.name);
  return out;
}

constexpr const char* kArchitectureKey = "key \"general.architecture\"";

void check_model(const PairFile& model) {
  if (model.architecture != kImageEncoder) return;
  refuse_pair(model.name, kArchitectureKey, "a language model", "clip, an image encoder",
              "-m takes the language model's file, --mmproj this one");
}

void check_encoder(const PairFile& encoder) {
  if (encoder.architecture == kImageEncoder) return;
  refuse_pair(encoder.name, kArchitectureKey, "clip, an image encoder", encoder.architecture,
              "--mmproj takes the file that is made next to the language model's, mmproj-*.gguf");
}

// The file of an encoder for images alone.
void check_modes(GgufKeyReader& keys) {
  const auto expect = [&](std::string_view key, bool wanted, bool absent) {
    if (keys.boolean(key).value_or(absent) == wanted) return;
    keys.fail(key, wanted ? "true" : "false", wanted ? "false" : "true");
  };
  expect("has_vision_encoder", true, true);
  expect("has_text_encoder", false, false);
  expect("has_audio_encoder", false, false);
}

const GgufProjector& projector_of(GgufKeyReader& keys, const PairFile& model) {
  constexpr std::string_view kKey = "projector_type", kOfImages = "vision.projector_type";
  const std::optional<std::string> own = keys.text(kOfImages), any = keys.text(kKey);
  const std::string type = own ? *own : any.value_or("mlp");  // older files had no other
  for (const GgufProjector* row : gguf_projectors()) {
    if (row->type != type) continue;
    const auto& fits = row->architectures;
    if (std::find(fits.begin(), fits.end(), model.architecture) != fits.end()) return *row;
    keys.fail(own ? kOfImages : kKey,
              "a projector for " + model.architecture + ", the architecture of " + model.name,
              type + ", which is for " + listed(fits));
  }
  keys.fail(own ? kOfImages : kKey, "one of " + gguf_projector_types(), type);
}

// The width of what the projector writes, of the language model's.
void check_width(GgufKeyReader& keys, const PairFile& model, const PairFile& encoder,
                 const GgufProjector& row, const GgufEncoder& view) {
  const std::string width = std::to_string(view.text_width);
  const std::string said =
      width + ", as " + model.architecture + ".embedding_length of " + model.name + " says";
  // Older files have the width of CLIP's own projection there.
  const GgufValue* const kind = encoder.head().find("general.type");
  if (kind != nullptr && kind->text() == "mmproj") {
    constexpr std::string_view kKey = "vision.projection_dim";
    const auto found = keys.integer(kKey, 1, std::int64_t{1} << 24);
    if (found && *found != view.text_width) keys.fail(kKey, said, std::to_string(*found));
  }
  const std::string last = std::string(row.last) + ".weight";
  if (const std::int64_t rows = view.rows(last); rows != view.text_width) {
    refuse_pair(encoder.name, "tensor \"" + last + "\"", "rows: " + said, std::to_string(rows));
  }
}

// The names of an encoder's tensors in such a file. Converters disagree on which of the two
// matrices of a layer's second half is "up": their shapes tell.
TowerLayout layout_of(const PairFile& encoder, const VitSpec& vit, const GgufProjector& row) {
  TowerLayout out;
  VitNames& names = out.vit;
  names.prefix = "v.";
  names.patch = vit.frames > 1 ? kWholePatch.substr(2) : "patch_embd";
  names.class_token = "class_embd";
  names.positions = "position_embd.weight";
  names.first_norm = "pre_ln";
  names.final_norm = "post_ln";
  names.layer = "blk.{}.";
  names.norm1 = "ln1";
  names.norm2 = "ln2";
  names.qkv = {"attn_q", "attn_k", "attn_v"};
  if (encoder.weights.tensors().contains("v.blk.0.attn_qkv.weight")) names.qkv = {"attn_qkv"};
  names.out = "attn_out";
  names.mlp_in = {"ffn_up"};
  names.mlp_out = "ffn_down";
  const auto up = encoder.weights.tensors().find("v.blk.0.ffn_up.weight");
  const bool told = vit.mlp_width != vit.width && up != encoder.weights.tensors().end() &&
                    up->second.shape.rank() == 2;
  const bool older = encoder.head().find("clip.has_text_encoder") != nullptr;
  if (told ? up->second.shape == Shape{vit.width, vit.mlp_width} : older) {
    std::swap(names.mlp_in.front(), names.mlp_out);
  }
  if (vit.gated()) names.mlp_in.insert(names.mlp_in.begin(), "ffn_gate");
  out.projector_prefix = "mm.";
  for (const std::string_view layer : row.layers) out.projector_layers.emplace_back(layer);
  return out;
}

Tensor copy_of(const Checkpoint& weights, std::string_view name, const Shape& shape) {
  const ConstTensorView* const view = weights.find(name);
  expects(view != nullptr, "the tensor was looked up");
  Tensor out = Tensor::host(DType::kF32, shape);
  read_numbers(*view, 0, 1, view->shape.elements(), out.view().f32());
  return out;
}

// Patches of two frames, one tensor a frame, as one: [C, 3, frame, P, P].
Tensor whole_patch(const PairFile& encoder, const VitSpec& vit) {
  const Shape frame{vit.width, 3, vit.patch, vit.patch};
  std::array<Tensor, 2> frames;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string_view name = i == 0 ? kPatch : kNextPatch;
    const auto found = encoder.weights.tensors().find(name);
    if (found == encoder.weights.tensors().end() || found->second.shape != frame) {
      refuse_pair(encoder.name, "tensor \"" + std::string(name) + "\"", frame.to_string(),
                  found == encoder.weights.tensors().end() ? "no such tensor"
                                                           : found->second.shape.to_string());
    }
    frames[i] = copy_of(encoder.weights, name, frame);
  }
  Tensor out = Tensor::host(DType::kF32, Shape{vit.width, 3, 2, vit.patch, vit.patch});
  const std::int64_t plane = vit.patch * vit.patch;
  float* to = out.view().f32();
  for (std::int64_t i = 0; i < vit.width * 3; ++i) {
    for (const Tensor& one : frames) {
      std::copy_n(one.view().f32() + i * plane, plane, to);
      to += plane;
    }
  }
  return out;
}

// Copies of the tensors that stand under another name or in parts; what they were made of is
// ignored.
std::map<std::string, Tensor> moved_tensors(const PairFile& encoder, const GgufProjector& row,
                                            DescribeSpec& describe) {
  VisionTower& tower = describe.tower;
  std::map<std::string, Tensor> out;
  const auto move = [&](const std::string& from, std::string to) {
    const auto found = encoder.weights.tensors().find(from);
    if (found == encoder.weights.tensors().end()) return;
    out.emplace(std::move(to), copy_of(encoder.weights, from, found->second.shape));
    tower.ignored.push_back(from.substr(2));  // after "v."
  };
  if (tower.vit.frames == 2) {
    out.emplace(std::string(kWholePatch) + ".weight", whole_patch(encoder, tower.vit));
    for (const std::string_view part : {kPatch, kNextPatch}) {
      tower.ignored.emplace_back(part.substr(2));
    }
  }
  if (!row.norm.empty()) {
    for (const char* leaf : {".weight", ".bias"}) {
      move(std::string(row.norm) + leaf, "mm." + std::string(kProjectorNorm) + leaf);
    }
  }
  if (!describe.newline_name.empty()) move("v.image_newline", describe.newline_name);
  return out;
}

// Tensors that neither half knows would be another model's.
void check_surplus(const PairFile& file, const std::set<std::string_view>& known,
                   std::initializer_list<std::string_view> prefixes) {
  for (const auto& [name, view] : file.weights.tensors()) {
    const bool checked = std::any_of(prefixes.begin(), prefixes.end(),
                                     [&own = name](std::string_view one) { return own.starts_with(one); });
    if (checked || known.contains(name)) continue;
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TENSORS",
                 .file = file.name,
                 .where = name,
                 .expected = "the tensors of its configuration",
                 .found = "a surplus one"});
  }
}

std::shared_ptr<const Json> config_of(const GgufProjector& row, GgufEncoder& view, Json text,
                                      Json& processor) {
  Json config = Json::object();
  processor = Json::object();
  row.read(view, config, processor);
  config["tie_word_embeddings"] = text["tie_word_embeddings"];
  if (config.contains("text_config")) text.update(config["text_config"]);
  config["text_config"] = std::move(text);
  const std::int64_t id = row.token.empty() ? view.token("<image>") : view.token(row.token);
  if (id < 0 && !row.token.empty()) {
    refuse_pair(view.keys.file(), "key \"clip.projector_type\"",
                "a language model whose tokens hold " + std::string(row.token),
                "none in the other file", "the two files are of different models");
  }
  if (id >= 0) config["image_token_id"] = id;
  return std::make_shared<const Json>(std::move(config));
}

}  // namespace

std::string gguf_projector_types() {
  std::vector<std::string_view> types;
  for (const GgufProjector* row : gguf_projectors()) types.push_back(row->type);
  return listed(types);
}

void check_gguf_model(const fs::path& model) { check_model(open_half(model)); }

OpenedModel open_gguf_pair(const fs::path& model_path, const fs::path& encoder_path,
                           FolderAccount& account) {
  PairFile model = open_half(model_path), encoder = open_half(encoder_path);
  check_model(model);
  check_encoder(encoder);
  Json text = gguf_config(model.head(), model.weights, model.name, GgufUse::kPair, account);
  GgufKeyReader keys(encoder.head(), std::string(kImageEncoder), encoder.name, kPairCode);
  check_modes(keys);
  const GgufProjector& row = projector_of(keys, model);
  GgufEncoder view{keys, encoder.weights, model.head(), text["hidden_size"].get<std::int64_t>()};
  check_width(keys, model, encoder, row, view);
  Json processor;
  const auto config = config_of(row, view, std::move(text), processor);
  keys.check_all(kIdleOfImages);
  keys.account(kIdleOfImages, account);
  account_other_keys(encoder.head(), std::array{kImageEncoder}, encoder.name, account);

  ModelSpec spec = parse_describing_config(config, std::optional<Json>(std::in_place, processor),
                                           std::nullopt, encoder.name);
  DescribeSpec& describe = *spec.describe;
  VisionTower& tower = describe.tower;
  if (!config->contains("image_token_id")) {
    describe.image_id = narrow<std::int32_t>(spec.model.vocab);  // prompts go around images
  }
  if (!row.video_token.empty()) {
    describe.video_id = narrow<std::int32_t>(view.token(row.video_token));
  }
  if (tower.vit.final_norm == VitFinalNorm::kUnused && !view.has("v.post_ln.weight")) {
    tower.vit.final_norm = VitFinalNorm::kNone;  // converters leave it out
  }
  if (!row.norm.empty()) tower.projector.norm = kProjectorNorm;
  if (!row.placeholder.empty()) tower.ignored.emplace_back(row.placeholder);
  tower.layouts = {layout_of(encoder, tower.vit, row)};
  std::map<std::string, Tensor> moved = moved_tensors(encoder, row, describe);
  spec.layouts = {{"model.", "lm_head.weight"}};

  std::set<std::string_view> known = {kGgufFrequencies};
  const std::vector<TensorSpec> texts = text_tensors(spec.model, spec.layouts.front());
  for (const TensorSpec& tensor : texts) known.insert(tensor.name);
  known.insert(spec.layouts.front().head);
  check_surplus(model, known, {});
  const std::string newline = "model." + describe.newline_name;
  check_surplus(encoder, {newline}, {"v.", "mm."});

  OpenedModel out;
  model.weights.add(std::move(encoder.weights));
  if (!moved.empty()) {
    model.weights.add(Checkpoint::from_tensors(encoder.name, std::move(moved)));
  }
  spec.folder = model.name;  // in messages about texts
  settle_describing(spec, model.weights);
  spec.folder.clear();
  spec.tokenizer.clear();
  spec.weights = model_path;
  spec.licence = gguf_licence(model.head());
  out.weights = std::make_shared<const Checkpoint>(std::move(model.weights));
  out.vq_weights = out.weights;
  out.source = source_of(out.weights);
  out.spec = std::move(spec);
  return out;
}

}  // namespace tessera
