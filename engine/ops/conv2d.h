// 2-D convolution of a map.
#pragma once

#include <cstdint>

#include "engine/ops/checks.h"

namespace tessera {

// 2-D convolution over one image, NHWC without the N. The input may be transformed as it is read,
// so that a GroupNorm, a swish and an upsampling never stand in memory:
//   read(y, x, c) = act(scale[c] * in(y / up, x / up, c) + shift[c]),  zero outside the image.
struct Conv2dArgs {
  static constexpr const char* kName = "conv2d";
  ConstTensorView in;  // [H, W, c_in] f32
  const ConvWeight* weight = nullptr;
  ConstTensorView bias;          // [c_out] f32 or empty
  ConstTensorView scale, shift;  // [c_in] f32, both or neither
  bool swish = false;            // after scale and shift
  int upsample = 1;              // 1 or 2 (nearest)
  int stride = 1;
  int pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;  // in upsampled pixels
  TensorView out;                                                // [H', W', c_out] f32
  bool accumulate = false;  // out += result instead of out = result

  void check(const Backend& backend) const {
    expects_f32(backend, in, "conv2d: in is f32 on the device");
    expects_f32(backend, out, "conv2d: out is f32 on the device");
    expects_rank(in, 3, "conv2d: in is [H, W, c_in]");
    expects(weight != nullptr && !weight->packed.empty(), "conv2d: a kernel is given");
    expects(in.shape[2] == weight->c_in && in.shape.elements() > 0,
            "conv2d: in has the channels of the kernel");
    expects(upsample == 1 || upsample == 2, "conv2d: upsample is 1 or 2");
    expects(stride >= 1 && pad_top >= 0 && pad_left >= 0 && pad_bottom >= 0 && pad_right >= 0,
            "conv2d: stride is positive, pads are not negative");
    const std::int64_t height = in.shape[0] * upsample + pad_top + pad_bottom - weight->kh;
    const std::int64_t width = in.shape[1] * upsample + pad_left + pad_right - weight->kw;
    expects(height >= 0 && width >= 0, "conv2d: the kernel fits the padded input");
    expects(out.shape == Shape({height / stride + 1, width / stride + 1, weight->c_out}),
            "conv2d: out is [H', W', c_out]");
    expects(out.data != in.data, "conv2d: out is not in");
    expects(scale.empty() == shift.empty(), "conv2d: scale and shift come together");
    if (!scale.empty()) {
      expects_vector(backend, scale, weight->c_in, "conv2d: scale is [c_in]");
      expects_vector(backend, shift, weight->c_in, "conv2d: shift is [c_in]");
    }
    if (!bias.empty()) expects_vector(backend, bias, weight->c_out, "conv2d: bias is [c_out]");
  }
  void visit(OpVisitor& visitor) {
    visitor(in, weight, bias, scale, shift, swish, upsample, stride, pad_top, pad_left, pad_bottom,
            pad_right, out, accumulate);
  }
};

namespace ops {

inline void conv2d(Backend& backend, const Conv2dArgs& args) { run(backend, args); }

}  // namespace ops
}  // namespace tessera
