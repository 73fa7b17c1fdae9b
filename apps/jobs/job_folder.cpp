// Owners of shards, items to come.
#include "apps/jobs/job_folder.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

fs::path owner_file(const fs::path& folder, const Shard& shard) {
  return folder / kStateFolder / (journal_name(shard.index, shard.of) + ".owner");
}

}  // namespace

BatchStore open_store(const fs::path& folder, std::span<const SettledItem> items,
                      const Json& options, const Json& model, const StoreOptions& store_options) {
  try {
    return BatchStore(folder, items, options, model, store_options);
  } catch (const Error& error) {
    if (error.info().code != "E_IO_LOCKED") throw;
    ErrorInfo info = error.info();
    const fs::path owner = owner_file(folder, store_options.shard);
    if (file_exists(owner)) info.found = "one by " + read_file(owner, 400, ErrorKind::kStorage);
    info.hint = "wait for it, take another --shard, or choose another --output-dir";
    throw Error(std::move(info));
  }
}

void write_owner(const fs::path& folder, const Shard& shard) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  write_file_atomic(owner_file(folder, shard),
                    "process " + std::to_string(::getpid()) + " on " + host);
}

WantedItems wanted_items(const fs::path& folder, const Shard& shard,
                         std::span<const SettledItem> items, bool retry_failed) {
  WantedItems out;
  ItemRecords known;
  if (file_exists(folder / kStateFolder / "job.json")) {
    JobReport report = read_job_report(folder);
    known = std::move(report.records);
    out.standing = std::move(report.standing);
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (shard_of(items[i].item.id, shard.of) != shard.index) continue;
    ++out.items;
    const ItemState state = known[items[i].item.id].state;
    const bool again = state == ItemState::kFailed && retry_failed;
    if (state == ItemState::kPending || again) out.wanted.push_back(i);
  }
  return out;
}

}  // namespace tessera
