// Helpers of the family files: names of layers, sizes, and a VQGAN's spec read off tensor shapes.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/families/family.h"
#include "engine/families/image_processor.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

std::string model_type(const Json& config) {
  const auto found = config.find("model_type");
  return found != config.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

std::string model_type(const ModelSource& source) {
  return source.config != nullptr ? model_type(*source.config) : std::string{};
}

std::string layer_name(const std::string& prefix, std::int64_t layer) {
  const std::size_t at = prefix.find("{}");
  expects(at != std::string::npos, "a layer prefix has a place for the number");
  return prefix.substr(0, at) + std::to_string(layer) + prefix.substr(at + 2);
}

std::int64_t layer_count(const Checkpoint& weights, std::string_view prefix) {
  std::int64_t count = 0;
  const auto& tensors = weights.tensors();
  for (auto it = tensors.lower_bound(prefix); it != tensors.end(); ++it) {
    const std::string_view name = it->first;
    if (!name.starts_with(prefix)) break;
    const std::string_view rest = name.substr(prefix.size());
    std::int64_t layer = -1;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    if (error == std::errc{} && layer >= 0 && layer < 1024) count = std::max(count, layer + 1);
  }
  return count;
}

std::string size_label(const ModelConfig& config) {
  return std::to_string(config.layers) + "x" + std::to_string(config.width);
}

std::string ContextSpec::encoder_list() const {
  std::string out;
  for (const std::string& name : encoders) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::int64_t ModelSpec::parameter_count() const {
  std::int64_t sum = 0;
  for (const TensorSpec& tensor : tensors) sum += tensor.shape.elements();
  return sum;
}

namespace {

// Reads one extent of a tensor within a range.
class ShapeReader {
 public:
  ShapeReader(const Checkpoint& checkpoint, std::string prefix)
      : checkpoint_(checkpoint), prefix_(std::move(prefix)) {}

  bool has(const std::string& name) const { return checkpoint_.find(prefix_ + name) != nullptr; }

  std::int64_t extent(const std::string& name, int axis, int rank, std::int64_t high) const {
    const ConstTensorView* view = checkpoint_.find(prefix_ + name);
    if (view == nullptr) fail(name, "this tensor of a VQ tokenizer", "nothing of that name");
    if (view->shape.rank() != rank) {
      fail(name, "rank " + std::to_string(rank), view->shape.to_string());
    }
    const std::int64_t value = view->shape[axis];
    if (value < 1 || value > high) {
      fail(name, "1 to " + std::to_string(high) + " along axis " + std::to_string(axis),
           std::to_string(value));
    }
    return value;
  }

  [[noreturn]] void fail(const std::string& name, std::string expected, std::string found) const {
    const std::string full = prefix_ + name;
    std::string file;
    if (has(name)) {
      file = checkpoint_.file_of(full);
    } else if (!checkpoint_.tensors().empty()) {
      file = checkpoint_.file_of(checkpoint_.tensors().begin()->first);
    }
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_VQ_SHAPE",
                 .file = file,
                 .where = full,
                 .expected = std::move(expected),
                 .found = std::move(found)});
  }

 private:
  const Checkpoint& checkpoint_;
  std::string prefix_;
};

// The name of a folder next to the model's own, never a way out of there.
std::string folder_name(const JsonReader& reader, std::string_view key) {
  const std::string name = reader.string_or(key, "");
  if (name.starts_with('.') || name.find_first_of(std::string_view("/\\\0", 3)) != name.npos) {
    reader.fail(key, "the name of a folder next to this one", name);
  }
  return name;
}

}  // namespace

JsonReader config_reader(const ModelSource& source) {
  return source.files->reader(FolderFile::kConfig, source.config_file);
}

JsonReader file_reader(const ModelSource& source, FolderFile file) {
  return source.files->reader(file);
}

void read_sampling(const ModelSource& source, const SamplingDefaults& defaults, ModelSpec& spec) {
  spec.sampling = defaults;
  const JsonReader reader = file_reader(source, FolderFile::kGeneration);
  SamplingDefaults& out = spec.sampling;
  const auto number = [&](std::string_view key, const Setting& row, double fallback) {
    return reader.number_or(key, fallback, row.low, row.high);
  };
  out.guidance = number("guidance_scale", setting::kGuidance, out.guidance);
  out.temperature = number("temperature", setting::kTemperature, out.temperature);
  out.top_p = number("top_p", setting::kTopP, out.top_p);
  out.top_k = reader.integer_or("top_k", out.top_k, 0, truncate<std::int64_t>(setting::kTopK.high));
  spec.draft_model = folder_name(reader, "draft_model");
}

void follow_do_sample(const ModelSource& source, ModelSpec& spec) {
  constexpr std::int64_t kAbsentTopK = 50;
  const JsonReader reader = file_reader(source, FolderFile::kGeneration);
  reader.integer_or("num_beams", 1, 1, 1);
  if (!reader.has("do_sample")) return;
  SamplingDefaults& out = spec.sampling;
  if (!reader.boolean_or("do_sample", true)) {
    out.temperature = 0;
    out.top_k = 0;
    out.top_p = 1;
    return;
  }
  if (!reader.has("top_k")) out.top_k = kAbsentTopK;
}

std::string named_token(const ModelSource& source, std::string_view role, std::string fallback) {
  const JsonReader config = file_reader(source, FolderFile::kTokenizerConfig);
  const bool listed =
      config.has("extra_special_tokens") && config.raw("extra_special_tokens").is_object();
  const JsonReader nested = listed ? config.object("extra_special_tokens") : config;
  for (const JsonReader& place : {config, nested}) {
    if (!place.has(role)) continue;
    return place.raw(role).is_object() ? place.object(role).string("content") : place.string(role);
  }
  return fallback;
}

void follow_levels(FolderFiles& files, std::span<const std::string_view> classes, ModelSpec& spec) {
  if (!has_image_processor(files)) return;
  spec.vq.pixels = PixelRule::kLevels;
  spec.vq.levels = read_pixel_levels(classes, files);
  if (!spec.movq) return;
  spec.movq->frame.pixels = spec.vq.pixels;
  spec.movq->frame.levels = spec.vq.levels;
}

VqSpec infer_vq_spec(const Checkpoint& checkpoint, const std::string& prefix, VqNames names) {
  constexpr std::int64_t kMaxChannels = 65536;
  const ShapeReader shapes(checkpoint, prefix);
  VqSpec vq;
  vq.names = names;
  vq.prefix = prefix;
  vq.base_channels = shapes.extent("encoder.conv_in.weight", 0, 4, kMaxChannels);
  vq.multipliers.clear();
  for (std::int64_t level = 0; level < 8; ++level) {
    const std::string conv = vq_res_name(vq, VqSide::kEncoder, level, 0) + ".conv1.weight";
    if (!shapes.has(conv)) break;
    const std::int64_t width = shapes.extent(conv, 0, 4, kMaxChannels);
    if (width % vq.base_channels != 0 || width % vq.norm_groups != 0) {
      shapes.fail(conv, "a multiple of " + std::to_string(vq.base_channels) + " and of 32 channels",
                  std::to_string(width));
    }
    vq.multipliers.push_back(width / vq.base_channels);
  }
  if (vq.multipliers.empty() || vq.base_channels % vq.norm_groups != 0) {
    shapes.fail("encoder.conv_in.weight", "an encoder with levels of whole groups of 32 channels",
                std::to_string(vq.base_channels) + " channels, " +
                    std::to_string(vq.multipliers.size()) + " levels");
  }
  vq.res_blocks = 0;
  while (vq.res_blocks < 16 &&
         shapes.has(vq_res_name(vq, VqSide::kEncoder, 0, vq.res_blocks) + ".conv1.weight")) {
    ++vq.res_blocks;
  }
  if (names != VqNames::kLlamaGen) {
    const std::int64_t last = std::ssize(vq.multipliers) - 1;
    const auto attends = [&](const std::string& name) { return shapes.has(name + ".q.weight"); };
    vq.attention_last_level = attends(vq_attention_name(vq, VqSide::kEncoder, last, 0));
    vq.attention_mid = attends(vq_mid_name(names, VqSide::kEncoder, 1));
  }
  vq.latent_channels = shapes.extent("encoder.conv_out.weight", 0, 4, kMaxChannels);
  vq.embed_dim = shapes.extent("quant_conv.weight", 0, 4, kMaxChannels);
  vq.codes = shapes.extent("quantize.embedding.weight", 0, 2, std::int64_t{1} << 20);
  return vq;
}

WeightNames original_names(const std::string& root) {
  WeightNames names;
  names.layer_prefix = root + "layers.{}.";
  names.attention_norm = "attention_norm.weight";
  names.ffn_norm = "ffn_norm.weight";
  names.qkv = {"attention.wq.weight", "attention.wk.weight", "attention.wv.weight"};
  names.out = "attention.wo.weight";
  names.gate_up = {"feed_forward.w1.weight", "feed_forward.w3.weight"};
  names.down = "feed_forward.w2.weight";
  names.final_norm = root + "norm.weight";
  names.head_out = root + "output";
  names.head_bias = false;
  return names;
}

}  // namespace tessera
