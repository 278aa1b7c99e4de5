// Lists of numbers that shrink. Included by the simd_*.cc files only.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

// Appends the marked elements of v, minus `shift`, to out and returns the new end; up to a whole
// vector from out on is written over.
inline double* append(double* out, Wide<double> v, unsigned mask, double shift) {
#if defined(__AVX512F__)
  Wide<double> packed;
  reinterpret_cast<__m512d&>(packed) =
      _mm512_maskz_compress_pd(__mmask8(mask), reinterpret_cast<__m512d&>(v));
  store_wide(out, packed - shift);
  return out + __builtin_popcount(mask);
#elif defined(__AVX2__)
  // Pairs of 32-bit halves, by the four bits of the mask.
  alignas(32) static constexpr int32_t order[16][8] = {{},
                                                       {0, 1},
                                                       {2, 3},
                                                       {0, 1, 2, 3},
                                                       {4, 5},
                                                       {0, 1, 4, 5},
                                                       {2, 3, 4, 5},
                                                       {0, 1, 2, 3, 4, 5},
                                                       {6, 7},
                                                       {0, 1, 6, 7},
                                                       {2, 3, 6, 7},
                                                       {0, 1, 2, 3, 6, 7},
                                                       {4, 5, 6, 7},
                                                       {0, 1, 4, 5, 6, 7},
                                                       {2, 3, 4, 5, 6, 7},
                                                       {0, 1, 2, 3, 4, 5, 6, 7}};
  const __m256i which = _mm256_load_si256(reinterpret_cast<const __m256i*>(order[mask]));
  Wide<double> packed;
  reinterpret_cast<__m256i&>(packed) = _mm256_permutevar8x32_epi32(reinterpret_cast<__m256i&>(v), which);
  store_wide(out, packed - shift);
  return out + __builtin_popcount(mask);
#else
  for (; mask; mask &= mask - 1) *out++ = v[__builtin_ctz(mask)] - shift;
  return out;
#endif
}
inline double* append(double* out, Wide<float> v, unsigned mask, double shift) {
  typedef float half __attribute__((vector_size(kRegister / 2)));
  half part[2];
  std::memcpy(part, &v, sizeof(v));
  constexpr unsigned first = (1u << kWide<double>)-1;
  if (mask & first) out = append(out, __builtin_convertvector(part[0], Wide<double>), mask & first, shift);
  if (mask > first)
    out = append(out, __builtin_convertvector(part[1], Wide<double>), mask >> kWide<double>, shift);
  return out;
}

// Numbers padded with NaN to a whole vector: no comparison holds for the padding.
struct List {
  double* value;
  int64_t count;

  static constexpr int64_t room(int64_t count) { return count + 2 * kWide<double>; }

  static List ending(double* value, double* end) {
    for (int l = 0; l < kWide<double>; ++l) end[l] = std::numeric_limits<double>::quiet_NaN();
    return {value, end - value};
  }

  // Σ (v - shift)
  double sum(double shift = 0) const {
    Wide<double> s{};
    for (int64_t j = 0; j < count; j += kWide<double>) {
      const Wide<double> v = load_wide(value + j);
      s += v == v ? v - shift : Wide<double>{};
    }
    return total(s);
  }

  // The elements that are at least (at most) `bound`, at `target`, which may be where they are.
  List at_least(double bound, double* target) const {
    double* out = target;
    for (int64_t j = 0; j < count; j += kWide<double>) {
      const Wide<double> v = load_wide(value + j);
      out = append(out, v, XMCJAX_ISA::at_least(v, bound), 0);
    }
    return ending(target, out);
  }
  List at_most(double bound, double* target) const {
    double* out = target;
    for (int64_t j = 0; j < count; j += kWide<double>) {
      const Wide<double> v = load_wide(value + j);
      out = append(out, v, XMCJAX_ISA::at_least(-v, -bound), 0);
    }
    return ending(target, out);
  }
};

// Number of elements below `low` and above `high`, Σ (v - shift) of those between, Σ v of those above.
struct Sides {
  int64_t below, above;
  double middle_sum, above_sum;

  Sides(const List& list, double low, double high, double shift) : below(0), above(0) {
    Wide<double> middle_part{}, above_part{};
    auto below_count = middle_part < middle_part, above_count = below_count;
    for (int64_t j = 0; j < list.count; j += kWide<double>) {
      const Wide<double> v = load_wide(list.value + j);
      middle_part += (v >= low) & (v <= high) ? v - shift : Wide<double>{};
      above_part += v > high ? v : Wide<double>{};
      below_count -= v < low;
      above_count -= v > high;
    }
    for (int l = 0; l < kWide<double>; ++l) below += below_count[l], above += above_count[l];
    middle_sum = total(middle_part), above_sum = total(above_part);
  }
};

}  // namespace xmcjax::XMCJAX_ISA
