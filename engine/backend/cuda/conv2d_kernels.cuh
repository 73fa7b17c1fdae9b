// Kernels of convolutions: what the input is read through, and products of pixels and weights, f32
// by fused multiply-adds and bf16 on tensor cores. Device code of conv2d.cu.
#pragma once

#include "engine/backend/cuda/packing.h"
#include "engine/backend/cuda/simt.cuh"

namespace tessera::cuda {

constexpr int kEight = static_cast<int>(kChannelMultiple);
constexpr int kTilePixels = 64, kTileChannels = 64;
constexpr int kStages = 4;  // tiles of the sum that a block has under way
constexpr int kPitch = 20;  // floats between rows of a tile of f32: eight lanes meet in no bank

// A strip of prepared input and where its convolution goes.
struct Strip {
  const void* in = nullptr;  // [rows][columns][channels], f32 or as the weights are
  std::int64_t columns = 0;  // of the input
  int channels = 0;          // padded
  int kh = 0, kw = 0, stride = 1;
  std::int64_t pixels = 0, out_columns = 0;
  const void* w = nullptr;    // [padded c_out][kh][kw][channels]
  std::int64_t last_row = 0;  // of these
  const float* bias = nullptr;
  float* out = nullptr;  // [pixels][c_out]
  std::int64_t c_out = 0;
  bool accumulate = false;
};

// How an input is read; see Conv2dArgs.
struct Reading {
  const float* in = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
  std::int64_t height = 0, width = 0, c_in = 0;  // of the image
  std::int64_t columns = 0, channels = 0;        // of the strip
  std::int64_t first_row = 0;                    // of the strip, in the padded, upsampled image
  int upsample = 1, pad_top = 0, pad_left = 0;
  bool swish = false;
  bool by_four = false;  // places of the image are 16-byte aligned
};

// Eight channels of a place of the image, from channel c on.
__device__ inline void read_eight(const Reading& r, std::int64_t y, std::int64_t x, std::int64_t c,
                                  float (&value)[kEight]) {
  const float* from = r.in + (y * r.width + x) * r.c_in + c;
  if (r.by_four && c + kEight <= r.c_in) {
    const float4 a = reinterpret_cast<const float4*>(from)[0];
    const float4 b = reinterpret_cast<const float4*>(from)[1];
    value[0] = a.x, value[1] = a.y, value[2] = a.z, value[3] = a.w;
    value[4] = b.x, value[5] = b.y, value[6] = b.z, value[7] = b.w;
  } else {
#pragma unroll
    for (int j = 0; j < kEight; ++j) value[j] = c + j < r.c_in ? from[j] : 0.0f;
  }
#pragma unroll
  for (int j = 0; j < kEight; ++j) {
    if (c + j >= r.c_in) break;
    if (r.scale != nullptr) value[j] = fmaf(r.scale[c + j], value[j], r.shift[c + j]);
    if (r.swish) value[j] = value[j] / (1.0f + expf(-value[j]));
  }
}

__device__ inline void write_eight(const float (&v)[kEight], float* to) {
  reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
}
__device__ inline void write_eight(const float (&v)[kEight], std::uint16_t* to) {
  *reinterpret_cast<uint4*>(to) = make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                                             pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}

// One thread writes eight channels of a place of the strip.
template <typename T>
__global__ void prepare_strip(Reading r, std::int64_t count, T* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t units = r.channels / kEight, place = i / units;
  const std::int64_t y = r.first_row + place / r.columns - r.pad_top;
  const std::int64_t x = place % r.columns - r.pad_left;
  float value[kEight] = {};
  if (y >= 0 && x >= 0 && y < r.height * r.upsample && x < r.width * r.upsample) {
    read_eight(r, y / r.upsample, x / r.upsample, i % units * kEight, value);
  }
  write_eight(value, out + i * kEight);
}

// Walks along the taps and channels of a sum.
struct Walk {
  int c, kx, ky;
};
__device__ inline void advance(Walk& walk, int by, const Strip& s) {
  walk.c += by;
  while (walk.c >= s.channels) {
    walk.c -= s.channels;
    if (++walk.kx == s.kw) {
      walk.kx = 0;
      ++walk.ky;
    }
  }
}
__device__ inline std::int64_t offset_of(const Walk& walk, const Strip& s) {
  return (walk.ky * s.columns + walk.kx) * s.channels + walk.c;
}

// Where in the strip the first tap of a pixel lies. Pixels past the last repeat it, unwritten.
__device__ inline std::int64_t pixel_offset(const Strip& s, std::int64_t pixel) {
  pixel = pixel < s.pixels ? pixel : s.pixels - 1;
  const std::int64_t y = pixel / s.out_columns, x = pixel % s.out_columns;
  return (y * s.columns + x) * s.stride * s.channels;
}

// Past the end of the sum lies memory of something else, which may be NaN.
__device__ inline void copy_or_clear(void* to, const void* from, bool there) {
  if (there) {
    copy_async(to, from);
  } else {
    *static_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
  }
}

__device__ inline void write_pixel(const Strip& s, std::int64_t pixel, std::int64_t channel,
                                   float value) {
  if (pixel >= s.pixels || channel >= s.c_out) return;
  if (s.bias != nullptr) value += s.bias[channel];
  float* to = s.out + pixel * s.c_out + channel;
  *to = s.accumulate ? *to + value : value;
}

constexpr int kFloatThreads = 256, kFloatDepth = 16;  // inputs of a tile of the sum
constexpr int kFloatTile = (kTilePixels + kTileChannels) * kPitch;

// 4 pixels by 4 channels a thread.
__global__ void __launch_bounds__(kFloatThreads) convolve_f32(Strip s) {
  float* tiles = dynamic_shared<float>();
  const int thread = static_cast<int>(threadIdx.x);
  const int loaded = thread / 4, quarter = thread % 4 * 4;
  const std::int64_t first_pixel = std::int64_t{blockIdx.x} * kTilePixels;
  const std::int64_t first_channel = std::int64_t{blockIdx.y} * kTileChannels;
  const int depth = s.kh * s.kw * s.channels;
  const std::int64_t row =
      first_channel + loaded < s.last_row ? first_channel + loaded : s.last_row;
  const float* w = static_cast<const float*>(s.w) + row * depth + quarter;
  const float* in = static_cast<const float*>(s.in) + pixel_offset(s, first_pixel + loaded);
  Walk walk = {0, 0, 0};
  advance(walk, quarter, s);

  const int count = (depth + kFloatDepth - 1) / kFloatDepth;
  const auto fetch = [&](int i) {
    float* tile = tiles + i % kStages * kFloatTile;
    const bool there = i * kFloatDepth + quarter < depth;
    copy_or_clear(tile + loaded * kPitch + quarter, in + (there ? offset_of(walk, s) : 0), there);
    copy_or_clear(tile + (kTilePixels + loaded) * kPitch + quarter,
                  w + (there ? i * kFloatDepth : 0), there);
    advance(walk, kFloatDepth, s);
  };
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < count) fetch(i);
    copy_async_commit();
  }
  const int own_channel = thread % 16, own_pixel = thread / 16;
  float sums[4][4] = {};
  for (int i = 0; i < count; ++i) {
    copy_async_wait<kStages - 2>();
    __syncthreads();
    if (i + kStages - 1 < count) fetch(i + kStages - 1);
    copy_async_commit();
    const float* pixels = tiles + i % kStages * kFloatTile + own_pixel * kPitch;
    const float* channels = tiles + i % kStages * kFloatTile + (kTilePixels + own_channel) * kPitch;
#pragma unroll
    for (int k = 0; k < kFloatDepth; k += 4) {
      float4 a[4], b[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        a[j] = *reinterpret_cast<const float4*>(pixels + 16 * j * kPitch + k);
        b[j] = *reinterpret_cast<const float4*>(channels + 16 * j * kPitch + k);
      }
#pragma unroll
      for (int p = 0; p < 4; ++p) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          sums[p][c] = fmaf(a[p].x, b[c].x, sums[p][c]);
          sums[p][c] = fmaf(a[p].y, b[c].y, sums[p][c]);
          sums[p][c] = fmaf(a[p].z, b[c].z, sums[p][c]);
          sums[p][c] = fmaf(a[p].w, b[c].w, sums[p][c]);
        }
      }
    }
  }
#pragma unroll
  for (int p = 0; p < 4; ++p) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      write_pixel(s, first_pixel + own_pixel + 16 * p, first_channel + own_channel + 16 * c,
                  sums[p][c]);
    }
  }
}

constexpr int kHalfThreads = 128, kHalfDepth = 32;
constexpr int kHalfTile = (kTilePixels + kTileChannels) * kHalfDepth;

// 32 pixels by 32 channels a warp, channels as the rows of the tensor cores' product. A row of a
// tile is 64 bytes, so that the eight bf16 a lane takes from it lie one lane's after the other's.
__global__ void __launch_bounds__(kHalfThreads) convolve_bf16(Strip s) {
  std::uint16_t* tiles = dynamic_shared<std::uint16_t>();
  const int thread = static_cast<int>(threadIdx.x);
  const int loaded = thread / 4, part = thread % 4 * kEight;
  const std::int64_t first_pixel = std::int64_t{blockIdx.x} * kTilePixels;
  const std::int64_t first_channel = std::int64_t{blockIdx.y} * kTileChannels;
  const int depth = s.kh * s.kw * s.channels;
  const std::uint16_t* w[2];
  const std::uint16_t* in[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const std::int64_t row = first_channel + loaded + 32 * j;
    w[j] = static_cast<const std::uint16_t*>(s.w) + (row < s.last_row ? row : s.last_row) * depth +
           part;
    in[j] =
        static_cast<const std::uint16_t*>(s.in) + pixel_offset(s, first_pixel + loaded + 32 * j);
  }
  Walk walk = {0, 0, 0};
  advance(walk, part, s);

  const int count = (depth + kHalfDepth - 1) / kHalfDepth;
  const auto fetch = [&](int i) {
    std::uint16_t* tile = tiles + i % kStages * kHalfTile;
    const bool there = i * kHalfDepth + part < depth;
    const std::int64_t offset = there ? offset_of(walk, s) : 0;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      std::uint16_t* to = tile + (loaded + 32 * j) * kHalfDepth + part;
      copy_or_clear(to, in[j] + offset, there);
      copy_or_clear(to + kTilePixels * kHalfDepth, w[j] + (there ? i * kHalfDepth : 0), there);
    }
    advance(walk, kHalfDepth, s);
  };
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < count) fetch(i);
    copy_async_commit();
  }
  const int lane = thread % kWarp, warp = thread / kWarp, group = lane / 4, t = lane % 4;
  const int pixel = warp % 2 * 32, channel = warp / 2 * 32;  // of the warp, in the tile
  float sums[2][4][4] = {};
  for (int i = 0; i < count; ++i) {
    copy_async_wait<kStages - 2>();
    __syncthreads();
    if (i + kStages - 1 < count) fetch(i + kStages - 1);
    copy_async_commit();
    const std::uint16_t* tile = tiles + i % kStages * kHalfTile + t * kEight;
    uint4 rows[4], columns[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      columns[j] = *reinterpret_cast<const uint4*>(tile + (pixel + group + 8 * j) * kHalfDepth);
      rows[j] = *reinterpret_cast<const uint4*>(tile + (kTilePixels + channel + group + 8 * j) *
                                                           kHalfDepth);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint4 low = rows[2 * r], high = rows[2 * r + 1];
      const std::uint32_t a0[4] = {low.x, high.x, low.y, high.y};
      const std::uint32_t a1[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::uint32_t b0[2] = {columns[j].x, columns[j].y};
        const std::uint32_t b1[2] = {columns[j].z, columns[j].w};
        mma_bf16(sums[r][j], a0, b0);
        mma_bf16(sums[r][j], a1, b1);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        write_pixel(s, first_pixel + pixel + 8 * j + 2 * t + q % 2,
                    first_channel + channel + 16 * r + group + (q >= 2 ? 8 : 0), sums[r][j][q]);
      }
    }
  }
}

__global__ void add_bias(const float* bias, std::int64_t count, std::int64_t channels, float* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] += bias[i % channels];
}

// out = the sums of a library that rounds them, plus a bias (or none), plus what stands in out.
__global__ void widen_sums(const std::uint16_t* sums, const float* bias, std::int64_t count,
                           std::int64_t channels, bool accumulate, float* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float value = bf16_value(sums[i]);
  if (bias != nullptr) value += bias[i % channels];
  out[i] = accumulate ? out[i] + value : value;
}

}  // namespace tessera::cuda
