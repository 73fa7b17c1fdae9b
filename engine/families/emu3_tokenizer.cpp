// The configuration of Emu3's video tokenizer: the authors' keys (ch, ch_mult, z_channels, double_z)
// and those of the Hugging Face port. Absent keys mean the reference class's defaults.
#include <string>

#include "engine/families/family.h"

namespace tessera {

namespace {

// The keys that the two layouts spell differently.
struct Keys {
  const char *channels, *multipliers, *latents, *twice;
};
constexpr Keys kPortKeys = {"base_channels", "channel_multiplier", "latent_channels",
                            "double_latent"};
constexpr Keys kAuthorKeys = {"ch", "ch_mult", "z_channels", "double_z"};

void read_levels(const JsonReader& config, const Keys& keys, VqSpec& frame) {
  frame.base_channels = config.integer_or(keys.channels, 256, 1, 4096);
  frame.multipliers = {1, 2, 2, 4};
  if (config.has(keys.multipliers)) {
    frame.multipliers = config.integers(keys.multipliers, 1, 64, 8);
    if (frame.multipliers.empty()) config.fail(keys.multipliers, "1 to 8 levels", "none");
  }
  for (const std::int64_t multiplier : frame.multipliers) {
    if (frame.base_channels * multiplier % frame.norm_groups != 0) {
      config.fail(keys.channels, "channels in whole groups of 32",
                  std::to_string(frame.base_channels) + " x " + std::to_string(multiplier));
    }
  }
  // Levels by number, whatever the key says of resolutions.
  const auto last = std::ssize(frame.multipliers) - 1;
  std::vector<std::int64_t> attention = {3};
  if (config.has("attn_resolutions")) attention = config.integers("attn_resolutions", 0, 4096, 8);
  if (attention != std::vector<std::int64_t>{last}) {
    config.fail("attn_resolutions", "[" + std::to_string(last) + "], the number of the last level",
                std::to_string(attention.size()) + " numbers" +
                    (attention.empty() ? "" : ", first " + std::to_string(attention.front())));
  }
}

int read_time_steps(const JsonReader& config) {
  const std::int64_t frames = config.integer_or("temporal_downsample_factor", 4, 2, 16);
  int steps = 0;
  while ((std::int64_t{1} << steps) < frames) ++steps;
  if (std::int64_t{1} << steps != frames) {
    config.fail("temporal_downsample_factor", "2, 4, 8 or 16", std::to_string(frames));
  }
  return steps;
}

}  // namespace

MovqSpec parse_movq(const JsonReader& config, MovqNames layout) {
  const Keys& keys = layout == MovqNames::kHfEmu3 ? kPortKeys : kAuthorKeys;
  MovqSpec spec;
  spec.names = layout;
  VqSpec& frame = spec.frame;
  frame.l2_normalize = false;
  read_levels(config, keys, frame);
  frame.res_blocks = config.integer_or("num_res_blocks", 2, 1, 16);
  frame.latent_channels = config.integer_or(keys.latents, 4, 1, 8192);
  frame.embed_dim = config.integer_or("embed_dim", 4, 1, 8192);
  if (frame.embed_dim != frame.latent_channels) {
    config.fail("embed_dim", std::to_string(frame.latent_channels) + ", as there are latents",
                std::to_string(frame.embed_dim));
  }
  frame.codes = config.integer_or("codebook_size", 32768, 1, kMaxCodes);
  for (const char* key : {"in_channels", "out_channels"}) {
    const std::int64_t channels = config.integer_or(key, 3, 1, 64);
    if (channels != 3) config.fail(key, "3 (RGB)", std::to_string(channels));
  }
  if (config.boolean_or(keys.twice, false)) config.fail(keys.twice, "false", "true");
  if (layout == MovqNames::kHfEmu3) {
    const std::int64_t deepest = frame.base_channels * frame.multipliers.back();
    const std::int64_t hidden = config.integer_or("hidden_size", 1024, 1, 1 << 20);
    if (hidden != deepest) {
      config.fail("hidden_size", std::to_string(deepest) + ", the width of the last level",
                  std::to_string(hidden));
    }
    const std::int64_t heads = config.integer_or("num_attention_heads", 1, 1, 1024);
    if (heads != 1) config.fail("num_attention_heads", "1", std::to_string(heads));
  }
  spec.time_steps = read_time_steps(config);
  return spec;
}

std::vector<std::string> movq_counters(const MovqSpec& spec) {
  std::vector<std::string> names;
  for (const char* side : {"encoder", "decoder"}) {
    for (std::int64_t block = 0; block < spec.frame.res_blocks; ++block) {
      for (const char* norm : {".norm1", ".norm2"}) {
        names.push_back(spec.frame.prefix + side + ".time_res_stack." + std::to_string(block) +
                        norm + ".num_batches_tracked");
      }
    }
  }
  return names;
}

}  // namespace tessera
