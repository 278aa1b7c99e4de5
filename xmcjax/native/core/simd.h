// Vectors through the compiler's vector extensions: the same source is AVX-512, AVX2 or NEON as the flags say. There
// are two widths, which are the same with AVX-512: Vec<T> has 64 bytes, an element per lane, for tiles of lanes;
// Wide<T> has the bytes of a register, for loops over one long array. Included by the simd_*.cc files only.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#if defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace xmcjax::XMCJAX_ISA {

#if defined(__AVX512F__)
constexpr int kRegister = 64;
#elif defined(__AVX2__)
constexpr int kRegister = 32;
#else
constexpr int kRegister = 16;
#endif

// A vector of kBytes bytes, a register or less: its type, `loose` for loads and stores anywhere, `integer` for masks.
template <class T, int kBytes>
struct VectorOf {
  using Integer = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  typedef T type __attribute__((vector_size(kBytes)));
  typedef T loose __attribute__((vector_size(kBytes), aligned(sizeof(T)), may_alias));
  typedef Integer integer __attribute__((vector_size(kBytes)));
};

// A vector of several registers as two halves, each a register or a Pair: GCC moves vectors wider than a register
// through memory.
template <class H>
struct Pair;
template <class V>
constexpr bool kPaired = false;
template <class H>
constexpr bool kPaired<Pair<H>> = true;

template <class V>
using ElementOf = std::remove_cv_t<std::remove_reference_t<decltype(std::declval<V&>()[0])>>;
template <class V>
constexpr int kElements = sizeof(V) / sizeof(ElementOf<V>);

// What a comparison of vectors gives: whole numbers of the same width, −1 where it holds and 0 elsewhere.
template <class V>
struct MaskOf {
  using type = typename VectorOf<ElementOf<V>, sizeof(V)>::integer;
};
template <class H>
struct MaskOf<Pair<H>> {
  using type = Pair<typename MaskOf<H>::type>;
};

#define XMCJAX_INLINE inline __attribute__((always_inline))

template <class H>
struct Pair {
  using T = ElementOf<H>;
  using Mask = typename MaskOf<Pair>::type;
  using HalfMask = typename MaskOf<H>::type;
  H low, high;

  T& operator[](int l) { return reinterpret_cast<T*>(this)[l]; }
  T operator[](int l) const { return reinterpret_cast<const T*>(this)[l]; }

  friend XMCJAX_INLINE Pair operator-(Pair a) { return {-a.low, -a.high}; }
  friend XMCJAX_INLINE Pair operator<<(Pair a, int bits) { return {a.low << bits, a.high << bits}; }
#define XMCJAX_OF_PAIRS(op)                                                                            \
  friend XMCJAX_INLINE Pair operator op(Pair a, Pair b) { return {a.low op b.low, a.high op b.high}; } \
  friend XMCJAX_INLINE Pair operator op(Pair a, T b) { return {a.low op b, a.high op b}; }             \
  friend XMCJAX_INLINE Pair operator op(T a, Pair b) { return {a op b.low, a op b.high}; }             \
  XMCJAX_INLINE Pair& operator op## = (Pair b) { return *this = *this op b; }                          \
  XMCJAX_INLINE Pair& operator op## = (T b) { return *this = *this op b; }
  XMCJAX_OF_PAIRS(+)
  XMCJAX_OF_PAIRS(-)
  XMCJAX_OF_PAIRS(*)
  XMCJAX_OF_PAIRS(/)
  XMCJAX_OF_PAIRS(&)
  XMCJAX_OF_PAIRS(|)
#undef XMCJAX_OF_PAIRS
#define XMCJAX_OF_PAIRS(op)                                        \
  friend XMCJAX_INLINE Mask operator op(Pair a, Pair b) {          \
    return {HalfMask(a.low op b.low), HalfMask(a.high op b.high)}; \
  }                                                                \
  friend XMCJAX_INLINE Mask operator op(Pair a, T b) { return {HalfMask(a.low op b), HalfMask(a.high op b)}; }
  XMCJAX_OF_PAIRS(<)
  XMCJAX_OF_PAIRS(<=)
  XMCJAX_OF_PAIRS(>)
  XMCJAX_OF_PAIRS(>=)
  XMCJAX_OF_PAIRS(==)
  XMCJAX_OF_PAIRS(!=)
#undef XMCJAX_OF_PAIRS
};

// A vector of kBytes bytes: a register or less, else a Pair.
template <class T, int kBytes, bool kFits = kBytes <= kRegister>
struct RegistersOf {
  using type = typename VectorOf<T, kBytes>::type;
};
template <class T, int kBytes>
struct RegistersOf<T, kBytes, false> {
  using type = Pair<typename RegistersOf<T, kBytes / 2>::type>;
};

template <class T>
using Vec = typename RegistersOf<T, 64>::type;
template <class T>
using IntVec = typename MaskOf<Vec<T>>::type;
template <class T>
constexpr int kLanes = 64 / sizeof(T);

template <class T>
using Wide = typename VectorOf<T, kRegister>::type;
template <class T>
constexpr int kWide = kRegister / sizeof(T);
// `count` rounded up to whole registers.
template <class T>
inline int64_t whole(int64_t count) {
  return (count + kWide<T> - 1) / kWide<T> * kWide<T>;
}

// Loads and stores of a vector of any width, wherever p points.
template <class V>
XMCJAX_INLINE V load_as(const ElementOf<V>* p) {
  if constexpr (kPaired<V>) {
    using H = decltype(V::low);
    return {load_as<H>(p), load_as<H>(p + kElements<H>)};
  } else {
    return *reinterpret_cast<const typename VectorOf<ElementOf<V>, sizeof(V)>::loose*>(p);
  }
}
template <class V>
XMCJAX_INLINE void store_as(ElementOf<V>* p, V v) {
  if constexpr (kPaired<V>) {
    store_as(p, v.low);
    store_as(p + kElements<decltype(v.low)>, v.high);
  } else {
    *reinterpret_cast<typename VectorOf<ElementOf<V>, sizeof(V)>::loose*>(p) = v;
  }
}

template <class T>
inline Vec<T> load(const T* p) {
  return load_as<Vec<T>>(p);
}
template <class T>
inline void store(T* p, Vec<T> v) {
  store_as(p, v);
}
template <class T>
inline Wide<T> load_wide(const T* p) {
  return load_as<Wide<T>>(p);
}
template <class T>
inline void store_wide(T* p, Wide<T> v) {
  store_as(p, v);
}

// A load that the compiler cannot merge with a select behind it: with AVX-512 GCC makes one masked load of the two,
// which waits for all that was stored shortly before.
template <class T>
inline Vec<T> loaded(const T* p) {
  Vec<T> v = load(p);
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#endif
  return v;
}

// Bytes as numbers, a register of them. GCC 12 converts a vector of bytes one by one.
template <class T>
inline Wide<T> load_signs_wide(const int8_t* p) {
  Wide<T> v{};
  for (int l = 0; l < kWide<T>; ++l) v[l] = T(p[l]);
  return v;
}
#if defined(__AVX512F__)
constexpr __mmask16 kAll = 0xffff;  // GCC 12 warns of the forms of these functions without a mask
template <>
inline Wide<float> load_signs_wide<float>(const int8_t* p) {
  const __m512i whole =
      _mm512_maskz_cvtepi8_epi32(kAll, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return Wide<float>(_mm512_maskz_cvtepi32_ps(kAll, whole));
}
template <>
inline Wide<double> load_signs_wide<double>(const int8_t* p) {
  const __m256i whole = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return Wide<double>(_mm512_maskz_cvtepi32_pd(__mmask8(kAll), whole));
}
#elif defined(__AVX2__)
template <>
inline Wide<float> load_signs_wide<float>(const int8_t* p) {
  return Wide<float>(
      _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))));
}
template <>
inline Wide<double> load_signs_wide<double>(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof(four));
  return Wide<double>(_mm256_cvtepi32_pd(_mm_cvtepi8_epi32(_mm_cvtsi32_si128(four))));
}
#elif defined(__SSE2__)
template <>
inline Wide<float> load_signs_wide<float>(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof(four));
  const __m128i bytes = _mm_cvtsi32_si128(four), pairs = _mm_unpacklo_epi8(bytes, bytes);
  return Wide<float>(_mm_cvtepi32_ps(_mm_srai_epi32(_mm_unpacklo_epi16(pairs, pairs), 24)));
}
#elif defined(__aarch64__)
template <>
inline Wide<float> load_signs_wide<float>(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof(four));
  const int16x8_t wider = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
  return Wide<float>(vcvtq_f32_s32(vmovl_s16(vget_low_s16(wider))));
}
#endif
// load_signs_wide for a tile.
template <class V>
XMCJAX_INLINE V load_signs_as(const int8_t* p) {
  if constexpr (kPaired<V>) {
    using H = decltype(V::low);
    return {load_signs_as<H>(p), load_signs_as<H>(p + kElements<H>)};
  } else {
    return load_signs_wide<ElementOf<V>>(p);
  }
}
template <class T>
inline Vec<T> load_signs(const int8_t* p) {
  return load_signs_as<Vec<T>>(p);
}
// Loads the first `count` numbers of p, with `fill` for the others; and stores the first `count` numbers of v.
template <class T>
inline Wide<T> load_part(const T* p, int64_t count, T fill) {
  T all[kWide<T>];
  for (T& one : all) one = fill;
  std::memcpy(all, p, count * sizeof(T));
  return load_wide(all);
}
template <class T>
inline void store_part(T* p, int64_t count, Wide<T> v) {
  std::memcpy(p, &v, count * sizeof(T));
}
#if defined(__AVX512F__)
template <>
inline Wide<float> load_part<float>(const float* p, int64_t count, float fill) {
  return Wide<float>(_mm512_mask_loadu_ps(_mm512_set1_ps(fill), __mmask16((1u << count) - 1), p));
}
template <>
inline Wide<double> load_part<double>(const double* p, int64_t count, double fill) {
  return Wide<double>(_mm512_mask_loadu_pd(_mm512_set1_pd(fill), __mmask8((1u << count) - 1), p));
}
template <>
inline void store_part<float>(float* p, int64_t count, Wide<float> v) {
  _mm512_mask_storeu_ps(p, __mmask16((1u << count) - 1), __m512(v));
}
template <>
inline void store_part<double>(double* p, int64_t count, Wide<double> v) {
  _mm512_mask_storeu_pd(p, __mmask8((1u << count) - 1), __m512d(v));
}
#endif
// f(j, count) for each vector of an array of `size` numbers: `count` numbers from j on, at the end perhaps a part.
template <class T, class F>
XMCJAX_INLINE void each_wide(int64_t size, F&& f) {
  int64_t j = 0;
  for (; j + kWide<T> <= size; j += kWide<T>) f(j, kWide<T>);
  if (j < size) f(j, size - j);
}
// Loads and stores such a vector, whole or a part.
template <class T>
XMCJAX_INLINE Wide<T> load_some(const T* p, int64_t count, T fill = T(0)) {
  return count == kWide<T> ? load_wide(p) : load_part(p, count, fill);
}
template <class T>
XMCJAX_INLINE void store_some(T* p, int64_t count, Wide<T> v) {
  if (count == kWide<T>) store_wide(p, v);
  else store_part(p, count, v);
}
template <class T>
inline Vec<T> broadcast(T value) {
  return Vec<T>{} + value;
}
template <class T>
inline Wide<T> wide(T value) {
  return Wide<T>{} + value;
}

// Element by element yes where the mask has −1, no where it has 0; of vectors of any width, and of numbers.
template <class M, class V>
XMCJAX_INLINE V select(M mask, V yes, V no) {
  if constexpr (kPaired<V>) {
    return {select(mask.low, yes.low, no.low), select(mask.high, yes.high, no.high)};
  } else {
    return mask ? yes : no;
  }
}

// For vectors of any width. A NaN in a stays NaN, as in jnp: a margin that is NaN must not count as one without a loss.
template <class V>
inline V maximum(V a, V b) {
  return select(b > a, b, a);
}
template <class V>
inline V minimum(V a, V b) {
  return select(b < a, b, a);
}
template <class V>
inline V absolute(V a) {
  return select(a < 0, -a, a);
}

// Bit l: element l of a mask is −1.
template <class M>
inline unsigned lanes_where(M mask) {
  if constexpr (kPaired<M>) {
    return lanes_where(mask.low) | lanes_where(mask.high) << kElements<decltype(mask.low)>;
  } else {
    constexpr bool kFours = sizeof(mask[0]) == 4;
#if defined(__AVX512F__)
    if constexpr (kFours) return _mm512_movepi32_mask(__m512i(mask));
    else return _mm512_movepi64_mask(__m512i(mask));
#elif defined(__AVX2__)
    if constexpr (kFours) return _mm256_movemask_ps(__m256(mask));
    else return _mm256_movemask_pd(__m256d(mask));
#elif defined(__SSE2__)
    if constexpr (kFours) return _mm_movemask_ps(__m128(mask));
    else return _mm_movemask_pd(__m128d(mask));
#elif defined(__aarch64__)
    if constexpr (kFours) return vaddvq_u32(vandq_u32(uint32x4_t(mask), uint32x4_t{1, 2, 4, 8}));
    else return unsigned(vaddvq_u64(vandq_u64(uint64x2_t(mask), uint64x2_t{1, 2})));
#else
    unsigned bits = 0;
    for (int l = 0; l < kElements<M>; ++l) bits |= unsigned(mask[l] != 0) << l;
    return bits;
#endif
  }
}

// For registers, by bit l: at_least(), whether element l of v is at least `bound`, false for NaN; nonzero(), whether it
// is not zero, true for NaN.
#if defined(__AVX512F__)
inline unsigned at_least(Wide<float> v, float bound) {
  return _mm512_cmp_ps_mask(__m512(v), _mm512_set1_ps(bound), _CMP_GE_OQ);
}
inline unsigned at_least(Wide<double> v, double bound) {
  return _mm512_cmp_pd_mask(__m512d(v), _mm512_set1_pd(bound), _CMP_GE_OQ);
}
inline unsigned nonzero(Wide<float> v) {
  return _mm512_cmp_ps_mask(__m512(v), _mm512_setzero_ps(), _CMP_NEQ_UQ);
}
inline unsigned nonzero(Wide<double> v) {
  return _mm512_cmp_pd_mask(__m512d(v), _mm512_setzero_pd(), _CMP_NEQ_UQ);
}
#else
inline unsigned at_least(Wide<float> v, float bound) { return lanes_where(v >= bound); }
inline unsigned at_least(Wide<double> v, double bound) { return lanes_where(v >= bound); }
inline unsigned nonzero(Wide<float> v) { return lanes_where(v != 0); }
inline unsigned nonzero(Wide<double> v) { return lanes_where(v != 0); }
#endif
// nonzero() for a tile's vector.
template <class V>
inline unsigned nonzero_lanes(const V& v) {
  if constexpr (kPaired<V>) {
    return nonzero_lanes(v.low) | nonzero_lanes(v.high) << kElements<decltype(v.low)>;
  } else {
    return nonzero(v);
  }
}

// An array of the lanes of a tile's vector, to be read one after another: if lanes of the vector itself were read so,
// the compiler would keep it in memory.
template <class V>
struct LanesOf {
  alignas(64) ElementOf<V> lane[kElements<V>];
  explicit LanesOf(const V& v) { store_as(lane, v); }
  ElementOf<V> operator[](int l) const { return lane[l]; }
};
// The sum of the lanes, one after another, in the type Sum: results depend on this order.
template <class Sum, class V>
inline Sum sum_of_lanes(const V& v) {
  const LanesOf<V> lanes(v);
  Sum sum = 0;
  for (int l = 0; l < kElements<V>; ++l) sum += Sum(lanes[l]);
  return sum;
}
template <class V>
inline ElementOf<V> largest_lane(const V& v) {
  const LanesOf<V> lanes(v);
  ElementOf<V> most = lanes[0];
  for (int l = 1; l < kElements<V>; ++l) most = lanes[l] > most ? lanes[l] : most;
  return most;
}

template <class T>
inline T largest(Wide<T> v) {
  T all[kWide<T>];
  store_wide(all, v);
  for (int width = kWide<T> / 2; width; width /= 2)
    for (int l = 0; l < width; ++l) all[l] = all[l + width] > all[l] ? all[l + width] : all[l];
  return all[0];
}

// The sum of a vector: its two halves are added, then the two halves of the result, until one number is left.
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

// ⟨a, b⟩ over `length` entries, not necessarily whole vectors.
template <class T>
inline double inner(const T* a, const T* b, int64_t length) {
  Wide<T> sum{};
  each_wide<T>(length,
               [&](int64_t j, int64_t count) { sum += load_some(a + j, count) * load_some(b + j, count); });
  return double(total(sum));
}

// y += a x over `length` entries, not necessarily whole vectors.
template <class T>
inline void add_scaled(T a, const T* x, int64_t length, T* y) {
  constexpr int N = kWide<T>;
  int64_t j = 0;
  for (; j + N <= length; j += N) store_wide(y + j, load_wide(y + j) + a * load_wide(x + j));
  for (; j < length; ++j) y[j] += a * x[j];
}

}  // namespace xmcjax::XMCJAX_ISA
