// The set of the top-k entropy for dual ascent over instances (instance_sets.h).
//
// With the margins a = h - 1 of the classes j ≠ y the loss is log(1 + e^E), E = max {⟨a, p⟩ + H(p) : 0 <= p <= 1/k,
// 1ᵀp = 1} (Lapin, Hein and Schiele, "Loss Functions for Top-k Error", CVPR 2016), k = 1 the softmax. r times it is
// max {⟨x, h⟩ - penalty(x)} over the set of TopKAlpha, with
//
//   penalty(x) = 1ᵀx + Σ x_j log(x_j/r) + (r - 1ᵀx) log(1 - 1ᵀx/r).
//
// One visit maximises ⟨a, u⟩ - ½c(‖u‖² + s²) - Σ u log u - (1 - s) log(1 - s) in u = x/r, s = 1ᵀu, with c = r‖x_i‖² and
// a_j = h_j - 1 + ‖x_i‖²(x_j + 1ᵀx) of the x before. Its solution is u_j = min(v(a_j - θ), s/k), where log v(t) + c v(t) = t.
// θ follows from s by Σ u = s, and s is the zero of the falling
//
//   F(s) = θ - cs + log(1 - s) + Λ/k,   Λ = Σ max(0, a_j - θ - log(s/k) - cs/k),
//
// whose slope in log(s/(1 - s)) is -1 at most. Everything is worked out in double. Included by the simd_*.cc files only.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/largest.h"
#include "dual/instance_sets.h"

namespace xmcjax::XMCJAX_ISA {
namespace entropy {

// v and dv/dt of log v + c v = t: v = ω(t + log c)/c with Wright's ω, ω + log ω = x, by two steps of fourth order (Fritsch,
// Shafer and Crowley, "Solution of the transcendental equation we^w = x", 1973).
struct Level {
  double v, slope;
};
inline Level level(double t, double c, double log_c) {
  const double x = t + log_c;
  if (x < -40) {
    const double v = std::exp(t);
    return {v, v};
  }
  double w = x < -1 ? std::exp(x) : x < 3 ? 1 + (x - 1) / 2 + (x - 1) * (x - 1) / 16 : x - std::log(x);
  for (int step = 0; step < 2; ++step) {
    const double r = x - w - std::log(w), one = 1 + w, q = one * (one + 2 * r / 3);
    w *= 1 + r / one * (q - r / 2) / (q - r);
  }
  const double v = w / c;
  return {v, v / (1 + w)};
}

// The margins that are no -inf; `value` is sorted as std::nth_element leaves it, the k largest first.
struct Margins {
  const double* value;
  int64_t count;
  double largest, kth;
};

// E of margins; -inf where there are fewer than k. The k largest are sorted.
inline double capped_logsumexp(double* a, int64_t count, int64_t k) {
  if (count < k) return -std::numeric_limits<double>::infinity();
  largest_first(a, k - 1, count);
  std::sort(a, a + k, [](double one, double other) { return one > other; });
  // the sum of e^a of the k-th and of all smaller margins, relative to e^a of the k-th
  double z = 1;
  for (int64_t j = k; j < count; ++j) z += std::exp(a[j] - a[k - 1]);
  double log_z = a[k - 1] + std::log(z), held = 0;
  // log_z is log Σ e^a of all but the u largest, from u = k - 1 down to the first u that fits
  int64_t u = k - 1;
  const double K = double(k), log_k = std::log(K);
  while (u > 0) {
    const double more = std::max(log_z, a[u - 1]) + std::log1p(std::exp(-std::fabs(log_z - a[u - 1])));
    // with one entry less at 1/k: go on only if that entry then stays below 1/k
    if (!(a[u - 1] - more + std::log((K - double(u - 1)) / K) <= -log_k)) break;
    log_z = more;
    --u;
  }
  for (int64_t j = 0; j < u; ++j) held += a[j] + log_k;
  return held / K + (1 - double(u) / K) * (log_z - std::log(1 - double(u) / K));
}

// θ, s and s/k of the maximum.
struct Solution {
  double theta, s, cap;
};

class Search {
 public:
  Search(const Margins& a, double c, int64_t k) : a_(a), c_(c), log_c_(std::log(c)), k_(double(k)) {}

  // From any logit of s, and a θ that may be NaN.
  Solution operator()(double logit, double theta) {
    // below -692, s/m is no normal number, and as good as 0
    double low = -692, high = std::numeric_limits<double>::infinity();
    theta_ = theta;
    for (int step = 0; step < 100; ++step) {
      double slope;
      const double f = at(logit, slope);
      if (f == 0) break;
      (f > 0 ? low : high) = logit;
      // the slope is -1 at most: the zero is no farther from the logit than f
      if (f > 0) high = std::min(high, logit + f);
      if (f < 0) low = std::max(low, logit + f);
      double next = logit - f / slope;
      // s moves by s(1 - s) times this step, after which an error of about its square is left; rounding may have put
      // `next` out of bounds
      if (!(std::fabs(next - logit) > 1e-9 * (1 + std::fabs(next)))) {
        at(next, slope);
        break;
      }
      if (!(next > low && next < high)) next = 0.5 * (low + high);
      logit = next;
    }
    return {theta_, s_, s_ / k_};
  }

 private:
  // F and its slope in the logit of s.
  double at(double logit, double& slope) {
    const double e = std::exp(-std::fabs(logit)), part = e / (1 + e), rest = logit > 0 ? part : 1 / (1 + e);
    s_ = logit > 0 ? 1 / (1 + e) : part;
    const double log_rest = logit > 0 ? -logit - std::log1p(e) : -std::log1p(e);
    const double cap = s_ / k_, at_cap = std::log(cap) + c_ * cap;
    find(cap, at_cap);
    double lambda = 0;
    for (int64_t j = 0; j < a_.count; ++j) lambda += std::max(a_.value[j] - theta_ - at_cap, 0.0);
    const double free = 1 - double(capped_) / k_;
    double falls = double(capped_) / k_ * (c_ / k_ + 1 / s_) + c_;
    if (free > 0) falls += free * free / slope_;
    slope = -(falls * s_ * rest + s_);
    return theta_ - c_ * s_ + log_rest + lambda / k_;
  }

  // θ of Σ min(v(a_j - θ), cap) = s.
  void find(double cap, double at_cap) {
    const double even = s_ / double(a_.count);
    double low = a_.kth - at_cap, high = std::max(low, a_.largest - std::log(even) - c_ * even);
    double theta = theta_ >= low && theta_ <= high ? theta_ : high;
    for (int step = 0; step < 200; ++step) {
      double sum = 0;
      slope_ = 0, capped_ = 0;
      for (int64_t j = 0; j < a_.count; ++j) {
        const double t = a_.value[j] - theta;
        if (t >= at_cap) {
          ++capped_;
          continue;
        }
        const Level of = level(t, c_, log_c_);
        sum += of.v, slope_ += of.slope;
      }
      theta_ = theta;
      // s less the capped entries is (k - capped) cap, by which few digits are lost
      const double off = sum - (k_ - double(capped_)) * cap;
      if (off > 0) low = theta;
      if (off < 0) high = theta;
      if (off == 0) break;
      double next = theta + off / slope_;
      if (!(std::fabs(next - theta) > 4e-16 * (1 + std::fabs(theta)))) break;
      if (!(next > low && next < high)) next = 0.5 * (low + high);
      if (!(std::fabs(next - theta) > 4e-16 * (1 + std::fabs(theta))) || !(next > low && next < high)) break;
      theta = next;
    }
  }

  const Margins a_;
  double c_, log_c_, k_, theta_ = 0, s_ = 0, slope_ = 0;
  int64_t capped_ = 0;
};

}  // namespace entropy

template <class T>
class TopKEntropy {
 public:
  TopKEntropy(int64_t k, T) : k_(k) {}

  T ridge(T) const { return 0; }
  T top_level(T, T) const { return std::numeric_limits<T>::infinity(); }

  T visit(const Visit<T>& v, bool estimate) const {
    search(v);
    if (!estimate) return 0;
    return T(support(v.h, v.m, double(v.r), v.work) - double(v.inner) + penalty(v.x, v.m, v.r));
  }

  // Sets v.next; classes whose b is -inf stay 0.
  void search(const Visit<T>& v) const {
    double* a = v.work;
    int64_t count = 0;
    const double norm2 = double(v.norm2), r = double(v.r);
    for (int64_t j = 0; j < v.m; ++j)
      if (v.b[j] > -std::numeric_limits<T>::infinity()) a[count++] = margin(v, j);
    std::memset(v.next, 0, v.padded * sizeof(T));
    if (count < k_) return;
    largest_first(a, k_ - 1, count);
    const entropy::Margins margins{a, count, *std::max_element(a, a + k_), a[k_ - 1]};
    const double c = r * norm2;
    double logit = std::clamp(margins.largest, -30.0, 30.0), theta = std::numeric_limits<double>::quiet_NaN();
    started(v, c, logit, theta);
    const entropy::Solution at = entropy::Search(margins, c, k_)(logit, theta);
    const double log_c = std::log(c), at_cap = std::log(at.cap) + c * at.cap;
    for (int64_t j = 0; j < v.m; ++j) {
      if (!(v.b[j] > -std::numeric_limits<T>::infinity())) continue;
      const double t = margin(v, j) - at.theta;
      v.next[j] = T(r * (t >= at_cap ? at.cap : std::min(entropy::level(t, c, log_c).v, at.cap)));
    }
  }

  double support(const T* h, int64_t m, double r, double* work) const {
    int64_t count = 0;
    for (int64_t j = 0; j < m; ++j)
      if (h[j] > -std::numeric_limits<T>::infinity()) work[count++] = double(h[j]) - 1;
    const double e = entropy::capped_logsumexp(work, count, k_);
    return r * (std::max(e, 0.0) + std::log1p(std::exp(-std::fabs(e))));
  }

  double penalty(const T* x, int64_t m, T r) const {
    double sum = 0, terms = 0;
    for (int64_t j = 0; j < m; ++j)
      if (x[j] > T(0)) sum += double(x[j]), terms += double(x[j]) * std::log(double(x[j]) / double(r));
    const double rest = double(r) - sum;
    return sum + terms + (rest > 0 ? rest * std::log(rest / double(r)) : 0.0);
  }

  // All h are 1 whatever x is: E = log(m - 1).
  void unopposed(int64_t y, int64_t m, T r, T* x) const {
    for (int64_t j = 0; j < m; ++j) x[j] = j != y ? r / T(m) : T(0);
  }

 private:
  // The start of the search is where the x before would be its solution, if x is inside its set: near the end it
  // nearly is.
  void started(const Visit<T>& v, double c, double& logit, double& theta) const {
    const double r = double(v.r), s = double(v.sum) / r, cap = 0.999 * s / double(k_);
    if (!(s > 1e-30 && s < 1 - 1e-6)) return;
    logit = std::log(s / (1 - s));
    int64_t most = -1;
    for (int64_t j = 0; j < v.m; ++j)
      if (v.x[j] > T(0) && double(v.x[j]) / r < cap && (most < 0 || v.x[j] > v.x[most])) most = j;
    if (most < 0) return;
    const double u = double(v.x[most]) / r;
    theta = margin(v, most) - std::log(u) - c * u;
  }
  static double margin(const Visit<T>& v, int64_t j) {
    return double(v.h[j]) - 1 + double(v.norm2) * (double(v.x[j]) + double(v.sum));
  }

  int64_t k_;
};

}  // namespace xmcjax::XMCJAX_ISA
