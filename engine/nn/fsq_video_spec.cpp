// Names and shapes of Cosmos' video tokenizer.
#include "engine/nn/fsq_video_spec.h"

#include <bit>

#include "engine/core/index.h"

namespace tessera {

namespace {

class VideoLister {
 public:
  explicit VideoLister(const FsqVideoSpec& spec) : spec_(spec) {}

  void conv(const std::string& name, std::int64_t out, std::int64_t in, std::int64_t kt,
            std::int64_t k) {
    add(name + ".conv3d.weight", {out, in, kt, k, k});
    add(name + ".conv3d.bias", {out});
  }
  // Over a frame, then along time.
  void split_conv(const std::string& name, std::int64_t out, std::int64_t in) {
    conv(name + ".0", out, in, 1, 3);
    conv(name + ".1", out, out, 3, 1);
  }
  void norm(const std::string& name, std::int64_t width) {
    add(name + ".norm.weight", {width});
    add(name + ".norm.bias", {width});
  }
  void res(const std::string& name, std::int64_t in, std::int64_t out) {
    norm(name + ".norm1", in);
    split_conv(name + ".conv1", out, in);
    norm(name + ".norm2", out);
    split_conv(name + ".conv2", out, out);
    if (in != out) conv(name + ".nin_shortcut", out, in, 1, 1);
  }
  void attention(const std::string& name, std::int64_t width) {
    norm(name + ".norm", width);
    for (const char* leaf : {".q", ".k", ".v", ".proj_out"}) conv(name + leaf, width, width, 1, 1);
  }
  void middle(const std::string& side) {
    const std::int64_t width = spec_.deepest();
    res(side + ".mid.block_1", width, width);
    attention(side + ".mid.attn_1.0", width);
    attention(side + ".mid.attn_1.1", width);
    res(side + ".mid.block_2", width, width);
  }
  // conv1 and conv2 by their kernels' (time, side).
  void resample(const std::string& name, std::int64_t width, FsqVideoResample used, bool down) {
    const char* space = down ? ".conv1" : ".conv2";
    const char* time = down ? ".conv2" : ".conv1";
    conv(name + space, width, width, 1, 3);
    if (!used.space) note_unused(name + space);
    conv(name + time, width, width, 3, 1);
    if (!used.time) note_unused(name + time);
    conv(name + ".conv3", width, width, 1, 1);
    if (!used.space && !used.time) note_unused(name + ".conv3");
  }
  void ends(const std::string& side, std::int64_t width, std::int64_t out) {
    norm(side + ".norm_out", width);
    split_conv(side + ".conv_out", out, width);
  }

  void encoder();
  void decoder();
  void quantizer() {
    const auto vector = std::ssize(spec_.levels);
    conv("quant_conv", vector, spec_.latent_channels, 1, 1);
    conv("post_quant_conv", spec_.latent_channels, vector, 1, 1);
  }

  std::vector<TensorSpec> tensors;
  std::vector<std::string> unused;

 private:
  void add(const std::string& name, Shape shape) {
    tensors.push_back({spec_.prefix + name, shape});
  }
  void note_unused(const std::string& name) {
    unused.push_back(spec_.prefix + name + ".conv3d.weight");
    unused.push_back(spec_.prefix + name + ".conv3d.bias");
  }

  const FsqVideoSpec& spec_;
};

void VideoLister::encoder() {
  split_conv("encoder.conv_in", spec_.channels, spec_.patch_channels());
  std::int64_t width = spec_.channels;
  for (int level = 0; level < spec_.levels_count(); ++level) {
    const std::string name = "encoder.down." + std::to_string(level);
    for (std::int64_t block = 0; block < spec_.res_blocks; ++block) {
      res(name + ".block." + std::to_string(block), width, spec_.width_of(level));
      width = spec_.width_of(level);
    }
    if (level + 1 < spec_.levels_count()) {
      resample(name + ".downsample", width, encoder_resample(spec_, level), true);
    }
  }
  middle("encoder");
  ends("encoder", width, spec_.latent_channels);
}

void VideoLister::decoder() {
  std::int64_t width = spec_.deepest();
  split_conv("decoder.conv_in", width, spec_.latent_channels);
  middle("decoder");
  for (int level = spec_.levels_count() - 1; level >= 0; --level) {
    const std::string name = "decoder.up." + std::to_string(level);
    for (std::int64_t block = 0; block <= spec_.res_blocks; ++block) {
      res(name + ".block." + std::to_string(block), width, spec_.width_of(level));
      width = spec_.width_of(level);
    }
    if (level > 0) resample(name + ".upsample", width, decoder_resample(spec_, level), false);
  }
  ends("decoder", width, spec_.patch_channels());
}

VideoLister listed(const FsqVideoSpec& spec) {
  VideoLister lister(spec);
  lister.encoder();
  lister.quantizer();
  lister.decoder();
  return lister;
}

}  // namespace

std::int64_t FsqVideoSpec::codes() const {
  std::int64_t product = 1;
  for (const std::int64_t level : levels) product *= level;
  return product;
}

int FsqVideoSpec::halvings(std::int64_t compression) const {
  const auto bits = [](std::int64_t n) {
    return narrow<int>(std::bit_width(narrow<std::uint64_t>(n)));
  };
  return bits(compression) - bits(patch);
}

FsqVideoResample encoder_resample(const FsqVideoSpec& spec, int level) {
  return {level < spec.halvings(spec.spatial), level < spec.halvings(spec.temporal)};
}

// The first level that is run enlarges no time.
FsqVideoResample decoder_resample(const FsqVideoSpec& spec, int level) {
  const int run = spec.levels_count() - 1 - level;
  const int space = spec.halvings(spec.spatial), time = spec.halvings(spec.temporal);
  const bool time_up = 0 < run && run < time + 1;
  return {time_up || (run < space && space > time), time_up};
}

std::vector<TensorSpec> fsq_video_tensors(const FsqVideoSpec& spec) { return listed(spec).tensors; }
std::vector<std::string> fsq_video_unused(const FsqVideoSpec& spec) { return listed(spec).unused; }

}  // namespace tessera
