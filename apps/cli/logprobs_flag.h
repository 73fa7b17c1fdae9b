// --logprobs of texts.
#pragma once

#include <cstdint>
#include <optional>

namespace CLI {
class App;
}

namespace tessera {

struct Session;

void logprobs_flag(CLI::App& app, std::optional<std::int64_t>& target);

// They are fields of JSON lines. Error kUsage (E_FLAG_CONFLICT) without --json, or `of_job`.
void check_logprobs_flag(const Session& session, const std::optional<std::int64_t>& logprobs,
                         bool of_job);

}  // namespace tessera
