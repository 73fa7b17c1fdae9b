// The table after a check of a GPU: what the project wants of one, each figure next to its target,
// then the passes and images that were timed.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tessera {

inline constexpr std::size_t kTableLines = 30;

// At most kTableLines lines. `objects` in the order in which they were measured: a later one counts
// in place of an earlier one of the same thing. Objects of quick runs meet no target.
std::vector<std::string> device_table(const std::vector<nlohmann::json>& objects);

}  // namespace tessera
