// The knapsack problem with bounds and weights of each entry, of xmcjax/projections/_weighted.py, a vector by a
// team of threads:
//
//     min ½‖x − b‖²  with  wᵀx = r,  l <= x <= u:   x = min(max(b − t w, l), u)
//
// wᵀx falls as t rises. Newton's method finds t; a step that would leave the interval known to hold t halves the
// floats in it instead. A second search finds what is left of t as a difference; where b is so large that this
// rest is rough too, further searches follow.
#pragma once

#include "team.h"

namespace xmcjax::cuda {

template <class T>
struct WeightedArguments {
  const T *b, *radius, *lower, *upper, *weights;  // [n, m], but for the radius, [n]
  T *x, *t;
  int64_t n, m;
  bool packed;
};

constexpr int kWeightedNewtonSteps = 48, kWeightedSteps = 256;
// kRests: searches after the first, enough for entries up to the largest float32. kSmaller: how much smaller a rest has
// to be than the one before for another search, see xmcjax/projections/_weighted.py.
constexpr float kSmaller = 1.0f / 1024;
template <class T>
constexpr int kRests = sizeof(T) == sizeof(float) ? 6 : 3;

template <class T, int N, int THREADS>
struct WeightedRows {
  static constexpr bool kInRegisters = true;
  static constexpr int kThreads = THREADS;
  WeightedArguments<T> of;

  // An entry, ready for the search: one of −∞ has the lower bound for the upper one too.
  struct Entry {
    T b, lower, upper, weight;
  };

  // Numbers of the entries of one vector; b is less the parts of t that were found, times the weight.
  struct Entries {
    Vector<T, N, THREADS> b, lower, upper, weight;
    T parts[kRests<T>];

    XMCJAX_BODY Entry made(T b, T low, T high, T w) const {
      const bool left_out = b == -infinity<T>();
      if (left_out) b = T(0);
      else {
        XMCJAX_UNROLL
        for (int i = 0; i < kRests<T>; ++i) b = multiply_add(-parts[i], w, b);
      }
      return {b, low, left_out ? low : high, w};
    }

    // f(t, b, l, u, w) of each entry, those beyond the end too, which are 0
    template <class F>
    XMCJAX_BODY void each(const F& f) {
      EACH_OF(THREADS, t) {
        if constexpr (N > 0) {
          XMCJAX_UNROLL
          for (int i = 0; i < N; ++i)
            f(t, b.held[t].of[i], lower.held[t].of[i], upper.held[t].of[i], weight.held[t].of[i]);
        } else {
          for (int64_t j = t; j < b.m; j += THREADS) {
            const Entry e =
                made(load(b.from + j), load(lower.from + j), load(upper.from + j), load(weight.from + j));
            f(t, e.b, e.lower, e.upper, e.weight);
          }
        }
      }
    }

    // Moves b by part number `place` of t.
    XMCJAX_BODY void move(T by, int place) {
      XMCJAX_UNROLL
      for (int i = 0; i < kRests<T>; ++i)
        if (i == place) parts[i] = by;
      if constexpr (N > 0) {
        EACH_OF(THREADS, t) {
          XMCJAX_UNROLL
          for (int i = 0; i < N; ++i)
            b.held[t].of[i] = multiply_add(-by, weight.held[t].of[i], b.held[t].of[i]);
        }
      }
    }
  };

  static XMCJAX_BODY T product(T weight, T bound) { return weight == 0 ? T(0) : weight * bound; }
  static XMCJAX_BODY T clipped(T x, T low, T high) { return minimum(maximum(x, low), high); }

  XMCJAX_BODY T search(Entries& entries, T r) const {
    const T inf = infinity<T>();
    T t = T(0), low = -inf, high = inf;
    XMCJAX_ONCE
    for (int step = 0; step < kWeightedSteps; ++step) {
      Each<Pack<T, 2>, THREADS> parts;  // wᵀx, and Σ w² of the free entries
      EACH_OF(THREADS, i) { parts[i] = {T(0), T(0)}; }
      entries.each([&](int i, T b, T l, T u, T w) {
        const T moved = multiply_add(-t, w, b);
        if (w != 0) parts[i].of[0] = multiply_add(w, clipped(moved, l, u), parts[i].of[0]);
        if (moved > l && moved < u) parts[i].of[1] = multiply_add(w, w, parts[i].of[1]);
      });
      const Pack<T, 2> sum = sums<THREADS>(parts);
      const T off = sum.of[0] - r, slope = sum.of[1], newton = t + off / slope;
      if (off > 0) low = t;
      if (off < 0) high = t;
      const bool inside = slope > 0 && newton > low && newton < high && step < kWeightedNewtonSteps;
      const T next = inside ? newton : between(low, high);
      if (off == 0 || off != off || (slope > 0 && newton == t) || next == low || next == high) break;
      t = next;
      // `off` is within the rounding of the sum: this step solves it
      if (inside && absolute(off) <= 4 * Limits<T>::kEpsilon * absolute(r)) break;
    }
    return t;
  }

  XMCJAX_BODY void operator()(int64_t row) const {
    const T inf = infinity<T>(), r = load(of.radius + row);
    const int64_t first = row * of.m;
    Entries entries{{of.b + first, of.m, T(0), of.packed, {}},
                    {of.lower + first, of.m, T(0), of.packed, {}},
                    {of.upper + first, of.m, T(0), of.packed, {}},
                    {of.weights + first, of.m, T(0), of.packed, {}},
                    {}};
    entries.b.read(), entries.lower.read(), entries.upper.read(), entries.weight.read();

    // how many entries are improper, the ends of wᵀx, the sum of the sizes of its terms, and that of the smaller ones
    Each<Pack<T, 5>, THREADS> parts;
    Each<Pack<T, 1>, THREADS> largest;  // |w|
    EACH_OF(THREADS, i) { parts[i] = {T(0), T(0), T(0), T(0), T(0)}, largest[i] = {T(0)}; }
    const auto look = [&](int i, T b, T l, T u, T w) {
      const bool left_out = b == -inf;
      if (!(b < inf && l <= u && finite(w) && !(left_out && l == -inf))) parts[i].of[0] += T(1);
      const T one = product(w, l), other = product(w, left_out ? l : u);
      const T size = finite(one) ? absolute(one) : T(0),
              size_of_other = finite(other) ? absolute(other) : T(0);
      parts[i].of[1] += minimum(one, other), parts[i].of[2] += maximum(one, other);
      parts[i].of[3] += maximum(size, size_of_other), parts[i].of[4] += minimum(size, size_of_other);
      largest[i].of[0] = maximum(largest[i].of[0], absolute(w));
    };
    if constexpr (N > 0) {
      entries.each(look);
      EACH_OF(THREADS, t) {
        XMCJAX_UNROLL
        for (int i = 0; i < N; ++i) {
          const Entry e = entries.made(entries.b.held[t].of[i], entries.lower.held[t].of[i],
                                       entries.upper.held[t].of[i], entries.weight.held[t].of[i]);
          entries.b.held[t].of[i] = e.b, entries.upper.held[t].of[i] = e.upper;
        }
      }
    } else {
      EACH_OF(THREADS, t)
      for (int64_t j = t; j < of.m; j += THREADS)
        look(t, load(entries.b.from + j), load(entries.lower.from + j), load(entries.upper.from + j),
             load(entries.weight.from + j));
    }
    const Pack<T, 5> sum = sums<THREADS>(parts);
    const T slack = 4 * Limits<T>::kEpsilon * sum.of[3];
    const bool bad = sum.of[0] > 0 || !(r >= sum.of[1] - slack && r <= sum.of[2] + slack);

    const T rough = 4 * (absolute(r) + sum.of[4]) / largest_of<THREADS>(largest);
    T t = T(0), whole = T(0);
    if (!bad) {
      XMCJAX_ONCE
      for (int round = 0; round <= kRests<T>; ++round) {
        const T before = t;
        t = search(entries, r);
        whole += t;
        if (round == kRests<T>) break;
        if (round > 0 && !(absolute(t) > rough && absolute(t) < T(kSmaller) * absolute(before))) break;
        entries.move(t, round);
      }
    }
    if constexpr (N > 0) {
      // x in the place of b
      EACH_OF(THREADS, i) {
        XMCJAX_UNROLL
        for (int k = 0; k < N; ++k) {
          const T moved = multiply_add(-t, entries.weight.held[i].of[k], entries.b.held[i].of[k]);
          entries.b.held[i].of[k] = clipped(moved, entries.lower.held[i].of[k], entries.upper.held[i].of[k]);
        }
      }
      entries.b.write(of.x + first, [&](T x) { return bad ? T(NAN) : x; });
    } else {
      EACH_OF(THREADS, i)
      for (int64_t j = i; j < of.m; j += THREADS) {
        const Entry e = entries.made(load(entries.b.from + j), load(entries.lower.from + j),
                                     load(entries.upper.from + j), load(entries.weight.from + j));
        of.x[first + j] = bad ? T(NAN) : clipped(multiply_add(-t, e.weight, e.b), e.lower, e.upper);
      }
    }
    EACH_OF(THREADS, i) {
      if (i == 0) of.t[row] = bad ? T(NAN) : whole;
    }
  }
};

}  // namespace xmcjax::cuda
