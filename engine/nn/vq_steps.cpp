// Writes the VQGAN graph of a spec as steps, in execution order, under any naming scheme.
#include "engine/core/index.h"
#include "engine/nn/vq_graph.h"

namespace tessera {

namespace {

// Writes one side of the graph step by step, carrying the width along.
class Walk {
 public:
  Walk(const VqSpec& spec, VqSide side, std::int64_t width)
      : spec_(spec), side_(side), width_(narrow<int>(width)) {}

  void conv(ConvStepKind kind, const std::string& name, std::int64_t out) {
    steps_.push_back({kind, spec_.prefix + name, width_, narrow<int>(out)});
    width_ = narrow<int>(out);
  }
  void attention(const std::string& name) { conv(ConvStepKind::kAttention, name, width_); }
  void mid() {
    conv(ConvStepKind::kRes, vq_mid_name(spec_.names, side_, 0), width_);
    if (spec_.attention_mid) attention(vq_mid_name(spec_.names, side_, 1));
    conv(ConvStepKind::kRes, vq_mid_name(spec_.names, side_, 2), width_);
  }
  // `at` counts levels in this side's own order; `deepest` levels may attend.
  void level(std::int64_t at, std::int64_t blocks, std::int64_t out, bool deepest) {
    for (std::int64_t j = 0; j < blocks; ++j) {
      conv(ConvStepKind::kRes, vq_res_name(spec_, side_, at, j), out);
      if (deepest && spec_.attention_last_level) {
        attention(vq_attention_name(spec_, side_, at, j));
      }
    }
  }
  void resample(ConvStepKind kind, std::int64_t at) {
    conv(kind, vq_resample_name(spec_, side_, at), width_);
  }
  void finish(const std::string& norm, const std::string& name, std::int64_t out) {
    conv(ConvStepKind::kNormConv3, name, out);
    steps_.back().norm_name = spec_.prefix + norm;
  }
  std::vector<ConvStep> take() { return std::move(steps_); }

 private:
  const VqSpec& spec_;
  VqSide side_;
  int width_;
  std::vector<ConvStep> steps_;
};

}  // namespace

std::vector<ConvStep> vq_encoder_body(const VqSpec& spec) {
  const auto levels = std::ssize(spec.multipliers);
  Walk walk(spec, VqSide::kEncoder, spec.image_channels);
  walk.conv(ConvStepKind::kConv3, "encoder.conv_in", spec.base_channels);
  for (std::int64_t at = 0; at < levels; ++at) {
    const std::int64_t width = spec.base_channels * nth(spec.multipliers, at);
    walk.level(at, spec.res_blocks, width, at + 1 == levels);
    if (at + 1 < levels) walk.resample(ConvStepKind::kDown, at);
  }
  walk.mid();
  walk.finish("encoder.norm_out", "encoder.conv_out", spec.latent_channels);
  return walk.take();
}

std::vector<ConvStep> vq_encoder_steps(const VqSpec& spec) {
  std::vector<ConvStep> steps = vq_encoder_body(spec);
  steps.push_back({ConvStepKind::kConv1, spec.prefix + "quant_conv",
                   narrow<int>(spec.latent_channels), narrow<int>(spec.embed_dim)});
  return steps;
}

std::vector<ConvStep> vq_decoder_steps(const VqSpec& spec) {
  std::vector<ConvStep> steps = vq_decoder_body(spec);
  steps.insert(steps.begin(), {ConvStepKind::kConv1, spec.prefix + "post_quant_conv",
                               narrow<int>(spec.embed_dim), narrow<int>(spec.latent_channels)});
  return steps;
}

std::vector<ConvStep> vq_decoder_body(const VqSpec& spec) {
  const auto levels = std::ssize(spec.multipliers);
  Walk walk(spec, VqSide::kDecoder, spec.latent_channels);
  walk.conv(ConvStepKind::kConv3, "decoder.conv_in", spec.base_channels * spec.multipliers.back());
  walk.mid();
  for (std::int64_t at = 0; at < levels; ++at) {
    const std::int64_t width = spec.base_channels * nth(spec.multipliers, levels - 1 - at);
    walk.level(at, spec.res_blocks + 1, width, at == 0);
    if (at + 1 < levels) walk.resample(ConvStepKind::kUp, at);
  }
  walk.finish("decoder.norm_out", "decoder.conv_out", spec.image_channels);
  return walk.take();
}

}  // namespace tessera
