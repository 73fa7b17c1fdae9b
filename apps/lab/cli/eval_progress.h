// A line on stderr every few seconds of an evaluation.
#pragma once

#include <cstdint>
#include <string>

#include "apps/cli/session.h"
#include "engine/core/error.h"
#include "engine/core/io.h"
#include "engine/decoding/stream.h"

namespace tessera {

class EvalProgress {
 public:
  explicit EvalProgress(const Session& session) : session_(session) {}
  // kStop once a signal came.
  Flow operator()(const std::string& what, std::int64_t done, std::int64_t of);

 private:
  const Session& session_;
  double next_ = monotonic_seconds() + 2.0;
};

// Error kStorage, E_OUTPUT_EXISTS, for a file that is there and may not be replaced; else makes
// sure of its folder.
void check_eval_output(const std::string& file, bool overwrite);

}  // namespace tessera
