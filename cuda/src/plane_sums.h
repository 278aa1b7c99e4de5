// The sums over the rows that the search along a direction asks for at one point (t, β), and their losses.
//
// solvers/_plane_search.py: with s = z + t m + β, the six sums of c (ℓ(s) − ℓ(z)), c ℓ', c ℓ' m, c ℓ'', c
// ℓ'' m and c ℓ'' m², of every lane. z, m, y and c are read once each.
#pragma once

#include "warp.h"

namespace xmcjax::cuda {

constexpr int kSums = 6;
constexpr int kRows = 128;  // rows that one warp adds up in the type of the numbers; the rest is in float64
constexpr int kFold = 64;  // such sums that a warp adds up next

// The losses of native/newton/margin_losses.h, of a number s and a target y = ±1, by the numbers of
// native/interface/ids.def.
enum Loss { kSquaredHinge = 0, kLogistic = 1, kHuberHinge = 2, kPoisson = 3 };

XMCJAX_BODY float exponential(float x) { return expf(x); }
XMCJAX_BODY double exponential(double x) { return exp(x); }
XMCJAX_BODY float log_of_one_and(float x) { return log1pf(x); }
XMCJAX_BODY double log_of_one_and(double x) { return log1p(x); }

template <class T, int LOSS>
XMCJAX_BODY void loss_at(T s, T y, T parameter, T& value, T& slope, T& curvature) {
  if constexpr (LOSS == kPoisson) {  // e^s − s for y = 1, e^s for y = −1
    const T e = exponential(s);
    value = y > 0 ? e - s : e, slope = y > 0 ? e - T(1) : e, curvature = e;
  } else {
    const T m = y * s, gap = m < T(1) ? T(1) - m : (m >= T(1) ? T(0) : m);  // NaN stays NaN
    if constexpr (LOSS == kSquaredHinge) {
      value = gap * gap, slope = T(-2) * gap, curvature = gap > 0 ? T(2) : T(0);
    } else if constexpr (LOSS == kHuberHinge) {  // (1 − m)²/2δ for 1 − δ ≤ m ≤ 1, below (1 − m) − δ/2
      const T q = gap > parameter ? parameter : gap;
      value = q * (gap - T(0.5) * q) / parameter, slope = -q / parameter;
      curvature = gap > 0 && gap < parameter ? T(1) / parameter : T(0);
    } else {  // log(1 + e^{−m})
      const T e = exponential(m > 0 ? -m : m), share = T(1) / (e + T(1));
      value = (m > 0 ? T(0) : -m) + log_of_one_and(e);
      slope = m > 0 ? -e * share : -share, curvature = e * share * share;
    }
    slope *= y;
  }
}

// A number that is the same for all rows or one of each row, and so for the lanes: of_row is 0 or the length of a row,
// of_lane is 0 or 1.
template <class T>
struct Broadcast {
  const T* at;
  int64_t of_row;
  int32_t of_lane;
  XMCJAX_BODY T operator()(int64_t row, int32_t lane) const {
    return load(at + row * of_row + lane * of_lane);
  }
};

// The sums of 128 rows and 32 lanes.
template <class T, int LOSS>
struct PlaneSums {
  const T* z;  // [n, lanes]
  const T* m;  // [n, lanes]
  const int8_t* y;  // [n, lanes]
  Broadcast<T> weight;
  Broadcast<T> shift;
  const T* t;  // [lanes]
  const T* beta;  // [lanes]
  const uint8_t* fresh;  // [lanes]; where it is not 0, z is taken as 0 and ℓ(z) is not subtracted
  double* part;  // [parts, 6, lanes]
  T parameter;
  int32_t n;
  int32_t lanes;

  XMCJAX_BODY void operator()(int64_t warp) const {
    const int32_t parts = (n + kRows - 1) / kRows;
    const int64_t this_part = warp % parts;
    const int32_t first = int32_t(warp / parts) * kWarp;
    EACH(thread) {
      const int32_t lane = first + thread;
      if (lane < lanes) {
        const T step = load(t + lane), bias = load(beta + lane);
        const bool begins = load(fresh + lane) != 0;
        T sum[kSums] = {};
        const int64_t end = (this_part + 1) * kRows < n ? (this_part + 1) * kRows : n;
        for (int64_t i = this_part * kRows; i < end; ++i) {
          const int64_t at = i * lanes + lane;
          const T target = T(y[at]), c = weight(i, lane), o = shift(i, lane);
          const T along = load(m + at), before = begins ? T(0) : load(z + at);
          T value, slope, curvature, old = T(0), unused1, unused2;
          if (!begins) loss_at<T, LOSS>(before + o, target, parameter, old, unused1, unused2);
          loss_at<T, LOSS>(before + step * along + bias + o, target, parameter, value, slope, curvature);
          slope *= c, curvature *= c;
          sum[0] += c * value - c * old;
          sum[1] += slope;
          sum[2] += slope * along;
          sum[3] += curvature;
          sum[4] += curvature * along;
          sum[5] += curvature * along * along;
        }
        XMCJAX_UNROLL
        for (int k = 0; k < kSums; ++k) part[(this_part * kSums + k) * lanes + lane] = double(sum[k]);
      }
    }
  }
};

// 64 rows of numbers become one: out[g] = Σ in[64 g + i], from the first to the last.
struct Fold {
  const double* in;  // [count, width]
  double* out;  // [⌈count / 64⌉, width]
  int32_t count;
  int64_t width;

  static int64_t warps(int32_t count, int64_t width) {
    return int64_t((count + kFold - 1) / kFold) * ((width + kWarp - 1) / kWarp);
  }

  XMCJAX_BODY void operator()(int64_t warp) const {
    const int32_t groups = (count + kFold - 1) / kFold;
    const int32_t group = int32_t(warp % groups);
    const int64_t first = warp / groups * kWarp;
    const int32_t end = (group + 1) * kFold < count ? (group + 1) * kFold : count;
    EACH(t) {
      if (first + t < width) {
        double total = 0;
        for (int32_t i = group * kFold; i < end; ++i) total += in[i * width + first + t];
        out[group * width + first + t] = total;
      }
    }
  }
};

}  // namespace xmcjax::cuda
