// The loop of the process that reads or writes one video, on one socket.
#pragma once

#include "apps/helper/sandbox.h"

namespace tessera {

// Confines the process, says hello, then answers requests on file descriptor 0 until the other side
// closes it. Returns the exit status.
int serve_video(const SandboxLimits& limits);

}  // namespace tessera
