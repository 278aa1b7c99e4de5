// The rows of one lane whose loss need not be zero at a point of the plane search, gathered from
// the tile: few where most negatives are far beyond the margin.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "core/aligned.h"
#include "core/simd.h"
#include "newton/lane_arrays.h"
#include "newton/plane_search.h"

namespace xmcjax::XMCJAX_ISA {

template <class T>
struct Entry {  // an active row of one lane
  int32_t row;
  T slope, curvature;
};

#if defined(__AVX512F__)
// Writes the elements of v at the bits of `which`, one behind another; up to a whole vector is written over.
inline void append(float* out, unsigned which, Vec<float> v) {
  _mm512_storeu_ps(out, _mm512_maskz_compress_ps(__mmask16(which), reinterpret_cast<__m512&>(v)));
}
inline void append(double* out, unsigned which, Vec<double> v) {
  _mm512_storeu_pd(out, _mm512_maskz_compress_pd(__mmask8(which), reinterpret_cast<__m512d&>(v)));
}
// append() for the numbers first, first + 1, …; sixteen of them.
inline void append(int32_t* out, unsigned which, int32_t first) {
  const __m512i order = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i numbers = _mm512_add_epi32(order, _mm512_set1_epi32(first));
  _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(__mmask16(which), numbers));
}

// 1 in the lanes of the bits, −1 in the others
template <class T>
inline Vec<T> signs(unsigned positive);
template <>
inline Vec<float> signs<float>(unsigned positive) {
  Vec<float> v;
  reinterpret_cast<__m512&>(v) =
      _mm512_mask_blend_ps(__mmask16(positive), _mm512_set1_ps(-1), _mm512_set1_ps(1));
  return v;
}
template <>
inline Vec<double> signs<double>(unsigned positive) {
  Vec<double> v;
  reinterpret_cast<__m512d&>(v) =
      _mm512_mask_blend_pd(__mmask8(positive), _mm512_set1_pd(-1), _mm512_set1_pd(1));
  return v;
}

#endif

#if defined(__SSE2__)
// The columns of a square of bits that is given by its rows.
template <int N>
class BitColumns {
 public:
#if defined(__AVX512F__)
  explicit BitColumns(const uint16_t* rows) { std::memcpy(&rows_, rows, N * sizeof(uint16_t)); }
  unsigned operator[](int column) const {
    return _mm256_test_epi16_mask(rows_, _mm256_set1_epi16(int16_t(1u << column)));
  }

 private:
  __m256i rows_ = _mm256_setzero_si256();
#else
  explicit BitColumns(const uint16_t* rows) {
    __m128i halves[2] = {};  // of eight rows each
    std::memcpy(halves, rows, N * sizeof(uint16_t));
    const __m128i byte = _mm_set1_epi16(0xff);
    __m128i low = _mm_packus_epi16(_mm_and_si128(halves[0], byte), _mm_and_si128(halves[1], byte));
    __m128i high = _mm_packus_epi16(_mm_srli_epi16(halves[0], 8), _mm_srli_epi16(halves[1], 8));
    for (int bit = 7; bit >= 0; --bit) {
      columns_[bit] = uint16_t(_mm_movemask_epi8(low));
      columns_[8 + bit] = uint16_t(_mm_movemask_epi8(high));
      low = _mm_add_epi8(low, low), high = _mm_add_epi8(high, high);
    }
  }
  unsigned operator[](int column) const { return columns_[column]; }

 private:
  uint16_t columns_[16];
#endif
};
#endif

template <class T>
class NearRows {
  static constexpr int N = kLanes<T>;
  using V = Vec<T>;

 public:
  void open() { count_ = 0; }

  void add(int64_t row, T z, T m, T y, T c) {
    if (count_ == room_) grow();
    row_[count_] = int32_t(row);
    z_[count_] = z, m_[count_] = m, y_[count_] = y, c_[count_] = c;
    ++count_;
  }
#if defined(__AVX512F__)
  // Rows first + k for the bits k of `rows`, with y = 1 where `positive` has them and −1 elsewhere.
  void add(int64_t first, unsigned rows, V z, V m, unsigned positive, V c) {
    if (count_ + N > room_) grow();
    append(&row_[count_], rows, int32_t(first));
    append(&z_[count_], rows, z);
    append(&m_[count_], rows, m);
    append(&y_[count_], rows, signs<T>(positive));
    append(&c_[count_], rows, c);
    count_ += __builtin_popcount(rows);
  }
#else
  // The same, where the numbers of row first + k stand k times N, or k times a stride, behind those of row first.
  void add(int64_t first, unsigned rows, const T* z, const T* m, const int8_t* y, int64_t y_stride,
           const T* c, int64_t c_stride) {
    if (count_ + N > room_) grow();
    int32_t* row = row_.data();
    T *zs = z_.data(), *ms = m_.data(), *ys = y_.data(), *cs = c_.data();
    int64_t at = count_;
    for (; rows; rows &= rows - 1, ++at) {
      const int k = __builtin_ctz(rows);
      row[at] = int32_t(first + k);
      zs[at] = z[k * N], ms[at] = m[k * N], ys[at] = T(y[k * y_stride]), cs[at] = c[k * c_stride];
    }
    count_ = at;
  }
#endif
  int64_t count() const { return count_; }

  // Fills the last vector up with rows that have no loss anywhere.
  void close() {
    for (int64_t e = count_; e < (count_ + N - 1) / N * N; ++e)
      z_[e] = T(1e30), m_[e] = 0, y_[e] = 1, c_[e] = 0;
  }

  // `from_zero`: the lane had no loss to compare with.
  template <class Loss>
  PlaneSums sums(const Loss& loss, T t, T beta, bool from_zero) const {
    PlaneSums s;
    V change{}, slope{}, slope_m{}, curvature{}, curvature_m{}, curvature_mm{};
    for (int64_t e = 0; e < count_;) {
      const int64_t block = e + 64 * N < count_ ? e + 64 * N : count_;
      change = slope = slope_m = curvature = curvature_m = curvature_mm = V{};
      for (; e < block; e += N) {
        const V z = load(&z_[e]), m = load(&m_[e]), y = load(&y_[e]), c = load(&c_[e]);
        V before, after, first, second;
        loss(z, y, before, first, second);
        loss(z + t * m + beta, y, after, first, second);
        first *= c;
        second *= c;
        change += c * (from_zero ? after : after - before);
        slope += first;
        slope_m += first * m;
        curvature += second;
        curvature_m += second * m;
        curvature_mm += second * m * m;
      }
      const auto total = [](const V& v) { return sum_of_lanes<double>(v); };
      s.change += total(change), s.slope += total(slope), s.slope_m += total(slope_m);
      s.curvature += total(curvature), s.curvature_m += total(curvature_m),
          s.curvature_mm += total(curvature_mm);
    }
    return s;
  }

  // The rows that are active at (t, β) and, in `value`, Σ c ℓ there; slopes and curvatures are summed.
  template <class Loss>
  void active(const Loss& loss, T t, T beta, std::vector<Entry<T>>& entries, double& value, double& slopes,
              double& curvatures) const {
    entries.resize(count_ + N);
    Entry<T>* out = entries.data();
    value = slopes = curvatures = 0;
    for (int64_t e = 0; e < count_;) {
      const int64_t block = e + 64 * N < count_ ? e + 64 * N : count_;
      V values{}, firsts{}, seconds{};
      for (; e < block; e += N) {
        const V y = load(&y_[e]), c = load(&c_[e]);
        V here, first, second;
        loss(load(&z_[e]) + t * load(&m_[e]) + beta, y, here, first, second);
        first *= c;
        second *= c;
        values += c * here;
        firsts += first;
        seconds += second;
        const LanesOf<V> slope(first), curvature(second);
        for (int k = 0; k < N; ++k) {
          *out = {row_[e + k], slope[k], curvature[k]};
          out += (slope[k] != 0) | (curvature[k] != 0);
        }
      }
      value += sum_of_lanes<double>(values), slopes += sum_of_lanes<double>(firsts);
      curvatures += sum_of_lanes<double>(seconds);
    }
    entries.resize(out - entries.data());
  }

 private:
  // Doubles the room, and adds a vector to fill up. It begins small: only a few of all rows are near in most lanes.
  void grow() {
    room_ = room_ ? 2 * room_ : 64 * N;
    row_.resize(room_ + 16);  // as many as are appended at once
    for (auto* v : {&z_, &m_, &y_, &c_}) v->resize(room_ + N);
  }

  Array<int32_t> row_;
  Array<T> z_, m_, y_, c_;  // z with the shift of the row
  int64_t count_ = 0, room_ = 0;
};

}  // namespace xmcjax::XMCJAX_ISA
