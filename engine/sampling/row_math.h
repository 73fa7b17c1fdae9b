// Loops over one row of a distribution, in forms that compilers turn into vector instructions of any width
// with the same bits: sums run in the lanes of engine/core/row_tree.h, whatever the machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

// The largest of n >= 1 numbers, none of them NaN.
template <typename Real>
Real largest_of(const Real* values, std::size_t n);

// out = uncond + scale (cond - uncond), [n] each.
template <typename Real>
void guide_row(const Real* cond, const Real* uncond, Real scale, std::size_t n, Real* out);

// weights = softmax of n >= 1 logits, of the ids 0 … n-1.
template <typename Real>
void softmax_row(const Real* logits, std::size_t n, Real* weights);
// The same of a list of ids, ascending: the weights they have in a row whose other logits are far
// below, to the bit.
template <typename Real>
void softmax_row(const std::int32_t* ids, const Real* logits, std::size_t n, Real* weights);

extern template float largest_of(const float*, std::size_t);
extern template double largest_of(const double*, std::size_t);
extern template void guide_row(const float*, const float*, float, std::size_t, float*);
extern template void guide_row(const double*, const double*, double, std::size_t, double*);
extern template void softmax_row(const float*, std::size_t, float*);
extern template void softmax_row(const double*, std::size_t, double*);
extern template void softmax_row(const std::int32_t*, const float*, std::size_t, float*);
extern template void softmax_row(const std::int32_t*, const double*, std::size_t, double*);

}  // namespace tessera
