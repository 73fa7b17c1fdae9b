// Parity of every tower with `transformers` (assets/recipes/fixtures_encoder.py), fp32: rows after
// each layer, keys, attention weights recovered from log-sums, features, projector output. And that
// the same comparison notices one tensor off by 1e-3 and any two tensors of a shape swapped.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/checked_weight.h"
#include "engine/families/registry.h"
#include "engine/ops/host_access.h"
#include "tests/support/chosen_backend.h"
#include "tests/support/source_folder.h"
#include "vision/encoder/projector.h"
#include "vision/encoder/vision_encoder.h"
#include "engine/towers/vision_tower.h"

namespace tessera::encoder_golden_test {
namespace {

const std::filesystem::path kGolden = source_folder() / "tests" / "golden" / "encoder";
constexpr double kTolerance = 1e-5;

// max|a - b| / max|b|; infinity when sizes differ or anything is not a number.
double relative_difference(ConstTensorView got, ConstTensorView want) {
  const std::int64_t count = want.shape.elements();
  if (got.shape.elements() != count || count == 0) return HUGE_VAL;
  double worst = 0.0, scale = 0.0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double difference =
        std::abs(static_cast<double>(got.f32()[i]) - static_cast<double>(want.f32()[i]));
    if (!(difference <= HUGE_VAL)) return HUGE_VAL;
    worst = std::max(worst, difference);
    scale = std::max(scale, std::abs(static_cast<double>(want.f32()[i])));
  }
  return scale > 0.0 ? worst / scale : HUGE_VAL;
}

// Compares what runs by with what was recorded under `stem`.
class Comparer final : public TowerObserver {
 public:
  Comparer(Backend& backend, const Checkpoint& recorded, std::string stem,
           std::map<std::string, double>& out)
      : backend_(backend), recorded_(recorded), stem_(std::move(stem)), out_(out) {}

  void compare(const std::string& name, ConstTensorView got) {
    if (const ConstTensorView* want = recorded_.find(stem_ + name)) {
      out_[stem_ + name] = relative_difference(HostView(backend_, got).view(), *want);
    }
  }
  void after_attention(LayerState& state) override {
    const std::string layer = "." + std::to_string(state.layer());
    compare("keys" + layer, state.keys());
    if (recorded_.find(stem_ + "attention" + layer) == nullptr) return;
    // Recorded as [heads, rows, rows].
    const std::int64_t heads = state.keys().shape[1], n = state.rows();
    Tensor weights = backend_.allocate(DType::kF32, {n, heads, n});
    state.attention_of(0, n, AttentionMean::kNone, weights.view());
    const HostView rows(backend_, weights.view());
    Tensor turned = Tensor::host(DType::kF32, {heads, n, n});
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t head = 0; head < heads; ++head) {
        std::memcpy(turned.f32() + (head * n + row) * n, rows.f32() + (row * heads + head) * n,
                    static_cast<std::size_t>(n) * sizeof(float));
      }
    }
    const ConstTensorView* want = recorded_.find(stem_ + "attention" + layer);
    out_[stem_ + "attention" + layer] = relative_difference(turned.view(), *want);
  }
  void after_layer(LayerState& state) override {
    compare("hidden." + std::to_string(state.layer()), state.hidden());
  }

 private:
  Backend& backend_;
  const Checkpoint& recorded_;
  std::string stem_;
  std::map<std::string, double>& out_;
};

class EncoderGolden : public ::testing::TestWithParam<std::string> {
 protected:
  EncoderGolden()
      : backend_(chosen_backend({.threads = 2})),
        weights_(Checkpoint::open(kGolden / (GetParam() + ".safetensors"))),
        recorded_(Checkpoint::open(kGolden / (GetParam() + ".recorded.safetensors"))),
        tower_(
            parse_vision_tower(parse_json(weights_.metadata().at("config"), "config"), "config")) {
    locate_tower(tower_, weights_);
  }

  std::map<std::string, double> differences(Backend& backend, const VisionTower& tower,
                                            const Checkpoint& weights,
                                            DType storage = DType::kF32) const {
    const VisionEncoder encoder(backend, tower.vit, weights, storage);
    const Projector projector(backend, tower.projector, weights, storage);
    std::map<std::string, double> out;
    for (const auto& [name, pixels] : recorded_.tensors()) {
      if (!name.ends_with(".pixels")) continue;
      const std::string stem = name.substr(0, name.size() - 6);
      EncodeOptions options;
      Comparer comparer(backend, recorded_, stem, out);
      TowerObserver* const observers[] = {&comparer};
      options.observers = observers;
      EncoderInput input{.pixels = pixels};
      if (const ConstTensorView* filled = recorded_.find(stem + "filled")) {
        input.filled_height = filled->as<std::int32_t>()[0];
        input.filled_width = filled->as<std::int32_t>()[1];
      }
      const VitGrid grid = vit_grid(tower.vit, pixels.shape);
      Arena arena =
          make_arena(backend, VisionEncoder::scratch_bytes(tower.vit, grid.patches()) +
                                  Projector::scratch_bytes(tower.projector, grid.patches()));
      const EncodedImage image = encoder.encode(input, arena, options);
      comparer.compare("features", image.features.view());
      if (recorded_.find(stem + "projected") == nullptr) continue;
      comparer.compare("projected", projector.project(image, arena).rows.view());
    }
    return out;
  }

  double worst(const VisionTower& tower, const Checkpoint& weights) const {
    double value = 0.0;
    for (const auto& [name, difference] : differences(*backend_, tower, weights)) {
      value = std::max(value, difference);
    }
    return value;
  }

  Checkpoint edited(const std::function<void(std::map<std::string, Tensor>&)>& edit) const {
    std::map<std::string, Tensor> tensors;
    for (const auto& [name, view] : weights_.tensors()) tensors.emplace(name, widened(view));
    edit(tensors);
    return Checkpoint::from_tensors("edited", std::move(tensors));
  }

  // Tensors that this test answers for: of layers that run, and the final norm where it counts.
  std::vector<std::string> loaded() const {
    std::vector<std::string> names;
    for (const auto& [name, view] : weights_.tensors()) {
      bool counts = true;
      for (std::int64_t i = tower_.vit.run_layers; i < tower_.vit.layers; ++i) {
        counts = counts && !name.starts_with(vit_layer_name(tower_.vit.names, i));
      }
      if (tower_.vit.final_norm == VitFinalNorm::kUnused) {
        const VitNames& own = tower_.vit.names;
        counts = counts && !name.starts_with(own.prefix + own.final_norm + ".");
      }
      const std::string head = tower_.vit.names.prefix + "head.";
      if (counts && !name.starts_with(head)) names.push_back(name);
    }
    return names;
  }

  std::unique_ptr<Backend> backend_;
  Checkpoint weights_;
  Checkpoint recorded_;
  VisionTower tower_;
};

TEST_P(EncoderGolden, EqualsTheReference) {
  check_tower_tensors(tower_, weights_);
  for (const CpuOptions::Isa isa : {CpuOptions::Isa::kReference, CpuOptions::Isa::kAuto}) {
    for (const int threads : {1, 3}) {
      const auto backend = chosen_backend({.threads = threads, .isa = isa});
      const auto all = differences(*backend, tower_, weights_);
      double most = 0;
      bool projected = false;
      for (const auto& [name, difference] : all) {
        EXPECT_LE(difference, kTolerance) << name;
        most = std::max(most, difference);
        projected = projected || name.ends_with("projected");
      }
      EXPECT_TRUE(projected);
      EXPECT_GE(static_cast<std::int64_t>(all.size()), tower_.vit.run_layers + 1);
      std::cout << GetParam() << " " << backend->name() << ": " << all.size()
                << " tensors, largest difference " << most << "\n";
      if (chosen_device() != "cpu") return;
    }
  }
}

TEST_P(EncoderGolden, OneTensorOffByAThousandthIsNoticed) {
  for (const std::string& name : loaded()) {
    const Checkpoint off = edited([&](std::map<std::string, Tensor>& tensors) {
      Tensor& tensor = tensors.at(name);
      for (std::int64_t i = 0; i < tensor.shape().elements(); ++i) {
        // Signs without a pattern: one shift of a whole row would be lost in the next LayerNorm.
        const std::uint32_t hash = static_cast<std::uint32_t>(i) * 2654435761u;
        tensor.f32()[i] += (hash >> 16 & 1) == 0 ? 1e-3f : -1e-3f;
      }
    });
    EXPECT_GT(worst(tower_, off), kTolerance) << name;
  }
}

TEST_P(EncoderGolden, TwoSwappedTensorsAreNoticed) {
  const std::vector<std::string> names = loaded();
  int pairs = 0;
  for (std::size_t a = 0; a < names.size(); ++a) {
    for (std::size_t b = a + 1; b < names.size(); ++b) {
      if (weights_.find(names[a])->shape != weights_.find(names[b])->shape) continue;
      ++pairs;
      const Checkpoint swapped = edited([&](std::map<std::string, Tensor>& tensors) {
        std::swap(tensors.at(names[a]), tensors.at(names[b]));
      });
      EXPECT_GT(worst(tower_, swapped), kTolerance) << names[a] << " and " << names[b];
    }
  }
  EXPECT_GT(pairs, 20);
}

TEST_P(EncoderGolden, Bf16StorageIsClose) {
  double off = 0;
  for (const auto& [name, difference] : differences(*backend_, tower_, weights_, DType::kBF16)) {
    off = std::max(off, difference);
  }
  EXPECT_GT(off, kTolerance) << "bf16 storage must differ from f32";
  EXPECT_LT(off, 0.1);
}

INSTANTIATE_TEST_SUITE_P(Towers, EncoderGolden,
                         ::testing::Values("clip", "clip_last", "clip_list", "siglip", "janus",
                                         "idefics3", "qwen2_vl", "qwen2_5_vl"),
                         [](const auto& param) { return param.param; });

// A spec that is wrong in one thing must not pass either.
TEST(EncoderGoldenSpecs, WrongSpecsAreNoticed) {
  struct Wrong {
    const char* what;
    const char* tower;
    std::function<void(VisionTower&)> change;
  };
  const Wrong all[] = {
      {"exact GELU", "clip", [](VisionTower& t) { t.vit.activation = VitActivation::kGelu; }},
      {"exact GELU", "siglip", [](VisionTower& t) { t.vit.activation = VitActivation::kGelu; }},
      {"no first norm", "clip", [](VisionTower& t) { t.vit.first_norm = false; }},
      {"one layer more", "clip", [](VisionTower& t) { ++t.vit.run_layers; }},
      {"no final norm", "janus", [](VisionTower& t) { t.vit.final_norm = VitFinalNorm::kUnused; }},
      {"no windows", "qwen2_5_vl", [](VisionTower& t) { t.vit.window = 0; }},
      {"windows in all layers", "qwen2_5_vl", [](VisionTower& t) { t.vit.full_layers.clear(); }},
      {"eps", "siglip", [](VisionTower& t) { t.vit.norm_eps = 1e-3f; }},
      {"theta", "qwen2_vl", [](VisionTower& t) { t.vit.rope_theta = 9000; }},
  };
  const auto backend = make_backend("cpu", {.threads = 2});
  for (const Wrong& wrong : all) {
    const Checkpoint weights =
        Checkpoint::open(kGolden / (std::string(wrong.tower) + ".safetensors"));
    const Checkpoint recorded =
        Checkpoint::open(kGolden / (std::string(wrong.tower) + ".recorded.safetensors"));
    VisionTower tower =
        parse_vision_tower(parse_json(weights.metadata().at("config"), "config"), "config");
    wrong.change(tower);
    const VisionEncoder encoder(*backend, tower.vit, weights, DType::kF32);
    const Projector projector(*backend, tower.projector, weights, DType::kF32);
    const ConstTensorView pixels = *recorded.find("a.pixels");
    const VitGrid grid = vit_grid(tower.vit, pixels.shape);
    Arena arena(VisionEncoder::scratch_bytes(tower.vit, grid.patches()) +
                Projector::scratch_bytes(tower.projector, grid.patches()));
    const ProjectedImage out =
        projector.project(encoder.encode(EncoderInput{.pixels = pixels}, arena), arena);
    EXPECT_GT(relative_difference(out.rows.view(), *recorded.find("a.projected")), kTolerance)
        << wrong.tower << ": " << wrong.what;
  }
}

// The original's names and fused q, k, v hold the same Janus tower.
TEST(EncoderGoldenSpecs, JanusOriginalLayoutIsTheSameTower) {
  const Checkpoint port = Checkpoint::open(kGolden / "janus.safetensors");
  const Checkpoint recorded = Checkpoint::open(kGolden / "janus.recorded.safetensors");
  VisionTower tower = parse_vision_tower(parse_json(port.metadata().at("config"), "config"), "c");
  const Json original = parse_json(
      R"({"model_type":"multi_modality","vision_config":{"params":{"model_name":
      "siglip_large_patch16_384"}},"aligner_config":{"params":{"projector_type":"mlp_gelu",
      "n_embed":2048}}})",
      "original");
  const VisionTower named = parse_vision_tower(original, "original");
  EXPECT_EQ(named.vit.width, 1024);
  const VitNames from = tower.vit.names;
  tower.vit.names = named.vit.names;
  tower.projector.prefix = named.projector.prefix;
  tower.projector.layers = named.projector.layers;
  std::map<std::string, Tensor> tensors;
  const auto put = [&](const std::string& to, const std::vector<std::string>& stems) {
    for (const char* end : {".weight", ".bias"}) {
      std::vector<float> values;
      std::vector<std::int64_t> extents;
      for (const std::string& stem : stems) {
        const Tensor part = widened(*port.find(stem + end));
        values.insert(values.end(), part.f32(), part.f32() + part.shape().elements());
        extents.assign(part.shape().extents().begin(), part.shape().extents().end());
      }
      extents[0] *= static_cast<std::int64_t>(stems.size());
      Tensor joined = Tensor::host(DType::kF32, Shape(extents));
      std::copy(values.begin(), values.end(), joined.f32());
      tensors.emplace(to + end, std::move(joined));
    }
  };
  const VitNames& to = tower.vit.names;
  put(to.prefix + to.patch, {from.prefix + from.patch});
  Tensor table = widened(*port.find(from.prefix + from.positions));
  Tensor batched = Tensor::host(DType::kF32, {1, table.shape()[0], table.shape()[1]});
  std::copy_n(table.f32(), table.shape().elements(), batched.f32());
  tensors.emplace(to.prefix + to.positions, std::move(batched));
  put(to.prefix + to.final_norm, {from.prefix + from.final_norm});
  for (std::int64_t i = 0; i < tower.vit.layers; ++i) {
    const std::string a = vit_layer_name(from, i), b = vit_layer_name(to, i);
    put(b + to.norm1, {a + from.norm1});
    put(b + to.norm2, {a + from.norm2});
    put(b + to.qkv[0], {a + from.qkv[0], a + from.qkv[1], a + from.qkv[2]});
    put(b + to.out, {a + from.out});
    put(b + to.mlp_in[0], {a + from.mlp_in[0]});
    put(b + to.mlp_out, {a + from.mlp_out});
  }
  put("aligner.layers.0", {"model.aligner.fc1"});
  put("aligner.layers.2", {"model.aligner.hidden_layers.0"});
  const Checkpoint weights = Checkpoint::from_tensors("original", std::move(tensors));
  check_tower_tensors(tower, weights);
  const auto backend = make_backend("cpu", {.threads = 2});
  const VisionEncoder encoder(*backend, tower.vit, weights, DType::kF32);
  const Projector projector(*backend, tower.projector, weights, DType::kF32);
  const ConstTensorView pixels = *recorded.find("a.pixels");
  Arena arena(VisionEncoder::scratch_bytes(tower.vit, 25) +
              Projector::scratch_bytes(tower.projector, 25));
  const ProjectedImage out =
      projector.project(encoder.encode(EncoderInput{.pixels = pixels}, arena), arena);
  EXPECT_LE(relative_difference(out.rows.view(), *recorded.find("a.projected")), kTolerance);
}

}  // namespace
}  // namespace tessera::encoder_golden_test
