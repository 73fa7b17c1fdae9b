// `tessera generate --interleave`: an answer of texts and images in turn.
#pragma once

#include <cstdint>
#include <string>

#include "apps/runtime/interleave_task.h"
#include "apps/runtime/output_names.h"

namespace tessera {

struct Session;

struct InterleaveOutput {
  std::string name, folder;  // of images
  Existing existing = Existing::kKeep;
  bool metadata = true;  // records prompt and seed
};

// Writes the text to stdout, "[FILE]" on a line of its own where an image stands; one JSON line
// with --json. Returns the exit code.
int run_interleave(const Session& session, const InterleaveOptions& options,
                   const InterleaveRequest& request, const InterleaveOutput& output);

}  // namespace tessera
