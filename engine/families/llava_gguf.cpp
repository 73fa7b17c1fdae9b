#include "engine/families/llava_gguf.h"

#include <nlohmann/json.hpp>

namespace tessera {

namespace {

// Widths and heights, one after the other.
Json gguf_grids(GgufEncoder& encoder) {
  constexpr std::string_view kKey = "vision.image_grid_pinpoints";
  const auto sides = encoder.keys.integers(kKey, 1, 16384, 512);
  Json out = Json::array();
  if (!sides) return out;
  if (sides->empty() || sides->size() % 2 != 0) {
    encoder.keys.fail(kKey, "pairs of width and height",
                      std::to_string(sides->size()) + " numbers");
  }
  for (std::size_t i = 0; i < sides->size(); i += 2) {
    out.push_back({(*sides)[i + 1], (*sides)[i]});  // folders have heights first
  }
  return out;
}

// A converter keeps the layers up to the feature's; vision.feature_layer names several, counted as
// the reference does.
void gguf_features(GgufEncoder& encoder, Json& config) {
  constexpr std::string_view kKey = "vision.feature_layer";
  const std::int64_t layers = config["vision_config"]["num_hidden_layers"].get<std::int64_t>();
  const auto entries = encoder.keys.integers(kKey, 0, layers, 64);
  if (!entries && encoder.has("v.post_ln.weight")) {
    encoder.keys.fail(kKey, "the layer of the features, in a file with the norm after the last one",
                      "no such key");
  }
  if (!entries) {
    config["vision_feature_layer"] = layers;
  } else if (entries->size() == 1) {
    config["vision_feature_layer"] = entries->front();
  } else {
    config["vision_feature_layer"] = *entries;
  }
}

}  // namespace

// Of the authors' files padding to a square is meant where nothing is said.
void gguf_llava(GgufEncoder& encoder, Json& config, Json& processor) {
  GgufKeyReader& keys = encoder.keys;
  const bool clip = encoder.has("v.class_embd");
  Json vision = clip_sizes(encoder);
  const std::string activation = clip_activation(encoder);
  if (activation == "silu") keys.fail("use_silu", "false, with a projector of type mlp", "true");
  vision["model_type"] = clip ? "clip_vision_model" : "siglip_vision_model";
  vision["hidden_act"] = clip ? activation : kSiglipActivation;
  const std::int64_t side = vision["image_size"].get<std::int64_t>();
  const Json grids = gguf_grids(encoder);
  const std::string merge = keys.text("vision.mm_patch_merge_type").value_or("");
  const std::string ratio = keys.text("vision.image_aspect_ratio").value_or("");
  if (!grids.empty() && !merge.empty() && merge != "spatial_unpad") {
    keys.fail("vision.mm_patch_merge_type", "spatial_unpad", merge);
  }
  if (grids.empty() && !merge.empty() && merge != "flat") {
    keys.fail("vision.mm_patch_merge_type", "flat, without image_grid_pinpoints", merge);
  }
  const bool known = grids.empty() ? ratio.empty() || ratio == "pad" || ratio == "square"
                                   : ratio.empty() || ratio == "anyres";
  if (!known) {
    keys.fail("vision.image_aspect_ratio", grids.empty() ? "pad or square" : "anyres", ratio);
  }
  const std::string kind = keys.text("vision.mm_projector_type").value_or("mlp2x_gelu");
  if (kind != "mlp2x_gelu") keys.fail("vision.mm_projector_type", "mlp2x_gelu", kind);
  config = {{"model_type", grids.empty() ? "llava" : "llava_next"},
            {"vision_config", std::move(vision)},
            {"vision_feature_select_strategy", clip ? "default" : "full"}};
  gguf_features(encoder, config);
  const bool pads = grids.empty() && ratio != "square";
  processor = {{"size", {{"shortest_edge", side}}}, {"crop_size", side}};
  processor["image_processor_type"] = !grids.empty() ? "LlavaNextImageProcessor"
                                      : pads         ? "LlavaImageProcessor"
                                                     : "CLIPImageProcessor";
  if (pads) processor["do_pad"] = true;
  if (!grids.empty()) {
    config["image_grid_pinpoints"] = grids;
    processor["image_grid_pinpoints"] = grids;
  }
  clip_levels(encoder, processor);
}

}  // namespace tessera
