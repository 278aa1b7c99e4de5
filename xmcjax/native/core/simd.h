// Vectors of 64 bytes, one lane an element, through the compiler's vector extensions: the same
// source is AVX-512, AVX2 or NEON as the flags say. Included by the simd_*.cc files only.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace xmcjax::XMCJAX_ISA {

template <class T>
struct Vector;
template <>
struct Vector<float> {
  typedef float type __attribute__((vector_size(64)));
  typedef float loose __attribute__((vector_size(64), aligned(4), may_alias));
  typedef int32_t integer __attribute__((vector_size(64)));
  typedef int8_t sign __attribute__((vector_size(16)));
  typedef int8_t loose_sign __attribute__((vector_size(16), aligned(1), may_alias));
};
template <>
struct Vector<double> {
  typedef double type __attribute__((vector_size(64)));
  typedef double loose __attribute__((vector_size(64), aligned(8), may_alias));
  typedef int64_t integer __attribute__((vector_size(64)));
  typedef int8_t sign __attribute__((vector_size(8)));
  typedef int8_t loose_sign __attribute__((vector_size(8), aligned(1), may_alias));
};

template <class T>
using Vec = typename Vector<T>::type;
template <class T>
using IntVec = typename Vector<T>::integer;
template <class T>
constexpr int kLanes = 64 / sizeof(T);

template <class T>
inline Vec<T> load(const T* p) {
  return *reinterpret_cast<const typename Vector<T>::loose*>(p);
}
template <class T>
inline void store(T* p, Vec<T> v) {
  *reinterpret_cast<typename Vector<T>::loose*>(p) = v;
}
// Bytes as numbers. GCC 12 converts a vector of bytes one by one.
template <class T>
inline Vec<T> load_signs(const int8_t* p) {
  return __builtin_convertvector(
      *reinterpret_cast<const typename Vector<T>::loose_sign*>(p), Vec<T>);
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
template <class T>
inline Vec<T> broadcast(T value) {
  return Vec<T>{} + value;
}
// A NaN in a stays NaN, as in jnp: a margin that is none must not count as no loss.
template <class T>
inline Vec<T> maximum(Vec<T> a, Vec<T> b) {
  return b > a ? b : a;
}
template <class T>
inline Vec<T> minimum(Vec<T> a, Vec<T> b) {
  return b < a ? b : a;
}
template <class T>
inline Vec<T> absolute(Vec<T> a) {
  return a < 0 ? -a : a;
}

// Bit l is set where lane l of v is not zero.
inline unsigned nonzero_lanes(Vec<float> v) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(reinterpret_cast<__m512&>(v), _mm512_setzero_ps(), _CMP_NEQ_UQ);
#elif defined(__AVX2__)
  __m256 half[2];
  std::memcpy(half, &v, 64);
  const __m256 zero = _mm256_setzero_ps();
  return unsigned(_mm256_movemask_ps(_mm256_cmp_ps(half[0], zero, _CMP_NEQ_UQ))) |
         unsigned(_mm256_movemask_ps(_mm256_cmp_ps(half[1], zero, _CMP_NEQ_UQ))) << 8;
#else
  unsigned mask = 0;
  for (int l = 0; l < 16; ++l) mask |= unsigned(v[l] != 0) << l;
  return mask;
#endif
}
inline unsigned nonzero_lanes(Vec<double> v) {
#if defined(__AVX512F__)
  return _mm512_cmp_pd_mask(reinterpret_cast<__m512d&>(v), _mm512_setzero_pd(), _CMP_NEQ_UQ);
#elif defined(__AVX2__)
  __m256d half[2];
  std::memcpy(half, &v, 64);
  const __m256d zero = _mm256_setzero_pd();
  return unsigned(_mm256_movemask_pd(_mm256_cmp_pd(half[0], zero, _CMP_NEQ_UQ))) |
         unsigned(_mm256_movemask_pd(_mm256_cmp_pd(half[1], zero, _CMP_NEQ_UQ))) << 4;
#else
  unsigned mask = 0;
  for (int l = 0; l < 8; ++l) mask |= unsigned(v[l] != 0) << l;
  return mask;
#endif
}

}  // namespace xmcjax::XMCJAX_ISA
