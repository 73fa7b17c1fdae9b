// tessera-video: reads and writes videos for the program, which starts it. Not for use by hand.
#include <cstdio>

#include "apps/helper/serve.h"
#include "apps/helper/serve_video.h"

int main(int count, char** words) {
  tessera::SandboxLimits limits;
  if (!tessera::parse_sandbox_limits(count, words, limits)) {
    std::fputs("tessera-video is started by tessera: MEBIBYTES CPU-SECONDS, a socket as stdin\n",
               stderr);
    return 2;
  }
  return tessera::serve_video(limits);
}
