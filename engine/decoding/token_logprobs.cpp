#include "engine/decoding/token_logprobs.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/fixed_math.h"
#include "engine/core/index.h"
#include "engine/sampling/row_math.h"

namespace tessera {

namespace {

// Ids of the largest logits, the lowest of equal ones first.
std::vector<std::int32_t> largest_ids(std::span<const float> row, std::int64_t count) {
  const auto most = std::min(to_size(count), row.size());
  std::vector<std::int32_t> out;
  out.reserve(most + 1);
  for (std::size_t id = 0; id < row.size(); ++id) {
    if (out.size() == most && (most == 0 || !(row[id] > nth(row, out.back())))) continue;
    const auto place = std::find_if(out.begin(), out.end(), [&](std::int32_t other) {
      return row[id] > nth(row, other);
    });
    out.insert(place, narrow<std::int32_t>(id));
    if (out.size() > most) out.pop_back();
  }
  return out;
}

}  // namespace

TokenLogprobs token_logprobs(std::span<const float> cond, std::span<const float> uncond,
                             double guidance, std::int32_t id, std::int64_t top) {
  expects(!cond.empty() && (uncond.empty() || uncond.size() == cond.size()), "rows of logits");
  std::vector<float> guided;
  std::span<const float> row = cond;
  if (!uncond.empty()) {
    guided.resize(cond.size());
    guide_row(cond.data(), uncond.data(), to_float(guidance), cond.size(), guided.data());
    row = guided;
  }
  const double largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float logit : row) sum += fixed_exp(logit - largest);
  const double total = largest + fixed_log(sum);
  const auto of = [&](std::int32_t each) { return IdLogprob{each, nth(row, each) - total}; };
  TokenLogprobs out{of(id), {}};
  for (const std::int32_t each : largest_ids(row, top)) out.top.push_back(of(each));
  return out;
}

}  // namespace tessera
