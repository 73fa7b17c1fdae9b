#include "engine/sampling/row_math.h"

#include <algorithm>

#include "engine/sampling/fixed_math.h"

namespace tessera {

namespace {

constexpr std::size_t kParts = 8;

// Partial sums of eight, added pairwise.
template <typename Real>
double sum_of(const Real* values, std::size_t n) {
  double part[kParts] = {};
  std::size_t i = 0;
  for (; i + kParts <= n; i += kParts) {
    for (std::size_t j = 0; j < kParts; ++j) part[j] += static_cast<double>(values[i + j]);
  }
  for (; i < n; ++i) part[0] += static_cast<double>(values[i]);
  return ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
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
  for (std::size_t i = 0; i < n; ++i) out[i] = uncond[i] + scale * (cond[i] - uncond[i]);
}

template <typename Real>
void softmax_row(const Real* logits, std::size_t n, Real* weights) {
  const Real largest = largest_of(logits, n);
  for (std::size_t i = 0; i < n; ++i) weights[i] = fixed_exp(logits[i] - largest);
  const Real total = static_cast<Real>(sum_of(weights, n));
  for (std::size_t i = 0; i < n; ++i) weights[i] /= total;
}

template float largest_of(const float*, std::size_t);
template double largest_of(const double*, std::size_t);
template void guide_row(const float*, const float*, float, std::size_t, float*);
template void guide_row(const double*, const double*, double, std::size_t, double*);
template void softmax_row(const float*, std::size_t, float*);
template void softmax_row(const double*, std::size_t, double*);

}  // namespace tessera
