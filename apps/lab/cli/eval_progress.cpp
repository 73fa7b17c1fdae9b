#include "apps/lab/cli/eval_progress.h"

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace tessera {

namespace fs = std::filesystem;

Flow EvalProgress::operator()(const std::string& what, std::int64_t done, std::int64_t of) {
  const double now = monotonic_seconds();
  if (session_.progress != ProgressMode::kNone && now >= next_) {
    next_ = now + 5.0;
    if (session_.progress == ProgressMode::kJson) {
      const nlohmann::ordered_json line = {{"part", what}, {"done", done}, {"of", of}};
      std::fprintf(stderr, "%s\n", line.dump().c_str());
    } else {
      std::fprintf(stderr, "%s: %" PRId64 " of %" PRId64 "\n", what.c_str(), done, of);
    }
  }
  return session_.stop_requested() ? Flow::kStop : Flow::kContinue;
}

void check_eval_output(const std::string& file, bool overwrite) {
  const fs::path path = file;
  if (file_exists(path) && !overwrite) {
    throw Error({.kind = ErrorKind::kStorage,
                 .code = "E_OUTPUT_EXISTS",
                 .file = path.string(),
                 .expected = "a name that is free",
                 .found = "a file that is there",
                 .hint = "--overwrite replaces it"});
  }
  ensure_output_folder(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

}  // namespace tessera
