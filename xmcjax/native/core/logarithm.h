// log x for vectors of a register. Included by the simd_*.cc files only.
#pragma once

#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

// log x for finite x > 0, to an ulp or two; for 0, and for numbers so small that they have not all digits, some finite
// number below all others.
//
// x = 2^k m, ½ √2 ≤ m < √2, and log m = 2 artanh s for s = f / (2 + f), f = m - 1, by its Taylor polynomial. Of
// 2 s = f - s f the larger part is exact.
template <class V>
inline V logarithm(V x) {
  using Integers = typename MaskOf<V>::type;
  using T = ElementOf<V>;
  constexpr bool kFloat = sizeof(T) == 4;
  constexpr T kMagic = kFloat ? T(12582912) : T(6755399441055744);  // 1.5 · 2^23 and 1.5 · 2^52
  // log 2 as the sum of two numbers, the first of which has few digits
  constexpr T kHigh = kFloat ? T(0.693359375) : T(6.93145751953125e-1);
  constexpr T kLow = kFloat ? T(-2.12194440e-4) : T(1.42860682030941723212e-6);
  constexpr int kDigits = kFloat ? 23 : 52, kTerms = kFloat ? 4 : 10;
  const V one = V{} + T(1), magic = V{} + kMagic, least = V{} + T(0.70710678118654752440);
  Integers bits, base, ones, of_magic;
  std::memcpy(&bits, &x, sizeof(bits));
  std::memcpy(&base, &least, sizeof(base));
  std::memcpy(&ones, &one, sizeof(ones));
  std::memcpy(&of_magic, &magic, sizeof(of_magic));
  // the exponent is a whole number, which the last digits of a large real are
  const Integers exponent = (bits - base) >> kDigits;
  const Integers fraction = bits - (exponent << kDigits);
  const Integers shifted = exponent + of_magic;
  V m, k;
  std::memcpy(&m, &fraction, sizeof(m));
  std::memcpy(&k, &shifted, sizeof(k));
  k = k - magic;
  const V f = m - T(1), s = f / (f + T(2)), square = s * s;
  V p = V{} + T(1) / T(2 * kTerms + 1);
  for (int i = kTerms - 1; i > 0; --i) p = p * square + T(1) / T(2 * i + 1);
  // 2 artanh s = f - s (f - 2 s² p)
  return k * kHigh + (f - (s * (f - T(2) * (square * p)) - k * kLow));
}

}  // namespace xmcjax::XMCJAX_ISA
