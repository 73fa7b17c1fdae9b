// The few computations that all selections are made of. fp32 with fp32 or double sums in a fixed
// order; ties go to the lower index, NaN comes last. Everything lives in caller-provided memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "vision/pruning/plan.h"
#include "vision/pruning/scratch.h"
#include "vision/pruning/views.h"

namespace tessera {

// Whether score a of index i ranks before score b of index j: higher first, then the lower index;
// NaN after every number.
inline bool ranks_before(float a, TokenIndex i, float b, TokenIndex j) {
  const bool a_number = !std::isnan(a), b_number = !std::isnan(b);
  if (a_number != b_number) return a_number;
  if (a_number && a != b) return a > b;
  return i < j;
}

// Sum of products in fp32, eight lanes; dot(a, b) = dot(b, a) bit for bit.
float dot(std::span<const float> a, std::span<const float> b);

// The listed rows of x scaled to length 1 (rows shorter than 1e-12 become zero rows), [listed,
// columns], in scratch.
MatrixView normalised_rows(MatrixView x, std::span<const std::int64_t> rows, PruneScratch& scratch);
// The listed rows, mean over `heads` equal parts of a row: [listed, columns / heads].
MatrixView head_mean_rows(MatrixView x, std::int64_t heads, std::span<const std::int64_t> rows,
                          PruneScratch& scratch);
// X X^T, symmetric bit for bit; [rows, rows].
void gram(MatrixView x, std::span<float> out);

// Sum over the rows of a matrix, per column; in double, rows in order.
std::span<const float> column_sums(MatrixView x, PruneScratch& scratch);

// row[tokens[0]], row[tokens[1]], ... in scratch.
std::span<float> values_at(std::span<const float> row, std::span<const TokenIndex> tokens,
                           PruneScratch& scratch);
// 0 ... count - 1, in scratch.
std::span<const std::int64_t> all_places(std::size_t count, PruneScratch& scratch);
// Sets chosen[tokens[place]] for each of the places.
void mark(std::span<const TokenIndex> tokens, std::span<const TokenIndex> places,
          std::span<std::uint8_t> chosen);

// The places of `scores` by rank, first `k` of them; returns min(k, scores).
std::span<const TokenIndex> ranked(std::span<const float> scores, std::int64_t k,
                                   PruneScratch& scratch);
// The same places, ascending.
std::span<const TokenIndex> top_places(std::span<const float> scores, std::int64_t k,
                                       PruneScratch& scratch);

// Farthest-point traversal under cosine distance over rows of length 1: first the row whose nearest
// other row is farthest, then again and again the row farthest from all picked. Pick order, each
// row once; min(k, rows) of them. O(k rows columns) after the first pick, no matrix is stored.
std::span<const TokenIndex> farthest_points(MatrixView unit_rows, std::int64_t k,
                                            PruneScratch& scratch);

struct BestMatch {
  std::int64_t place = -1;  // in the list b; -1 when b is empty
  float similarity = -std::numeric_limits<float>::infinity();
};
// For each listed row a of x, the listed row b with the largest dot product; ties to the earlier
// place in b. NaN matches last.
std::span<const BestMatch> bipartite_max(MatrixView x, std::span<const std::int64_t> a,
                                         std::span<const std::int64_t> b, PruneScratch& scratch);

// Output row s is row order[s] of x with the sources merged into it; [order, columns]. `sizes` (one
// a row of x) for kSizeWeightedMean only. Rows without sources are copied bit for bit.
void scatter_combine(MatrixView x, std::span<const TokenIndex> order, std::span<const Merge> merges,
                     MergeRule rule, std::span<const float> sizes, std::span<float> out);

// Entropy of a row that sums to 1 over the largest one possible, ln n; 1 for n <= 1. Probabilities
// of 0 count 0.
double entropy_ratio(std::span<const float> row);

enum class KneeAxes : std::uint8_t { kRaw, kNormalised };
// The place in a descending curve that is farthest from the line between its first and last point,
// the first of equals; -1 for an empty curve. Raw axes: (rank, value). Normalised: both from 0
// to 1.
std::int64_t knee(std::span<const float> descending, KneeAxes axes);

// How much one query looks at listed rows, by these rows alone. Attention weights as the running
// model has them come as signals: the runtime's own op recovers them from its log-sums. This is for
// methods that take another softmax than the model's, and works on plain views because a selection
// is a function of its inputs and knows no backend.
struct ProductSoftmax {
  std::span<const float> query;  // [heads * head_dim]
  std::int64_t heads = 1;
  MatrixView rows;             // [all rows, row_heads * head_dim]
  std::int64_t row_heads = 1;  // head h of the query meets part h / (heads / row_heads) of a row
  std::span<const TokenIndex> listed;
  float scale = 1;         // of the products
  bool with_self = false;  // the query's product with itself counts in the sum
};
// Softmax over the listed rows of scale * (query . row), mean over heads, [listed]; in double.
std::span<float> product_softmax(const ProductSoftmax& request, PruneScratch& scratch);

}  // namespace tessera
