// Spells the tensor names of a VQGAN under its naming schemes and derives every shape from the
// spec.
#include "engine/nn/vq_spec.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

std::string side_name(VqSide side) { return side == VqSide::kEncoder ? "encoder" : "decoder"; }

std::string level_name(const VqSpec& spec, VqSide side, std::int64_t level) {
  const bool reversed = spec.names == VqNames::kTaming && side == VqSide::kDecoder;
  if (reversed) level = std::ssize(spec.multipliers) - 1 - level;
  const char* folder = spec.names == VqNames::kLlamaGen ? ".conv_blocks."
                       : side == VqSide::kEncoder       ? ".down."
                                                        : ".up.";
  return side_name(side) + folder + std::to_string(level);
}

class Lister {
 public:
  explicit Lister(const VqSpec& spec) : spec_(spec) {}

  void conv(const std::string& name, std::int64_t out, std::int64_t in, std::int64_t kernel) {
    add(name + ".weight", {out, in, kernel, kernel});
    add(name + ".bias", {out});
  }
  void norm(const std::string& name, std::int64_t channels) {
    add(name + ".weight", {channels});
    add(name + ".bias", {channels});
  }
  void res(const std::string& name, std::int64_t in, std::int64_t out) {
    norm(name + ".norm1", in);
    conv(name + ".conv1", out, in, 3);
    norm(name + ".norm2", out);
    conv(name + ".conv2", out, out, 3);
    if (in != out) conv(name + ".nin_shortcut", out, in, 1);
  }
  void attention(const std::string& name, std::int64_t channels) {
    norm(name + ".norm", channels);
    for (const char* part : {".q", ".k", ".v", ".proj_out"})
      conv(name + part, channels, channels, 1);
  }
  void mid(VqSide side, std::int64_t channels) {
    res(vq_mid_name(spec_.names, side, 0), channels, channels);
    if (spec_.attention_mid) attention(vq_mid_name(spec_.names, side, 1), channels);
    res(vq_mid_name(spec_.names, side, 2), channels, channels);
  }
  void encoder();
  void decoder();
  void add(const std::string& name, Shape shape) {
    tensors_.push_back({spec_.prefix + name, shape});
  }
  std::vector<TensorSpec> take() { return std::move(tensors_); }

 private:
  std::int64_t level_channels(std::size_t level) const {
    return spec_.base_channels * spec_.multipliers[level];
  }

  const VqSpec& spec_;
  std::vector<TensorSpec> tensors_;
};

void Lister::encoder() {
  const std::size_t levels = spec_.multipliers.size();
  std::int64_t width = spec_.base_channels;
  conv("encoder.conv_in", width, spec_.image_channels, 3);
  for (std::size_t level = 0; level < levels; ++level) {
    const auto at = to_index(level);
    const bool attend = spec_.attention_last_level && level + 1 == levels;
    for (std::int64_t j = 0; j < spec_.res_blocks; ++j) {
      res(vq_res_name(spec_, VqSide::kEncoder, at, j), width, level_channels(level));
      width = level_channels(level);
      if (attend) attention(vq_attention_name(spec_, VqSide::kEncoder, at, j), width);
    }
    if (level + 1 < levels) {
      conv(vq_resample_name(spec_, VqSide::kEncoder, at), width, width, 3);
    }
  }
  mid(VqSide::kEncoder, width);
  norm("encoder.norm_out", width);
  conv("encoder.conv_out", spec_.latent_channels, width, 3);
}

void Lister::decoder() {
  const std::size_t levels = spec_.multipliers.size();
  std::int64_t width = level_channels(levels - 1);
  conv("decoder.conv_in", width, spec_.latent_channels, 3);
  mid(VqSide::kDecoder, width);
  for (std::size_t step = 0; step < levels; ++step) {
    const std::size_t level = levels - 1 - step;
    const auto at = to_index(step);
    for (std::int64_t j = 0; j <= spec_.res_blocks; ++j) {
      res(vq_res_name(spec_, VqSide::kDecoder, at, j), width, level_channels(level));
      width = level_channels(level);
      if (spec_.attention_last_level && step == 0) {
        attention(vq_attention_name(spec_, VqSide::kDecoder, at, j), width);
      }
    }
    if (level > 0) conv(vq_resample_name(spec_, VqSide::kDecoder, at), width, width, 3);
  }
  norm("decoder.norm_out", width);
  conv("decoder.conv_out", spec_.image_channels, width, 3);
}

}  // namespace

std::string vq_res_name(const VqSpec& spec, VqSide side, std::int64_t level, std::int64_t block) {
  const char* kind = spec.names == VqNames::kLlamaGen ? ".res." : ".block.";
  return level_name(spec, side, level) + kind + std::to_string(block);
}

std::string vq_attention_name(const VqSpec& spec, VqSide side, std::int64_t level,
                              std::int64_t block) {
  return level_name(spec, side, level) + ".attn." + std::to_string(block);
}

std::string vq_mid_name(VqNames names, VqSide side, int index) {
  expects(index >= 0 && index <= 2, "mid has three blocks");
  static constexpr const char* kHf[] = {"block_1", "attn_1", "block_2"};
  const std::string leaf = names == VqNames::kLlamaGen ? std::to_string(index) : kHf[index];
  return side_name(side) + ".mid." + leaf;
}

std::string vq_resample_name(const VqSpec& spec, VqSide side, std::int64_t level) {
  const char* leaf = side == VqSide::kEncoder ? ".downsample.conv" : ".upsample.conv";
  return level_name(spec, side, level) + leaf;
}

std::vector<TensorSpec> vq_tensors(const VqSpec& spec) {
  expects(!spec.multipliers.empty(), "a VQ model has levels");
  Lister lister(spec);
  lister.encoder();
  lister.decoder();
  lister.add("quantize.embedding.weight", {spec.codes, spec.embed_dim});
  lister.conv("quant_conv", spec.embed_dim, spec.latent_channels, 1);
  lister.conv("post_quant_conv", spec.latent_channels, spec.embed_dim, 1);
  return lister.take();
}

std::int64_t vq_parameter_count(const VqSpec& spec) {
  std::int64_t sum = 0;
  for (const TensorSpec& tensor : vq_tensors(spec)) sum += tensor.shape.elements();
  return sum;
}

}  // namespace tessera
