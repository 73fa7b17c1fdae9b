// The tensors of a tower by its spec, and which specs make sense.
#include "engine/towers/vit_spec.h"

#include <algorithm>

namespace tessera {

bool VitSpec::has_window(std::int64_t layer) const {
  return window > 0 &&
         std::find(full_layers.begin(), full_layers.end(), layer) == full_layers.end();
}

std::string vit_layer_name(const VitNames& names, std::int64_t layer) {
  const std::size_t at = names.layer.find("{}");
  expects(at != std::string::npos, "a layer stem has a place for the number");
  return names.prefix + names.layer.substr(0, at) + std::to_string(layer) +
         names.layer.substr(at + 2);
}

namespace {

class List {
 public:
  void add(std::string name, Shape shape) { tensors_.push_back({std::move(name), shape}); }
  void linear(const std::string& stem, std::int64_t out, std::int64_t in) {
    add(stem + ".weight", {out, in});
    add(stem + ".bias", {out});
  }
  void norm(const std::string& stem, const VitSpec& spec) {
    add(stem + ".weight", {spec.width});
    if (spec.norm == VitNorm::kLayer) add(stem + ".bias", {spec.width});
  }
  std::vector<TensorSpec> take() { return std::move(tensors_); }

 private:
  std::vector<TensorSpec> tensors_;
};

void add_layer(const VitSpec& spec, std::int64_t layer, List& list) {
  const VitNames& names = spec.names;
  const std::string stem = vit_layer_name(names, layer);
  const std::int64_t c = spec.width;
  list.norm(stem + names.norm1, spec);
  const std::int64_t parts = 3 / std::ssize(names.qkv);
  for (const std::string& part : names.qkv) list.linear(stem + part, parts * c, c);
  list.linear(stem + names.out, c, c);
  list.norm(stem + names.norm2, spec);
  for (const std::string& part : names.mlp_in) list.linear(stem + part, spec.mlp_width, c);
  list.linear(stem + names.mlp_out, c, spec.mlp_width);
}

}  // namespace

std::vector<TensorSpec> vit_tensors(const VitSpec& spec) {
  const VitNames& names = spec.names;
  const std::string& prefix = names.prefix;
  const std::int64_t c = spec.width;
  List list;
  const std::string patch = prefix + names.patch;
  if (spec.frames == 1) {
    list.add(patch + ".weight", {c, 3, spec.patch, spec.patch});
  } else {
    list.add(patch + ".weight", {c, 3, spec.frames, spec.patch, spec.patch});
  }
  if (spec.patch_bias) list.add(patch + ".bias", {c});
  if (spec.class_token) list.add(prefix + names.class_token, {c});
  if (spec.positions == VitPositions::kLearned || spec.positions == VitPositions::kBuckets) {
    const Shape plain{spec.places(), c};
    list.add(prefix + names.positions,
             names.positions_batched ? Shape{1, spec.places(), c} : plain);
  }
  if (spec.first_norm) list.norm(prefix + names.first_norm, spec);
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) add_layer(spec, layer, list);
  if (spec.final_norm != VitFinalNorm::kNone) list.norm(prefix + names.final_norm, spec);
  return list.take();
}

void check_vit_spec(const VitSpec& spec, const std::string& file) {
  const auto refuse = [&](const char* where, std::string expected, std::int64_t found) {
    throw Error{{.kind = ErrorKind::kModel,
                 .code = "E_VIT_SPEC",
                 .file = file,
                 .where = where,
                 .expected = std::move(expected),
                 .found = std::to_string(found)}};
  };
  if (spec.heads < 1 || spec.width % spec.heads != 0) {
    refuse("heads of the image encoder", "a divisor of its width " + std::to_string(spec.width),
           spec.heads);
  }
  const bool rotary = spec.positions == VitPositions::kRotary2d;
  if (rotary && spec.head_dim() % 4 != 0) {
    refuse("head width of the image encoder", "a multiple of 4 to turn by row and column",
           spec.head_dim());
  }
  if (spec.run_layers < 1 || spec.run_layers > spec.layers) {
    refuse("feature layer of the image encoder", "1 to " + std::to_string(spec.layers),
           spec.run_layers);
  }
  for (const std::int64_t tap : spec.taps) {
    if (tap < 0 || tap > spec.run_layers) {
      refuse("feature layers of the image encoder", "0 to " + std::to_string(spec.run_layers),
             tap);
    }
  }
  if (!spec.taps.empty() && spec.final_norm == VitFinalNorm::kApplied) {
    refuse("feature layers of the image encoder", "one, where its last norm is applied",
           std::ssize(spec.taps));
  }
  if (spec.window > 0 && !rotary) {
    refuse("window of the image encoder", "windows with rotary positions only", spec.window);
  }
  if (spec.class_token && (rotary || spec.frames != 1)) {
    refuse("class token of the image encoder", "stills with a table of positions", spec.frames);
  }
  if (spec.class_token_feature && !spec.class_token) {
    refuse("class token of the image encoder", "one, as the features keep it", 0);
  }
  for (const std::int64_t layer : spec.full_layers) {
    if (layer < 0 || layer >= spec.layers) {
      refuse("full attention layer of the image encoder",
             "0 to " + std::to_string(spec.layers - 1), layer);
    }
  }
}

}  // namespace tessera
