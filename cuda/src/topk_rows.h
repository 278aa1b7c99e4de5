// Projections with the upper bound Σ x / k of xmcjax/projections/_topk.py, a vector by a team of threads.
//
// That file says what t, v = t + u and the level are. The numbers at the head are found first: b_[k], b_[k+1] and
// the sum of the k largest. For small k that is done by taking the largest number below the one before again and
// again, and counting its copies in the same pass; for larger k by halving the floats that are left.
#pragma once

#include "box_rows.h"

namespace xmcjax::cuda {

constexpr int kFew = 16;  // up to this k, the largest are taken one after the other
constexpr int kLists = 8;  // up to this k, from sorted lists of a warp's threads
constexpr int kSorted = 3;  // numbers of such a list

template <class T>
struct Heads {
  T kth, following, sum;
};

// `top` is the largest. What is beyond the end is −∞ and counts nowhere.
template <class T, int N, int THREADS>
XMCJAX_BODY Heads<T> heads_one_by_one(Centred<T, N, THREADS>& vector, T top, int64_t k) {
  const T inf = infinity<T>();
  T now = top, left = T(k), sum = T(0);
  while (now > -inf) {
    Each<Pack<T, 1>, THREADS> copies, next;
    EACH_OF(THREADS, i) { copies[i] = {T(0)}, next[i] = {-inf}; }
    vector.each([&](int i, T b) {
      if (b == now) copies[i].of[0] += T(1);
      if (b < now) next[i].of[0] = maximum(next[i].of[0], b);
    });
    const T count = sums<THREADS>(copies).of[0], below = largest_of<THREADS>(next);
    if (count >= left) return {now, count > left ? now : below, sum + left * now};
    sum += count * now, left -= count, now = below;
  }
  return {-inf, -inf, -inf};
}

// The same by a warp. Each thread keeps its largest numbers in order, and the thread with the largest of all gives that
// away. False where a thread has given away all that it kept.
template <class T, int N>
XMCJAX_BODY bool heads_of_lists(Centred<T, N, kWarp>& vector, int64_t k, Heads<T>* heads) {
  const T inf = infinity<T>();
  Each<Pack<T, kSorted>> list;
  Each<int> given;
  EACH(i) {
    given[i] = 0;
    for (T& one : list[i].of) one = -inf;
  }
  vector.each([&](int i, T b) {
    T left = b;
    XMCJAX_UNROLL
    for (T& one : list[i].of) {
      const T other = minimum(one, left);
      one = maximum(one, left), left = other;
    }
  });
  *heads = {-inf, -inf, T(0)};
  XMCJAX_ONCE
  for (int64_t j = 0; j <= k; ++j) {
    Each<Pack<T, 1>> head;
    EACH(i) { head[i].of[0] = list[i].of[0]; }
    const T top = largest_of<kWarp>(head);
    if (j < k) heads->sum += top, heads->kth = top;
    else heads->following = top;
    if (!(top > -inf)) break;
    Each<bool> equal;
    EACH(i) { equal[i] = list[i].of[0] == top; }
    const int first = lowest_bit(ballot(equal));
    EACH(i) {
      if (i == first) {
        XMCJAX_UNROLL
        for (int s = 0; s + 1 < kSorted; ++s) list[i].of[s] = list[i].of[s + 1];
        list[i].of[kSorted - 1] = -inf, given[i] += 1;
      }
    }
  }
  Each<bool> none_left;
  EACH(i) { none_left[i] = given[i] >= kSorted; }
  return ballot(none_left) == 0;
}

template <class T, int N, int THREADS>
XMCJAX_BODY Heads<T> heads_by_halving(Centred<T, N, THREADS>& vector, T top, int64_t k) {
  const T inf = infinity<T>();
  T low = -inf, high = of_key<T>(key_of(top) + 1);  // at least k numbers are >= low, fewer >= high
  for (T middle = between(low, high); middle > low; middle = between(low, high)) {
    Each<Pack<T, 1>, THREADS> parts;
    EACH_OF(THREADS, i) { parts[i] = {T(0)}; }
    vector.each([&](int i, T b) {
      if (b >= middle) parts[i].of[0] += T(1);
    });
    (sums<THREADS>(parts).of[0] >= T(k) ? low : high) = middle;
  }
  if (!(low > -inf)) return {-inf, -inf, -inf};
  Each<Pack<T, 2>, THREADS> parts;
  Each<Pack<T, 1>, THREADS> next;
  EACH_OF(THREADS, i) { parts[i] = {T(0), T(0)}, next[i] = {-inf}; }
  vector.each([&](int i, T b) {
    if (b >= low) parts[i].of[0] += b - low, parts[i].of[1] += T(1);
    if (b < low) next[i].of[0] = maximum(next[i].of[0], b);
  });
  const Pack<T, 2> sum = sums<THREADS>(parts);
  const T below = largest_of<THREADS>(next);
  // Lemma 1 at b_[k]
  return {low, sum.of[1] > T(k) ? low : below, sum.of[0] + T(k) * low};
}

// The sets and sums of one (t, v), and the linear system of a Newton step from there; u = v − t.
//
// F: Σ min(max(b − t, 0), u) = k u and G: Σ_U (b − t − u) + k t = ρk² u, of Lemma 3.
template <class T>
struct Step {
  T above, n, q, residual_f, residual_g, slope, level;

  // (δt, δu) of both equations
  XMCJAX_BODY void cone(T* dt, T* du) const {
    const T d = q * q + slope * n;
    *du = (n * residual_g + q * residual_f) / (d > 0 ? d : T(1));
    *dt = at_width(*du);
  }
  // δt of F alone
  XMCJAX_BODY T at_width(T du) const { return (residual_f - q * du) / (n > 1 ? n : T(1)); }
  // kλ after a step; λ >= 0 of Lemma 5
  XMCJAX_BODY T multiplier(T dt, T du) const { return residual_g - slope * du + q * dt; }
};

template <class T, int N, int THREADS>
XMCJAX_BODY Step<T> step_at(Centred<T, N, THREADS>& vector, T t, T v, T k, T rho) {
  Each<Pack<T, 4>, THREADS>
      parts;  // of b >= t: their number, Σ (b − t) of those up to v; of b > v: Σ (b − v), their number
  EACH_OF(THREADS, i) { parts[i] = {T(0), T(0), T(0), T(0)}; }
  vector.each([&](int i, T b) {
    const bool over = b > v;
    if (b >= t) parts[i].of[0] += T(1);
    if (b >= t && !over) parts[i].of[1] += b - t;
    if (over) parts[i].of[2] += b - v, parts[i].of[3] += T(1);
  });
  const Pack<T, 4> sum = sums<THREADS>(parts);
  const T u = v - t, excess = sum.of[2];
  Step<T> step;
  step.above = sum.of[3], step.n = sum.of[0] - step.above, step.q = k - step.above;
  // Σ min(max(b − t, 0), u) − k u
  step.residual_f = sum.of[1] - step.q * u;
  step.residual_g = excess + k * t - rho * k * k * u;
  step.slope = step.above + rho * k * k;
  step.level = excess + k * v;
  return step;
}

constexpr int kTopkSteps = 128;

template <class T>
struct TopkArguments {
  const T *b, *radius, *rho;  // [n, m] and [n]
  T *x, *u, *tight;
  int64_t n, m, k;
  bool packed;
};

template <class T, int N, int THREADS>
struct TopkRows {
  static constexpr bool kInRegisters = true;
  static constexpr int kThreads = THREADS;
  TopkArguments<T> of;

  XMCJAX_BODY void operator()(int64_t row) const {
    const T inf = infinity<T>(), r = load(of.radius + row), rho = load(of.rho + row), k = T(of.k);
    Centred<T, N, THREADS> vector(of.b + row * of.m, of.m, of.packed);

    Each<Pack<T, 1>, THREADS> improper, largest;
    EACH_OF(THREADS, i) { improper[i] = {T(0)}, largest[i] = {-inf}; }
    vector.each([&](int i, T b) {
      if (!(b < inf)) improper[i].of[0] += T(1);
      largest[i].of[0] = maximum(largest[i].of[0], b);
    });
    const T top = largest_of<THREADS>(largest);
    const bool bad = sums<THREADS>(improper).of[0] > 0 || !(r >= 0 && rho >= 0);

    const T kappa = k + rho * k * k, cap = r / k;
    T base = T(0), rest = T(0), width = T(0);  // x = min(max((b − base) − rest, 0), width)
    bool tight = r == 0;
    if (!bad && r > 0 && top > 0) {
      Heads<T> heads;
      bool found = false;
      if constexpr (THREADS == kWarp && N >= 8)
        found = of.k <= kLists && heads_of_lists(vector, of.k, &heads);
      if (!found)
        heads = of.k <= kFew ? heads_one_by_one(vector, top, of.k) : heads_by_halving(vector, top, of.k);
      const T whole = heads.sum / kappa, flat = cap < whole ? cap : whole, gap = heads.kth - heads.following;
      if (!(heads.sum > 0)) {  // Lemma 4
      } else if (flat <= gap) {
        // the k largest at the upper bound and nothing between: t in the middle of where it may be
        const bool next = heads.following > -inf;
        base = next ? heads.following : heads.kth;
        rest = next ? (gap - flat) / 2 : -2 * flat;
        width = flat, tight = flat == cap;
      } else {
        T t = heads.following, v = heads.kth, level = -inf, n = T(-1), above = T(-1);
        XMCJAX_ONCE
        for (int i = 0; i < kTopkSteps; ++i) {
          const Step<T> step = step_at(vector, t, v, k, rho);
          const T du_cap = cap - (v - t), dt_cap = step.at_width(du_cap);
          T dt, du;
          step.cone(&dt, &du);
          const bool held = cap < inf && step.multiplier(dt_cap, du_cap) >= 0;
          if (held) dt = dt_cap, du = du_cap;
          // the level that the tangent at v has at the new v
          const T next = step.level + step.q * (dt + du);
          if ((step.n == n && step.above == above) || !(next > level)) break;
          t += dt, v += dt + du, level = next, n = step.n, above = step.above, tight = held;
        }
        // what rounding has left of the equations
        base = t;
        if (tight) {
          width = cap;
          vector.move(t);
          rest = search(vector, BoxNumbers<T>{r, T(0), cap, T(0), double(cap), false, false}, T(0), inf).t;
        } else {
          T du;
          step_at(vector, t, v, k, rho).cone(&rest, &du);
          width = (v - t) + du;
        }
      }
    }
    if (vector.count == 0) vector.move(base);
    vector.write(of.x + row * of.m,
                 [&](T number) { return bad ? T(NAN) : minimum(maximum(number - rest, T(0)), width); });
    EACH_OF(THREADS, i) {
      if (i == 0) of.u[row] = bad ? T(NAN) : width, of.tight[row] = T(tight);
    }
  }
};

}  // namespace xmcjax::cuda
