// Flags that choose a pruner of visual tokens, for every sub-command that reads images.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/runtime/prune_session.h"

namespace CLI {
class App;
}

namespace tessera {

// --keep-tokens auto: as many as the method finds.
inline constexpr std::int64_t kOwnNumber = -1;

struct PruneFlags {
  std::optional<std::string> method;
  std::optional<double> rate;        // fraction removed
  std::optional<std::int64_t> keep;  // tokens of an image, or kOwnNumber
  std::vector<std::string> options;  // NAME=VALUE
  std::string scope;                 // empty = the method's own
  bool parity = false;
};

void add_prune_flags(CLI::App& app, PruneFlags& flags);
// Error kUsage for names that do not exist and flags that contradict one another.
PruneChoice prune_choice(const PruneFlags& flags);

}  // namespace tessera
