// Normalisations of rows and of maps.
#pragma once

#include <cstdint>

#include "engine/ops/checks.h"

namespace tessera {

// y = x * rsqrt(mean(x^2) + eps) * weight over each row (Zhang & Sennrich 2019).
struct RmsNormArgs {
  static constexpr const char* kName = "rms_norm";
  ConstTensorView x;       // [M, C] f32
  ConstTensorView weight;  // [C] f32
  float eps = 0;
  TensorView out;  // as x; may be x

  void check(const Backend& backend) const {
    expects_f32(backend, x, "rms_norm: x is f32 on the device");
    expects_f32(backend, out, "rms_norm: out is f32 on the device");
    expects_rank(x, 2, "rms_norm: x is [M, C]");
    expects(out.shape == x.shape, "rms_norm: out has the shape of x");
    expects_vector(backend, weight, x.shape[1], "rms_norm: weight is [C]");
    expects(eps > 0.0f, "rms_norm: eps is positive");
  }
  void visit(OpVisitor& visitor) { visitor(x, weight, eps, out); }
};

// y = (x - mean) / sqrt(variance + eps) * weight + bias over each row (Ba et al. 2016).
struct LayerNormArgs {
  static constexpr const char* kName = "layer_norm";
  ConstTensorView x;             // [M, C] f32
  ConstTensorView weight, bias;  // [C] f32
  float eps = 0;
  TensorView out;  // as x

  void check(const Backend& backend) const {
    expects_f32(backend, x, "layer_norm: x is f32 on the device");
    expects_f32(backend, out, "layer_norm: out is f32 on the device");
    expects_rank(x, 2, "layer_norm: x is [M, C]");
    expects(out.shape == x.shape, "layer_norm: out has the shape of x");
    expects_vector(backend, weight, x.shape[1], "layer_norm: weight is [C]");
    expects_vector(backend, bias, x.shape[1], "layer_norm: bias is [C]");
    expects(eps > 0.0f, "layer_norm: eps is positive");
  }
  void visit(OpVisitor& visitor) { visitor(x, weight, bias, eps, out); }
};

// The first heads of each row, each by itself, in place: (x - mean) / sqrt(variance + eps), then times
// the head's own numbers and plus them (Chameleon Team 2024).
struct HeadNormArgs {
  static constexpr const char* kName = "head_norm";
  TensorView x;                  // [M, C] f32, of each row the first heads * hd numbers
  ConstTensorView weight, bias;  // [heads, hd] f32
  float eps = 0;

  void check(const Backend& backend) const {
    expects_f32(backend, x, "head_norm: x is f32 on the device");
    expects_f32(backend, weight, "head_norm: weight is f32 on the device");
    expects_f32(backend, bias, "head_norm: bias is f32 on the device");
    expects_rank(x, 2, "head_norm: x is [M, C]");
    expects_rank(weight, 2, "head_norm: weight is [heads, hd]");
    expects(bias.shape == weight.shape && weight.shape.elements() <= x.shape[1],
            "head_norm: a row has all heads");
    expects(eps > 0.0f, "head_norm: eps is positive");
  }
  void visit(OpVisitor& visitor) { visitor(x, weight, bias, eps); }
};

// Softmax over each row.
struct SoftmaxRowsArgs {
  static constexpr const char* kName = "softmax_rows";
  ConstTensorView x;  // [M, N] f32
  TensorView out;     // as x; may be x

  void check(const Backend& backend) const {
    expects_f32(backend, x, "softmax_rows: x is f32 on the device");
    expects_f32(backend, out, "softmax_rows: out is f32 on the device");
    expects_rank(x, 2, "softmax_rows: x is [M, N]");
    expects(out.shape == x.shape && x.shape[1] > 0, "softmax_rows: out has the shape of x");
  }
  void visit(OpVisitor& visitor) { visitor(x, out); }
};

// Scale and shift of each channel that apply GroupNorm (Wu & He 2018) to a map.
struct GroupNormArgs {
  static constexpr const char* kName = "group_norm_coefficients";
  ConstTensorView x;  // [H, W, C] f32
  int groups = 0;
  float eps = 0;
  ConstTensorView gamma, beta;  // [C] f32
  TensorView scale, shift;      // [C] f32

  void check(const Backend& backend) const {
    expects_f32(backend, x, "group_norm: x is f32 on the device");
    expects_rank(x, 3, "group_norm: x is [H, W, C]");
    expects(x.shape.elements() > 0, "group_norm: x is not empty");
    const std::int64_t channels = x.shape[2];
    expects(groups > 0 && channels % groups == 0, "group_norm: groups divide the channels");
    expects_vector(backend, gamma, channels, "group_norm: gamma is [C]");
    expects_vector(backend, beta, channels, "group_norm: beta is [C]");
    expects_vector(backend, scale, channels, "group_norm: scale is [C]");
    expects_vector(backend, shift, channels, "group_norm: shift is [C]");
  }
  void visit(OpVisitor& visitor) { visitor(x, groups, eps, gamma, beta, scale, shift); }
};

// Rows scaled to unit length: x / max(|x|, eps).
struct L2NormalizeArgs {
  static constexpr const char* kName = "l2_normalize";
  ConstTensorView x;  // [N, D] f32
  float eps = 0;
  TensorView out;  // as x

  void check(const Backend& backend) const {
    expects_f32(backend, x, "l2_normalize: x is f32 on the device");
    expects_f32(backend, out, "l2_normalize: out is f32 on the device");
    expects_rank(x, 2, "l2_normalize: x is [N, D]");
    expects(out.shape == x.shape, "l2_normalize: out has the shape of x");
    expects(eps > 0.0f, "l2_normalize: eps is positive");
  }
  void visit(OpVisitor& visitor) { visitor(x, eps, out); }
};

namespace ops {

inline void rms_norm(Backend& backend, ConstTensorView x, ConstTensorView weight, float eps,
                     TensorView out) {
  run(backend, RmsNormArgs{x, weight, eps, out});
}
inline void layer_norm(Backend& backend, ConstTensorView x, ConstTensorView weight,
                       ConstTensorView bias, float eps, TensorView out) {
  run(backend, LayerNormArgs{x, weight, bias, eps, out});
}
inline void head_norm(Backend& backend, TensorView x, ConstTensorView weight, ConstTensorView bias,
                      float eps) {
  run(backend, HeadNormArgs{x, weight, bias, eps});
}
inline void softmax_rows(Backend& backend, ConstTensorView x, TensorView out) {
  run(backend, SoftmaxRowsArgs{x, out});
}
inline void group_norm_coefficients(Backend& backend, ConstTensorView x, int groups, float eps,
                                    ConstTensorView gamma, ConstTensorView beta, TensorView scale,
                                    TensorView shift) {
  run(backend, GroupNormArgs{x, groups, eps, gamma, beta, scale, shift});
}
inline void l2_normalize(Backend& backend, ConstTensorView x, float eps, TensorView out) {
  run(backend, L2NormalizeArgs{x, eps, out});
}

}  // namespace ops
}  // namespace tessera
