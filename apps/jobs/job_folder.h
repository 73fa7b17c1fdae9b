// The folder of a job from outside its store: who has a shard, and what a run would do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "apps/jobs/store.h"
#include "engine/core/json.h"

namespace tessera {

// Opens the store. The error says who has the shard, when somebody has it.
BatchStore open_store(const std::filesystem::path& folder, std::span<const SettledItem> items,
                      const Json& options, const Json& model, const StoreOptions& store_options);

// For others that want the shard.
void write_owner(const std::filesystem::path& folder, const Shard& shard);

// The items of the shard, and those of them that a run would work on now. No store is opened.
struct WantedItems {
  std::size_t items = 0;
  std::vector<std::size_t> wanted;               // indices
  std::map<std::string, std::int64_t> standing;  // grids of videos in work, by id
};
WantedItems wanted_items(const std::filesystem::path& folder, const Shard& shard,
                         std::span<const SettledItem> items, bool retry_failed);

}  // namespace tessera
