// Configurations: what each field's bad value gets (exit 4, JSON path, range, value), how folders
// are recognised. Published checkpoints by name are in tests/golden/names.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "apps/lab/models/test_models.h"
#include "engine/core/json.h"
#include "engine/families/folder_files.h"
#include "engine/families/open_model.h"
#include "tests/support/temp_folder.h"

namespace tessera::families_test {
namespace {

Json port_config() { return Json::parse(test_model_config("tiny")); }

Json original_config() {
  return Json::parse(R"({"model_type": "multi_modality",
    "language_config": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
      "vocab_size": 99, "max_position_embeddings": 1024},
    "vision_config": {"cls": "CLIPVisionTower", "params": {"image_size": 64,
      "model_name": "siglip_large_patch16_384"}},
    "aligner_config": {"params": {"depth": 2, "input_dim": 1024, "n_embed": 64,
      "projector_type": "mlp_gelu"}},
    "gen_vision_config": {"cls": "VQ-16", "params": {"image_token_size": 64, "n_embed": 8}},
    "gen_aligner_config": {"params": {"depth": 2, "input_dim": 8, "n_embed": 64}},
    "gen_head_config": {"params": {"image_token_embed": 64, "image_token_size": 64,
      "n_embed": 64}}})");
}

Json llamagen_config() {
  return Json::parse(R"({"model_type": "c2i", "dim": 64, "n_layer": 2, "n_head": 4,
    "vocab_size": 128, "num_classes": 10, "block_size": 16, "multiple_of": 16})");
}

struct Bad {
  const char* base;     // "port", "original", "llamagen"
  const char* pointer;  // where
  const char* value;    // JSON put there
  const char* place;    // part of the message's place
};

void PrintTo(const Bad& bad, std::ostream* out) {
  *out << bad.base << " " << bad.pointer << " = " << bad.value;
}

class BadConfig : public ::testing::TestWithParam<Bad> {};

TEST_P(BadConfig, IsRefusedByPathRangeAndValue) {
  const Bad& bad = GetParam();
  const std::string base = bad.base;
  Json config = base == "port"       ? port_config()
                : base == "original" ? original_config()
                                     : llamagen_config();
  EXPECT_NO_THROW(parse_family_config(config.dump(), "config.json")) << "the base is good";
  config[Json::json_pointer(bad.pointer)] = Json::parse(bad.value);
  try {
    parse_family_config(config.dump(), "config.json");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_EQ(error.info().file, "config.json");
    EXPECT_NE(error.info().where.find(bad.place), std::string::npos) << error.what();
    EXPECT_FALSE(error.info().expected.empty());
    EXPECT_FALSE(error.info().found.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Port, BadConfig,
    ::testing::Values(
        Bad{"port", "/model_type", R"("llava")", "model_type"},
        Bad{"port", "/model_type", "7", "model_type"},
        Bad{"port", "/text_config", "[]", "text_config"},
        Bad{"port", "/text_config/hidden_size", "0", "text_config.hidden_size"},
        Bad{"port", "/text_config/hidden_size", "-64", "text_config.hidden_size"},
        Bad{"port", "/text_config/hidden_size", "65537", "text_config.hidden_size"},
        Bad{"port", "/text_config/hidden_size", "64.5", "text_config.hidden_size"},
        Bad{"port", "/text_config/hidden_size", R"("64")", "text_config.hidden_size"},
        Bad{"port", "/text_config/hidden_size", "66", "text_config.hidden_size"},
        Bad{"port", "/text_config/hidden_size", "18446744073709551616", "hidden_size"},
        Bad{"port", "/text_config/num_hidden_layers", "1025", "num_hidden_layers"},
        Bad{"port", "/text_config/num_attention_heads", "1025", "num_attention_heads"},
        Bad{"port", "/text_config/num_key_value_heads", "3", "num_key_value_heads"},
        Bad{"port", "/text_config/head_dim", "15", "head_dim"},
        Bad{"port", "/text_config/head_dim", "4098", "head_dim"},
        Bad{"port", "/text_config/intermediate_size", "0", "intermediate_size"},
        Bad{"port", "/text_config/vocab_size", "4194305", "vocab_size"},
        Bad{"port", "/text_config/rms_norm_eps", "-1e-6", "rms_norm_eps"},
        Bad{"port", "/text_config/rope_theta", "0", "rope_theta"},
        Bad{"port", "/text_config/rope_scaling", R"({"rope_type": "yarn"})", "rope_scaling"},
        Bad{"port", "/text_config/rope_parameters", R"({"rope_type": "ntk"})", "rope_type"},
        Bad{"port", "/text_config/rope_parameters", R"({"rope_type": "llama3"})", "factor"},
        Bad{"port", "/text_config/hidden_act", R"("gelu")", "hidden_act"},
        Bad{"port", "/text_config/attention_bias", "7", "attention_bias"},
        Bad{"port", "/text_config/mlp_bias", "1", "mlp_bias"},
        Bad{"port", "/quantization_config", R"({"quant_method": "gptq"})", "quantization_config"},
        Bad{"port", "/text_config/model_type", R"("qwen2")", "text_config.model_type"},
        Bad{"port", "/text_config/max_position_embeddings", "64", "num_patches"},
        Bad{"port", "/vq_config/num_embeddings", "1048577", "num_embeddings"},
        Bad{"port", "/vq_config/base_channels", "48", "base_channels"},
        Bad{"port", "/vq_config/channel_multiplier", "[]", "channel_multiplier"},
        Bad{"port", "/vq_config/channel_multiplier", "[1,2,0]", "channel_multiplier"},
        Bad{"port", "/vq_config/channel_multiplier", "[1,1,1,1,1,1,1,1,1]", "channel_multiplier"},
        Bad{"port", "/vq_config/num_res_blocks", "17", "num_res_blocks"},
        Bad{"port", "/vq_config/embed_dim", "0", "embed_dim"},
        Bad{"port", "/vq_config/projection_dim", "65", "projection_dim"},
        Bad{"port", "/vq_config/image_token_embed_dim", "32", "image_token_embed_dim"},
        Bad{"port", "/vq_config/num_hidden_layers", "3", "num_hidden_layers"},
        Bad{"port", "/vq_config/double_latent", "true", "double_latent"},
        Bad{"port", "/vq_config/num_patches", "8192", "num_patches"},
        Bad{"port", "/vq_config/num_patches", "0", "num_patches"},
        Bad{"port", "/vision_config", R"({"projection_dim": 64, "num_image_tokens": 5})",
            "num_image_tokens"},
        Bad{"port", "/vision_config", R"({"projection_dim": 65})", "projection_dim"},
        Bad{"port", "/vision_config", R"({"projection_dim": 64, "image_size": 16385})",
            "image_size"},
        Bad{"port", "/vision_config", R"({"projection_dim": 64, "use_qk_norm": true})",
            "use_qk_norm"}));

INSTANTIATE_TEST_SUITE_P(
    Original, BadConfig,
    ::testing::Values(
        Bad{"original", "/language_config/hidden_size", "100000", "language_config.hidden_size"},
        Bad{"original", "/vision_config/params/model_name", R"("vit_h")", "model_name"},
        Bad{"original", "/vision_config/params/image_size", "8", "image_size"},
        Bad{"original", "/vision_config/params",
            R"({"model_name": "siglip_large_patch16_384", "patch_size": 1024})", "patch_size"},
        Bad{"original", "/aligner_config/params/projector_type", R"("linear")", "projector_type"},
        Bad{"original", "/aligner_config/params/input_dim", "768", "input_dim"},
        Bad{"original", "/aligner_config/params/n_embed", "65", "n_embed"},
        Bad{"original", "/gen_vision_config/cls", R"("VQ-8")", "gen_vision_config.cls"},
        Bad{"original", "/gen_vision_config/params/n_embed", "0", "n_embed"},
        Bad{"original", "/gen_aligner_config/params/depth", "3", "depth"},
        Bad{"original", "/gen_aligner_config/params/input_dim", "16", "input_dim"},
        Bad{"original", "/gen_head_config/params/image_token_size", "65", "image_token_size"},
        Bad{"original", "/gen_head_config/params/image_token_embed", "65", "image_token_embed"}));

INSTANTIATE_TEST_SUITE_P(
    LlamaGen, BadConfig,
    ::testing::Values(Bad{"llamagen", "/model_type", R"("t2v")", "model_type"},
                      Bad{"llamagen", "/dim", "65", "dim"}, Bad{"llamagen", "/dim", "72", "dim"},
                      Bad{"llamagen", "/n_layer", "0", "n_layer"},
                      Bad{"llamagen", "/n_head", "2000", "n_head"},
                      Bad{"llamagen", "/n_kv_head", "3", "n_kv_head"},
                      Bad{"llamagen", "/block_size", "15", "block_size"},
                      Bad{"llamagen", "/block_size", "1048577", "block_size"},
                      Bad{"llamagen", "/vocab_size", "0", "vocab_size"},
                      Bad{"llamagen", "/num_classes", "-1", "num_classes"},
                      Bad{"llamagen", "/cls_token_num", "120", "cls_token_num"},
                      Bad{"llamagen", "/class_dropout_prob", "0", "class_dropout_prob"},
                      Bad{"llamagen", "/norm_eps", "2", "norm_eps"},
                      Bad{"llamagen", "/multiple_of", "0", "multiple_of"}));

TEST(Families, UnknownOneListsTheKnownOnes) {
  for (const char* text : {R"({"model_type":"flux"})", R"({})", R"({"auto_map":{"a":"b.c"}})"}) {
    try {
      parse_family_config(text, "config.json");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_FAMILY_UNKNOWN");
      for (const std::string_view name : family_names()) {
        EXPECT_NE(error.info().expected.find(name), std::string::npos) << name;
      }
    }
  }
  EXPECT_THROW(parse_family_config("[1]", "config.json"), Error);
}

TEST(Families, NothingThere) {
  const TempFolder folder;
  for (const char* name : {"", "missing", "missing/config.json"}) {
    EXPECT_THROW(open_model((folder / name).string()), Error) << name;
  }
}

TEST(Families, AbsentTextFieldsAreLlamaDefaults) {
  const ModelSpec spec = parse_family_config(
      R"({"model_type":"janus","vision_config":{"projection_dim":4096},
          "vq_config":{"projection_dim":4096,"image_token_embed_dim":4096}})",
      "config.json");
  const ModelConfig& model = spec.model.transformer;
  EXPECT_EQ(model.width, 4096);
  EXPECT_EQ(model.layers, 32);
  EXPECT_EQ(model.heads, 32);
  EXPECT_EQ(model.ffn_width, 11008);
  EXPECT_EQ(model.head_dim, 128);
  EXPECT_EQ(spec.model.prompt_vocab, 32000);
  EXPECT_EQ(spec.model.grid_rows, 24);
  EXPECT_EQ(spec.model.max_prompt, 2048 - 576);
}

TEST(Families, NullVisionMeansNoUnderstandingHalf) {
  const ModelSpec without = parse_family_config(port_config().dump(), "config.json");
  Json config = port_config();
  config["vision_config"] = {
      {"hidden_size", 32}, {"num_attention_heads", 4}, {"num_hidden_layers", 2}, {"image_size", 32},
      {"patch_size", 4},   {"num_image_tokens", 64},   {"projection_dim", 64}};
  const ModelSpec with = parse_family_config(config.dump(), "config.json");
  EXPECT_EQ(with.model.grid_rows, without.model.grid_rows);
  EXPECT_EQ(with.tensors.size(), without.tensors.size() + 3 + 2 * 16 + 2 + 4);
  for (const TensorSpec& tensor : without.tensors) {
    EXPECT_EQ(tensor.name.find("vision_model"), std::string::npos);
    EXPECT_EQ(tensor.name.find("model.aligner"), std::string::npos);
  }
}

TEST(Families, TiedTextHeadMayBeAbsent) {
  Json config = port_config();
  EXPECT_TRUE(parse_family_config(config.dump(), "c").optional_tensors.empty());
  config["text_config"]["tie_word_embeddings"] = true;
  EXPECT_EQ(parse_family_config(config.dump(), "c").optional_tensors,
            std::vector<std::string>{"lm_head.weight"});
}

TEST(Families, GenerationConfigSetsSampling) {
  const TempFolder folder;
  put_file(folder / "config.json", port_config().dump());
  put_file(folder / "generation_config.json",
           R"({"guidance_scale": 3.5, "top_k": 100, "top_p": 0.9, "eos_token_id": [1, 2]})");
  const ModelSpec spec = load_model_spec(folder.path());
  EXPECT_DOUBLE_EQ(spec.sampling.guidance, 3.5);
  EXPECT_DOUBLE_EQ(spec.sampling.temperature, 1.0);
  EXPECT_EQ(spec.sampling.top_k, 100);
  EXPECT_DOUBLE_EQ(spec.sampling.top_p, 0.9);
  // What a record could not say is no preset either.
  for (const char* wrong : {R"({"top_p": 1.5})", R"({"top_p": 0})", R"({"guidance_scale": 101})",
                            R"({"guidance_scale": -1})", R"({"temperature": 101})"}) {
    put_file(folder / "generation_config.json", wrong);
    EXPECT_THROW(load_model_spec(folder.path()), Error) << wrong;
  }
}

TEST(Families, ADraftFolderHoldsNeitherTextHeadNorImageTokenizer) {
  Json config = port_config();
  const ModelSpec whole = parse_family_config(config.dump(), "c");
  EXPECT_FALSE(whole.draft.has_value());
  config["draft_config"] = {{"guidance", 2.5}};
  const ModelSpec draft = parse_family_config(config.dump(), "c");
  ASSERT_TRUE(draft.draft.has_value());
  EXPECT_DOUBLE_EQ(draft.draft->guidance, 2.5);
  EXPECT_EQ(draft.tensors.size() + 1 + vq_tensors(whole.vq).size(), whole.tensors.size());
  for (const TensorSpec& tensor : draft.tensors) {
    EXPECT_EQ(tensor.name.find("vqmodel"), std::string::npos);
    EXPECT_NE(tensor.name, "lm_head.weight");
  }
  config["draft_config"] = Json::object();
  EXPECT_DOUBLE_EQ(parse_family_config(config.dump(), "c").draft->guidance, 0);
  config["draft_config"] = {{"guidance", -1}};
  EXPECT_THROW(parse_family_config(config.dump(), "c"), Error);
}

// What the files of a folder are for, and what is asked of them.
TEST(Families, AUseReadsItsHalfAlone) {
  const TempFolder folder;
  Json config = port_config();
  put_file(folder / "config.json", config.dump());
  EXPECT_FALSE(describes_images(folder.path()));
  EXPECT_FALSE(load_model_spec(folder.path(), {.use = ModelUse::kAll}).describe.has_value());
  try {
    load_model_spec(folder.path(), {.use = ModelUse::kDescribe});
    FAIL() << "it generates only";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_FAMILY");
    EXPECT_EQ(error.info().found, "janus, which has no vision_config: it only generates");
  }
  config["vision_config"] = {
      {"hidden_size", 32}, {"num_attention_heads", 4}, {"num_hidden_layers", 2}, {"image_size", 32},
      {"patch_size", 8},   {"num_image_tokens", 16},   {"projection_dim", 64}};
  config["vq_config"]["num_patches"] = 4;
  put_file(folder / "config.json", config.dump());
  put_file(folder / "preprocessor_config.json",
           R"({"size": {"height": 32, "width": 32}, "max_image_size": {"longest_edge": 32}})");
  EXPECT_TRUE(describes_images(folder.path()));
  const ModelSpec image = load_model_spec(folder.path());
  const ModelSpec text = load_model_spec(folder.path(), {.use = ModelUse::kDescribe});
  const ModelSpec both = load_model_spec(folder.path(), {.use = ModelUse::kAll});
  EXPECT_TRUE(image.generates() && !image.describe);
  EXPECT_TRUE(!text.generates() && text.describe);
  EXPECT_TRUE(both.generates() && both.describe);
  EXPECT_EQ(image.model.vocab, 0);
  EXPECT_EQ(both.model.vocab, text.model.vocab);
  EXPECT_EQ(both.model.codes, image.model.codes);
  EXPECT_EQ(both.title, image.title);
  EXPECT_EQ(both.describe->title, text.title);
  EXPECT_EQ(both.model.transformer.rope.positions, std::max(image.model.transformer.rope.positions,
                                                            text.model.transformer.rope.positions));
  // A family that describes only.
  config["model_type"] = "idefics3";
  put_file(folder / "config.json", config.dump());
  EXPECT_THROW(load_model_spec(folder.path()), Error);
  EXPECT_EQ(load_model_spec(folder.path(), {.use = ModelUse::kAll}).family, "idefics3");
}

// And one that is not is found.
TEST(Families, EveryKeyOfGeneratingFoldersIsKnown) {
  const auto unknown = [](const ModelSpec& spec) {
    std::vector<std::string> out;
    for (const KeyAccount& key : spec.account->keys) {
      if (key.use == KeyUse::kUnknown) out.push_back(key.file + " " + key.key);
    }
    return out;
  };
  for (const char* name : {"tiny", "clip", "cosmos", "cosmos-text", "nbp"}) {
    SCOPED_TRACE(name);
    Json config = Json::parse(test_model_config(name));
    EXPECT_EQ(unknown(parse_family_config(config.dump(), "c")), std::vector<std::string>{});
    config["luck"] = 3;
    EXPECT_EQ(unknown(parse_family_config(config.dump(), "c")),
              std::vector<std::string>{"config.json luck"});
  }
  for (const char* name : {"tabletop-janus", "tabletop-video", "tabletop-draft"}) {
    SCOPED_TRACE(name);
    const auto folder = std::filesystem::path(TESSERA_SOURCE_DIR) / "assets" / "models" / name;
    EXPECT_EQ(unknown(load_model_spec(folder)), std::vector<std::string>{});
  }
}

TEST(Families, OtherFoldersOfLlavasAuthorsAreRefusedWithWhatToDo) {
  const TempFolder folder;
  for (const auto& [type, hint] :
       {std::pair{"llava_qwen", "llava_onevision"}, std::pair{"llava_mixtral", "language model"},
        std::pair{"llava_gemma", "language model"}}) {
    put_file(folder / "config.json",
             Json{{"model_type", type}, {"mm_vision_tower", "openai/clip"}}.dump());
    try {
      load_model_spec(folder.path(), {.use = ModelUse::kDescribe});
      ADD_FAILURE() << type;
    } catch (const Error& error) {
      EXPECT_EQ(error.info().found, type);
      EXPECT_NE(error.info().hint.find(hint), std::string::npos);
    }
  }
}

// Their processor writes prompts as its keys say; other values than the published are named.
TEST(Families, OtherPromptsOfJanusAuthorsAreNamed) {
  const TempFolder folder;
  Json config = original_config();
  config["vision_config"]["params"]["image_size"] = 384;
  put_file(folder / "config.json", config.dump());
  put_file(folder / "preprocessor_config.json",
           R"({"image_processor_type": "VLMImageProcessor", "image_size": 384, "min_size": 14,
               "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]})");
  const auto warnings = [&](const Json& keys) {
    put_file(folder / "processor_config.json", keys.dump());
    const ModelSpec spec = load_model_spec(folder.path(), {.use = ModelUse::kDescribe});
    const std::vector<std::string> lines = spec.describe->account->warnings();
    return lines.empty() ? std::string() : lines.front();
  };
  const Json published = {{"image_tag", "<image_placeholder>"},
                          {"add_special_token", false},
                          {"num_image_tokens", 576},
                          {"sft_format", "deepseek"},
                          {"mask_prompt", true},
                          {"ignore_id", -100}};
  EXPECT_EQ(warnings(published), "");
  for (const auto& [key, value] :
       {std::pair<const char*, Json>{"sft_format", "plain"}, {"add_special_token", true},
        {"image_tag", "<image>"}, {"image_start_tag", "<a>"}, {"image_end_tag", "<b>"}}) {
    Json keys = published;
    keys[key] = value;
    EXPECT_NE(warnings(keys).find(key), std::string::npos) << key << ": " << warnings(keys);
  }
}

TEST(Families, ADraftModelIsNamedByItsFolder) {
  const TempFolder folder;
  put_file(folder / "config.json", port_config().dump());
  EXPECT_EQ(load_model_spec(folder.path()).draft_model, "");
  put_file(folder / "generation_config.json", R"({"draft_model": "tabletop-draft"})");
  EXPECT_EQ(load_model_spec(folder.path()).draft_model, "tabletop-draft");
  for (const char* name : {"..", ".hidden", "a/b", "/etc", "..\\\\x", "a\\u0000b"}) {
    put_file(folder / "generation_config.json",
             R"({"draft_model": ")" + std::string(name) + R"("})");
    EXPECT_THROW(load_model_spec(folder.path()), Error) << name;
  }
}

TEST(Families, TheModelCardNamesTheLicence) {
  const TempFolder folder;
  put_file(folder / "config.json", port_config().dump());
  const std::string plain = load_model_spec(folder.path()).licence;
  EXPECT_NE(plain.find("DeepSeek"), std::string::npos);
  put_file(folder / "README.md", "---\nlanguage: en\nlicense:  mit \ntags: [a]\n---\n# Card\n");
  EXPECT_EQ(load_model_spec(folder.path()).licence, "mit");
  for (const char* text :
       {"# Card\nlicense: mit\n", "---\ntags: a\n---\nlicense: mit\n", "---", ""}) {
    put_file(folder / "README.md", text);
    EXPECT_EQ(load_model_spec(folder.path()).licence, plain) << text;
  }
}

// Folders that other tools made of a model, under either use.
TEST(Families, QuantisedFoldersAndAdaptersAreNamed) {
  const auto refused = [](const TempFolder& folder, ModelUse use) {
    try {
      load_model_spec(folder.path(), {.use = use});
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 4);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  for (const ModelUse use : {ModelUse::kGenerate, ModelUse::kDescribe, ModelUse::kAll}) {
    const TempFolder quantised, adapter;
    Json config = port_config();
    config["vision_config"] = Json::object();
    config["quantization_config"] = {{"quant_method", "aqlm"}, {"bits", 4}};
    put_file(quantised / "config.json", config.dump());
    EXPECT_NE(refused(quantised, use).find("quantised by aqlm, 4 bits"), std::string::npos)
        << refused(quantised, use);
    config.erase("quantization_config");
    config["text_config"]["quantization_config"] = {{"quant_method", "hqq"}};
    put_file(quantised / "config.json", config.dump());
    EXPECT_NE(refused(quantised, use).find("text_config.quantization_config"), std::string::npos)
        << refused(quantised, use);
    config["text_config"].erase("quantization_config");
    put_file(quantised / "config.json", config.dump());
    put_file(quantised / "quantize_config.json", R"({"bits": 5, "group_size": 128})");
    EXPECT_NE(refused(quantised, use).find("quantize_config.json"), std::string::npos)
        << refused(quantised, use);
    put_file(adapter / "adapter_config.json", R"({"base_model_name_or_path": "some/model"})");
    EXPECT_NE(refused(adapter, use).find("a LoRA adapter of some/model"), std::string::npos)
        << refused(adapter, use);
  }
}

// What makes a bias is the class: Mistral reads neither key.
TEST(Families, BiasesAreTensorsWhereTheConfigurationAsksForThem) {
  Json config = port_config();
  const std::size_t plain = parse_family_config(config.dump(), "c").tensors.size();
  const auto layers =
      static_cast<std::size_t>(parse_family_config(config.dump(), "c").model.transformer.layers);
  config["text_config"]["attention_bias"] = true;
  EXPECT_EQ(parse_family_config(config.dump(), "c").tensors.size(), plain + 4 * layers);
  config["text_config"]["mlp_bias"] = true;
  const ModelSpec spec = parse_family_config(config.dump(), "c");
  EXPECT_EQ(spec.tensors.size(), plain + 7 * layers);
  EXPECT_TRUE(spec.model.transformer.out_bias && spec.model.transformer.ffn_bias);
}

TEST(Families, PromptForms) {
  const ModelSpec spec = parse_family_config(port_config().dump(), "c");
  ASSERT_EQ(spec.prompt.forms.size(), 2u);
  EXPECT_EQ(spec.prompt.forms[0].requires_token, "<|User|>");
  EXPECT_EQ(spec.prompt.forms[0].before + "a cat" + spec.prompt.forms[0].after,
            "<|User|>: a cat\n\n<|Assistant|>:<begin_of_image>");
  EXPECT_EQ(spec.prompt.forms[1].before + "a cat" + spec.prompt.forms[1].after,
            "User: a cat\n\nAssistant:<begin_of_image>");
}

}  // namespace
}  // namespace tessera::families_test
