// log x for vectors of a register. Included by the simd_*.cc files only.
#pragma once

#include "core/exponential.h"

namespace xmcjax::XMCJAX_ISA {

// log x for finite x > 0, to an ulp or two; for 0 and for denormal numbers, some finite number below all other
// results.
//
// x = 2^k m, ½ √2 ≤ m < √2, and log m = 2 artanh s for s = f / (2 + f), f = m - 1, by its Taylor polynomial. In
// 2 s = f - s f the larger part, f, is exact.
template <class V>
inline V logarithm(V x) {
  using Integers = typename MaskOf<V>::type;
  using T = ElementOf<V>;
  using Of = Binary<T>;
  constexpr int kTerms = Of::kFloat ? 4 : 10;
  const V one = V{} + T(1), magic = V{} + Of::kMagic, least = V{} + T(0.70710678118654752440);
  Integers bits, base, ones, of_magic;
  std::memcpy(&bits, &x, sizeof(bits));
  std::memcpy(&base, &least, sizeof(base));
  std::memcpy(&ones, &one, sizeof(ones));
  std::memcpy(&of_magic, &magic, sizeof(of_magic));
  // added to the bits of the large real `magic`, the exponent becomes its last digits, and so a real number
  const Integers exponent = (bits - base) >> Of::kDigits;
  const Integers fraction = bits - (exponent << Of::kDigits);
  const Integers shifted = exponent + of_magic;
  V m, k;
  std::memcpy(&m, &fraction, sizeof(m));
  std::memcpy(&k, &shifted, sizeof(k));
  k = k - magic;
  const V f = m - T(1), s = f / (f + T(2)), square = s * s;
  V p = V{} + T(1) / T(2 * kTerms + 1);
  for (int i = kTerms - 1; i > 0; --i) p = p * square + T(1) / T(2 * i + 1);
  // 2 artanh s = f - s (f - 2 s² p)
  return k * Of::kHigh + (f - (s * (f - T(2) * (square * p)) - k * Of::kLow));
}

}  // namespace xmcjax::XMCJAX_ISA
