// The threshold of the projection with bounds and weights of each entry, one vector at a time:
//
//     min ½‖x - b‖²  with  wᵀx = r,  l <= x <= u:   x = min(max(b - t w, l), u)
//
// wᵀx falls as t rises. Newton's method on this piecewise linear equation finds t; a step that would leave the interval
// known to hold t halves the floats in the interval instead. Everything is in double whatever T is: a float32 result is
// the rounded result of the exact problem. Included by the simd_*.cc files only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {
namespace projection {

// Entries of a vector, padded by ones of weight 0 to a whole number of registers.
struct Entries {
  double *b, *l, *u, *w;
  int64_t count;

  static constexpr int64_t room(int64_t m) { return (m + kWide<double> - 1) / kWide<double> * kWide<double>; }

  Entries(double* work, int64_t m) : b(work), l(b + room(m)), u(l + room(m)), w(u + room(m)), count(room(m)) {
    for (int64_t j = m; j < count; ++j) b[j] = l[j] = u[j] = w[j] = 0;
  }

  Wide<double> x(int64_t j, double t) const {
    return minimum(maximum(load_wide(b + j) - t * load_wide(w + j), load_wide(l + j)), load_wide(u + j));
  }

  // wᵀx at t, and its slope but for the sign: Σ w² of the entries between their bounds.
  void look(double t, double* sum, double* slope) const {
    Wide<double> s{}, q{};
    for (int64_t j = 0; j < count; j += kWide<double>) {
      const Wide<double> weight = load_wide(w + j), moved = load_wide(b + j) - t * weight;
      const Wide<double> low = load_wide(l + j), high = load_wide(u + j);
      s += weight * minimum(maximum(moved, low), high);
      q += (moved > low) & (moved < high) ? weight * weight : Wide<double>{};
    }
    *sum = total(s), *slope = total(q);
  }

  // b - t w in place of b.
  void move(double t) {
    for (int64_t j = 0; j < count; j += kWide<double>)
      store_wide(b + j, load_wide(b + j) - t * load_wide(w + j));
  }
};

// The number halfway from low to high in the order of the floats.
inline double halfway(double low, double high) {
  const auto key = [](double value) {
    int64_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits < 0 ? std::numeric_limits<int64_t>::min() - bits - 1 : bits;
  };
  const int64_t a = key(low), b = key(high);
  int64_t middle = (a & b) + ((a ^ b) >> 1);
  if (middle < 0) middle = std::numeric_limits<int64_t>::min() - middle - 1;
  double value;
  std::memcpy(&value, &middle, sizeof(value));
  return value;
}

// t with wᵀx = r. After kNewtonSteps, more than Newton's method ever needs, every step halves.
inline double search(const Entries& entries, double r) {
  constexpr int kNewtonSteps = 48;
  const double infinity = std::numeric_limits<double>::infinity();
  double t = 0, low = -infinity, high = infinity;
  for (int step = 0;; ++step) {
    double sum, slope;
    entries.look(t, &sum, &slope);
    const double off = sum - r;
    if (off == 0 || std::isnan(off)) return t;
    (off > 0 ? low : high) = t;
    double next = t + off / slope;
    if (slope > 0 && next == t) return t;
    if (!(slope > 0 && next > low && next < high && step < kNewtonSteps)) next = halfway(low, high);
    if (next == low || next == high) return t;
    t = next;
  }
}

// kRests: searches after the first. What a search leaves of t is some 2^51 times smaller than the rest before it: this
// many reach from the largest double to a radius of 1. kSmaller: a rest that is not so much smaller is rounding.
constexpr int kRests = 21;
constexpr double kSmaller = 1.0 / 1024;

inline int64_t weighted_work(int64_t m) { return 4 * Entries::room(m); }

}  // namespace projection

// x [m], and t; NaN where no x is like that. An entry b of -inf gets its lower bound.
template <class T>
void weighted_knapsack(const T* b, double r, const T* l, const T* u, const T* w, int64_t m, double* work,
                       T* x, T* t) {
  using namespace projection;
  const double infinity = std::numeric_limits<double>::infinity();
  Entries entries(work, m);
  bool proper = std::isfinite(r);
  double least = 0, most = 0, size = 0, smaller = 0, largest = 0;
  for (int64_t j = 0; j < m; ++j) {
    const double low = double(l[j]), weight = double(w[j]);
    const bool left_out = double(b[j]) == -infinity;
    const double high = left_out ? low : double(u[j]);
    proper &= b[j] < infinity && double(l[j]) <= double(u[j]) && std::isfinite(weight) &&
              !(left_out && low == -infinity);
    const double a = weight == 0 ? 0 : weight * low, z = weight == 0 ? 0 : weight * high;
    least += std::min(a, z), most += std::max(a, z);
    const double at_low = std::isfinite(a) ? std::fabs(a) : 0, at_high = std::isfinite(z) ? std::fabs(z) : 0;
    size += std::max(at_low, at_high), smaller += std::min(at_low, at_high);
    largest = std::max(largest, std::fabs(weight));
    entries.b[j] = left_out ? 0 : double(b[j]), entries.l[j] = low, entries.u[j] = high,
    entries.w[j] = weight;
  }
  const double slack = 4 * double(std::numeric_limits<T>::epsilon()) * size;
  if (!proper || !(r >= least - slack) || !(r <= most + slack)) {
    std::fill(x, x + m, std::numeric_limits<T>::quiet_NaN());
    *t = std::numeric_limits<T>::quiet_NaN();
    return;
  }
  // a second search finds what is left of t as a difference, in which nothing large cancels; further ones follow where
  // b is so large that this rest is rough too
  double center = 0, rest = search(entries, r);
  for (int round = 0; round < kRests; ++round) {
    const double before = rest;
    center += before;
    entries.move(before);
    rest = search(entries, r);
    if (!(std::fabs(rest) * largest > 4 * (std::fabs(r) + smaller))) break;
    if (!(std::fabs(rest) < kSmaller * std::fabs(before))) break;
  }
  for (int64_t j = 0; j < entries.count; j += kWide<double>) store_wide(entries.b + j, entries.x(j, rest));
  for (int64_t j = 0; j < m; ++j) x[j] = T(entries.b[j]);
  *t = T(center + rest);
}

}  // namespace xmcjax::XMCJAX_ISA
