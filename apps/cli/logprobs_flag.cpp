#include "apps/cli/logprobs_flag.h"

#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "engine/core/error.h"
#include "engine/decoding/token_logprobs.h"

namespace tessera {

void logprobs_flag(CLI::App& app, std::optional<std::int64_t>& target) {
  integer_flag(app, "--logprobs", target, 0, kMaxTopLogprobs,
               "with --json: each token's log probability, and those of N likeliest");
}

void check_logprobs_flag(const Session& session, const std::optional<std::int64_t>& logprobs,
                         bool of_job) {
  if (!logprobs || (session.json && !of_job)) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_FLAG_CONFLICT",
               .where = "--logprobs",
               .expected = of_job ? "--image, of which they are" : "--json, whose lines hold them",
               .found = of_job ? "inputs" : "plain text"});
}

}  // namespace tessera
