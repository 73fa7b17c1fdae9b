// Language models whose configurations differ in one thing each, against the reference
// (assets/recipes/fixtures_language.py): rotary embeddings, biases, windows, head widths, tied
// tables, and keys that are left out.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/core/io.h"
#include "engine/families/language.h"
#include "tests/golden/lmm/parity.h"
#include "tests/support/hashed_weights.h"

namespace tessera::language_golden_test {
namespace {

std::filesystem::path language_folder() { return TinyLmm::goldens() / "language"; }

const Json& variants() {
  static const Json kVariants = parse_json(
      read_file(language_folder() / "variants.json", std::size_t{1} << 20), "variants.json");
  return kVariants;
}

// `keyed`: those alone that a key makes another model.
std::vector<std::string> variant_names(bool keyed = false) {
  std::vector<std::string> names;
  for (const auto& [name, variant] : variants().items()) {
    if (!keyed || !variant.at("needs").is_null()) names.push_back(name);
  }
  return names;
}

constexpr std::string_view kTypes[] = {"llama", "mistral", "qwen2", "qwen2_vl", "qwen2_5_vl"};
const TextLayout kLayout{"model.", "lm_head.weight"};

LanguageConfig parsed(const Json& config) {
  return parse_language(JsonReader(config, "config.json"), kTypes);
}

struct VariantModel {
  explicit VariantModel(const Json& config) : language(parsed(config)) {
    StreamModelConfig model;
    model.transformer = language.model;
    model.vocab = language.vocab;
    model.max_positions = language.max_positions;
    model.tied_head = language.tied;
    model.transformer.rope.positions = language.max_positions;
    const auto weights = std::make_shared<const Checkpoint>(
        Checkpoint::from_tensors("hashed", hashed_weights(text_tensors(model, kLayout))));
    const auto source = source_of(weights);
    text = std::make_unique<StreamModel>(
        load_stream_model(model, text_names(model, kLayout), *source, *backend, DType::kF32));
  }

  std::vector<float> logits(const PromptRows& rows) const {
    return last_rows(*backend, *text, rows).logits;
  }

  std::unique_ptr<Backend> backend = make_backend("cpu", {.threads = 1});
  LanguageConfig language;
  std::unique_ptr<StreamModel> text;
};

class LanguageVariant : public ::testing::TestWithParam<std::string> {
 protected:
  static std::string name() { return GetParam(); }
  static const Json& config() { return variants().at(name()).at("config"); }

  std::vector<std::int32_t> ints(const std::string& part) const {
    const ConstTensorView* view = recorded_.find(name() + "." + part);
    expects(view != nullptr, "a recorded tensor");
    return {view->as<std::int32_t>(), view->as<std::int32_t>() + view->shape.elements()};
  }
  std::vector<float> wanted_logits() const {
    return TinyLmm::floats(recorded_, name() + ".logits");
  }

  PromptRows prompt(const VariantModel& model) const {
    const std::vector<std::int32_t> ids = ints("ids");
    PromptRows out;
    const Shape shape{std::ssize(ids), model.text->width()};
    out.rows = model.backend->allocate(DType::kF32, shape);
    model.text->embed_prompt(ids, out.rows.view());
    out.places.resize(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) out.places[i].fill(static_cast<std::int64_t>(i));
    if (recorded_.find(name() + ".places") != nullptr) {
      const std::vector<std::int32_t> places = ints("places");
      for (std::size_t i = 0; i < ids.size(); ++i) {
        for (std::size_t axis = 0; axis < 3; ++axis) {
          out.places[i][axis] = places[axis * ids.size() + i];
        }
      }
    }
    for (const auto& place : out.places) {
      for (const std::int64_t at : place) out.next_place = std::max(out.next_place, at + 1);
    }
    return out;
  }

 private:
  Checkpoint recorded_ = Checkpoint::open(language_folder() / "recorded.safetensors");
};

TEST_P(LanguageVariant, EqualsTheReference) {
  const VariantModel model(config());
  PromptRows rows = prompt(model);
  EXPECT_LT(worst_relative(model.logits(rows), wanted_logits()), 1e-5);
  const std::vector<std::int32_t> want = ints("greedy");
  EXPECT_EQ(greedy(*model.text, std::move(rows), want.size()), want);
}

// A variant that the check above cannot tell from its model without the key checks nothing.
class KeyedVariant : public LanguageVariant {};

TEST_P(KeyedVariant, WithoutItsKeyIsAnotherModel) {
  Json plain = config();
  plain.erase(variants().at(name()).at("needs").get<std::string>());
  const VariantModel model(plain);
  EXPECT_GT(worst_relative(model.logits(prompt(model)), wanted_logits()), 1e-2);
}

INSTANTIATE_TEST_SUITE_P(All, LanguageVariant, ::testing::ValuesIn(variant_names()),
                         [](const auto& variant) { return test_name(variant.param); });
INSTANTIATE_TEST_SUITE_P(Keyed, KeyedVariant, ::testing::ValuesIn(variant_names(true)),
                         [](const auto& variant) { return test_name(variant.param); });

// --- what ends a text
// -------------------------------------------------------------------------------

Json changed(const char* variant, const char* key, const Json& value) {
  Json config = variants().at(variant).at("config");
  config[key] = value;
  return config;
}

TEST(LanguageLimits, TextsEndAtTheWindowAndNameItsKey) {
  const LanguageConfig window = parsed(changed("mistral", "sliding_window", 24));
  EXPECT_EQ(window.max_positions, 24);
  EXPECT_EQ(window.limit, "sliding_window");
  // 4096 where the key is absent, none where it is null.
  EXPECT_EQ(parsed(changed("mistral", "max_position_embeddings", 8192)).max_positions, 4096);
  EXPECT_EQ(parsed(changed("mistral-null", "max_position_embeddings", 8192)).max_positions, 8192);
  EXPECT_EQ(parsed(changed("mistral-window", "sliding_window", 64)).limit, "");
}

TEST(LanguageLimits, Qwen2HasWindowsOnlyWhereALayerHasOne) {
  EXPECT_EQ(parsed(changed("qwen2-window", "max_window_layers", 1)).max_positions, 56);
  EXPECT_EQ(parsed(changed("qwen2-window", "max_window_layers", 2)).max_positions, 64);
  EXPECT_EQ(parsed(changed("qwen2-window", "layer_types", {"full_attention", "full_attention"}))
                .max_positions,
            64);
  Json other = changed("qwen2-window", "layer_types", {"sliding_attention", "full_attention"});
  EXPECT_EQ(parsed(other).max_positions, 56);
  other["use_sliding_window"] = false;
  EXPECT_THROW(parsed(other), Error);
}

TEST(LanguageLimits, LongRopeEndsWhereItsLongFactorsBegin) {
  const LanguageConfig language = parsed(variants().at("longrope").at("config"));
  EXPECT_EQ(language.max_positions, 64);
  EXPECT_EQ(language.limit, "rope_scaling.long_factor");
}

// --- what is refused
// ---------------------------------------------------------------------------------

struct BadRope {
  const char* text;
  const char* place;
};
void PrintTo(const BadRope& bad, std::ostream* out) { *out << bad.text; }

class RefusedRope : public ::testing::TestWithParam<BadRope> {};

TEST_P(RefusedRope, NamesTheKey) {
  const Json config = changed("llama", "rope_scaling", parse_json(GetParam().text, ""));
  try {
    parsed(config);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().where, GetParam().place) << error.what();
    EXPECT_EQ(error.exit_code(), 4);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedRope,
    ::testing::Values(
        BadRope{R"({"rope_type": "proportional", "factor": 2})", "rope_scaling.rope_type"},
        BadRope{R"({"type": "mrope", "mrope_section": [1, 1, 2]})", "rope_scaling.type"},
        BadRope{R"({"type": "linear"})", "rope_scaling.factor"},
        BadRope{R"({"type": "linear", "factor": 0})", "rope_scaling.factor"},
        BadRope{R"({"type": "dynamic", "factor": "2"})", "rope_scaling.factor"},
        BadRope{R"({"type": "yarn", "factor": 2, "beta_fast": -1})", "rope_scaling.beta_fast"},
        BadRope{R"({"type": "longrope", "short_factor": [1, 2]})", "rope_scaling.short_factor"},
        BadRope{R"({"type": "longrope", "short_factor": [1, 2, 0, 4]})",
                "rope_scaling.short_factor"},
        BadRope{R"({"type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4})",
                "rope_scaling.high_freq_factor"},
        BadRope{R"({"partial_rotary_factor": 0.5})", "rope_scaling.partial_rotary_factor"},
        BadRope{R"({"full_attention": {"rope_type": "default"}})", "rope_scaling.full_attention"}));

TEST(RefusedRope, HeadsThatDoNotFitTheThreeAxes) {
  Json config = variants().at("qwen2-vl").at("config");
  config.erase("rope_scaling");  // the class default is for heads of 128
  try {
    parsed(config);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().where, "rope_parameters.mrope_section") << error.what();
  }
}

}  // namespace
}  // namespace tessera::language_golden_test
