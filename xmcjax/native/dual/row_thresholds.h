// Projections onto the dual sets of losses of pairs of classes, for instances side by side: a vector has a number per
// instance, and an array has a vector per class, `stride` numbers apart. Included by the simd_*.cc files only.
//
// For b = A + ρ h and σ = Σ A of an instance, the row map of solvers/_formulations.py is, with s = Σ x,
//
//   x = min(max(b - τ, 0), u),   t = τ + σ:
//   Capped       0 <= x <= u = r/k, s <= r:     s = min(t, r)
//   TopKSimplex  0 <= x <= u = s/k, s <= r:     t = s + θ - Σ max(0, b - τ - u)/k,  θ >= 0, and θ = 0 where s < r
//
// (the conditions of Lapin et al. 2015, Proposition 4 with the bias 1). Both conditions are piecewise linear in (τ, u).
// Newton's method starts from the τ and u of the step before, which are mostly on the same pieces already. An instance
// for which it does not come to rest in a few rounds is searched alone, as in projection_math.h.
#pragma once

#include <limits>
#include <vector>

#include "core/largest.h"
#include "core/simd.h"
#include "projections/projection_math.h"

namespace xmcjax::XMCJAX_ISA {

constexpr int kThresholdRounds = 8;

template <class T>
constexpr T kThresholdRounding = 16 * std::numeric_limits<T>::epsilon();

// b + σ of one instance in double, and room to search it.
class Column {
 public:
  explicit Column(int64_t m) : value_(m), sorted_(m), work_(projection_work(m)) {}

  template <class T>
  void take(const T* b, int64_t stride, T shift) {
    for (size_t c = 0; c < value_.size(); ++c) value_[c] = double(b[c * stride]) + double(shift);
  }
  Clip<double> capped(double r, double upper) {
    return capped_simplex(value_.data(), int64_t(value_.size()), r, upper, 1.0, work_.data());
  }
  Clip<double> topk(int64_t k, double r) {
    return topk_simplex(value_.data(), int64_t(value_.size()), k, r, 1.0, work_.data());
  }
  // The k largest come first, in no order.
  const std::vector<double>& with_largest_first(int64_t k) {
    sorted_ = value_;
    largest_first(sorted_.data(), k - 1, int64_t(sorted_.size()));
    return sorted_;
  }

 private:
  std::vector<double> value_, sorted_, work_;
};

// width is u; τ is level + rest, in two parts: where ρ is large, τ is far larger than the x = b - τ that remain.
template <class T>
struct Thresholds {
  Wide<T> level, width, rest = {};

  Wide<T> over(Wide<T> b) const { return (b - level) - rest; }
  Wide<T> clipped(Wide<T> b) const { return minimum(maximum(over(b), Wide<T>{}), width); }
  void raise(Wide<T> change) {
    rest += change;
    const Wide<T> sum = level + rest;
    rest -= sum - level;
    level = sum;
  }
  void put(int l, double t) {
    level[l] = T(t);
    rest[l] = T(t - double(level[l]));
  }
};

// f(l) of each lane l of a mask
template <class F>
inline void each_lane(unsigned mask, F&& f) {
  for (; mask; mask &= mask - 1) f(__builtin_ctz(mask));
}

template <class T>
void threshold_capped(const T* b, int64_t stride, int64_t m, Wide<T> sums, Wide<T> r, Wide<T> upper,
                      Column& column, Thresholds<T>& at) {
  const Wide<T> one = wide<T>(1), none{};
  at.width = upper;
  unsigned open = 0;
  for (int round = 0; round < kThresholdRounds; ++round) {
    Wide<T> sum{}, free{};
    for (int64_t c = 0; c < m; ++c) {
      const Wide<T> over = at.over(load_wide(b + c * stride));
      sum += minimum(maximum(over, none), at.width);
      free += select((over > T(0)) & (over < at.width), one, none);
    }
    const Wide<T> t = at.level + sums;
    const auto inside = t < r;
    const Wide<T> due = select(inside, t, r), off = sum - due, slope = free + select(inside, one, none);
    const auto settled = absolute(off) <= kThresholdRounding<T> * (sum + absolute(due));
    open = ((1u << kWide<T>)-1) & ~lanes_where(settled);
    if (!open) return;
    at.raise(select(settled, none, off / maximum(slope, one)) * select(slope > T(0), one, none));
  }
  each_lane(open, [&](int l) {
    column.take(b + l, stride, sums[l]);
    const Clip<double> c = column.capped(double(r[l]), double(upper[l]));
    at.put(l, (c.high - double(sums[l])) + c.low);
  });
}

template <class T>
void threshold_topk(const T* b, int64_t stride, int64_t m, int64_t k, Wide<T> sums, Wide<T> r, Column& column,
                    Thresholds<T>& at) {
  const Wide<T> one = wide<T>(1), none{}, most = r / T(k);
  const T K = T(k);
  unsigned open = 0;
  for (int round = 0; round < kThresholdRounds; ++round) {
    Wide<T> sum{}, free{}, excess{}, full{};
    for (int64_t c = 0; c < m; ++c) {
      const Wide<T> over = at.over(load_wide(b + c * stride)), beyond = over - at.width;
      sum += minimum(maximum(over, none), at.width);
      excess += maximum(beyond, none);
      const auto top = beyond >= T(0);
      full += select(top, one, none);
      free += select((over > T(0)) & ~top, one, none);
    }
    // the residuals of the two equations
    const Wide<T> t = at.level + sums, left = sum - K * at.width, rest = t - K * at.width + excess / K;
    const Wide<T> size = kThresholdRounding<T> * (absolute(t) + K * at.width + excess / K);
    const auto held = at.width >= most, empty = at.width <= T(0);
    const auto zero = empty & (rest <= size);
    const auto balanced = (absolute(rest) <= size) | (held & (rest >= -size));
    const auto settled =
        zero | (~empty & balanced & (absolute(left) <= kThresholdRounding<T> * (sum + K * at.width)));
    open = ((1u << kWide<T>)-1) & ~lanes_where(settled);
    // from x = 0 only the search leads away
    if (!(open & ~lanes_where(empty))) break;
    const Wide<T> q = K - full, curved = K * K + full, determinant = free * curved + q * q;
    const auto regular = determinant > T(0);
    const Wide<T> scale = select(regular, one / select(regular, determinant, one), none);
    Wide<T> wider = at.width + select(regular, (free * K * rest + q * left) * scale, K * rest / curved);
    Wide<T> change = (left * curved - q * K * rest) * scale;
    // u is at its bound r/k: only the first equation is left
    const auto over = wider > most;
    const Wide<T> by_sum =
        (left - q * (most - at.width)) / maximum(free, one) * select(free > T(0), one, none);
    change = select(over, by_sum, change);
    wider = maximum(select(over, most, wider), none);
    const auto moves = ~(settled | empty);
    at.raise(select(moves, change, none));
    at.width = select(moves, wider, at.width);
  }
  each_lane(open, [&](int l) {
    column.take(b + l, stride, sums[l]);
    const Clip<double> c = column.topk(k, double(r[l]));
    at.width[l] = T(c.upper);
    // for x = 0 the level is the one that proves it optimal, the k-th largest
    const double high = c.upper > 0 ? c.high : column.with_largest_first(k)[k - 1];
    at.put(l, (high - double(sums[l])) + c.low);
  });
}

}  // namespace xmcjax::XMCJAX_ISA
