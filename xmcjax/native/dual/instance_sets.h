// The sets in which the dual variables x of one instance live, and the best x for given scores.
//
// A loss φ of the scores z of an instance of class y is here the support function of a set S(1),
// φ(z) = max {⟨x, h⟩ : x in S(1)} with h_j = 1 + z_j - z_y, j ≠ y, and r φ that of S(r):
//
//   kTopKAlpha  0 <= x_j <= 1ᵀx/k, 1ᵀx <= r   max{0, mean of the k largest h}   (k = 1: Crammer-Singer)
//   kTopKBeta   0 <= x_j <= r/k,   1ᵀx <= r   mean over the k largest of max{0, h}
//   kBox        0 <= x_j <= r                 Σ max{0, h}                       (Weston-Watkins)
//
// With a smoothing γ > 0 the loss is max {⟨x, h⟩ - γ/2 ‖x‖² : x in S(1)} (Lapin et al. 2016), and r times it has the
// penalty ½ρ‖x‖², ρ = γ/r, of x in S(r).
//
// One visit of dual ascent minimises ½‖x - b‖² + ½(1ᵀx)² over S(r) (Lapin et al. 2015, Proposition 4), with
// b = h/‖x_i‖² + x + 1ᵀx; with a smoothing, ½‖x - sb‖² + ½s(1ᵀx)² where s = ‖x_i‖²/(‖x_i‖² + ρ). The solution is
// x = min(max(b - t, 0), u). It is determined by which entries are free and which are at u. Mostly these are the same
// as in the visit before, so that the threshold that they give is tried first, then the threshold of the entries that
// this one selects, and so on. If that does not come to rest in a few rounds, projection_math.h searches.
//
// A further set is a class with the members of Capped or TopKAlpha, and a line of ids.def. Included by the
// simd_*.cc files only.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/largest.h"
#include "core/simd.h"
#include "projections/projection_math.h"

namespace xmcjax::XMCJAX_ISA {

// How many entries of b are free ("middle") and at the upper bound ("top"), and their sums.
template <class T>
struct Pieces {
  int64_t middle = 0, top = 0;
  T middle_sum = 0, top_sum = 0;

  bool operator==(const Pieces& other) const {
    return middle == other.middle && top == other.top && middle_sum == other.middle_sum &&
           top_sum == other.top_sum;
  }
};

// Sums over the free entries and those at the upper bound, as the masks say.
template <class T>
class PieceSum {
 public:
  // `middle` and `top` are results of comparisons of vectors, disjoint.
  template <class Mask>
  void add(Wide<T> b, Mask middle, Mask top) {
    middle_count_ -= middle;
    top_count_ -= top;
    middle_sum_ += middle ? b : Wide<T>{};
    top_sum_ += top ? b : Wide<T>{};
  }
  Pieces<T> pieces() const {
    Pieces<T> p;
    for (int l = 0; l < kWide<T>; ++l) p.middle += middle_count_[l], p.top += top_count_[l];
    p.middle_sum = total(middle_sum_);
    p.top_sum = total(top_sum_);
    return p;
  }

 private:
  decltype(Wide<T>{} < Wide<T>{}) middle_count_{}, top_count_{};
  Wide<T> middle_sum_{}, top_sum_{};
};

// The pieces that a threshold t and an upper bound u select.
template <class T>
inline Pieces<T> select(const T* b, int64_t padded, T t, T u) {
  PieceSum<T> sum;
  for (int64_t j = 0; j < padded; j += kWide<T>) {
    const Wide<T> v = load_wide(b + j), over = v - t;
    const auto top = over >= u;
    sum.add(v, (over > T(0)) & ~top, top);
  }
  return sum.pieces();
}

// An instance at a visit. The arrays have whole vectors; h and b are -inf at y and behind the end.
template <class T>
struct Visit {
  const T* h;
  const T* b;
  const T* x;  // as it was
  T* next;  // as it will be
  int64_t m, padded;
  T r;  // the radius
  T norm2;  // ‖x_i‖²
  T bias;  // s, the weight of ½(1ᵀx)² beside ½‖x - b‖², where b has the factor s; 1 without a smoothing
  T sum;  // 1ᵀx
  T inner;  // ⟨x, h⟩
  Pieces<T> pieces;  // of x: entries strictly between 0 and the upper bound, and those at it
  T rest_max;  // largest b where x = 0
  T top_min;  // smallest b where x is at the upper bound
  double* work;  // projection_work(padded) numbers
};

template <class T>
inline void clip_into(const Visit<T>& v, T t, T u) {
  for (int64_t j = 0; j < v.padded; j += kWide<T>) {
    const Wide<T> x = maximum(load_wide(v.b + j) - t, Wide<T>{});
    store_wide(v.next + j, minimum(x, wide(u)));
  }
}
template <class T>
inline void clip_into(const Visit<T>& v, const Clip<T>& c) {
  for (int64_t j = 0; j < v.padded; j += kWide<T>) store_wide(v.next + j, clip<T>(load_wide(v.b + j), c));
}

// Thresholds tried before the search. `solve` gives t and u for the pieces, or says that it cannot.
template <class T, class Solve>
inline bool settle(const Visit<T>& v, Solve&& solve) {
  Pieces<T> pieces = v.pieces;
  T t, u;
  for (int round = 0; round < 6; ++round) {
    if (!solve(pieces, t, u)) return false;
    // b - t would lose digits of x: the search works in double.
    if (!(std::fabs(t) <= (sizeof(T) == 4 ? T(64) : T(1e4)) * u)) return false;
    const Pieces<T> selected = select(v.b, v.padded, t, u);
    if (selected == pieces) {
      clip_into(v, t, u);
      return true;
    }
    pieces = selected;
  }
  return false;
}

// Σ max(0, h - τ). The sum of the k largest h is at most kτ plus this (Lemma 1).
template <class T>
inline T excess(const T* h, int64_t padded, T tau) {
  Wide<T> s{};
  for (int64_t j = 0; j < padded; j += kWide<T>) s += maximum(load_wide(h + j) - tau, Wide<T>{});
  return total(s);
}

// The largest h, the best τ for k = 1.
template <class T>
inline T top_of(const T* h, int64_t padded) {
  Wide<T> top = load_wide(h);
  for (int64_t j = kWide<T>; j < padded; j += kWide<T>) top = maximum(top, load_wide(h + j));
  return largest<T>(top);
}

// A τ for which the bound of excess() is tight when x is optimal: the score at which x leaves its bounds.
// With less than k entries at the upper bound and none free, 1ᵀx < r and τ = 0.
template <class T>
inline T level_of(const Visit<T>& v, T upper, int64_t k) {
  if (v.pieces.middle) {
    const T free = v.sum - T(v.pieces.top) * upper;  // Σ x over the free entries
    return v.norm2 * ((v.pieces.middle_sum - free) / T(v.pieces.middle) - v.sum);
  }
  return v.pieces.top == k ? v.norm2 * (v.top_min - upper - v.sum) : T(0);
}

// Sum of the k largest of m numbers, or of max(0, ·) of them if `positive`. At least k numbers must be above -inf, and
// none may be NaN. `work` has projection_work(m) numbers.
template <class T>
inline double sum_of_largest(const T* h, int64_t m, int64_t k, bool positive, double* work) {
  const projection::Peaks<T> peaks(h, m);
  const List list = projection::gather(h, m, double(peaks.bound(k)), 0, work);
  if (k < list.count) largest_first(list.value, k - 1, list.count);
  double s = 0;
  for (int64_t j = 0; j < k; ++j) s += positive ? std::max(list.value[j], 0.0) : list.value[j];
  return s;
}

// A smoothing γ, 0 for none.
template <class T>
class Smoothing {
 public:
  explicit Smoothing(T gamma) : gamma_(gamma) {}

  // ρ of a set of radius r > 0
  T ridge(T r) const { return gamma_ > 0 ? gamma_ / r : T(0); }
  // ½ρ‖x‖²
  double penalty(const T* x, int64_t m, T r) const {
    if (!(gamma_ > 0)) return 0;
    double square = 0;
    for (int64_t j = 0; j < m; ++j) square += double(x[j]) * double(x[j]);
    return 0.5 * double(gamma_) / double(r) * square;
  }

 protected:
  // r times max {⟨x, h⟩ - γ/2 ‖x‖² : x in S(1)}: γ x is the projection p of h onto S(γ), made by the clip `of`.
  double envelope(const T* h, int64_t m, double r, const Clip<T>& of) const {
    double s = 0;
    for (int64_t j = 0; j < m; ++j) {
      const T p = clip(h[j], of);
      if (p > T(0)) s += (double(h[j]) - 0.5 * double(p)) * double(p);
    }
    return r / double(gamma_) * s;
  }

  T gamma_;
};

// 0 <= x_j <= u, 1ᵀx <= r; the box has no bound on the sum.
template <class T, bool kBounded>
class Capped : public Smoothing<T> {
 public:
  explicit Capped(int64_t k, T gamma = 0) : Smoothing<T>(gamma), k_(k) {}

  T upper(T r) const { return kBounded ? r / T(k_) : r; }
  // x of this size and larger counts as being at the upper bound
  T top_level(T r, T) const { return upper(r); }

  // Sets v.next; returns an upper bound on the gap r φ - ⟨x, h⟩ if `estimate`.
  T visit(const Visit<T>& v, bool estimate) const {
    const T u = upper(v.r);
    const T bound = kBounded ? v.r : std::numeric_limits<T>::infinity();
    const bool still = stays(v, u);
    if (still) {
      std::memcpy(v.next, v.x, v.padded * sizeof(T));
    } else if (!settle(v, [&](const Pieces<T>& p, T& t, T& width) {
                 if (!p.middle) return false;
                 const T sum = p.middle_sum + T(p.top) * u;
                 t = v.bias * sum / (1 + v.bias * T(p.middle));  // t = s 1ᵀx, where 1ᵀx is less than r
                 if (t > v.bias * bound) t = (sum - bound) / T(p.middle);
                 width = u;
                 return true;
               })) {
      search(v);
    }
    if (!estimate) return 0;
    if (gamma_ > 0)
      return T(support(v.h, v.m, double(v.r), v.work) - double(v.inner) + this->penalty(v.x, v.m, v.r));
    const T tau = kBounded ? std::max(k_ > 1 ? level_of(v, u, k_) : top_of(v.h, v.padded), T(0)) : T(0);
    return v.r * (tau + excess(v.h, v.padded, tau) / (kBounded ? T(k_) : T(1))) - v.inner;
  }

  // min ½‖x - b‖² + ½ bias (1ᵀx)² over S(r)
  Clip<T> nearest(const T* b, int64_t m, T r, double* work, double bias = 1.0) const {
    const double bound = kBounded ? double(r) : std::numeric_limits<double>::infinity();
    return capped_simplex(b, m, bound, double(upper(r)), bias, work);
  }
  // Sets v.next from b alone.
  void search(const Visit<T>& v) const { clip_into(v, nearest(v.b, v.padded, v.r, v.work, double(v.bias))); }

  // r φ
  double support(const T* h, int64_t m, double r, double* work) const {
    if (gamma_ > 0) return this->envelope(h, m, r, nearest(h, m, gamma_, work, 0.0));
    if (kBounded) return r * sum_of_largest(h, m, k_, true, work) / double(k_);
    double s = 0;
    for (int64_t j = 0; j < m; ++j) s += std::max(double(h[j]), 0.0);
    return r * s;
  }

  // A best x where all h are 1 whatever x is: the row of features is zero. With a smoothing all are alike.
  void unopposed(int64_t y, int64_t m, T r, T* x) const {
    if (gamma_ > 0) {
      const T most = kBounded ? r / T(m - 1) : r;
      for (int64_t j = 0; j < m; ++j) x[j] = j != y ? std::min(r / gamma_, most) : T(0);
      return;
    }
    int64_t left = kBounded ? k_ : m;
    for (int64_t j = 0; j < m; ++j) x[j] = j != y && left-- > 0 ? upper(r) : T(0);
  }

 private:
  // With no free entry: whether the optimality conditions hold for x as it is.
  bool stays(const Visit<T>& v, T u) const {
    if (v.pieces.middle) return false;
    if (!v.pieces.top) return !(v.rest_max > 0);
    const T low = v.top_min - u;
    if (kBounded && v.pieces.top == k_) return low >= v.rest_max && low >= v.bias * v.r;
    const T t = v.bias * v.sum;
    return low >= t && t >= v.rest_max;
  }

  using Smoothing<T>::gamma_;
  int64_t k_;
};

template <class T>
using TopKBeta = Capped<T, true>;
template <class T>
using Box = Capped<T, false>;

// 0 <= x_j <= 1ᵀx/k, 1ᵀx <= r: the top-k simplex of the paper.
template <class T>
class TopKAlpha : public Smoothing<T> {
 public:
  explicit TopKAlpha(int64_t k, T gamma = 0) : Smoothing<T>(gamma), k_(k) {}

  // 1ᵀx is a rounded sum
  T top_level(T, T sum) const {
    return sum > 0 ? sum / T(k_) * (1 - 64 * std::numeric_limits<T>::epsilon())
                   : std::numeric_limits<T>::infinity();
  }

  T visit(const Visit<T>& v, bool estimate) const {
    const T k = T(k_);
    if (!v.pieces.middle && !v.pieces.top) return from_zero(v);
    const T kappa = k + v.bias * k * k;
    if (!v.pieces.middle && v.pieces.top == k_ && from_face(v, kappa)) {
    } else if (!settle(v, [&](const Pieces<T>& p, T& t, T& u) {
                 if (!p.middle || p.top >= k_) return false;
                 const T n = T(p.middle), top = T(p.top), q = k - top;
                 // 1ᵀx = r; or, where that would make the multiplier of 1ᵀx <= r negative, system (7)
                 u = v.r / k;
                 t = (p.middle_sum - q * u) / n;
                 if (p.top_sum + q * (t + u) < kappa * u) {
                   u = (n * p.top_sum + q * p.middle_sum) / (q * q + (top + v.bias * k * k) * n);
                   t = (p.middle_sum - q * u) / n;
                 }
                 return u > 0;
               })) {
      search(v);
    }
    if (!estimate) return 0;
    if (gamma_ > 0)
      return T(support(v.h, v.m, double(v.r), v.work) - double(v.inner) + this->penalty(v.x, v.m, v.r));
    const T tau = k_ > 1 ? level_of(v, v.sum / k, k_) : top_of(v.h, v.padded);
    return v.r * std::max(tau + excess(v.h, v.padded, tau) / k, T(0)) - v.inner;
  }

  void search(const Visit<T>& v) const {
    clip_into(v, topk_simplex(v.b, v.padded, k_, double(v.r), double(v.bias), v.work));
  }

  double support(const T* h, int64_t m, double r, double* work) const {
    if (gamma_ > 0) return this->envelope(h, m, r, topk_simplex(h, m, k_, double(gamma_), 0.0, work));
    return r * std::max(sum_of_largest(h, m, k_, false, work), 0.0) / double(k_);
  }

  void unopposed(int64_t y, int64_t m, T r, T* x) const { TopKBeta<T>(k_, gamma_).unopposed(y, m, r, x); }

 private:
  // x = 0 stays if the k largest of h, and so of b = h/‖x_i‖², sum to 0 at most (Lemma 4).
  T from_zero(const Visit<T>& v) const {
    T loss = 0;
    if (v.rest_max > 0) loss = T(std::max(sum_of_largest(v.h, v.m, k_, false, v.work), 0.0)) / T(k_);
    if (loss > 0) {
      search(v);
    } else {
      std::memcpy(v.next, v.x, v.padded * sizeof(T));
    }
    return gamma_ > 0 ? T(support(v.h, v.m, double(v.r), v.work)) : v.r * loss;
  }

  // k entries at the upper bound and no other: case 2 of Lemma 3, or r/k.
  bool from_face(const Visit<T>& v, T kappa) const {
    const T u = std::min(v.r / T(k_), v.pieces.top_sum / kappa);
    if (!(u > 0 && u <= v.top_min - v.rest_max)) return false;
    for (int64_t j = 0; j < v.padded; j += kWide<T>) {
      const Wide<T> x = load_wide(v.x + j);
      store_wide(v.next + j, x > T(0) ? wide(u) : Wide<T>{});
    }
    return true;
  }

  using Smoothing<T>::gamma_;
  int64_t k_;
};

}  // namespace xmcjax::XMCJAX_ISA
