#include "engine/sampling/row_math.h"

#include <algorithm>

#include "engine/core/dist_math.h"
#include "engine/core/fixed_math.h"
#include "engine/core/index.h"
#include "engine/core/row_tree.h"

namespace tessera {

namespace {

constexpr std::size_t kParts = 8;

// Of the ids 0 … n-1.
template <typename Real>
double sum_of(const Real* values, std::size_t n) {
  RowSum sum(n);
  double* lane = sum.data();
  std::size_t i = 0;
  for (; i + kRowLanes <= n; i += kRowLanes) {
    for (std::size_t l = 0; l < kRowLanes; ++l) lane[l] += to_double(values[i + l]);
  }
  for (std::size_t l = 0; i + l < n; ++l) lane[l] += to_double(values[i + l]);
  return sum.total();
}

template <typename Real>
void exponentials_of(const Real* logits, std::size_t n, Real* weights) {
  const Real largest = largest_of(logits, n);
  for (std::size_t i = 0; i < n; ++i) weights[i] = fixed_exp(logits[i] - largest);
}

template <typename Real>
void divide_row(Real* weights, std::size_t n, double sum) {
  const Real total = static_cast<Real>(sum);
  for (std::size_t i = 0; i < n; ++i) weights[i] /= total;
}

}  // namespace

template <typename Real>
Real largest_of(const Real* values, std::size_t n) {
  Real part[kParts];
  std::fill(part, part + kParts, values[0]);
  std::size_t i = 0;
  for (; i + kParts <= n; i += kParts) {
    for (std::size_t j = 0; j < kParts; ++j) {
      part[j] = values[i + j] > part[j] ? values[i + j] : part[j];
    }
  }
  for (; i < n; ++i) part[0] = values[i] > part[0] ? values[i] : part[0];
  return *std::max_element(part, part + kParts);
}

template <typename Real>
void guide_row(const Real* cond, const Real* uncond, Real scale, std::size_t n, Real* out) {
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = guided_logit(cond[i], uncond[i], scale);
  }
}

template <typename Real>
void softmax_row(const Real* logits, std::size_t n, Real* weights) {
  exponentials_of(logits, n, weights);
  divide_row(weights, n, sum_of(weights, n));
}

template <typename Real>
void softmax_row(const std::int32_t* ids, const Real* logits, std::size_t n, Real* weights) {
  exponentials_of(logits, n, weights);
  RowSum sum(static_cast<std::size_t>(ids[n - 1]) + 1);
  for (std::size_t i = 0; i < n; ++i) {
    sum.add(static_cast<std::size_t>(ids[i]), to_double(weights[i]));
  }
  divide_row(weights, n, sum.total());
}

template float largest_of(const float*, std::size_t);
template double largest_of(const double*, std::size_t);
template void guide_row(const float*, const float*, float, std::size_t, float*);
template void guide_row(const double*, const double*, double, std::size_t, double*);
template void softmax_row(const float*, std::size_t, float*);
template void softmax_row(const double*, std::size_t, double*);
template void softmax_row(const std::int32_t*, const float*, std::size_t, float*);
template void softmax_row(const std::int32_t*, const double*, std::size_t, double*);

}  // namespace tessera
