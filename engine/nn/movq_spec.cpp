// Spells the names of the video tokenizer and derives every shape from the spec.
#include "engine/nn/movq_spec.h"

#include <utility>

#include "engine/core/index.h"

namespace tessera {

namespace {

VqSpec frame_spec(const MovqSpec& spec) {
  VqSpec frame = spec.frame;
  frame.names = VqNames::kHfJanus;
  frame.prefix.clear();
  return frame;
}

std::vector<std::string> split(const std::string& name) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t dot = std::min(name.find('.', at), name.size());
    parts.push_back(name.substr(at, dot - at));
    at = dot + 1;
  }
  return parts;
}

std::string join(const std::vector<std::string>& parts) {
  std::string name;
  for (const std::string& part : parts) name += (name.empty() ? "" : ".") + part;
  return name;
}

class FrameLister {
 public:
  explicit FrameLister(const MovqSpec& spec) : spec_(spec), channels_(spec.frame.latent_channels) {}

  void frames(std::span<const ConvStep> steps, VqSide side) {
    for (TensorSpec& tensor : conv_step_tensors(steps, movq_norm(spec_, side))) {
      bool linear = false;
      tensor.name = movq_name(spec_, tensor.name, linear);
      if (linear) tensor.shape = {tensor.shape[0], tensor.shape[1]};
      out_.push_back(std::move(tensor));
    }
  }
  void time_conv(const std::string& name, int kt, int k) {
    add(name + ".weight", {channels_, channels_, kt, k, k});
    add(name + ".bias", {channels_});
  }
  void time_side(const std::string& side, int kt) {
    for (int i = 0; i < spec_.time_steps; ++i) {
      time_conv(side + ".time_conv." + std::to_string(i) + ".conv.conv", kt, 3);
    }
    for (std::int64_t i = 0; i < spec_.frame.res_blocks; ++i) {
      const std::string block = side + ".time_res_stack." + std::to_string(i);
      for (const char* number : {"1", "2"}) {
        for (const char* leaf : {".weight", ".bias", ".running_mean", ".running_var"}) {
          add(block + ".norm" + number + leaf, {channels_});
        }
        time_conv(block + ".conv" + number + ".conv", 3, 3);
      }
    }
  }
  void add(const std::string& name, Shape shape) {
    out_.push_back({spec_.frame.prefix + name, shape});
  }
  std::vector<TensorSpec> take() { return std::move(out_); }

 private:
  const MovqSpec& spec_;
  std::int64_t channels_;
  std::vector<TensorSpec> out_;
};

}  // namespace

std::vector<ConvStep> movq_encoder_steps(const MovqSpec& spec) {
  return vq_encoder_body(frame_spec(spec));
}
std::vector<ConvStep> movq_decoder_steps(const MovqSpec& spec) {
  return vq_decoder_body(frame_spec(spec));
}

GroupNormOptions movq_norm(const MovqSpec& spec, VqSide side) {
  return {spec.frame.norm_groups, spec.frame.norm_eps,
          side == VqSide::kDecoder ? narrow<int>(spec.frame.embed_dim) : 0};
}

std::string movq_name(const MovqSpec& spec, const std::string& name, bool& linear) {
  std::vector<std::string> parts = split(name);
  const bool hf = spec.names == MovqNames::kHfEmu3;
  const auto insert = [&](std::size_t at, const char* text) {
    parts.insert(parts.begin() + to_index(at), text);
  };
  linear = false;
  // decoder.up.{k}: k in execution order here, the level in the files.
  if (parts[1] == "up") {
    const auto last = narrow<int>(spec.frame.multipliers.size()) - 1;
    parts[2] = std::to_string(last - std::stoi(parts[2]));
  }
  if (!hf) return spec.frame.prefix + join(parts);
  if (parts[1] == "mid") {
    parts[1] = "middle_block";
    if (parts[2] == "attn_1" && parts[3] == "norm") {
      parts.erase(parts.begin() + 2);
      parts[2] = "attn_norm";
    }
  } else if (parts[1] == "down" || parts[1] == "up") {
    if (parts[3] == "attn" && parts[5] == "norm") {
      parts[3] = "attn_norms";
      parts.erase(parts.begin() + 5);
    }
    insert(1, parts[1] == "down" ? "down_block" : "up_block");
  }
  std::string& leaf = parts[parts.size() - 2];
  for (const auto& [from, to] : {std::pair("q", "q_proj"), std::pair("k", "k_proj"),
                                 std::pair("v", "v_proj"), std::pair("proj_out", "out_proj")}) {
    if (leaf != from) continue;
    leaf = to;
    linear = parts.back() == "weight";
    break;
  }
  return spec.frame.prefix + join(parts);
}

std::vector<TensorSpec> movq_tensors(const MovqSpec& spec) {
  expects(spec.frame.embed_dim == spec.frame.latent_channels,
          "codes and latents pass the decoder's convolutions together");
  FrameLister lister(spec);
  lister.frames(movq_encoder_steps(spec), VqSide::kEncoder);
  lister.time_side("encoder", 4);
  lister.frames(movq_decoder_steps(spec), VqSide::kDecoder);
  lister.time_side("decoder", 3);
  lister.add("quantize.embedding.weight", {spec.frame.codes, spec.frame.embed_dim});
  lister.time_conv("quant_conv.conv", 3, 1);
  lister.time_conv("post_quant_conv.conv", 3, 1);
  return lister.take();
}

}  // namespace tessera
