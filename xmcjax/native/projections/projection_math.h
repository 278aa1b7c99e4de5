// Thresholds of the projections of xmcjax/projections, one vector at a time.
//
// Every one of them is x_j = min(max(b_j - t, lower), upper); the functions below find t and, where
// it is not given, upper. They read b for its largest entries, then for the entries that may exceed the
// threshold, and in apply() for the result. The entries that may exceed it are kept in `work`, in double
// whatever T is, and searched there: a float32 result is the rounded result of the exact problem. `work`
// has projection_work(m) numbers.
//
// An entry of -inf gets the lower bound. NaN or +inf anywhere, a negative radius or bias and an
// empty set make the whole result NaN. Included by the simd_*.cc files only.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/largest.h"
#include "core/simd.h"
#include "projections/lists.h"

namespace xmcjax::XMCJAX_ISA {

// x_j = min(max((b_j - high) - low, lower), upper). The threshold has two parts because one number
// of type T cannot hold it: an error of half an ulp of t, once for every free entry, would show in
// the sum of x. `tight`: the sum of x is what the radius allows (Lemma 5: λ > 0).
template <class T>
struct Clip {
  T high, low, lower, upper;
  bool tight;
};

inline int64_t projection_work(int64_t m) { return 2 * List::room(m); }

template <class T>
inline Wide<T> clip(Wide<T> b, const Clip<T>& c) {
  return minimum(maximum((b - c.high) - c.low, wide<T>(c.lower)), wide<T>(c.upper));
}
template <class T>
inline T clip(T b, const Clip<T>& c) {
  const T x = (b - c.high) - c.low;
  const T raised = c.lower > x ? c.lower : x;
  return c.upper < raised ? c.upper : raised;
}

// x = clip(b); x may be b.
template <class T>
inline void apply(const Clip<T>& c, const T* b, int64_t m, T* x) {
  int64_t j = 0;
  for (; j + kWide<T> <= m; j += kWide<T>) store_wide(x + j, clip<T>(load_wide(b + j), c));
  for (; j < m; ++j) x[j] = clip<T>(b[j], c);
}

namespace projection {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
Clip<T> nowhere() {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  return {nan, 0, nan, nan, false};
}

// x = 0
template <class T>
Clip<T> origin(bool tight) {
  return {0, 0, 0, 0, tight};
}

// The threshold reference + t + correction in two parts.
template <class T>
Clip<T> around(double reference, double t, double correction, double lower, double upper, bool tight) {
  const double sum = reference + t;
  const double part = sum - reference;
  const double rest = (reference - (sum - part)) + (t - part) + correction;
  const T high = T(sum);
  return {high, T((sum - double(high)) + rest), T(lower), T(upper), tight};
}

// Up to so many entries between the bounds, rounding of their sum does not matter.
constexpr int64_t kFew = 64;

// Whether x = b - t is as exact as type T for entries of the size of r.
template <class T>
bool precise(double t, double r) {
  return std::fabs(t) <= r * (sizeof(T) == sizeof(double) ? 1 : 1e6);
}

// The largest of every residue class of positions: the k-th largest of them is a lower bound on
// the k-th largest entry.
template <class T>
struct Peaks {
  static constexpr int kParts = 4;
  Wide<T> part[kParts];
  bool proper;  // neither NaN nor +inf

  Peaks(const T* b, int64_t m) {
    constexpr int N = kWide<T>;
    const T infinity = std::numeric_limits<T>::infinity();
    for (Wide<T>& p : part) p = wide<T>(-infinity);
    // A NaN is not less than infinity, and the maximum never takes it.
    auto good = part[0] < infinity;
    int64_t j = 0;
    for (; j + kParts * N <= m; j += kParts * N) {
      for (int i = 0; i < kParts; ++i) {
        const Wide<T> v = load_wide(b + j + i * N);
        good &= v < infinity;
        part[i] = maximum(part[i], v);
      }
    }
    for (int i = 0; j < m; j += N, ++i) {
      const Wide<T> v = j + N <= m ? load_wide(b + j) : load_part(b + j, m - j, -infinity);
      good &= v < infinity;
      part[i] = maximum(part[i], v);
    }
    proper = at_least(good ? Wide<T>{} : wide<T>(1), T(1)) == 0;
  }

  Wide<T> together() const { return maximum(maximum(part[0], part[1]), maximum(part[2], part[3])); }

  // A number that is at most the k-th largest entry; -inf where nothing better is known.
  T bound(int64_t k) const {
    constexpr int N = kWide<T>;
    if (k > kParts * N) return -std::numeric_limits<T>::infinity();
    if (4 * k > 3 * N) {
      T all[kParts * N];
      for (int i = 0; i < kParts; ++i) store_wide(all + i * N, part[i]);
      largest_first(all, k - 1, kParts * N);
      return all[k - 1];
    }
    Wide<T> v = together();
    for (; k > 1; --k) v[__builtin_ctz(at_least(v, largest<T>(v)))] = -std::numeric_limits<T>::infinity();
    return largest<T>(v);
  }
};

// b_j - reference of the entries b_j >= bound that are no -inf.
template <class T>
List gather(const T* b, int64_t m, double bound, double reference, double* work) {
  const T least = std::max(T(bound), std::numeric_limits<T>::lowest());
  double* out = work;
  for (int64_t j = 0; j < m; j += kWide<T>) {
    const Wide<T> v =
        j + kWide<T> <= m ? load_wide(b + j) : load_part(b + j, m - j, -std::numeric_limits<T>::infinity());
    if (const unsigned mask = at_least(v, least)) out = append(out, v, mask, reference);
  }
  return List::ending(work, out);
}

// The set lower <= x <= upper with 1ᵀx = r or, at_most, 1ᵀx <= r and lower = 0; the bias ρ.
struct Box {
  double r, lower, upper, rho;
  bool at_most;
};

// min ½‖x - b‖² + ½ρ(1ᵀx)² over the box, by variable fixing (Kiwiel 2008, Algorithm 3.1). `fixed`
// entries stand at the lower bound from the start; the list has the others, less the reference.
template <class T>
Clip<T> fix_variables(const Box& box, List list, double reference, int64_t fixed) {
  const double r = box.r, rho = box.rho;
  double base = fixed ? double(fixed) * box.lower : 0;
  double t = 0;
  bool tight = !box.at_most;
  while (list.count) {
    // With all of the list free, x = b - t: 1ᵀx = r gives the one threshold, t = ρ 1ᵀx the other.
    const double n = double(list.count), sum = list.sum();
    t = (sum + base - r) / n;
    if (box.at_most) {
      const double biased = (rho * (sum + base) - reference) / (1 + rho * n);
      tight = t > biased;
      t = tight ? t : biased;
    }
    const double low = box.lower + t, high = box.upper + t;
    const Sides sides(list, low, high, t);
    if (!sides.below && !sides.above) break;
    double s = sides.middle_sum + base;
    if (sides.below) s += double(sides.below) * box.lower;
    if (sides.above) s += double(sides.above) * box.upper;
    // A sum that is too large says that the threshold lies above t, so that what is below its lower
    // bound now stays there; a sum that is too small says the same of the upper bound.
    const double off = box.at_most ? std::max(s - r, rho * s - (t + reference)) : s - r;
    if (off >= 0 && sides.below) {
      list = list.at_least(low, list.value);
      base += double(sides.below) * box.lower;
    }
    if (off <= 0 && sides.above) {
      list = list.at_most(high, list.value);
      base += double(sides.above) * box.upper;
    }
    if (off == 0 || double(list.count) == n) break;
  }
  double correction = 0;
  if (list.count) {
    // What rounding has left of the equation.
    const double n = double(list.count), s = list.sum(t) + base;
    correction = tight ? (s - r) / n : rho > 0 ? (rho * s - (t + reference)) / (1 + rho * n) : 0;
  }
  return around<T>(reference, t, correction, box.lower, box.upper, tight);
}

// fix_variables for b, whose entries below `least` are known to be at their lower bound. Where the
// threshold is large beside the radius, it is searched for once more as a difference from the first result:
// entries that rounding had put on the wrong side of the threshold then come to the right one.
template <class T>
Clip<T> solve(const Box& box, const T* b, int64_t m, double least, double* work) {
  List list = gather(b, m, least, 0, work);
  const Clip<T> c = fix_variables<T>(box, list, 0, m - list.count);
  const double reference = double(c.high);
  if (precise<T>(reference, box.r) || !(std::fabs(reference) < kInfinity)) return c;
  list = gather(b, m, least, reference, work);
  return fix_variables<T>(box, list, reference, m - list.count);
}

// A lower bound on the threshold, known before the search: if k entries at the bound of `width` make up
// the sum, the k-th largest entry exceeds the threshold by `width` at most. Entries below the result are at
// their lower bound.
template <class T>
double floor_of_threshold(const Peaks<T>& peaks, int64_t m, double sum, double width) {
  const double k = std::ceil(sum / width);
  if (!(k >= 1 && k <= double(m)) || !(width < kInfinity)) return -kInfinity;
  return double(peaks.bound(int64_t(k))) - width;
}

// The next number above x, where denormal numbers count as 0, as they do in the threads of XLA.
inline double above(double x) {
  return x == 0 ? std::numeric_limits<double>::min() : std::nextafter(x, kInfinity);
}

// The k-th largest of a list, whose numbers are overwritten. k <= list.count.
inline double kth_largest(List list, int64_t k) {
  for (int round = 0; list.count > 64 && round < 64; ++round) {
    // The pivot is about as far down a sample as k is down the list.
    constexpr int kSample = 15;
    double sample[kSample];
    for (int i = 0; i < kSample; ++i) sample[i] = list.value[(2 * i + 1) * list.count / (2 * kSample)];
    const int place = int(k * kSample / (list.count + 1));
    largest_first(sample, place, kSample);
    const double pivot = sample[place];
    const Sides sides(list, pivot, pivot, 0);
    if (k <= sides.above) {
      list = list.at_least(above(pivot), list.value);
    } else if (k <= list.count - sides.below) {
      return pivot;
    } else {
      k -= list.count - sides.below;
      list = list.at_most(-above(-pivot), list.value);
    }
  }
  largest_first(list.value, k - 1, list.count);
  return list.value[k - 1];
}

}  // namespace projection

// min ½‖x - b‖² with 1ᵀx = r and lower <= x <= upper; NaN where no x is like that.
template <class T>
Clip<T> knapsack(const T* b, int64_t m, double r, double lower, double upper, double* work) {
  using namespace projection;
  const Peaks<T> peaks(b, m);
  if (!peaks.proper || !(lower <= upper)) return nowhere<T>();
  const double spare = r - double(m) * lower;
  // By the rounding of the bounds `spare` may be below 0: all entries are then at the lower bound.
  const double left = std::max(spare, 0.0);
  const double least = floor_of_threshold(peaks, m, left, std::min(upper - lower, left));
  // Whether the sum can reach r, up to the rounding of the bounds. Entries of -inf stay at the lower one.
  const double slack = 4 * double(std::numeric_limits<T>::epsilon()) * double(m);
  bool reached = spare >= -slack * std::fabs(lower);
  if (!(least > -kInfinity)) {
    const double n = double(gather(b, m, least, 0, work).count), rest = double(m) - n;
    reached &= rest == 0 || lower > -kInfinity;
    reached &= r <= (n > 0 ? n * upper : 0) + (rest > 0 ? rest * lower : 0) +
                        (upper < kInfinity ? slack * std::fabs(upper) : 0);
  }
  if (!reached) return nowhere<T>();
  return solve<T>({r, lower, upper, 0, false}, b, m, least, work);
}

// min ½‖x - b‖² with 1ᵀx = r, x >= 0.
template <class T>
Clip<T> simplex(const T* b, int64_t m, double r, double* work) {
  if (r == 0)
    return projection::Peaks<T>(b, m).proper ? projection::origin<T>(true) : projection::nowhere<T>();
  return knapsack(b, m, r, 0, projection::kInfinity, work);
}

// min ½‖x - b‖² + ½ρ(1ᵀx)² with 1ᵀx <= r, 0 <= x <= upper: the capped simplex (ρ = 0), and with
// upper = r/k the set of Usunier's loss (section 5, with the bound r/k for the misprinted 1/k).
template <class T>
Clip<T> capped_simplex(const T* b, int64_t m, double r, double upper, double rho, double* work) {
  using namespace projection;
  const Peaks<T> peaks(b, m);
  if (!peaks.proper || !(r >= 0) || !(upper >= 0) || !(rho >= 0)) return nowhere<T>();
  if (r == 0 || upper == 0) return origin<T>(r == 0);
  const double least = floor_of_threshold(peaks, m, r, std::min(upper, r));
  // The threshold is ρ 1ᵀx plus a multiplier and never negative.
  return solve<T>({r, 0, upper, rho, true}, b, m, std::max(least, 0.0), work);
}

// min ½‖x - b‖² + ½ρ(1ᵀx)² with 1ᵀx <= r, 0 <= x_j <= 1ᵀx/k: the top-k simplex (Lemmas 3 to 5) and,
// with r = inf, the top-k cone. 1 <= k <= m.
//
// With h(τ) = kτ + Σ max(0, b_j - τ), whose minimum T is the sum of the k largest (Lemma 1), the
// threshold t and v = t + u, u = 1ᵀx/k, the system (7) reads h(t) = h(v) = c = (k + ρk²)u: t and v
// are the ends of a level set of the convex h, whose width w(c) is concave. c is the smallest level
// with w(c) = r/k or w(c) = c/(k + ρk²). From the tangents of h at t and v, and so from the sets U
// and M that they bound, Newton's method goes up to it from c = T and ends after finitely many steps.
template <class T>
Clip<T> topk_simplex(const T* b, int64_t m, int64_t k, double r, double rho, double* work) {
  using namespace projection;
  const Peaks<T> peaks(b, m);
  if (!peaks.proper || !(r >= 0) || !(rho >= 0)) return nowhere<T>();
  const double top = double(peaks.bound(1)), K = double(k), kappa = K + rho * K * K;
  if (r == 0 || !(top > 0)) return origin<T>(r == 0);
  // u <= r/k; and from x·(b - x) = ρ(1ᵀx)² in the cone, with x·b <= 1ᵀx max b: u k (1/m + ρ) <= max b.
  const double widest = std::min(r / K, top / (K * (1 / double(m) + rho)));
  const double low = double(peaks.bound(std::min(k + 1, m)));
  const double least = low - 2 * widest;
  const List list = gather(b, m, least, 0, work);
  if (list.count < k) return origin<T>(false);
  // b_[k], b_[k+1] and T
  const double kth = kth_largest(list.at_least(low, work + List::room(m)), k);
  double next = -kInfinity;
  for (int64_t j = 0; j < list.count; ++j)
    if (list.value[j] < kth) next = std::max(next, list.value[j]);
  const Sides about(list, kth, kth, 0);
  if (list.count - about.below > k) next = kth;
  const double highest = about.above_sum + double(k - about.above) * kth;
  if (!(highest > 0)) return origin<T>(false);  // Lemma 4
  const double flat = std::min(r / K, highest / kappa);
  if (flat <= kth - next) {
    // The k largest at the upper bound, nothing between: t in the middle of where it may be.
    const bool tight = flat == r / K;
    if (next == -kInfinity) return around<T>(kth, -2 * flat, 0, 0, flat, tight);
    return around<T>(next, (kth - next - flat) / 2, 0, 0, flat, tight);
  }
  double t = next, v = kth, level = -kInfinity, u = 0;
  int64_t below = -1, above = -1;
  bool tight = false, settled = false;
  for (;;) {
    const Sides sides(list, t, v, 0);
    settled = sides.below == below && sides.above == above;
    if (settled) break;
    below = sides.below, above = sides.above;
    const double n = double(list.count - below - above), q = K - double(above);
    // 1ᵀx = r: u = r/k, t as in the knapsack problem; λ >= 0 of Lemma 5 says h(v) >= (k + ρk²)u.
    double width = r / K, left = (sides.middle_sum - q * width) / n;
    double next_level = sides.above_sum + q * (left + width);
    const bool held = next_level >= kappa * width;
    if (!held) {  // system (7)
      width = (n * sides.above_sum + q * sides.middle_sum) / (q * q + (double(above) + rho * K * K) * n);
      left = (sides.middle_sum - q * width) / n;
      next_level = kappa * width;
    }
    if (!(next_level > level)) break;  // nothing but rounding
    level = next_level, u = width, t = left, v = t + u, tight = held;
  }
  // Where entries are far above the radius, a level has no digits left for t: with u = r/k this is a knapsack problem.
  if (tight && !(settled && precise<T>(t, r))) return solve<T>({r, 0, u, 0, false}, b, m, least, work);
  double correction = 0;
  if (list.count - below - above > kFew || (!tight && sizeof(T) == sizeof(double))) {
    // What rounding has left of the two equations of (7), or with u = r/k of that of the sum.
    const Sides sides(list, t, t + u, t);
    const double n = double(list.count - sides.below - sides.above), full = double(sides.above), q = K - full;
    const double sum_left = sides.middle_sum - q * u;
    const double slope_left = sides.above_sum - full * (t + u) + K * t - rho * K * K * u;
    const double newton = (n * slope_left + q * sum_left) / (q * q + (full + rho * K * K) * n);
    const double change = tight ? 0 : newton;
    if (n > 0) u += change, correction = (sum_left - q * change) / n;
  }
  return around<T>(0, t, correction, 0, u, tight);
}

}  // namespace xmcjax::XMCJAX_ISA
