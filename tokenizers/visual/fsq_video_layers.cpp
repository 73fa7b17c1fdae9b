// Every layer along time keeps what it looks back to, so that a video passes map by map.
#include "tokenizers/visual/fsq_video_layers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "engine/checkpoint/checked_weight.h"
#include "engine/core/index.h"
#include "engine/ops/ops.h"

namespace tessera {

namespace {

constexpr float kNormEps = 1e-6f;

class Loader {
 public:
  Loader(Backend& backend, const FsqVideoSpec& spec, const Checkpoint& checkpoint, DType storage)
      : backend_(backend), spec_(spec), checkpoint_(checkpoint), storage_(storage) {}

  TimeConv conv(const std::string& name, std::int64_t out, std::int64_t in, int kt, int k) {
    return TimeConv(backend_, checkpoint_, spec_.prefix + name + ".conv3d", {out, in, kt, k},
                    storage_);
  }
  SplitConv split(const std::string& name, std::int64_t out, std::int64_t in) {
    return {conv(name + ".0", out, in, 1, 3), conv(name + ".1", out, out, 3, 1)};
  }
  FrameNorm norm(const std::string& name, std::int64_t width) {
    const auto vector = [&](const char* leaf) {
      const std::string full = spec_.prefix + name + ".norm" + leaf;
      return uploaded(backend_, widened(checked_weight(checkpoint_, full, {width})));
    };
    return {vector(".weight"), vector(".bias")};
  }
  VideoRes res(const std::string& name, std::int64_t in, std::int64_t out) {
    VideoRes block{norm(name + ".norm1", in), norm(name + ".norm2", out),
                  split(name + ".conv1", out, in), split(name + ".conv2", out, out), std::nullopt};
    if (in != out) block.shortcut = conv(name + ".nin_shortcut", out, in, 1, 1);
    return block;
  }
  VideoAttention attention(const std::string& name, std::int64_t width) {
    return {norm(name + ".norm", width), conv(name + ".q", width, width, 1, 1),
            conv(name + ".k", width, width, 1, 1), conv(name + ".v", width, width, 1, 1),
            conv(name + ".proj_out", width, width, 1, 1)};
  }
  VideoMiddle middle(const std::string& side) {
    const std::int64_t width = spec_.deepest();
    return {res(side + ".mid.block_1", width, width), attention(side + ".mid.attn_1.0", width),
            attention(side + ".mid.attn_1.1", width), res(side + ".mid.block_2", width, width)};
  }
  VideoResample resample(const std::string& name, std::int64_t width, FsqVideoResample used,
                        bool down) {
    VideoResample out;
    if (used.space) out.space = conv(name + (down ? ".conv1" : ".conv2"), width, width, 1, 3);
    if (used.time) out.time = conv(name + (down ? ".conv2" : ".conv1"), width, width, 3, 1);
    if (used.space || used.time) out.last = conv(name + ".conv3", width, width, 1, 1);
    return out;
  }

 private:
  Backend& backend_;
  const FsqVideoSpec& spec_;
  const Checkpoint& checkpoint_;
  DType storage_;
};

}  // namespace

VideoSide load_video_encoder(Backend& backend, const FsqVideoSpec& spec, const Checkpoint& checkpoint,
                           DType storage) {
  Loader loader(backend, spec, checkpoint, storage);
  std::vector<VideoLevel> levels;
  std::int64_t width = spec.channels;
  for (int level = 0; level < spec.levels_count(); ++level) {
    const std::string name = "encoder.down." + std::to_string(level);
    VideoLevel& out = levels.emplace_back();
    for (std::int64_t block = 0; block < spec.res_blocks; ++block) {
      out.blocks.push_back(
          loader.res(name + ".block." + std::to_string(block), width, spec.width_of(level)));
      width = spec.width_of(level);
    }
    if (level + 1 < spec.levels_count()) {
      out.resample =
          loader.resample(name + ".downsample", width, encoder_resample(spec, level), true);
    }
  }
  return {loader.split("encoder.conv_in", spec.channels, spec.patch_channels()), std::move(levels),
          loader.middle("encoder"), loader.norm("encoder.norm_out", width),
          loader.split("encoder.conv_out", spec.latent_channels, width)};
}

VideoSide load_video_decoder(Backend& backend, const FsqVideoSpec& spec, const Checkpoint& checkpoint,
                           DType storage) {
  Loader loader(backend, spec, checkpoint, storage);
  std::vector<VideoLevel> levels;
  std::int64_t width = spec.deepest();
  for (int level = spec.levels_count() - 1; level >= 0; --level) {
    const std::string name = "decoder.up." + std::to_string(level);
    VideoLevel& out = levels.emplace_back();
    for (std::int64_t block = 0; block <= spec.res_blocks; ++block) {
      out.blocks.push_back(
          loader.res(name + ".block." + std::to_string(block), width, spec.width_of(level)));
      width = spec.width_of(level);
    }
    if (level > 0) {
      out.resample =
          loader.resample(name + ".upsample", width, decoder_resample(spec, level), false);
    }
  }
  return {loader.split("decoder.conv_in", spec.deepest(), spec.latent_channels), std::move(levels),
          loader.middle("decoder"), loader.norm("decoder.norm_out", width),
          loader.split("decoder.conv_out", spec.patch_channels(), width)};
}

// --- one map through one layer ------------------------------------------------------------------

Map VideoPass::make(std::int64_t height, std::int64_t width, std::int64_t channels) {
  return std::make_shared<Tensor>(backend_.allocate(DType::kF32, {height, width, channels}));
}

Map VideoPass::space(const TimeConv& conv, const Map& x, Conv2dArgs form) {
  const int stride = form.stride;
  Map out = make(x->shape()[0] / stride, x->shape()[1] / stride, conv.out_channels());
  form.out = out->view();
  conv.apply(backend_, {&x, 1}, form);
  return out;
}

Map VideoPass::time(const TimeConv& conv, const Map& x) {
  Past& past = past_[&conv];
  if (past.empty()) past.assign(kPastMaps, x);
  Map out = make(x->shape()[0], x->shape()[1], conv.out_channels());
  const std::array<Map, kPastMaps + 1> maps = {past[0], past[1], x};
  conv.apply(backend_, maps, {.out = out->view()});
  remember(past, x);
  return out;
}

Conv2dArgs VideoPass::through(const FrameNorm& norm, const Map& x, bool swish) {
  const std::int64_t channels = x->shape()[2];
  scale_ = backend_.allocate(DType::kF32, {channels});
  shift_ = backend_.allocate(DType::kF32, {channels});
  ops::group_norm_coefficients(backend_, x->view(), 1, kNormEps, norm.gamma.view(),
                               norm.beta.view(), scale_.view(), shift_.view());
  return {.scale = scale_.view(), .shift = shift_.view(), .swish = swish};
}

Map VideoPass::split(const SplitConv& conv, const Map& x, const FrameNorm* norm) {
  const Conv2dArgs form = norm == nullptr ? Conv2dArgs{} : through(*norm, x, true);
  return time(conv.time, space(conv.space, x, form));
}

Map VideoPass::sum(const Map& a, const Map& b) {
  Map out = std::make_shared<Tensor>(backend_.allocate(DType::kF32, a->shape()));
  ops::add(backend_, a->view(), b->view(), out->view());
  return out;
}

Map VideoPass::residual(const VideoRes& block, const Map& x) {
  const Map hidden = split(block.conv1, x, &block.norm1);
  const Map inner = split(block.conv2, hidden, &block.norm2);
  return sum(block.shortcut ? space(*block.shortcut, x) : x, inner);
}

Map VideoPass::attend_frame(const VideoAttention& layer, const Map& x) {
  const std::int64_t places = x->shape()[0] * x->shape()[1], channels = x->shape()[2];
  const Conv2dArgs form = through(layer.norm, x, false);
  std::array<TensorView, 3> views;
  std::array<Map, 3> maps;
  const std::array<const TimeConv*, 3> convs = {&layer.q, &layer.k, &layer.v};
  for (std::size_t i = 0; i < 3; ++i) {
    maps[i] = space(*convs[i], x, form);
    views[i] = maps[i]->view();
    views[i].shape = {places, 1, channels};
  }
  const Map mixed = make(x->shape()[0], x->shape()[1], channels);
  TensorView out = mixed->view();
  out.shape = {places, 1, channels};
  const AttentionSegment segment{.keys = views[1],
                                 .values = views[2],
                                 .row_begin = 0,
                                 .rows = places,
                                 .first_visible = places,
                                 .causal = false};
  ops::attention(backend_, {.q = views[0],
                            .out = out,
                            .segments = {&segment, 1},
                            .scale = 1.0f / std::sqrt(to_float(channels))});
  return sum(x, space(layer.out, mixed));
}

// Room doubles when it is full.
void VideoPass::append(Seen& seen, const Map& keys, const Map& values) {
  const std::int64_t places = keys->shape()[0] * keys->shape()[1], channels = keys->shape()[2];
  const std::int64_t room = seen.keys.empty() ? 0 : seen.keys.shape()[0];
  if (seen.count == room) {
    std::vector<std::int64_t> slots(to_size(seen.count));
    std::iota(slots.begin(), slots.end(), 0);
    for (Tensor* table : {&seen.keys, &seen.values}) {
      Tensor larger =
          backend_.allocate(DType::kF32, {std::max<std::int64_t>(8, 2 * room), places, channels});
      if (seen.count > 0) {
        ops::store_rows(backend_, table->view().f32(), places * channels, slots, larger.view());
        backend_.synchronize();
      }
      *table = std::move(larger);
    }
  }
  const std::array<std::int64_t, 1> slot = {seen.count++};
  ops::store_rows(backend_, keys->view().f32(), places * channels, slot, seen.keys.view());
  ops::store_rows(backend_, values->view().f32(), places * channels, slot, seen.values.view());
}

// Each place attends to itself in this map and those before: places are heads of one row.
Map VideoPass::attend_time(const VideoAttention& layer, const Map& x) {
  const std::int64_t places = x->shape()[0] * x->shape()[1], channels = x->shape()[2];
  const Conv2dArgs form = through(layer.norm, x, false);
  const Map q = space(layer.q, x, form);
  Seen& seen = seen_[&layer];
  append(seen, space(layer.k, x, form), space(layer.v, x, form));
  const Map mixed = make(x->shape()[0], x->shape()[1], channels);
  TensorView query = q->view(), out = mixed->view();
  query.shape = out.shape = {1, places, channels};
  const AttentionSegment segment{.keys = seen.keys.view(),
                                 .values = seen.values.view(),
                                 .row_begin = 0,
                                 .rows = 1,
                                 .first_visible = seen.count,
                                 .causal = false};
  ops::attention(backend_, {.q = query,
                            .out = out,
                            .segments = {&segment, 1},
                            .scale = 1.0f / std::sqrt(to_float(channels))});
  return sum(x, space(layer.out, mixed));
}

Map VideoPass::middle(const VideoMiddle& layers, Map x) {
  x = residual(layers.before, x);
  x = attend_time(layers.time, attend_frame(layers.frame, x));
  return residual(layers.after, x);
}

Map VideoPass::means(const Map& x) {
  const std::int64_t height = x->shape()[0], width = x->shape()[1], channels = x->shape()[2];
  std::vector<std::int32_t> to;
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t column = 0; column < width; ++column) {
      to.push_back(narrow<std::int32_t>(y / 2 * (width / 2) + column / 2));
    }
  }
  const std::vector<float> weight(to.size(), 0.25f);
  Map out = make(height / 2, width / 2, channels);
  TensorView in = x->view(), means = out->view();
  in.shape = {height * width, channels};
  means.shape = {height * width / 4, channels};
  ops::combine_rows(backend_, in, to, weight, means);
  return out;
}

Map VideoPass::mean(const Map& a, const Map& b) {
  const Map both = sum(a, b);
  const std::int64_t channels = a->shape()[2];
  const Tensor half = filled(backend_, channels, 0.5f), zero = filled(backend_, channels, 0.0f);
  Map out = std::make_shared<Tensor>(backend_.allocate(DType::kF32, a->shape()));
  ops::affine_channels(backend_, both->view(), half.view(), zero.view(), out->view());
  backend_.synchronize();
  return out;
}

Map VideoPass::enlarged(const Map& x) {
  const std::int64_t height = x->shape()[0], width = x->shape()[1], channels = x->shape()[2];
  std::vector<std::int32_t> from;
  for (std::int64_t y = 0; y < 2 * height; ++y) {
    for (std::int64_t column = 0; column < 2 * width; ++column) {
      from.push_back(narrow<std::int32_t>(y / 2 * width + column / 2));
    }
  }
  Map out = make(2 * height, 2 * width, channels);
  TensorView in = x->view(), rows = out->view();
  in.shape = {height * width, channels};
  rows.shape = {4 * height * width, channels};
  ops::embedding(backend_, in, from, rows);
  return out;
}

// --- sides --------------------------------------------------------------------------------------

// Convolution and mean of the same elements are added; along time every other map gives one, from
// itself and the two before.
Map VideoPass::halve(const VideoResample& resample, Map x) {
  if (resample.space) {
    Conv2dArgs form{.stride = 2};
    form.pad_bottom = form.pad_right = 1;
    x = sum(space(*resample.space, x, form), means(x));
  }
  if (resample.time) {
    Past& past = past_[&*resample.time];
    if (past.empty()) past.assign(kPastMaps, x);
    if (count_[&resample]++ % 2 != 0) {
      remember(past, x);
      return nullptr;
    }
    const Map before = past.back();
    x = sum(time(*resample.time, x), mean(before, x));
  }
  return resample.last ? space(*resample.last, x) : x;
}

// The first map of a video stays one.
std::vector<Map> VideoPass::twice(const VideoResample& resample, const Map& x) {
  const bool first = resample.time && count_[&resample]++ == 0;
  std::vector<Map> out(resample.time && !first ? 2 : 1, x);
  for (Map& map : out) {
    if (resample.time) map = sum(time(*resample.time, map), map);
    if (resample.space) {
      const Map large = enlarged(map);
      map = sum(space(*resample.space, large), large);
    }
    if (resample.last) map = space(*resample.last, map);
  }
  return out;
}

Map VideoPass::encode(const VideoSide& side, Map x) {
  x = split(side.in, x, nullptr);
  for (const VideoLevel& level : side.levels) {
    for (const VideoRes& block : level.blocks) x = residual(block, x);
    x = halve(level.resample, x);
    if (x == nullptr) return nullptr;
  }
  return split(side.out, middle(side.middle, x), &side.norm);
}

std::vector<Map> VideoPass::decode(const VideoSide& side, Map x) {
  std::vector<Map> maps = {middle(side.middle, split(side.in, x, nullptr))};
  for (const VideoLevel& level : side.levels) {
    std::vector<Map> larger;
    for (Map& map : maps) {
      for (const VideoRes& block : level.blocks) map = residual(block, map);
      for (Map& one : twice(level.resample, map)) larger.push_back(std::move(one));
    }
    maps = std::move(larger);
  }
  for (Map& map : maps) map = split(side.out, map, &side.norm);
  return maps;
}

}  // namespace tessera
