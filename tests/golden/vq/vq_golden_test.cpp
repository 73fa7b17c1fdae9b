// The VQ tokenizer against the JanusVQVAE class of transformers (assets/recipes/fixtures_vq.py),
// with weights drawn here from the same Philox stream, under both naming schemes. Shows as well
// that the comparison notices a wrong tensor.
#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/philox.h"
#include "tests/support/chosen_backend.h"
#include "tests/support/source_folder.h"
#include "tokenizers/visual/vq_tokenizer.h"

namespace tessera::vq_golden_test {
namespace {

namespace fs = std::filesystem;

// Of max|reference|. The project guarantees 1e-4 for VQ stacks; ten times less is held here, so that
// the faintest wrong tensor below is seen.
constexpr double kTolerance = 1e-5;

const fs::path kFolder = source_folder() / "tests/golden/vq";

struct NamePair {
  std::string hf;
  std::string llamagen;
  Shape shape;
};

std::vector<std::int64_t> numbers(const std::string& text) {
  std::vector<std::int64_t> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) out.push_back(std::stoll(part));
  return out;
}

std::vector<NamePair> read_names(const std::string& config) {
  std::ifstream in(kFolder / (config + ".names"));
  std::vector<NamePair> pairs;
  std::string hf, llamagen, shape;
  while (in >> hf >> llamagen >> shape) {
    const std::vector<std::int64_t> extents = numbers(shape);
    pairs.push_back({hf, llamagen, Shape(std::span<const std::int64_t>(extents))});
  }
  return pairs;
}

// The recipe's draw(): 12 bits of Philox word j of key (seed, number), scaled by what the name
// says.
Tensor draw(const NamePair& names, std::uint32_t seed, std::uint32_t number) {
  Tensor tensor = Tensor::host(DType::kF32, names.shape);
  const std::size_t dot = names.hf.rfind('.');
  const std::size_t before = names.hf.rfind('.', dot - 1);
  const std::string owner = names.hf.substr(before + 1, dot - before - 1);
  float scale = 1.0f;
  float shift = 0.0f;
  if (owner.find("norm") != std::string::npos) {
    scale = 0.5f;
    shift = names.hf.ends_with("weight") ? 1.0f : 0.0f;
  } else if (names.shape.rank() == 1) {
    scale = 0.25f;
  } else if (!names.hf.ends_with("embedding.weight")) {
    const double fan_in =
        static_cast<double>(names.shape.elements()) / static_cast<double>(names.shape[0]);
    scale = static_cast<float>(std::exp2(std::nearbyint(std::log2(std::sqrt(3.0 / fan_in)))));
  }
  PhiloxBlock block{};
  for (std::int64_t j = 0; j < names.shape.elements(); ++j) {
    if (j % 4 == 0)
      block = philox4x32({static_cast<std::uint32_t>(j / 4), 0, 0, 0}, {seed, number});
    const auto bits = static_cast<float>(block[static_cast<std::size_t>(j % 4)] >> 20);
    tensor.f32()[j] = (bits - 2047.5f) / 2048.0f * scale + shift;
  }
  return tensor;
}

using Tensors = std::map<std::string, Tensor>;

Tensors copy_of(const Tensors& tensors) {
  Tensors copies;
  for (const auto& [name, tensor] : tensors) copies.emplace(name, tensor.clone());
  return copies;
}

struct Golden {
  VqSpec spec;
  std::vector<NamePair> names;
  Checkpoint data;
  std::uint32_t seed = 0;

  ConstTensorView tensor(const std::string& name) const {
    const ConstTensorView* view = data.find(name);
    EXPECT_NE(view, nullptr) << name;
    return *view;
  }
  const std::string& name_of(const NamePair& pair) const {
    return spec.names == VqNames::kHfJanus ? pair.hf : pair.llamagen;
  }
  Tensors draw_all() const {
    Tensors tensors;
    for (std::size_t i = 0; i < names.size(); ++i) {
      tensors.emplace(spec.prefix + name_of(names[i]),
                      draw(names[i], seed, static_cast<std::uint32_t>(i)));
    }
    return tensors;
  }
};

Golden read_golden(const std::string& config, VqNames scheme) {
  Golden golden{.spec = {},
                .names = read_names(config),
                .data = Checkpoint::open(kFolder / (config + ".safetensors"))};
  const std::map<std::string, std::string>& facts = golden.data.metadata();
  golden.spec.base_channels = std::stoll(facts.at("base_channels"));
  golden.spec.multipliers = numbers(facts.at("channel_multiplier"));
  golden.spec.res_blocks = std::stoll(facts.at("num_res_blocks"));
  golden.spec.latent_channels = std::stoll(facts.at("latent_channels"));
  golden.spec.embed_dim = std::stoll(facts.at("embed_dim"));
  golden.spec.codes = std::stoll(facts.at("num_embeddings"));
  golden.spec.names = scheme;
  golden.spec.prefix = scheme == VqNames::kHfJanus ? "model.vqmodel." : "";
  golden.seed = static_cast<std::uint32_t>(std::stoul(facts.at("seed")));
  return golden;
}

// max|got - want| / max|want|; infinite when a value is not a number.
double deviation(ConstTensorView got, ConstTensorView want) {
  EXPECT_EQ(got.shape.elements(), want.shape.elements());
  double worst = 0.0;
  double largest = 0.0;
  for (std::int64_t i = 0; i < want.shape.elements(); ++i) {
    const double difference = std::abs(double{got.f32()[i]} - double{want.f32()[i]});
    if (!(difference < 1e30)) return INFINITY;
    worst = std::max(worst, difference);
    largest = std::max(largest, std::abs(double{want.f32()[i]}));
  }
  return worst / largest;
}

struct Outcome {
  double latents = 0.0;
  double pixels = 0.0;
  bool same_codes = false;
  bool passes() const { return same_codes && latents <= kTolerance && pixels <= kTolerance; }
};

Outcome compare(Backend& backend, const Golden& golden, Tensors tensors) {
  const Checkpoint checkpoint = Checkpoint::from_tensors("drawn", std::move(tensors));
  const VqTokenizer tokenizer(backend, golden.spec, checkpoint, DType::kF32,
                              TokenizerHalves::kBoth);
  Outcome outcome;
  const ConstTensorView image = golden.tensor("image");
  outcome.latents = deviation(tokenizer.latents(image).view(), golden.tensor("z"));
  const ConstTensorView indices = golden.tensor("indices");
  const std::vector<std::int32_t> ids = tokenizer.encode(image);
  outcome.same_codes = std::equal(ids.begin(), ids.end(), indices.as<std::int32_t>(),
                                  indices.as<std::int32_t>() + indices.shape.elements());
  const ConstTensorView codes = golden.tensor("codes");
  const Tensor pixels =
      tokenizer.decode({codes.as<std::int32_t>(), static_cast<std::size_t>(codes.shape.elements())},
                       static_cast<int>(codes.shape[0]), static_cast<int>(codes.shape[1]));
  outcome.pixels = deviation(pixels.view(), golden.tensor("pixels"));
  return outcome;
}

std::unique_ptr<Backend> cpu(CpuOptions::Isa isa, int threads = 2) {
  return chosen_backend({.threads = threads, .isa = isa});
}

struct Case {
  const char* config;
  VqNames names;
  CpuOptions::Isa isa;
};

class VqParity : public ::testing::TestWithParam<Case> {};

TEST_P(VqParity, EqualsTheReference) {
  const Golden golden = read_golden(GetParam().config, GetParam().names);
  const auto backend = cpu(GetParam().isa);
  const Outcome outcome = compare(*backend, golden, golden.draw_all());
  EXPECT_TRUE(outcome.same_codes);
  EXPECT_LE(outcome.latents, kTolerance);
  EXPECT_LE(outcome.pixels, kTolerance);
  RecordProperty("latents", std::to_string(outcome.latents));
  RecordProperty("pixels", std::to_string(outcome.pixels));
  std::cout << GetParam().config << ": latents " << outcome.latents << ", pixels " << outcome.pixels
            << "\n";
}

constexpr CpuOptions::Isa kFast = CpuOptions::Isa::kAuto;
constexpr CpuOptions::Isa kPlain = CpuOptions::Isa::kReference;

INSTANTIATE_TEST_SUITE_P(Configs, VqParity,
                         ::testing::Values(Case{"plain", VqNames::kHfJanus, kFast},
                                         Case{"plain", VqNames::kLlamaGen, kFast},
                                         Case{"wide", VqNames::kHfJanus, kFast},
                                         Case{"wide", VqNames::kLlamaGen, kFast},
                                         Case{"three", VqNames::kHfJanus, kFast},
                                         Case{"three", VqNames::kLlamaGen, kPlain},
                                         Case{"published", VqNames::kHfJanus, kFast},
                                         Case{"published", VqNames::kLlamaGen, kFast}),
                         [](const auto& chosen) {
                           const Case& c = chosen.param;
                           return std::string(c.config) +
                                  (c.names == VqNames::kHfJanus ? "_hf" : "_llamagen") +
                                  (c.isa == kFast ? "" : "_reference");
                         });

class VqNamesGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(VqNamesGolden, ListIsTheReferenceStateDict) {
  for (const VqNames scheme : {VqNames::kHfJanus, VqNames::kLlamaGen}) {
    const Golden golden = read_golden(GetParam(), scheme);
    std::map<std::string, Shape> want;
    for (const NamePair& pair : golden.names) {
      want.emplace(golden.spec.prefix + golden.name_of(pair), pair.shape);
    }
    std::map<std::string, Shape> got;
    for (const TensorSpec& tensor : vq_tensors(golden.spec)) got.emplace(tensor.name, tensor.shape);
    EXPECT_EQ(got.size(), want.size());
    for (const auto& [name, shape] : want) {
      ASSERT_TRUE(got.contains(name)) << name;
      EXPECT_EQ(got.at(name), shape) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, VqNamesGolden,
                         ::testing::Values("plain", "wide", "three", "published"),
                         [](const auto& chosen) { return std::string(chosen.param); });

// Softmax over keys does not see a constant added to every key's score, and q . (k's bias) is such
// a constant: no image depends on these tensors.
bool invisible(const std::string& name) { return name.ends_with(".k.bias"); }
// Both biases are added to the same sum.
bool interchangeable(const std::string& a, const std::string& b) {
  return a.ends_with(".conv2.bias") && b.ends_with(".nin_shortcut.bias") &&
         a.substr(0, a.rfind(".conv2")) == b.substr(0, b.rfind(".nin_shortcut"));
}

TEST(VqParityFault, EveryTensorPerturbedByOneThousandthIsSeen) {
  const Golden golden = read_golden("wide", VqNames::kHfJanus);
  const auto backend = cpu(kFast, 1);
  const Tensors right = golden.draw_all();
  double faintest = INFINITY;
  for (std::size_t i = 0; i < golden.names.size(); ++i) {
    const std::string name = golden.spec.prefix + golden.names[i].hf;
    Tensors tensors = copy_of(right);
    Tensor& tensor = tensors.at(name);
    for (std::int64_t j = 0; j < tensor.shape().elements(); ++j) {
      const PhiloxBlock coin = philox4x32({static_cast<std::uint32_t>(j), 7, 0, 0}, {1, 2});
      tensor.f32()[j] += (coin[0] & 1u) != 0 ? 1e-3f : -1e-3f;
    }
    const Outcome outcome = compare(*backend, golden, std::move(tensors));
    if (invisible(name)) continue;
    EXPECT_FALSE(outcome.passes()) << name << ": " << outcome.latents << ", " << outcome.pixels;
    faintest = std::min(faintest, std::max(outcome.latents, outcome.pixels));
  }
  std::cout << "faintest trace of a perturbed tensor: " << faintest << "\n";
}

TEST(VqParityFault, EveryTwoNeighboursOfOneShapeSwappedAreSeen) {
  const Golden golden = read_golden("wide", VqNames::kHfJanus);
  const auto backend = cpu(kFast, 1);
  const Tensors right = golden.draw_all();
  std::map<std::string, std::string> last_of_shape;
  int swaps = 0;
  for (const NamePair& pair : golden.names) {
    std::string& last = last_of_shape[pair.shape.to_string()];
    const std::string name = golden.spec.prefix + pair.hf;
    if (!last.empty() && !interchangeable(last, name)) {
      Tensors tensors = copy_of(right);
      std::swap(tensors.at(last), tensors.at(name));
      EXPECT_FALSE(compare(*backend, golden, std::move(tensors)).passes()) << last << ", " << name;
      ++swaps;
    }
    last = name;
  }
  EXPECT_GT(swaps, 100);
}

// The rule that the Hugging Face class leaves out when it encodes: without it other codes come out.
TEST(VqParityFault, EncodingWithoutUnitLengthIsSeen) {
  Golden golden = read_golden("wide", VqNames::kHfJanus);
  golden.spec.l2_normalize = false;
  const auto backend = cpu(kFast, 1);
  EXPECT_FALSE(compare(*backend, golden, golden.draw_all()).same_codes);
}

TEST(VqDeterminism, ThreadsDoNotShow) {
  const Golden golden = read_golden("three", VqNames::kLlamaGen);
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 7}) {
    const auto backend = cpu(kFast, threads);
    const Checkpoint checkpoint = Checkpoint::from_tensors("drawn", golden.draw_all());
    const VqTokenizer tokenizer(*backend, golden.spec, checkpoint, DType::kF32,
                                TokenizerHalves::kDecoder);
    const ConstTensorView codes = golden.tensor("codes");
    const Tensor image = tokenizer.decode(
        {codes.as<std::int32_t>(), static_cast<std::size_t>(codes.shape.elements())},
        static_cast<int>(codes.shape[0]), static_cast<int>(codes.shape[1]));
    const std::vector<float> now(image.f32(), image.f32() + image.shape().elements());
    if (first.empty()) first = now;
    EXPECT_EQ(first, now) << threads << " threads";
  }
}

}  // namespace
}  // namespace tessera::vq_golden_test
