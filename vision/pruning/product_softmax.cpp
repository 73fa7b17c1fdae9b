// Softmax of one query over rows that a method chose, mean over heads.
#include <algorithm>
#include <cmath>

#include "engine/core/index.h"
#include "vision/pruning/primitives.h"

namespace tessera {

std::span<float> product_softmax(const ProductSoftmax& request, PruneScratch& scratch) {
  const std::int64_t heads = request.heads;
  expects(heads > 0 && request.row_heads > 0 && heads % request.row_heads == 0, "heads in groups");
  const std::size_t width = request.query.size() / to_size(heads);
  expects(request.query.size() == width * to_size(heads) &&
              to_index(width) * request.row_heads == request.rows.columns,
          "heads of one width");
  const auto count = std::ssize(request.listed);
  const auto out = scratch.take<float>(count);
  const auto logits = scratch.take<double>(count);
  const auto scale = double{request.scale};
  for (std::size_t h = 0; h < to_size(heads); ++h) {
    const auto query = request.query.subspan(h * width, width);
    const std::size_t part = h / to_size(heads / request.row_heads);
    const double self = request.with_self ? scale * dot(query, query) : -HUGE_VAL;
    double highest = self;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const auto row = request.rows.row(request.listed[i]).subspan(part * width, width);
      logits[i] = scale * dot(query, row);
      highest = std::max(highest, logits[i]);
    }
    double sum = std::exp(self - highest);
    for (double& logit : logits) sum += (logit = std::exp(logit - highest));
    for (std::size_t i = 0; i < logits.size(); ++i) {
      out[i] += to_float(logits[i] / sum / to_double(heads));
    }
  }
  return out;
}

}  // namespace tessera
