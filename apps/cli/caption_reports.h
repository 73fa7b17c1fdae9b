// The reports of `tessera caption` that describe nothing: status and merge.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/cli/session.h"

namespace tessera {

// "3 done, 1 were there already, 2 repeat another image, 0 failed".
std::string caption_counts_text(std::uint64_t done, std::uint64_t skipped, std::uint64_t repeats,
                                std::uint64_t failed);

// `place`: an output, or a folder with text files. Exit codes: 0 all shards over, 3 with failed
// items, 1 when some are not over.
int caption_status(const Session& session, const std::filesystem::path& place);
// 0, 3 with failed items, 1 when all have failed. `output` empty = the first place, which must be
// the only one, or folders with text files.
int caption_merge(const Session& session, const std::vector<std::filesystem::path>& places,
                  const std::filesystem::path& output);

}  // namespace tessera
