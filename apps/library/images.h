// Images on their way in and out.
#pragma once

#include <string>

#include <tessera/image.h>

#include "vision/image/image.h"

namespace tessera {

// Error kUsage (E_IMAGE_SIZE) naming `what` where the bytes are not those of width and height.
Image internal_image(tessera_v0::Image image, const std::string& what);
tessera_v0::Image public_image(Image&& image);

}  // namespace tessera
