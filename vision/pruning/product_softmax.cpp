// Softmax of one query over rows that a method chose, mean over heads.
#include <algorithm>
#include <cmath>

#include "vision/pruning/primitives.h"

namespace tessera {

std::span<float> product_softmax(const ProductSoftmax& request, PruneScratch& scratch) {
  const std::int64_t heads = request.heads;
  expects(heads > 0 && request.row_heads > 0 && heads % request.row_heads == 0, "heads in groups");
  const std::size_t width = request.query.size() / static_cast<std::size_t>(heads);
  expects(request.query.size() == width * static_cast<std::size_t>(heads) &&
              static_cast<std::int64_t>(width) * request.row_heads == request.rows.columns,
          "heads of one width");
  const auto count = static_cast<std::int64_t>(request.listed.size());
  const auto out = scratch.take<float>(count);
  const auto logits = scratch.take<double>(count);
  const auto scale = static_cast<double>(request.scale);
  for (std::size_t h = 0; h < static_cast<std::size_t>(heads); ++h) {
    const auto query = request.query.subspan(h * width, width);
    const std::size_t part = h / static_cast<std::size_t>(heads / request.row_heads);
    const double self =
        request.with_self ? scale * static_cast<double>(dot(query, query)) : -HUGE_VAL;
    double highest = self;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const auto row = request.rows.row(request.listed[i]).subspan(part * width, width);
      logits[i] = scale * static_cast<double>(dot(query, row));
      highest = std::max(highest, logits[i]);
    }
    double sum = std::exp(self - highest);
    for (double& logit : logits) sum += (logit = std::exp(logit - highest));
    for (std::size_t i = 0; i < logits.size(); ++i) {
      out[i] += static_cast<float>(logits[i] / sum / static_cast<double>(heads));
    }
  }
  return out;
}

}  // namespace tessera
