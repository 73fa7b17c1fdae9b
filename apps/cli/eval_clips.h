// `tessera eval clips`: how good a model's clips are, from their pixels.
#pragma once

#include <optional>
#include <string>

#include "apps/cli/session.h"
#include "apps/lab/eval_clips.h"

namespace tessera {

struct EvalClipsOutput {
  std::optional<std::string> folder;  // for sheets of the painted clips
  bool overwrite = false;
};

// Prints rows, settings and meters; the exit code of the program.
int run_eval_clips(const Session& session, const EvalClipsRequest& request,
                   const EvalClipsOutput& output);

}  // namespace tessera
