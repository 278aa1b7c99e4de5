// The sums of a plane search over all rows, for a register of lanes or for one lane. A register holds one row of each
// of its lanes, or, for a lane alone, several rows of it, so that no work goes into lanes that are not searched. Both
// forms add the same numbers in the same order, so that a sum does not depend on the form.
#pragma once

#include <cstdint>

#include "core/aligned.h"
#include "core/interrupt.h"
#include "core/simd.h"
#include "newton/lane_arrays.h"
#include "newton/plane_search.h"

namespace xmcjax::XMCJAX_ISA {

// Rows that are added up in T; the totals are in double.
constexpr int64_t kRowsOfSum = 256;
constexpr int kPlaneSums = 6;

// A register unchanged, of which the compiler no longer knows that it is a product: it would fuse the product with the
// sum that it goes into.
template <class W>
XMCJAX_INLINE W rounded(W v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__SSE2__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#else
  asm("" : "+m"(v));
#endif
  return v;
}

// c ℓ(z + o), with which the loss at a point is compared.
template <class W, class Loss>
XMCJAX_INLINE W loss_before(const Loss& loss, W z, W y, W c) {
  W value, slope, curvature;
  loss(z, y, value, slope, curvature);
  return rounded(value * c);
}

// What rows add to PlaneSums, in its order, at a point where their scores are z + t m + β + o. The terms are rounded,
// because a product that is fused with a sum would not be.
template <class W, class Loss>
XMCJAX_INLINE void plane_terms(const Loss& loss, W at, W m, W y, W c, W before, W (&terms)[kPlaneSums]) {
  W value, slope, curvature;
  loss(at, y, value, slope, curvature);
  slope = rounded(slope * c), curvature = rounded(curvature * c);
  const W along = rounded(curvature * m);
  terms[0] = rounded(value * c) - before;
  terms[1] = slope, terms[2] = rounded(slope * m);
  terms[3] = curvature, terms[4] = along, terms[5] = rounded(along * m);
}

// One lane, taken out of its tile.
template <class T>
class LoneLane {
  static constexpr int R = kWide<T>;
  using W = Wide<T>;

 public:
  // `row(i, z, m, y, c, o)` sets the numbers of a row, z = 0 in a fresh lane.
  template <class F>
  void take(int64_t rows, bool shifted, F&& row) {
    rows_ = rows, shifted_ = shifted;
    for (auto* v : {&z_, &m_, &y_, &c_, &before_}) v->resize(whole<T>(rows));
    if (shifted) shift_.resize(whole<T>(rows));
    T none;
    for (int64_t i = 0; i < rows; ++i) row(i, z_[i], m_[i], y_[i], c_[i], shifted ? shift_[i] : none);
    for (int64_t i = rows; i < whole<T>(rows); ++i) {
      z_[i] = m_[i] = c_[i] = 0, y_[i] = 1;
      if (shifted) shift_[i] = 0;
    }
  }

  // A fresh lane has no loss to compare with.
  template <class Loss>
  void begin(const Loss& loss, bool fresh) {
    for (int64_t i = 0; i < rows_; i += R) {
      const W z = load_wide(&z_[i]), y = load_wide(&y_[i]), c = load_wide(&c_[i]);
      store_wide(&before_[i],
                 fresh ? W{} : loss_before(loss, shifted_ ? z + load_wide(&shift_[i]) : z, y, c));
    }
  }

  template <class Loss>
  PlaneSums sums(const Loss& loss, T t, T beta) const {
    double totals[kPlaneSums] = {};
    const Poll poll;
    for (int64_t i = 0; i < rows_;) {
      const int64_t last = i + kRowsOfSum < rows_ ? i + kRowsOfSum : rows_;
      T block[kPlaneSums] = {};
      for (; i < last; i += R) {
        const W z = load_wide(&z_[i]), m = load_wide(&m_[i]), y = load_wide(&y_[i]), c = load_wide(&c_[i]);
        W at = z + wide(t) * m + wide(beta), terms[kPlaneSums];
        if (shifted_) at += load_wide(&shift_[i]);
        plane_terms(loss, at, m, y, c, load_wide(&before_[i]), terms);
        alignas(64) T rows[kPlaneSums][R];
        for (int k = 0; k < kPlaneSums; ++k) store_wide(rows[k], terms[k]);
        const int count = last - i < R ? int(last - i) : R;
        for (int r = 0; r < count; ++r)
          for (int k = 0; k < kPlaneSums; ++k) block[k] += rows[k][r];
      }
      i = last;
      for (int k = 0; k < kPlaneSums; ++k) totals[k] += block[k];
      poll(kPasses * kRowsOfSum / R);
    }
    return {totals[0], totals[1], totals[2], totals[3], totals[4], totals[5]};
  }

 private:
  Array<T> z_, m_, y_, c_, shift_, before_;
  int64_t rows_ = 0;
  bool shifted_ = false;
};

}  // namespace xmcjax::XMCJAX_ISA
