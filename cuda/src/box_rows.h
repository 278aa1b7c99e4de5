// Projections between two fixed bounds of xmcjax/projections/_knapsack.py, a vector by a team of threads:
//
//     x = min(max(b − t, l), u),  Σ x = r  or, at_most,  Σ x <= r and t >= ρ Σ x
//
// t is searched for by Newton's method from below, and once more as a difference from what was found, in which
// nothing large cancels; where b is so large that this difference is rough too, further searches follow. Each
// step is one pass over the registers: the entries between the bounds are added up, and those at a bound are
// counted.
#pragma once

#include "team.h"

namespace xmcjax::cuda {

template <class T>
struct BoxNumbers {
  T radius, lower, upper, rho;
  double bound;  // what upper is the rounding of
  bool at_most, shared;  // shared: whether upper is radius/k

  // The size of the numbers that the sum of m entries is made of; where upper is radius/k, that of upper is enough.
  XMCJAX_BODY T size(T m) const {
    if (shared) return upper;
    return absolute(radius) + (lower > -infinity<T>() ? m * absolute(lower) : T(0));
  }
};

// What a search found: t less the center, and whether the sum is what the radius allows.
template <class T>
struct Found {
  T t;
  bool tight;
};

constexpr int kSearchSteps = 256;

// A number that is at most the k-th largest of those of which each thread has one, for small k: copies of a number
// count once.
template <int THREADS, class T>
XMCJAX_BODY T about_kth(Each<Pack<T, 1>, THREADS> numbers, T top, int k) {
  XMCJAX_ONCE
  for (; k > 1 && top > -infinity<T>(); --k) {
    EACH_OF(THREADS, i) {
      if (numbers[i].of[0] == top) numbers[i].of[0] = -infinity<T>();
    }
    top = largest_of<THREADS>(numbers);
  }
  return top;
}

constexpr int kHeads = 8;  // up to this k, b_[k] bounds a threshold

// The t of `vector` less its center, from `start`; `high` bounds it.
template <class T, int N, int THREADS>
XMCJAX_BODY Found<T> search(Centred<T, N, THREADS>& vector, const BoxNumbers<T>& of, T start, T high) {
  const T inf = infinity<T>(), m = T(vector.numbers.m), lower = of.lower, upper = of.upper;
  // differences of the sum of x below this are rounding
  const T noise = 4 * Limits<T>::kEpsilon * of.size(m);
  T t = start, low = -inf;
  bool tight = false;
  XMCJAX_ONCE
  for (int step = 0; step < kSearchSteps; ++step) {
    Each<Pack<T, 3>, THREADS> parts;  // Σ of the free entries, their number, and that of all above l
    EACH_OF(THREADS, i) { parts[i] = {T(0), T(0), T(0)}; }
    if (upper < inf) {
      vector.each([&](int i, T number) {
        const T x = number - t;
        if (x > lower) parts[i].of[2] += T(1);
        if (x > lower && x < upper) parts[i].of[0] += x, parts[i].of[1] += T(1);
      });
    } else {
      vector.each([&](int i, T number) {
        const T x = number - t;
        if (x > lower) parts[i].of[0] += x, parts[i].of[1] += T(1);
      });
      EACH_OF(THREADS, i) { parts[i].of[2] = parts[i].of[1]; }
    }
    const Pack<T, 3> sum = sums<THREADS>(parts);
    const T above = sum.of[2] - sum.of[1], below = m - sum.of[2];
    // Many entries at a bound leave a small rest for the others; in double, their number times the bound is exact.
    T n = sum.of[1];
    double at_bounds = 0;
    if (below > 0) at_bounds = double(below) * double(lower);
    if (above > 0) at_bounds = multiply_add(double(above), of.bound, at_bounds);
    // Σ x = r; where the sum may be less, the larger of two gaps is 0, and both fall with t
    T off = T(at_bounds - double(of.radius) + double(sum.of[0]));
    T newton = t + off / n;
    bool near = absolute(off) <= noise;
    tight = true;
    if (of.at_most) {
      const T bias = of.rho * (T(at_bounds) + sum.of[0]) - vector.whole(t);
      const T biased = t + bias / (T(1) + of.rho * n);
      tight = off >= bias;
      newton = n > 0 && newton > biased ? newton : biased;
      if (!tight) {
        n = n > 1 ? n : T(1), off = bias;
        near = absolute(bias) <= 4 * Limits<T>::kEpsilon * absolute(vector.whole(t));
      }
    }
    if (off > 0) low = t;
    else if (off < 0) high = t;
    else break;  // or it is no number
    const bool inside = n > 0 && newton > low && newton < high;
    T next = newton;
    if (!inside) {
      next = n > 0 && newton == t ? low : between(low, high);
      if (next == low || next == high) {
        // no number is left between the bounds: the nearer one
        if (n > 0 && newton >= low && newton <= high) t = newton;
        break;
      }
    }
    t = next;
    if (near && inside) break;  // this step solves it
  }
  return {t, tight};
}

template <class T>
struct BoxArguments {
  const T *b, *radius, *lower, *upper, *rho, *k;  // [n, m] and [n]
  T *x, *tight;
  int64_t n, m;
  bool at_most, by_k, packed;  // by_k: upper is radius/k, rounded
};

template <class T, int N, int THREADS>
struct BoxRows {
  static constexpr bool kInRegisters = true;
  static constexpr int kThreads = THREADS;
  BoxArguments<T> of;

  XMCJAX_BODY void operator()(int64_t row) const {
    const T inf = infinity<T>(), m = T(of.m);
    const T r = load(of.radius + row), lower = load(of.lower + row), upper = load(of.upper + row);
    const double bound = of.by_k ? double(r) / double(load(of.k + row)) : double(upper);
    const BoxNumbers<T> numbers{r, lower, upper, load(of.rho + row), bound, of.at_most, of.by_k};
    Centred<T, N, THREADS> vector(of.b + row * of.m, of.m, of.packed);

    Each<Pack<T, 2>, THREADS> parts;
    Each<Pack<T, 1>, THREADS> largest;
    EACH_OF(THREADS, i) { parts[i] = {T(0), T(0)}, largest[i] = {-inf}; }
    vector.each([&](int i, T b) {
      if (!(b == -inf)) parts[i].of[0] += b, parts[i].of[1] += T(1);
      largest[i].of[0] = maximum(largest[i].of[0], b);
    });
    const Pack<T, 2> sum = sums<THREADS>(parts);
    const T top = largest_of<THREADS>(largest), n = sum.of[1];
    bool bad = !(top < inf);
    if (!finite(sum.of[0]) && !bad) {  // of NaN, or of numbers whose sum is too large
      EACH_OF(THREADS, i) { parts[i] = {T(0), T(0)}; }
      vector.each([&](int i, T b) {
        if (!(b < inf)) parts[i].of[0] += T(1);
      });
      bad = sums<THREADS>(parts).of[0] > 0;
    }

    const T fixed = n < m ? lower * (m - n) : T(0);
    if (of.at_most) {
      bad = bad || !(r >= 0 && upper >= 0 && numbers.rho >= 0);
    } else {  // up to the rounding of the bounds
      const T slack = 4 * Limits<T>::kEpsilon * m;
      const T most = (n > 0 ? n * upper : T(0)) + fixed + (upper < inf ? slack * absolute(upper) : T(0));
      const bool reached = r >= m * lower - slack * absolute(lower) && r <= most;
      bad = bad || !(reached && lower <= upper && (n == m || lower > -inf));
    }
    Found<T> found{T(0), false};
    if (!bad) {
      // If k entries at the bound of `width` make up the sum, t + l is not farther below b_[k] than that.
      // By the rounding of the bounds `spare` may be below 0: all entries are then at the lower one.
      const T spare = maximum(r - (lower > -inf ? m * lower : T(0)), T(0)),
              width = minimum(upper - lower, spare);
      const T k = width > 0 ? spare / width : T(1);
      T least = -inf;
      if (lower > -inf && k <= T(kHeads)) {
        const int whole = int(k) + (T(int(k)) < k);
        least = about_kth<THREADS>(largest, top, whole) - lower - width;
      }
      // Σ x = r with all entries free
      const T mean = (sum.of[0] + fixed - r) / n;
      T start = mean > least ? mean : least;
      if (of.at_most) {
        const T some = mean < top ? mean : top, floor = least > 0 ? least : T(0);
        start = some > floor ? some : floor;
      }
      if (!finite(start)) start = T(0);
      T high = lower > -inf ? top - lower : inf;
      XMCJAX_ONCE
      for (int round = 0;; ++round) {
        found = search(vector, numbers, start, high);
        if (round == vector.kParts || (round > 0 && !(absolute(found.t) > 4 * numbers.size(m)))) break;
        vector.move(found.t), start = T(0), high = inf;
      }
    }
    const T t = found.t;
    vector.write(of.x + row * of.m,
                 [&](T number) { return bad ? T(NAN) : minimum(maximum(number - t, lower), upper); });
    EACH_OF(THREADS, i) {
      if (i == 0) of.tight[row] = T(found.tight);
    }
  }
};

}  // namespace xmcjax::cuda
