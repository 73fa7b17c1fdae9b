// The loop over a set: records made by threads, some at a time, given in order. Internal to
// apps/lab/scene.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "apps/lab/scene/scene_set.h"
#include "engine/core/function_ref.h"
#include "engine/core/index.h"
#include "engine/core/thread_pool.h"

namespace tessera {

// Error (kUsage) naming the field if size or the range of indices is out of bounds.
void check_set(const SceneSetRequest& request);

template <typename Record, typename Make>
void for_each_record(const SceneSetRequest& request, ThreadPool& pool, Make make,
                     FunctionRef<void(const Record&)> sink) {
  constexpr std::uint64_t kChunk = 64;  // records in memory at a time
  check_set(request);
  std::vector<Record> records;
  for (std::uint64_t done = 0; done < request.count; done += kChunk) {
    const std::uint64_t first = request.start + done;
    records.assign(std::min(kChunk, request.count - done), Record{});
    pool.parallel_for(std::ssize(records), 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        records[i] = make(first + narrow<std::uint64_t>(i));
      }
    });
    for (const Record& record : records) sink(record);
  }
}

}  // namespace tessera
