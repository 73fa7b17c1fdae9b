#include "apps/runtime/cached_rows.h"

#include <algorithm>

#include "engine/core/dtype.h"
#include "engine/core/index.h"
#include "engine/ops/host_access.h"

namespace tessera {

// Of the table only what reaches to the last of the rows comes to the host.
std::vector<float> cached_rows(Backend& backend, ConstTensorView table,
                               std::span<const std::int64_t> rows) {
  if (rows.empty()) return {};
  const std::int64_t width = table.shape[1] * table.shape[2];
  const std::int64_t end = *std::max_element(rows.begin(), rows.end()) + 1;
  expects(end <= table.shape[0], "the rows are in the table");
  table.shape = {end, table.shape[1], table.shape[2]};
  const HostView host(backend, table);
  std::vector<float> out;
  out.reserve(rows.size() * to_size(width));
  for (const std::int64_t row : rows) {
    for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
      out.push_back(table.dtype == DType::kF32 ? host.f32()[i]
                                               : bf16_to_float(host.view().as<std::uint16_t>()[i]));
    }
  }
  return out;
}

}  // namespace tessera
