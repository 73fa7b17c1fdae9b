// The scorer's configuration, its convolutions through engine/nn, and its small heads on the host.
#include "apps/lab/scorer/scorer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/checked_weight.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/json.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 16;
constexpr std::string_view kModelType = "tabletop-judge";

// A file that sorts its labels in another way would be read wrongly without a sound.
void check_labels(const JsonReader& labels, std::string_view key,
                  std::span<const std::string_view> words) {
  const std::vector<std::string> found = labels.strings(key, 64);
  std::string list;
  for (const std::string_view word : words) list += (list.empty() ? "" : ", ") + std::string(word);
  if (!std::equal(found.begin(), found.end(), words.begin(), words.end())) {
    std::string other;
    for (const std::string& word : found) other += (other.empty() ? "" : ", ") + word;
    labels.fail(key, list, other);
  }
}

std::vector<ScorerHead> expected_heads() {
  std::vector<ScorerHead> heads = {{"count", kMaxSolids}, {"floor", kFloorKinds}};
  for (int slot = 1; slot <= kMaxSolids; ++slot) {
    const std::string number = "_" + std::to_string(slot);
    heads.push_back({"kind" + number, kSolidKinds});
    heads.push_back({"colour" + number, kSolidColours});
    heads.push_back({"size" + number, kSolidSizes});
    heads.push_back({"material" + number, kSolidMaterials});
  }
  return heads;
}

// Weights of a checkpoint, released page by page.
class CheckedSource final : public WeightSource {
 public:
  explicit CheckedSource(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  ConstTensorView get(const std::string& name, const Shape& shape) override {
    return checked_weight(checkpoint_, name, shape);
  }
  void done(const std::string& name) override { checkpoint_.release(name); }

 private:
  const Checkpoint& checkpoint_;
};

ConvStack load_body(Backend& backend, const ScorerConfig& config, const Checkpoint& checkpoint) {
  CheckedSource source(checkpoint);
  return {backend, scorer_steps(config), source, DType::kF32, config.norm};
}

// Bytes to [-1, 1], whole blocks of pixels averaged when the image is larger than the scorer's.
Tensor scorer_input(const Image& image, std::int64_t side) {
  expects(image.width == image.height && image.width >= side && image.width % side == 0,
          "the scorer reads square images of a multiple of its size");
  const std::int64_t block = image.width / side;
  Tensor out = Tensor::host(DType::kF32, {side, side, 3});
  for (std::int64_t y = 0; y < side; ++y) {
    for (std::int64_t x = 0; x < side; ++x) {
      for (std::int64_t channel = 0; channel < 3; ++channel) {
        std::int64_t sum = 0;
        for (std::int64_t i = 0; i < block * block; ++i) {
          sum += image.at(x * block + i % block, y * block + i / block)[channel];
        }
        const float mean = to_float(sum) / to_float(block * block);
        out.f32()[(y * side + x) * 3 + channel] = mean / 127.5f - 1.0f;
      }
    }
  }
  return out;
}

}  // namespace

ScorerConfig parse_scorer_config(std::string_view json, const std::string& file) {
  const Json document = parse_json(json, file);
  const JsonReader reader(document, file);
  static constexpr std::array<std::string_view, 1> kTypes = {kModelType};
  reader.choice("model_type", kTypes);
  ScorerConfig config;
  config.image_size = reader.integer("image_size", 16, 1024);
  config.base_channels = reader.integer("base_channels", 32, 512);
  config.multipliers = reader.integers("channel_multiplier", 1, 16, 6);
  config.res_blocks = reader.integer("num_res_blocks", 1, 8);
  config.norm.groups = narrow<int>(reader.integer_or("norm_groups", 32, 1, 32));
  config.norm.eps = to_float(reader.number_or("norm_eps", 1e-6, 1e-9, 1e-2));
  if (config.multipliers.empty()) reader.fail("channel_multiplier", "1 to 6 numbers", "none");
  if (config.base_channels % config.norm.groups != 0) {
    reader.fail("base_channels", "a multiple of norm_groups", std::to_string(config.base_channels));
  }
  if (config.image_size % (std::int64_t{1} << (config.multipliers.size() - 1)) != 0) {
    reader.fail("image_size", "a size that halves between the levels",
                std::to_string(config.image_size));
  }
  const JsonReader labels = reader.object("labels");
  check_labels(labels, "floor", floor_names());
  check_labels(labels, "kind", kind_names());
  check_labels(labels, "colour", colour_names());
  check_labels(labels, "size", size_names());
  check_labels(labels, "material", material_names());
  config.heads = expected_heads();
  const JsonReader heads = reader.object("heads");
  for (const ScorerHead& head : config.heads) heads.integer(head.name, head.classes, head.classes);
  return config;
}

std::vector<ConvStep> scorer_steps(const ScorerConfig& config) {
  std::vector<ConvStep> steps;
  int width = 3;
  const auto add = [&](ConvStepKind kind, std::string name, std::int64_t out) {
    steps.push_back({kind, std::move(name), width, narrow<int>(out)});
    width = narrow<int>(out);
  };
  add(ConvStepKind::kConv3, "conv_in", config.base_channels);
  const std::size_t levels = config.multipliers.size();
  for (std::size_t level = 0; level < levels; ++level) {
    const std::string prefix = "down." + std::to_string(level);
    for (std::int64_t j = 0; j < config.res_blocks; ++j) {
      add(ConvStepKind::kRes, prefix + ".block." + std::to_string(j),
          config.base_channels * config.multipliers[level]);
      if (level + 1 == levels) {
        add(ConvStepKind::kAttention, prefix + ".attn." + std::to_string(j), width);
      }
    }
    if (level + 1 < levels) add(ConvStepKind::kDown, prefix + ".downsample.conv", width);
  }
  add(ConvStepKind::kNorm, "norm_out", width);
  return steps;
}

bool is_scorer_folder(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  if (!file_exists(file)) return false;
  try {
    const Json config = parse_json(read_file(file, kMaxConfigBytes), file.string());
    const auto type = config.is_object() ? config.find("model_type") : config.end();
    return type != config.end() && type->is_string() && type->get<std::string>() == kModelType;
  } catch (const Error&) {  // whoever opens it says what is wrong with it
    return false;
  }
}

Scorer Scorer::open(Backend& backend, const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  const ScorerConfig config = parse_scorer_config(read_file(file, kMaxConfigBytes), file.string());
  const Checkpoint weights = Checkpoint::open(folder / "model.safetensors");
  Scorer scorer(backend, config, weights);
  weights.verify_unchanged();
  return scorer;
}

Scorer::Scorer(Backend& backend, const ScorerConfig& config, const Checkpoint& checkpoint)
    : backend_(backend), config_(config), body_(load_body(backend, config, checkpoint)) {
  for (const ScorerHead& head : config_.heads) {
    const std::string stem = "head." + head.name;
    heads_.push_back({widened(checked_weight(checkpoint, stem + ".weight",
                                             {head.classes, config_.feature_count()})),
                      widened(checked_weight(checkpoint, stem + ".bias", {head.classes}))});
  }
}

std::vector<float> Scorer::features(const Image& image) const {
  const auto side = narrow<int>(config_.image_size);
  const Tensor host = scorer_input(image, config_.image_size);
  Tensor input = backend_.allocate(DType::kF32, host.shape());
  backend_.upload(host.view(), input.view());
  FeatureArena arena(backend_, conv_scratch(backend_, body_.steps(), side, side).arena);
  const TensorView map = body_.run(backend_, arena, input.view());
  Tensor normed = Tensor::host(DType::kF32, map.shape);
  backend_.download(map, normed.view());
  backend_.synchronize();

  const std::int64_t rows = map.shape[0];
  const std::int64_t columns = map.shape[1];
  const std::int64_t channels = map.shape[2];
  std::vector<float> pooled(to_size(channels * columns));
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t x = 0; x < columns; ++x) {
      float sum = 0.0f;
      for (std::int64_t y = 0; y < rows; ++y) {
        const float v = normed.f32()[(y * columns + x) * channels + c];
        sum += v / (1.0f + std::exp(-v));
      }
      nth(pooled, c * columns + x) = sum / to_float(rows);
    }
  }
  return pooled;
}

std::vector<float> Scorer::logits(const Image& image) const {
  const std::vector<float> x = features(image);
  std::vector<float> out;
  for (const Head& head : heads_) {
    for (std::int64_t row = 0; row < head.bias.shape()[0]; ++row) {
      const float* weight = head.weight.f32() + row * std::ssize(x);
      float sum = head.bias.f32()[row];
      for (std::size_t i = 0; i < x.size(); ++i) sum += weight[i] * x[i];
      out.push_back(sum);
    }
  }
  return out;
}

SceneAttributes Scorer::read(const Image& image) const {
  const std::vector<float> values = logits(image);
  std::size_t at = 0;
  std::size_t head = 0;
  const auto next = [&] {
    const auto begin = values.begin() + to_index(at);
    const auto end = begin + config_.heads[head++].classes;
    at = to_size(end - values.begin());
    return std::max_element(begin, end) - begin;
  };
  const auto count = to_size(next() + 1);
  SceneAttributes seen{.floor = static_cast<FloorKind>(next()), .solids = {}};
  for (std::size_t slot = 0; slot < count; ++slot) {
    SolidAttributes solid;
    solid.kind = static_cast<SolidKind>(next());
    solid.colour = static_cast<SolidColour>(next());
    solid.size = static_cast<SolidSize>(next());
    solid.material = static_cast<SolidMaterial>(next());
    seen.solids.push_back(solid);
  }
  return seen;
}

}  // namespace tessera
