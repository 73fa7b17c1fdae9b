// A few rows of an attention map, without the map.
#include <algorithm>
#include <cmath>

#include "vision/pruning/primitives.h"

namespace tessera {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Softmax weights of one query over the range of columns.
void one_row(const RowAttention& request, std::int64_t query, std::int64_t key_head,
             std::span<float> out) {
  const std::int64_t dim = request.queries.columns;
  const auto q = request.queries.row(query);
  for (std::size_t j = 0; j < out.size(); ++j) {
    const std::int64_t column = request.first_column + static_cast<std::int64_t>(j);
    const auto key = request.keys.row(column).subspan(at(key_head * dim), at(dim));
    out[j] = request.scale * dot(q, key) + (request.bias.empty() ? 0.0f : request.bias[at(column)]);
  }
  double shift = 0;
  if (!request.log_sum_exp.empty()) {
    shift = request.log_sum_exp[at(query)];
  } else {
    const double highest = *std::max_element(out.begin(), out.end());
    double sum = 0;
    for (const float logit : out) sum += std::exp(logit - highest);
    shift = highest + std::log(sum);
  }
  for (float& value : out) value = static_cast<float>(std::exp(value - shift));
}

}  // namespace

std::span<const float> row_attention(const RowAttention& request, PruneScratch& scratch) {
  const std::int64_t heads = request.heads, columns = request.columns;
  expects(heads > 0 && request.kv_heads > 0 && heads % request.kv_heads == 0, "heads in groups");
  expects(request.queries.rows % heads == 0, "as many query rows for each head");
  expects(request.keys.columns == request.kv_heads * request.queries.columns, "head width");
  expects(request.first_column >= 0 && columns >= 0 &&
              request.first_column + columns <= request.keys.rows,
          "columns of the keys");
  expects(request.log_sum_exp.empty() || request.log_sum_exp.size() == at(request.queries.rows),
          "a sum for each query row");
  const std::int64_t rows = request.queries.rows / heads;
  const bool keep_heads = request.reduce == AttentionReduce::kNone;
  const bool all = request.reduce == AttentionReduce::kMean;
  const std::int64_t out_rows = keep_heads ? heads * rows : all ? 1 : rows;
  const auto out = scratch.take<float>(out_rows * columns);
  if (columns == 0) return out;
  const auto row = scratch.take<float>(columns);
  const auto sums = scratch.take<double>(keep_heads ? 0 : out_rows * columns);
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t query = h * rows + r;
      one_row(request, query, h / (heads / request.kv_heads), row);
      if (keep_heads) {
        std::copy(row.begin(), row.end(), out.begin() + query * columns);
        continue;
      }
      for (std::int64_t c = 0; c < columns; ++c) {
        sums[at((all ? 0 : r) * columns + c)] += row[at(c)];
      }
    }
  }
  const double parts = request.reduce == AttentionReduce::kHeadSum ? 1.0
                       : all ? static_cast<double>(heads * rows)
                             : static_cast<double>(heads);
  for (std::size_t i = 0; i < sums.size(); ++i) out[i] = static_cast<float>(sums[i] / parts);
  return out;
}

}  // namespace tessera
