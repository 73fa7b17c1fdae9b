#include "apps/runtime/cached_rows.h"

#include <algorithm>

#include "engine/core/cached_type.h"
#include "engine/core/index.h"
#include "engine/ops/host_access.h"

namespace tessera {

// Of the table only what reaches to the last of the rows comes to the host.
std::vector<float> cached_rows(Backend& backend, ConstTensorView table,
                               std::span<const std::int64_t> rows) {
  if (rows.empty()) return {};
  const std::int64_t width = cached_width(table);
  const std::int64_t end = *std::max_element(rows.begin(), rows.end()) + 1;
  expects(end <= table.shape[0], "the rows are in the table");
  table.shape = {end, table.shape[1], table.shape[2]};
  const HostView host(backend, table);
  std::vector<float> out(rows.size() * to_size(width));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    read_cached(host.view(), rows[i], out.data() + to_index(i) * width);
  }
  return out;
}

}  // namespace tessera
