// Parity of T5's encoder with transformers (assets/recipes/fixtures_t5.py): hidden states of texts
// of several lengths in both versions, from f32 and bf16 files, the buckets of distances; that a
// tensor off by 1e-3 or swapped is noticed; folders that are not what is wanted; published names.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/families/text_encoder.h"
#include "tests/support/chosen_backend.h"
#include "tests/support/model_runner.h"
#include "tests/support/published_names.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera::t5_golden_test {
namespace {

namespace fs = std::filesystem;

const fs::path kT5 = source_folder() / "tests" / "golden" / "t5";

class T5Golden : public ::testing::TestWithParam<const char*> {
 protected:
  T5Golden()
      : backend_(chosen_backend({.threads = 2})),
        recorded_(Checkpoint::open(kT5 / "recorded.safetensors")),
        opened_(open_text_encoder(kT5 / GetParam())) {}

  ConstTensorView recorded(const std::string& name) const {
    return *recorded_.find(std::string(GetParam()) + "." + name);
  }
  std::vector<float> run(const TextEncoder& encoder, Backend& backend) const {
    const std::vector<std::int32_t> ids = ints_of(recorded("ids"));
    std::vector<float> out;
    auto from = ids.begin();
    for (const std::int32_t length : ints_of(*recorded_.find("lengths"))) {
      const std::vector<std::int32_t> text(from, from + length);
      from += length;
      out = joined(std::move(out), from_device(backend, encoder.encode(text).view()));
    }
    return out;
  }
  double difference(const TextEncoder& encoder) const {
    return relative_difference(run(encoder, *backend_), floats_of(recorded("hidden")));
  }
  // The encoder's own tensors, changed.
  double edited(const TensorEdit& edit) const {
    std::map<std::string, Tensor> tensors;
    for (auto& [name, tensor] : copy_tensors(*opened_.weights)) {
      if (!name.starts_with("decoder.")) tensors.emplace(name, std::move(tensor));
    }
    edit(tensors);
    OpenedTextEncoder opened;
    opened.config = opened_.config;
    opened.table = opened_.table;
    opened.tensors = opened_.tensors;
    opened.weights =
        std::make_shared<const Checkpoint>(Checkpoint::from_tensors("edited", std::move(tensors)));
    return difference(load_text_encoder(opened, *backend_, DType::kF32));
  }

  std::unique_ptr<Backend> backend_;
  Checkpoint recorded_;
  OpenedTextEncoder opened_;
};

TEST_P(T5Golden, EqualsTheReference) {
  for (const CpuOptions::Isa isa : {CpuOptions::Isa::kReference, CpuOptions::Isa::kAuto}) {
    for (const int threads : {1, 3}) {
      const auto backend = chosen_backend({.threads = threads, .isa = isa});
      const TextEncoder encoder = load_text_encoder(opened_, *backend, DType::kF32);
      const double off = relative_difference(run(encoder, *backend), floats_of(recorded("hidden")));
      std::printf("%s: off by %.1e of the largest value\n", GetParam(), off);
      EXPECT_LE(off, 1e-5);
      if (chosen_device() != "cpu") return;
    }
  }
}

TEST_P(T5Golden, WeightsKeptAsTheFileHasThemGiveTheSame) {
  EXPECT_EQ(opened_.stored, std::string_view(GetParam()) == "gated" ? DType::kBF16 : DType::kF32);
  EXPECT_LE(difference(load_text_encoder(opened_, *backend_, opened_.stored)), 1e-5);
  EXPECT_LE(difference(load_text_encoder(opened_, *backend_, DType::kFile)), 1e-5);
}

TEST_P(T5Golden, DistancesFallIntoTheReferencesBuckets) {
  const std::vector<std::int32_t> want = ints_of(recorded("buckets"));
  ASSERT_EQ(want.size(), 401u);
  for (std::size_t i = 0; i < want.size(); ++i) {
    const std::int64_t distance = static_cast<std::int64_t>(i) - 200;
    EXPECT_EQ(distance_bucket(opened_.config, distance), want[i]) << distance;
  }
}

TEST_P(T5Golden, OneTensorOffByAThousandthIsNoticed) {
  EXPECT_EQ(opened_.tensors.size(), 3 + 2u * (opened_.config.gated ? 9 : 8));
  for (const TensorSpec& tensor : opened_.tensors) {
    EXPECT_GT(edited([&](auto& tensors) { perturb(tensors.at(tensor.name)); }), 1e-5)
        << tensor.name;
  }
}

TEST_P(T5Golden, TwoSwappedTensorsAreNoticed) {
  int pairs = 0;
  const std::vector<TensorSpec>& list = opened_.tensors;
  for (std::size_t a = 0; a < list.size(); ++a) {
    for (std::size_t b = a + 1; b < list.size(); ++b) {
      if (list[a].shape != list[b].shape) continue;
      ++pairs;
      EXPECT_GT(edited([&](auto& tensors) {
                  std::swap(tensors.at(list[a].name), tensors.at(list[b].name));
                }),
                1e-5)
          << list[a].name << " and " << list[b].name;
    }
  }
  EXPECT_GE(pairs, 20);
}

INSTANTIATE_TEST_SUITE_P(Versions, T5Golden, ::testing::Values("gated", "relu"));

// --- folders ------------------------------------------------------------------------------------

std::string refusal(const fs::path& folder, std::int64_t width = 0) {
  try {
    open_text_encoder(folder, width, "flan-t5-xl");
  } catch (const Error& error) {
    return error.info().code + " " + error.info().where + " " + error.info().hint;
  }
  return "";
}

TEST(T5Folder, AWidthThatIsNotReadIsRefusedBeforeWeights) {
  const TempFolder folder;
  fs::copy_file(kT5 / "gated" / "config.json", folder / "config.json");
  EXPECT_EQ(refusal(folder.path(), 2048), "E_TEXT_ENCODER_WIDTH d_model what fits: flan-t5-xl");
  EXPECT_EQ(refusal(kT5 / "gated", 32), "");
}

TEST(T5Folder, WhatTheEncoderDoesNotDoIsRefusedByName) {
  const Json good = Json::parse(get_file(kT5 / "gated" / "config.json"));
  const auto changed = [&](const char* key, const Json& value) {
    const TempFolder folder;
    Json config = good;
    config[key] = value;
    put_file(folder / "config.json", config.dump());
    const std::string found = refusal(folder.path());
    return found.substr(found.find(' ') + 1);
  };
  EXPECT_EQ(changed("model_type", "umt5"), "model_type ");
  EXPECT_EQ(changed("feed_forward_proj", "gated-silu"), "feed_forward_proj ");
  EXPECT_EQ(changed("dense_act_fn", "gelu"), "dense_act_fn ");
  EXPECT_EQ(changed("is_gated_act", false), "is_gated_act ");
  EXPECT_EQ(changed("relative_attention_max_distance", 8), "relative_attention_max_distance ");
  EXPECT_EQ(changed("num_heads", 0), "num_heads ");
  const TempFolder empty;
  EXPECT_TRUE(refusal(empty.path()).starts_with("E_TEXT_ENCODER "));
}

TEST(T5Folder, EachKeyIsAccountedFor) {
  const OpenedTextEncoder opened = open_text_encoder(kT5 / "gated");
  EXPECT_EQ(opened.name, "gated");
  EXPECT_EQ(opened.title, "T5 encoder 2x32");
  EXPECT_EQ(opened.account.warnings(), std::vector<std::string>{});
  std::size_t used = 0;
  for (const KeyAccount& key : opened.account.keys) {
    EXPECT_TRUE(key.file.starts_with("gated/")) << key.file;
    used += key.use == KeyUse::kUsed && key.file == "gated/config.json";
  }
  EXPECT_EQ(used, 13u);
}

TEST(T5Folder, IsFoundInsideOrNextToTheModel) {
  const TempFolder root;
  const std::string names[] = {"t5", "flan-t5-xl"};
  fs::create_directories(root / "model");
  EXPECT_TRUE(find_text_encoder(root / "model", names).empty());
  fs::create_directories(root / "flan-t5-xl");
  put_file(root / "flan-t5-xl" / "config.json", "{}");
  EXPECT_EQ(find_text_encoder(root / "model", names).filename(), "flan-t5-xl");
  fs::create_directories(root / "model" / "t5");
  put_file(root / "model" / "t5" / "config.json", "{}");
  EXPECT_EQ(find_text_encoder(root / "model", names).filename(), "t5");
}

TEST(T5Folder, TheTokenizerEndsTexts) {
  const TextTokenizer tokenizer = TextTokenizer::from_folder(kT5 / "gated");
  const std::vector<std::int32_t> ids = tokenizer.encode("a red cube");
  ASSERT_EQ(ids.size(), 4u);
  EXPECT_EQ(ids.back(), 1);
  EXPECT_EQ(tokenizer.vocab_size(), 51);
}

// Published folders by name and shape.
TEST(T5Folder, PublishedNamesAndShapesAreThese) {
  using Published = std::tuple<const char*, std::int64_t, std::int64_t>;
  for (const auto& [stem, width, parameters] : {Published{"flan-t5-xl", 2048, 1'223'527'424},
                                                Published{"t5-11b", 1024, 4'864'791'552}}) {
    const PublishedNames names =
        read_published_names(source_folder() / "tests/golden/names" / (std::string(stem) + ".txt"));
    const TempFolder folder;
    put_file(folder / "config.json", names.config);
    write_sparse_safetensors(folder / "model.safetensors", names.tensors);
    const OpenedTextEncoder opened = open_text_encoder(folder.path(), width);
    std::int64_t elements = 0;
    for (const TensorSpec& tensor : opened.tensors) elements += tensor.shape.elements();
    EXPECT_EQ(elements, parameters) << stem;
    const auto backend = make_backend("cpu", {.threads = 1});
    const std::size_t bytes = TextEncoder::weight_bytes(opened.config, *backend, DType::kBF16);
    EXPECT_NEAR(static_cast<double>(bytes), 2.0 * static_cast<double>(parameters),
                0.01 * static_cast<double>(parameters));
  }
}

}  // namespace
}  // namespace tessera::t5_golden_test
