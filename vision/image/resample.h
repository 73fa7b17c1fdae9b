// Resizing equal to Pillow's Image.resize (reducing_gap=None) on RGB images, bit for bit: two
// passes, each rounded to 8 bits; windows widened when shrinking; coefficients in
// 22-bit fixed point. The published models were trained on images resized this way.
#pragma once

#include <cstdint>

#include "engine/spec/preprocess_policy.h"
#include "vision/image/image.h"

namespace tessera {

// The image at width x height pixels, both at least 1. A size that is already right is copied.
Image resize(const Image& image, std::int64_t width, std::int64_t height, ResampleFilter filter,
             PassOrder order = PassOrder::kAcrossFirst);

}  // namespace tessera
