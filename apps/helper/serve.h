// The loop of the reader process: image files in, pixels or errors out, on one socket.
#pragma once

#include <cstdint>
#include <span>

#include "apps/helper/sandbox.h"
#include "vision/image/decoded_image.h"

namespace tessera {

using ImageDecoder = DecodedImage (*)(std::span<const std::uint8_t> file, const ImageLimits& limits);

// Confines the process, says hello, then answers requests on file descriptor 0 until the other side
// closes it or half of the CPU time is used up. Returns the exit status. The decoder may throw
// Error and bad_alloc; anything worse ends the process, which costs its caller one image.
int serve_images(ImageDecoder decode, const SandboxLimits& limits);

// The limits as the program passes them: mebibytes of address space, seconds of CPU time. False if
// they are not two positive numbers.
bool parse_sandbox_limits(int count, char** words, SandboxLimits& limits);

}  // namespace tessera
