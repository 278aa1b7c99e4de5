// Vectors of a register's width, for loops over one long array (simd.h has the tiles of lanes), and
// lists of numbers that shrink. Included by the simd_*.cc files only.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#if defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#endif

namespace xmcjax::XMCJAX_ISA {

#if defined(__AVX512F__)
constexpr int kRegister = 64;
#elif defined(__AVX2__)
constexpr int kRegister = 32;
#else
constexpr int kRegister = 16;
#endif

template <class T>
struct WideOf {
  typedef T type __attribute__((vector_size(kRegister)));
  typedef T loose __attribute__((vector_size(kRegister), aligned(sizeof(T)), may_alias));
};
template <class T>
using Wide = typename WideOf<T>::type;
template <class T>
constexpr int kWide = kRegister / sizeof(T);

template <class T>
inline Wide<T> load_wide(const T* p) {
  return *reinterpret_cast<const typename WideOf<T>::loose*>(p);
}
template <class T>
inline void store_wide(T* p, Wide<T> v) {
  *reinterpret_cast<typename WideOf<T>::loose*>(p) = v;
}
// The first `count` numbers of p, and `fill` for the others.
template <class T>
inline Wide<T> load_part(const T* p, int64_t count, T fill) {
  T all[kWide<T>];
  for (T& one : all) one = fill;
  std::memcpy(all, p, count * sizeof(T));
  return load_wide(all);
}
template <class T>
inline Wide<T> wide(T value) {
  return Wide<T>{} + value;
}
template <class T>
inline Wide<T> wide_maximum(Wide<T> a, Wide<T> b) {
  return b > a ? b : a;
}
template <class T>
inline Wide<T> wide_minimum(Wide<T> a, Wide<T> b) {
  return b < a ? b : a;
}

// Bit l: element l of v is at least `bound`; false for NaN.
inline unsigned at_least(Wide<float> v, float bound) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(reinterpret_cast<__m512&>(v), _mm512_set1_ps(bound), _CMP_GE_OQ);
#elif defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_cmp_ps(reinterpret_cast<__m256&>(v), _mm256_set1_ps(bound), _CMP_GE_OQ));
#elif defined(__SSE2__)
  return _mm_movemask_ps(_mm_cmpge_ps(reinterpret_cast<__m128&>(v), _mm_set1_ps(bound)));
#else
  unsigned mask = 0;
  for (int l = 0; l < kWide<float>; ++l) mask |= unsigned(v[l] >= bound) << l;
  return mask;
#endif
}
inline unsigned at_least(Wide<double> v, double bound) {
#if defined(__AVX512F__)
  return _mm512_cmp_pd_mask(reinterpret_cast<__m512d&>(v), _mm512_set1_pd(bound), _CMP_GE_OQ);
#elif defined(__AVX2__)
  return _mm256_movemask_pd(_mm256_cmp_pd(reinterpret_cast<__m256d&>(v), _mm256_set1_pd(bound), _CMP_GE_OQ));
#elif defined(__SSE2__)
  return _mm_movemask_pd(_mm_cmpge_pd(reinterpret_cast<__m128d&>(v), _mm_set1_pd(bound)));
#else
  unsigned mask = 0;
  for (int l = 0; l < kWide<double>; ++l) mask |= unsigned(v[l] >= bound) << l;
  return mask;
#endif
}

template <class T>
inline T largest(Wide<T> v) {
  T all[kWide<T>];
  store_wide(all, v);
  for (int width = kWide<T> / 2; width; width /= 2)
    for (int l = 0; l < width; ++l) all[l] = all[l + width] > all[l] ? all[l + width] : all[l];
  return all[0];
}

// The two halves of a vector added up, then those of the result, to the last one.
template <class T, int kBytes = kRegister>
inline T total(const void* v) {
  typedef T half __attribute__((vector_size(kBytes / 2), aligned(sizeof(T)), may_alias));
  const half* h = static_cast<const half*>(v);
  const half sum = h[0] + h[1];
  if constexpr (kBytes / 2 == sizeof(T)) {
    return sum[0];
  } else {
    return total<T, kBytes / 2>(&sum);
  }
}
inline double total(Wide<double> v) { return total<double>(&v); }
inline float total(Wide<float> v) { return total<float>(&v); }

// Bit l: element l is not zero.
template <class T>
inline unsigned nonzero(Wide<T> v) {
  return at_least(v != T(0) ? wide(T(1)) : Wide<T>{}, T(1));
}

// Appends the marked elements of v, minus `shift`, to out and returns the new end; up to a whole
// vector from out on is written over.
inline double* append(double* out, Wide<double> v, unsigned mask, double shift) {
#if defined(__AVX512F__)
  Wide<double> packed;
  reinterpret_cast<__m512d&>(packed) = _mm512_maskz_compress_pd(__mmask8(mask), reinterpret_cast<__m512d&>(v));
  store_wide(out, packed - shift);
  return out + __builtin_popcount(mask);
#elif defined(__AVX2__)
  // Pairs of 32-bit halves, by the four bits of the mask.
  alignas(32) static constexpr int32_t order[16][8] = {
      {}, {0, 1}, {2, 3}, {0, 1, 2, 3}, {4, 5}, {0, 1, 4, 5}, {2, 3, 4, 5}, {0, 1, 2, 3, 4, 5},
      {6, 7}, {0, 1, 6, 7}, {2, 3, 6, 7}, {0, 1, 2, 3, 6, 7}, {4, 5, 6, 7}, {0, 1, 4, 5, 6, 7},
      {2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}};
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
  constexpr unsigned first = (1u << kWide<double>) - 1;
  if (mask & first) out = append(out, __builtin_convertvector(part[0], Wide<double>), mask & first, shift);
  if (mask > first) out = append(out, __builtin_convertvector(part[1], Wide<double>), mask >> kWide<double>, shift);
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
