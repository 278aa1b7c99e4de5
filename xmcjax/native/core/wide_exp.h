// e^x for vectors of a register's width. Included by the simd_*.cc files only.
#pragma once

#include "core/wide.h"

namespace xmcjax::XMCJAX_ISA {

typedef int32_t WideInt32 __attribute__((vector_size(kRegister)));
typedef int64_t WideInt64 __attribute__((vector_size(kRegister)));

// e^x for x ≤ 1, to an ulp or two; below -87 (float) or -708 (double), and for -inf, 0.
//
// e^x = 2^k e^r, |r| ≤ ½ log 2, e^r by its Taylor polynomial. k comes from the low bits of x/log 2
// added to a number whose last digit is worth 1.
inline Wide<float> wide_exp(Wide<float> x) {
  const Wide<float> bounded = wide_maximum<float>(x, wide(-88.0f));
  const Wide<float> magic = wide(12582912.0f);  // 1.5 · 2^23
  const Wide<float> shifted = bounded * 1.44269504f + magic;
  const Wide<float> k = shifted - magic;
  const Wide<float> r = (bounded - k * 0.693359375f) + k * 2.12194440e-4f;
  Wide<float> p = wide(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  WideInt32 bits, base;
  std::memcpy(&bits, &shifted, sizeof(bits));
  std::memcpy(&base, &magic, sizeof(base));
  bits = (bits - base + 127) << 23;
  Wide<float> scale;
  std::memcpy(&scale, &bits, sizeof(bits));
  return x < -87.0f ? Wide<float>{} : p * scale;
}

inline Wide<double> wide_exp(Wide<double> x) {
  const Wide<double> bounded = wide_maximum<double>(x, wide(-709.0));
  const Wide<double> magic = wide(6755399441055744.0);  // 1.5 · 2^52
  const Wide<double> shifted = bounded * 1.4426950408889634074 + magic;
  const Wide<double> k = shifted - magic;
  const Wide<double> r = (bounded - k * 6.93145751953125e-1) - k * 1.42860682030941723212e-6;
  constexpr double kInverseFactorial[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                                          1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                                          1.0 / 120,        1.0 / 24,        1.0 / 6,        0.5,
                                          1.0,              1.0};
  Wide<double> p = wide(kInverseFactorial[0]);
  for (int i = 1; i < 14; ++i) p = p * r + kInverseFactorial[i];
  WideInt64 bits, base;
  std::memcpy(&bits, &shifted, sizeof(bits));
  std::memcpy(&base, &magic, sizeof(base));
  bits = (bits - base + 1023) << 52;
  Wide<double> scale;
  std::memcpy(&scale, &bits, sizeof(bits));
  return x < -708.0 ? Wide<double>{} : p * scale;
}

}  // namespace xmcjax::XMCJAX_ISA
