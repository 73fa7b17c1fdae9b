// `tessera-lab eval videos`: how good a model's videos are, from their pixels.
#pragma once

#include <optional>
#include <string>

#include "apps/cli/session.h"
#include "apps/lab/eval/eval_videos.h"

namespace tessera {

struct EvalVideosOutput {
  std::optional<std::string> folder;  // for sheets of the generated videos
  bool overwrite = false;
};

// Prints rows, settings and meters; the exit code of the program.
int run_eval_videos(const Session& session, const EvalVideosRequest& request,
                   const EvalVideosOutput& output);

}  // namespace tessera
