// Vectors through the compiler's vector extensions: the same source is AVX-512, AVX2 or NEON as the flags say. There
// are two widths, which AVX-512 makes one: Vec<T> has 64 bytes, one lane an element, for tiles of lanes; Wide<T> has
// those of a register, for loops over one long array. Included by the simd_*.cc files only.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
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

template <class T, int kBytes>
struct VectorOf {
  using Integer = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  typedef T type __attribute__((vector_size(kBytes)));
  typedef T loose __attribute__((vector_size(kBytes), aligned(sizeof(T)), may_alias));
  typedef Integer integer __attribute__((vector_size(kBytes)));
  typedef int8_t loose_sign __attribute__((vector_size(kBytes / sizeof(T)), aligned(1), may_alias));
};

template <class T>
using Vec = typename VectorOf<T, 64>::type;
template <class T>
using IntVec = typename VectorOf<T, 64>::integer;
template <class T>
constexpr int kLanes = 64 / sizeof(T);

template <class T>
using Wide = typename VectorOf<T, kRegister>::type;
template <class T>
constexpr int kWide = kRegister / sizeof(T);

template <class T>
inline Vec<T> load(const T* p) {
  return *reinterpret_cast<const typename VectorOf<T, 64>::loose*>(p);
}
template <class T>
inline void store(T* p, Vec<T> v) {
  *reinterpret_cast<typename VectorOf<T, 64>::loose*>(p) = v;
}
template <class T>
inline Wide<T> load_wide(const T* p) {
  return *reinterpret_cast<const typename VectorOf<T, kRegister>::loose*>(p);
}
template <class T>
inline void store_wide(T* p, Wide<T> v) {
  *reinterpret_cast<typename VectorOf<T, kRegister>::loose*>(p) = v;
}
// Bytes as numbers. GCC 12 converts a vector of bytes one by one.
template <class T>
inline Vec<T> load_signs(const int8_t* p) {
  return __builtin_convertvector(
      *reinterpret_cast<const typename VectorOf<T, 64>::loose_sign*>(p), Vec<T>);
}
#if defined(__AVX512F__)
constexpr __mmask16 kAll = 0xffff;  // of their forms without a mask GCC 12 warns
template <>
inline Vec<float> load_signs<float>(const int8_t* p) {
  const __m512i whole = _mm512_maskz_cvtepi8_epi32(kAll, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  Vec<float> v;
  reinterpret_cast<__m512&>(v) = _mm512_maskz_cvtepi32_ps(kAll, whole);
  return v;
}
template <>
inline Vec<double> load_signs<double>(const int8_t* p) {
  const __m256i whole = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  Vec<double> v;
  reinterpret_cast<__m512d&>(v) = _mm512_maskz_cvtepi32_pd(__mmask8(kAll), whole);
  return v;
}
#elif defined(__AVX2__)
template <>
inline Vec<float> load_signs<float>(const int8_t* p) {
  Vec<float> v;
  for (int half = 0; half < 2; ++half) {
    const __m256i whole = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * half)));
    const __m256 numbers = _mm256_cvtepi32_ps(whole);
    std::memcpy(reinterpret_cast<char*>(&v) + 32 * half, &numbers, 32);
  }
  return v;
}
#endif
// The first `count` numbers of p, and `fill` for the others.
template <class T>
inline Wide<T> load_part(const T* p, int64_t count, T fill) {
  T all[kWide<T>];
  for (T& one : all) one = fill;
  std::memcpy(all, p, count * sizeof(T));
  return load_wide(all);
}
template <class T>
inline Vec<T> broadcast(T value) {
  return Vec<T>{} + value;
}
template <class T>
inline Wide<T> wide(T value) {
  return Wide<T>{} + value;
}

// Of vectors of any width. A NaN in a stays NaN, as in jnp: a margin that is none must not count as no loss.
template <class V>
inline V maximum(V a, V b) {
  return b > a ? b : a;
}
template <class V>
inline V minimum(V a, V b) {
  return b < a ? b : a;
}
template <class V>
inline V absolute(V a) {
  return a < 0 ? -a : a;
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

// Bit l: element l of v is not zero, or NaN.
inline unsigned nonzero(Wide<float> v) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(reinterpret_cast<__m512&>(v), _mm512_setzero_ps(), _CMP_NEQ_UQ);
#elif defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_cmp_ps(reinterpret_cast<__m256&>(v), _mm256_setzero_ps(), _CMP_NEQ_UQ));
#else
  return at_least(v != 0 ? wide(1.0f) : Wide<float>{}, 1);
#endif
}
inline unsigned nonzero(Wide<double> v) {
#if defined(__AVX512F__)
  return _mm512_cmp_pd_mask(reinterpret_cast<__m512d&>(v), _mm512_setzero_pd(), _CMP_NEQ_UQ);
#elif defined(__AVX2__)
  return _mm256_movemask_pd(_mm256_cmp_pd(reinterpret_cast<__m256d&>(v), _mm256_setzero_pd(), _CMP_NEQ_UQ));
#else
  return at_least(v != 0 ? wide(1.0) : Wide<double>{}, 1);
#endif
}
// The same of a tile's vector.
template <class T>
inline unsigned nonzero_registers(const Vec<T>& v) {
  unsigned mask = 0;
  for (int part = 0; part < kLanes<T>; part += kWide<T>) {
    Wide<T> some;
    std::memcpy(&some, reinterpret_cast<const T*>(&v) + part, sizeof(some));
    mask |= nonzero(some) << part;
  }
  return mask;
}
inline unsigned nonzero_lanes(Vec<float> v) { return nonzero_registers<float>(v); }
inline unsigned nonzero_lanes(Vec<double> v) { return nonzero_registers<double>(v); }

// The sum of a tile's vector, one lane after another, in the numbers of Sum: the order that results rest on.
template <class Sum, class V>
inline Sum sum_of_lanes(const V& v) {
  Sum sum = 0;
  for (size_t l = 0; l < sizeof(v) / sizeof(v[0]); ++l) sum += Sum(v[l]);
  return sum;
}
// The largest lane of a tile's vector.
template <class V>
inline auto largest_lane(const V& v) {
  auto most = v[0];
  for (size_t l = 1; l < sizeof(v) / sizeof(v[0]); ++l) most = v[l] > most ? v[l] : most;
  return most;
}
// Bit l: lane l of a tile's vector is above the bound.
template <class T>
inline unsigned lanes_above(Vec<T> v, T bound) {
  return nonzero_registers<T>(v > bound ? broadcast(T(1)) : Vec<T>{});
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

}  // namespace xmcjax::XMCJAX_ISA
