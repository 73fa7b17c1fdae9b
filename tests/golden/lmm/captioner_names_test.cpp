// The published captioning models by name and shape (assets/recipes/fixtures_captioner_names.py):
// their configuration asks for exactly the tensors of the reference's model, under the names of the
// published files and under those that newer releases write; one less, one more or one of another
// shape is refused by its name.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/families/describe.h"
#include "engine/families/registry.h"
#include "tests/support/published_names.h"
#include "tests/support/temp_folder.h"

namespace tessera::captioner_names_test {
namespace {

struct Case {
  const char* stem;
  std::int64_t parameters;  // as the model's page or the library counts them
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.stem; }

struct Published {
  std::shared_ptr<const Json> config;
  std::vector<TensorSpec> tensors;
  std::vector<TensorSpec> later;  // the same under newer names; empty = those names
  std::int64_t parameters = 0;
};

Published published(const std::string& stem) {
  PublishedNames names = read_published_names(std::filesystem::path(TESSERA_SOURCE_DIR) /
                                              "tests/golden/lmm/names" / (stem + ".txt"));
  const Json facts = parse_json(names.config, stem);
  Published out;
  out.config = std::make_shared<const Json>(facts.at("config"));
  out.parameters = facts.at("parameters").get<std::int64_t>();
  out.tensors = std::move(names.tensors);
  if (!facts.contains("later")) return out;
  out.later = out.tensors;
  for (TensorSpec& tensor : out.later) {
    for (const Json& pair : facts.at("later")) {
      const std::string was = pair[0], is = pair[1];
      if (!tensor.name.starts_with(was)) continue;
      tensor.name = is + tensor.name.substr(was.size());
      break;
    }
  }
  return out;
}

// What Janus generates with is another reader's.
bool of_a_generator(const std::string& name) {
  return name.starts_with("model.vqmodel.") || name.starts_with("model.generation_");
}

ModelSpec settled(const Published& model, const std::vector<TensorSpec>& tensors) {
  const TempFolder folder;
  write_sparse_safetensors(folder / "model.safetensors", tensors);
  ModelSpec spec = parse_describing_config(model.config, std::nullopt, std::nullopt, folder.path());
  settle_describing(spec, Checkpoint::open(folder / "model.safetensors"));
  return spec;
}

class PublishedCaptioner : public ::testing::TestWithParam<Case> {
 protected:
  static void expect_exactly(const ModelSpec& spec, const std::vector<TensorSpec>& tensors) {
    std::map<std::string, Shape> want, got;
    for (const TensorSpec& tensor : tensors) {
      if (!of_a_generator(tensor.name)) want.emplace(tensor.name, tensor.shape);
    }
    for (const TensorSpec& tensor : describing_tensors(spec)) {
      EXPECT_TRUE(got.emplace(tensor.name, tensor.shape).second) << tensor.name << " twice";
    }
    for (const auto& [name, shape] : want) {
      ASSERT_TRUE(got.contains(name)) << name;
      EXPECT_EQ(got.at(name), shape) << name;
    }
    for (const auto& [name, shape] : got) EXPECT_TRUE(want.contains(name)) << name;
  }

  static void expect_refused(const Published& model, const std::vector<TensorSpec>& tensors,
                             const std::string& name) {
    try {
      settled(model, tensors);
      ADD_FAILURE() << "accepted without, next to or with another " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 4);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
};

TEST_P(PublishedCaptioner, WantsExactlyTheseTensors) {
  const Published model = published(GetParam().stem);
  const ModelSpec spec = settled(model, model.tensors);
  expect_exactly(spec, model.tensors);
  std::int64_t all = 0, generator = 0;
  for (const TensorSpec& tensor : model.tensors) {
    all += tensor.shape.elements();
    if (of_a_generator(tensor.name)) generator += tensor.shape.elements();
  }
  EXPECT_EQ(all, model.parameters);
  EXPECT_EQ(all, GetParam().parameters);
  EXPECT_EQ(describing_parameters(spec), all - generator);
}

TEST_P(PublishedCaptioner, UnderNewerNamesToo) {
  const Published model = published(GetParam().stem);
  if (model.later.empty()) return;
  expect_exactly(settled(model, model.later), model.later);
}

TEST_P(PublishedCaptioner, OneNameChangedIsRefused) {
  const Published model = published(GetParam().stem);
  const std::vector<TensorSpec>& whole = model.tensors;
  for (std::size_t pick = 1; pick < whole.size(); pick += whole.size() / 4) {
    std::size_t at = pick;
    while (of_a_generator(whole[at].name)) ++at;
    // A file without a head has a tied one.
    if (whole[at].name.ends_with("lm_head.weight")) --at;
    std::vector<TensorSpec> fewer = whole, wrong = whole;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at));
    expect_refused(model, fewer, whole[at].name);
    std::vector<std::int64_t> extents(wrong[at].shape.extents().begin(),
                                      wrong[at].shape.extents().end());
    extents.back() += 1;
    wrong[at].shape = Shape(extents);
    expect_refused(model, wrong, whole[at].name);
  }
  // A layer more than the configuration says, in either half.
  const ModelSpec spec = settled(model, whole);
  const std::string layers = spec.layouts.front().root + "layers.";
  const std::string beyond =
      layers + std::to_string(spec.model.transformer.layers) + ".input_layernorm.weight";
  for (const std::string& name :
       {beyond, spec.describe->tower.vit.names.prefix + "stranger.weight"}) {
    std::vector<TensorSpec> more = whole;
    more.push_back({name, Shape{4}});
    expect_refused(model, more, name);
  }
  // Older files keep rotary tables, which nobody reads.
  std::vector<TensorSpec> older = whole;
  older.push_back({layers + "0.self_attn.rotary_emb.inv_freq", Shape{64}});
  EXPECT_NO_THROW(settled(model, older));
}

INSTANTIATE_TEST_SUITE_P(
    All, PublishedCaptioner,
    ::testing::Values(Case{"llava-1.5-7b", 7'063'427'072}, Case{"llava-1.5-13b", 13'351'494'656},
                    Case{"llava-1.6-vicuna-7b", 7'063'431'168},
                    Case{"llava-1.6-vicuna-13b", 13'351'499'776},
                    Case{"llava-1.6-mistral-7b", 7'566'747'648},
                    Case{"llava-onevision-0.5b", 893'675'552},
                    Case{"llava-onevision-7b", 8'030'807'584}, Case{"janus-pro-1b", 2'076'636'811},
                    Case{"janus-pro-7b", 7'407'773'323}, Case{"qwen2-vl-2b", 2'208'985'600},
                    Case{"qwen2-vl-7b", 8'291'375'616}, Case{"qwen2.5-vl-3b", 3'754'622'976},
                    Case{"qwen2.5-vl-7b", 8'292'166'656}, Case{"idefics3-8b", 8'462'086'384},
                    Case{"smolvlm-256m", 256'484'928}, Case{"smolvlm-500m", 507'482'304},
                    Case{"smolvlm-2.2b", 2'246'272'880}));

}  // namespace
}  // namespace tessera::captioner_names_test
