// Damaged config.json files of both families.
#include <nlohmann/json.hpp>

#include "tests/bad_files/bad_sample.h"
#include "tests/support/small_models.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

BadSample raw(std::string name, std::string code, std::vector<std::string> words, std::string text) {
  return {.name = "cfg_" + std::move(name),
          .read_as = ReadAs::kConfig,
          .code = std::move(code),
          .words = std::move(words),
          .files = {{"config.json", std::move(text)}}};
}

// One value of a good configuration replaced; `pointer` is a JSON pointer.
BadSample edit(const char* base, std::string name, std::string code, std::vector<std::string> words,
             const char* pointer, Json value) {
  Json json = Json::parse(base);
  json[Json::json_pointer(pointer)] = std::move(value);
  return raw(std::move(name), std::move(code), std::move(words), json.dump());
}

void add_texts(std::vector<BadSample>& out) {
  out.push_back(raw("empty", "E_JSON", {"byte 0"}, ""));
  out.push_back(
      raw("cut", "E_JSON", {"the end of the text"}, std::string(kSmallJanusConfig).substr(0, 200)));
  out.push_back(raw("byte_order_mark", "E_JSON", {"byte order mark"},
                    "\xef\xbb\xbf" + std::string(kSmallJanusConfig)));
  out.push_back(raw("comment", "E_JSON", {"'/'"}, "// a config\n{}"));
  out.push_back(raw("not_utf8", "E_JSON_UTF8", {"UTF-8"}, "{\"model_type\":\"jan\xffus\"}"));
  out.push_back(raw("key_twice", "E_JSON_DUPLICATE", {"model_type"},
                    R"({"model_type":"janus","model_type":"llamagen"})"));
  out.push_back(raw("too_deep", "E_JSON_DEPTH", {"at most 32"},
                    "{\"a\":" + std::string(40, '[') + std::string(40, ']') + "}"));
  out.push_back(raw("million_brackets", "E_JSON_DEPTH", {"32"}, std::string(1'000'000, '[')));
  out.push_back(raw("over_32_mib", "E_IO_SIZE", {"33554432"},
                    std::string(kSmallJanusConfig) + std::string(32 << 20, ' ')));
  out.push_back(raw("a_list", "E_JSON_TYPE", {"an object"}, "[]"));
  out.push_back(
      raw("infinite_number", "E_JSON_NUMBER", {"1e999"}, R"({"model_type":"janus","x":1e999})"));
  out.push_back(raw("number_2_64", "E_JSON_NUMBER", {"18446744073709551616"},
                    R"({"model_type":"janus","x":18446744073709551616})"));
  out.push_back(raw("family_unknown", "E_FAMILY_UNKNOWN", {"janus, llamagen", "\"resnet\""},
                    R"({"model_type":"resnet"})"));
  out.push_back(raw("family_missing", "E_FAMILY_UNKNOWN", {"no model_type"}, "{}"));
  out.push_back(raw("family_asks_for_code", "E_FAMILY_UNKNOWN", {"known family"},
                    R"({"auto_map":{"AutoModel":"evil.Model"},"trust_remote_code":true})"));
  out.push_back(raw("family_with_escape_code", "E_FAMILY_UNKNOWN", {"\\u{001b}"},
                    "{\"model_type\":\"\\u001b[31mjanus\"}"));
}

void add_janus(std::vector<BadSample>& out) {
  const auto janus = [&](const char* name, const char* code, std::vector<std::string> words,
                         const char* pointer, Json value) {
    out.push_back(edit(kSmallJanusConfig, std::string("janus_") + name, code, std::move(words),
                       pointer, std::move(value)));
  };
  janus("layers_zero", "E_JSON_RANGE", {"text_config.num_hidden_layers", "1..1024", "found 0"},
        "/text_config/num_hidden_layers", 0);
  janus("layers_1025", "E_JSON_RANGE", {"1..1024", "found 1025"}, "/text_config/num_hidden_layers",
        1025);
  janus("layers_negative", "E_JSON_RANGE", {"found -1"}, "/text_config/num_hidden_layers", -1);
  janus("layers_fraction", "E_JSON_TYPE", {"2.5"}, "/text_config/num_hidden_layers", 2.5);
  janus("layers_text", "E_JSON_TYPE", {"\"2\""}, "/text_config/num_hidden_layers", "2");
  janus("width_65537", "E_JSON_RANGE", {"text_config.hidden_size", "65536"},
        "/text_config/hidden_size", 65537);
  janus("width_2_63", "E_JSON_RANGE", {"9223372036854775808"}, "/text_config/hidden_size",
        std::uint64_t{1} << 63);
  janus("width_not_whole_heads", "E_JSON_VALUE", {"hidden_size", "multiple of 4"},
        "/text_config/hidden_size", 66);
  janus("heads_2_32", "E_JSON_RANGE", {"num_attention_heads", "1024"},
        "/text_config/num_attention_heads", std::uint64_t{1} << 32);
  janus("kv_heads_no_divisor", "E_JSON_VALUE", {"num_key_value_heads", "divisor of 4", "found 3"},
        "/text_config/num_key_value_heads", 3);
  janus("vocab_2_22_plus_1", "E_JSON_RANGE", {"4194304"}, "/text_config/vocab_size", 4194305);
  janus("activation_unknown", "E_JSON_VALUE", {"hidden_act", "\"relu\""}, "/text_config/hidden_act",
        "\"relu\"");
  janus("eps_zero", "E_JSON_RANGE", {"rms_norm_eps"}, "/text_config/rms_norm_eps", 0.0);
  janus("theta_text", "E_JSON_TYPE", {"rope_theta"}, "/text_config/rope_theta", "1e4");
  janus("text_config_a_list", "E_JSON_TYPE", {"text_config", "an array"}, "/text_config",
        Json::array());
  janus("codes_2_20_plus_1", "E_JSON_RANGE", {"num_embeddings", "1048576"},
        "/vq_config/num_embeddings", 1048577);
  janus("levels_none", "E_JSON_VALUE", {"channel_multiplier", "none"},
        "/vq_config/channel_multiplier", Json::array());
  janus("levels_nine", "E_JSON_RANGE", {"channel_multiplier", "at most 8"},
        "/vq_config/channel_multiplier", std::vector<int>(9, 1));
  janus("level_zero", "E_JSON_RANGE", {"channel_multiplier[1]", "found 0"},
        "/vq_config/channel_multiplier", {1, 0});
  janus("channels_not_in_groups", "E_JSON_VALUE", {"base_channels", "groups of 32"},
        "/vq_config/base_channels", 33);
  janus("side_over_16384", "E_JSON_VALUE", {"num_patches", "16384 pixels"},
        "/vq_config/num_patches", 8192);
  janus("grid_over_positions", "E_JSON_VALUE", {"max_position_embeddings 1024", "1024"},
        "/vq_config/num_patches", 32);
  janus("projection_of_another_width", "E_JSON_VALUE", {"projection_dim", "64"},
        "/vq_config/projection_dim", 128);
}

void add_others(std::vector<BadSample>& out) {
  out.push_back(edit(kSmallOriginalConfig, "original_tower_unknown", "E_JSON_VALUE",
                     {"model_name", "SigLIP"}, "/vision_config/params", {{"model_name", "clip"}}));
  out.push_back(edit(kSmallOriginalConfig, "original_cls", "E_JSON_VALUE", {"VQ-16", "VQ-8"},
                     "/gen_vision_config/cls", "VQ-8"));
  out.push_back(edit(kSmallOriginalConfig, "original_head_codes", "E_JSON_VALUE",
                     {"gen_head_config.params.image_token_size", "256"},
                     "/gen_head_config/params/image_token_size", 512));
  const auto llamagen = [&](const char* name, const char* code, std::vector<std::string> words,
                            const char* pointer, Json value) {
    out.push_back(edit(kSmallLlamaGenConfig, std::string("llamagen_") + name, code,
                       std::move(words), pointer, std::move(value)));
    // Its configuration is read only next to weights.
    out.back().files.push_back({"model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10)});
  };
  llamagen("heads_no_divisor", "E_JSON_VALUE", {"dim", "64 / 5"}, "/n_head", 5);
  llamagen("layers_zero", "E_JSON_RANGE", {"n_layer", "1..1024"}, "/n_layer", 0);
  llamagen("places_no_square", "E_JSON_VALUE", {"block_size", "square", "17"}, "/block_size", 17);
  llamagen("video_conditioned", "E_JSON_VALUE", {"c2i", "t2v"}, "/model_type", "t2v");
  llamagen("no_null_class", "E_JSON_VALUE", {"class_dropout_prob"}, "/class_dropout_prob", 0.0);
}

}  // namespace

std::vector<BadSample> config_bad_samples() {
  std::vector<BadSample> out;
  add_texts(out);
  add_janus(out);
  add_others(out);
  return out;
}

}  // namespace tessera
