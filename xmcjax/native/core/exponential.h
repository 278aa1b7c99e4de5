// e^x for vectors of any width. Included by the simd_*.cc files only.
#pragma once

#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

// What e^x and log x need to know of numbers of a type.
template <class T>
struct Binary {
  static constexpr bool kFloat = sizeof(T) == 4;
  static constexpr int kDigits = kFloat ? 23 : 52;
  static constexpr T kMagic = kFloat ? T(12582912) : T(6755399441055744);  // 1.5 · 2^kDigits
  // log 2 as the sum of two numbers, the first of which has few digits
  static constexpr T kHigh = kFloat ? T(0.693359375) : T(6.93145751953125e-1);
  static constexpr T kLow = kFloat ? T(-2.12194440e-4) : T(1.42860682030941723212e-6);
};

// e^x for x ≤ 1, to an ulp or two; below -87 (float) or -708 (double), and for -inf, 0.
//
// e^x = 2^k e^r, |r| ≤ ½ log 2, e^r by its Taylor polynomial. k comes from the low bits of x/log 2
// added to a number whose last digit is worth 1.
template <class V>
inline V exponential(V x) {
  using Integers = typename MaskOf<V>::type;
  using T = ElementOf<V>;
  using Of = Binary<T>;
  constexpr T kLeast = Of::kFloat ? T(-87) : T(-708);
  constexpr int kDegree = Of::kFloat ? 7 : 13, kBias = Of::kFloat ? 127 : 1023;
  const V bounded = maximum(x, V{} + (kLeast - 1)), magic = V{} + Of::kMagic;
  const V shifted = bounded * T(1.4426950408889634074) + magic;
  const V k = shifted - magic;
  const V r = (bounded - k * Of::kHigh) - k * Of::kLow;
  constexpr T kInverseFactorial[] = {T(1.0 / 6227020800),
                                     T(1.0 / 479001600),
                                     T(1.0 / 39916800),
                                     T(1.0 / 3628800),
                                     T(1.0 / 362880),
                                     T(1.0 / 40320),
                                     T(1.0 / 5040),
                                     T(1.0 / 720),
                                     T(1.0 / 120),
                                     T(1.0 / 24),
                                     T(1.0 / 6),
                                     T(0.5),
                                     T(1),
                                     T(1)};
  V p = V{} + kInverseFactorial[13 - kDegree];
  for (int i = 14 - kDegree; i < 14; ++i) p = p * r + kInverseFactorial[i];
  Integers bits, base;
  std::memcpy(&bits, &shifted, sizeof(bits));
  std::memcpy(&base, &magic, sizeof(base));
  bits = (bits - base + kBias) << Of::kDigits;
  V scale;
  std::memcpy(&scale, &bits, sizeof(bits));
  return select(x < kLeast, V{}, p * scale);
}

}  // namespace xmcjax::XMCJAX_ISA
