// tessera-helper: reads strangers' images for the program, which starts it. Not for use by hand.
#include <cstdio>

#include "apps/helper/serve.h"
#include "vision/codec/decode.h"

int main(int count, char** words) {
  tessera::SandboxLimits limits;
  if (!tessera::parse_sandbox_limits(count, words, limits)) {
    std::fputs("tessera-helper is started by tessera: MEBIBYTES CPU-SECONDS, a socket as stdin\n",
               stderr);
    return 2;
  }
  return tessera::serve_images(&tessera::decode_image, limits);
}
