// `tessera generate --interleave`: answers of texts and images in turn.
#pragma once

#include <string>
#include <vector>

#include "apps/runtime/interleave_task.h"
#include "apps/runtime/output_names.h"

namespace tessera {

struct Session;

struct InterleaveOutput {
  std::string name, folder;  // of images
  Existing existing = Existing::kKeep;
  RecordFacts record = RecordFacts::kAll;
};

// Writes each text to stdout, "[FILE]" on a line of its own where an image stands; one JSON line an
// answer with --json. In the order of the requests. Returns the exit code.
int run_interleave(const Session& session, const InterleaveOptions& options,
                   std::vector<InterleaveRequest> requests, const InterleaveOutput& output);

}  // namespace tessera
