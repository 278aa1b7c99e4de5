// A vector and the team of threads that works on it: a warp, or a block of several. A short vector stands in the
// registers of its team, N numbers of each thread, so that it is read once; a longer one is read in each pass.
//
// Sums over the team are made in one order on the GPU and on the CPU, and every thread has the same bits of them:
// what is decided by a sum is decided alike by all.
#pragma once

#include <cstring>

#include "warp.h"

namespace xmcjax::cuda {

struct Plus {
  template <class T>
  XMCJAX_BODY T operator()(T a, T b) const {
    return a + b;
  }
};

XMCJAX_BODY float maximum(float a, float b) { return fmaxf(a, b); }
XMCJAX_BODY double maximum(double a, double b) { return fmax(a, b); }
XMCJAX_BODY float minimum(float a, float b) { return fminf(a, b); }
XMCJAX_BODY double minimum(double a, double b) { return fmin(a, b); }

struct Larger {
  template <class T>
  XMCJAX_BODY T operator()(T a, T b) const {
    return maximum(a, b);
  }
};

// Combines the x of all threads of the team by an operation whose order of two numbers does not matter: by a
// butterfly in each warp, in which a thread meets the one whose number differs in bit 4, 3, … 0, and then by a
// butterfly of the warps' results.
template <int THREADS, class Op, class T, int K>
XMCJAX_BODY Pack<T, K> over_team(Each<Pack<T, K>, THREADS>& x, const Op& op) {
  constexpr int kWarpsOfTeam = THREADS / kWarp;
#ifdef __CUDACC__
  Pack<T, K> all = x.mine;
  XMCJAX_UNROLL
  for (int bit = kWarp / 2; bit > 0; bit /= 2) {
    XMCJAX_UNROLL
    for (int k = 0; k < K; ++k) all.of[k] = op(all.of[k], __shfl_xor_sync(0xffffffffu, all.of[k], bit));
  }
  if constexpr (kWarpsOfTeam > 1) {
    __shared__ T of_warp[K][kWarpsOfTeam];
    __syncthreads();  // the results before these have been read
    if (threadIdx.x % kWarp == 0)
      for (int k = 0; k < K; ++k) of_warp[k][threadIdx.x / kWarp] = all.of[k];
    __syncthreads();
    XMCJAX_UNROLL
    for (int k = 0; k < K; ++k) all.of[k] = of_warp[k][threadIdx.x % kWarpsOfTeam];
    XMCJAX_UNROLL
    for (int bit = kWarpsOfTeam / 2; bit > 0; bit /= 2) {
      XMCJAX_UNROLL
      for (int k = 0; k < K; ++k) all.of[k] = op(all.of[k], __shfl_xor_sync(0xffffffffu, all.of[k], bit));
    }
  }
  return all;
#else
  const auto folded = [&](Pack<T, K>* some, int count) {
    for (int bit = count / 2; bit > 0; bit /= 2)
      for (int i = 0; i < bit; ++i)
        for (int k = 0; k < K; ++k) some[i].of[k] = op(some[i].of[k], some[i + bit].of[k]);
    return some[0];
  };
  Pack<T, K> of_warp[kWarpsOfTeam];
  for (int w = 0; w < kWarpsOfTeam; ++w) of_warp[w] = folded(x.all + w * kWarp, kWarp);
  return folded(of_warp, kWarpsOfTeam);
#endif
}

template <int THREADS, class T, int K>
XMCJAX_BODY Pack<T, K> sums(Each<Pack<T, K>, THREADS>& x) {
  return over_team<THREADS>(x, Plus{});
}

// The largest of one number of each thread. Of a 0 and a −0, which are equal, a GPU may find either: the result is 0.
template <int THREADS, class T>
XMCJAX_BODY T largest_of(Each<Pack<T, 1>, THREADS>& x) {
  return over_team<THREADS>(x, Larger{}).of[0] + T(0);
}

template <class T>
struct Limits;
template <>
struct Limits<float> {
  using Key = int32_t;
  static constexpr float kEpsilon = 0x1p-23f;
  static constexpr Key kLeastKey = INT32_MIN;
};
template <>
struct Limits<double> {
  using Key = int64_t;
  static constexpr double kEpsilon = 0x1p-52;
  static constexpr Key kLeastKey = INT64_MIN;
};

template <class T>
XMCJAX_BODY T infinity() {
  return T(INFINITY);
}

// −∞ < x < ∞
template <class T>
XMCJAX_BODY bool finite(T x) {
  return x > -infinity<T>() && x < infinity<T>();
}

template <class T>
XMCJAX_BODY T absolute(T x) {
  return x < T(0) ? -x : x;
}

// Integers that are ordered as the numbers are; neighbouring numbers have neighbouring integers.
template <class T>
XMCJAX_BODY typename Limits<T>::Key key_of(T x) {
  typename Limits<T>::Key bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits < 0 ? Limits<T>::kLeastKey - bits - 1 : bits;
}

template <class T>
XMCJAX_BODY T of_key(typename Limits<T>::Key key) {
  const typename Limits<T>::Key bits = key < 0 ? Limits<T>::kLeastKey - key - 1 : key;
  T x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// The number halfway from low to high in the order of the numbers.
template <class T>
XMCJAX_BODY T between(T low, T high) {
  const auto a = key_of(low), b = key_of(high);
  return of_key<T>((a & b) + ((a ^ b) >> 1));
}

// [m] in the registers of a team, or in memory where N is 0. What is beyond the end is `pad`.
template <class T, int N, int THREADS>
struct Vector {
  static constexpr int kWide = 16 / int(sizeof(T));  // numbers of one load
  static constexpr int kOnce = 8;  // loads that are under way together, of a long vector
  const T* from;
  int64_t m;
  T pad;
  bool packed;  // loads of 16 bytes are possible
  Each<Pack<T, N == 0 ? 1 : N>, THREADS> held;

  // The place of number i of thread t.
  XMCJAX_BODY int64_t place(int t, int i) const {
    return packed && N % kWide == 0 ? (int64_t(i / kWide) * THREADS + t) * kWide + i % kWide
                                    : int64_t(i) * THREADS + t;
  }

  XMCJAX_BODY void read() {
    if constexpr (N > 0) {
      EACH_OF(THREADS, t) {
        if (packed && N % kWide == 0) {
          XMCJAX_UNROLL
          for (int i = 0; i + kWide <= N; i += kWide) {
            const int64_t j = place(t, i);
            Pack<T, kWide> pack;
            if (j < m) pack = load_pack<kWide>(from + j);
            else
              for (int k = 0; k < kWide; ++k) pack.of[k] = pad;
            XMCJAX_UNROLL
            for (int k = 0; k < kWide; ++k) held[t].of[i + k] = pack.of[k];
          }
        } else {
          XMCJAX_UNROLL
          for (int i = 0; i < N; ++i) {
            const int64_t j = int64_t(i) * THREADS + t;
            held[t].of[i] = j < m ? load(from + j) : pad;
          }
        }
      }
    }
  }

  // f(t, number) for each number, and for the padding beyond the end. A number that is in memory goes through `make`
  // before.
  template <class F, class G>
  XMCJAX_BODY void each(const F& f, const G& make) {
    EACH_OF(THREADS, t) {
      if constexpr (N > 0) {
        XMCJAX_UNROLL
        for (int i = 0; i < N; ++i) f(t, held[t].of[i]);
      } else {
        XMCJAX_ONCE
        for (int64_t first = t; first < m; first += kOnce * THREADS) {
          T some[kOnce];
          XMCJAX_UNROLL
          for (int i = 0; i < kOnce; ++i) {
            const int64_t j = first + i * THREADS;
            some[i] = make(j < m ? load(from + j) : pad);
          }
          XMCJAX_UNROLL
          for (int i = 0; i < kOnce; ++i) f(t, some[i]);
        }
      }
    }
  }

  // to[j] = f(number j)
  template <class F>
  XMCJAX_BODY void write(T* to, const F& f) {
    EACH_OF(THREADS, t) {
      if constexpr (N == 0) {
        for (int64_t j = t; j < m; j += THREADS) to[j] = f(load(from + j));
      } else if (packed && N % kWide == 0) {
        XMCJAX_UNROLL
        for (int i = 0; i + kWide <= N; i += kWide) {
          const int64_t j = place(t, i);
          Pack<T, kWide> pack;
          XMCJAX_UNROLL
          for (int k = 0; k < kWide; ++k) pack.of[k] = f(held[t].of[i + k]);
          if (j < m) store_pack<kWide>(to + j, pack);
        }
      } else {
        XMCJAX_UNROLL
        for (int i = 0; i < N; ++i) {
          const int64_t j = int64_t(i) * THREADS + t;
          if (j < m) to[j] = f(held[t].of[i]);
        }
      }
    }
  }
};

// A vector less a center, which is the sum of `count` parts: each part is what those before it lack, and at first there
// is none. Registers hold the differences.
template <class T, int N, int THREADS>
struct Centred {
  // Each part is some 2^24 (float64: 2^53) times smaller than the one before: so many reach from the largest float32 to
  // a radius of 1.
  static constexpr int kParts = 6;
  Vector<T, N, THREADS> numbers;
  T parts[kParts];
  int count;

  XMCJAX_BODY Centred(const T* from, int64_t m, bool packed)
      : numbers{from, m, -infinity<T>(), packed, {}}, parts{}, count(0) {
    numbers.read();
  }

  // Adds a part to the center, of kParts at most.
  XMCJAX_BODY void move(T by) {
    XMCJAX_UNROLL
    for (int i = 0; i < kParts; ++i)
      if (i == count) parts[i] = by;
    ++count;
    if constexpr (N > 0) {
      EACH_OF(THREADS, t) {
        XMCJAX_UNROLL
        for (int i = 0; i < N; ++i) numbers.held[t].of[i] -= by;
      }
    }
  }

  // t plus the center
  XMCJAX_BODY T whole(T t) const {
    XMCJAX_UNROLL
    for (int i = kParts - 1; i >= 0; --i) t += parts[i];
    return t;
  }

  // f(t, number less the center); what is beyond the end is −∞.
  template <class F>
  XMCJAX_BODY void each(const F& f) {
    numbers.each(f, [&](T number) { return lowered(number); });
  }

  template <class F>
  XMCJAX_BODY void write(T* to, const F& f) {
    numbers.write(to, [&](T number) { return f(N > 0 ? number : lowered(number)); });
  }

 private:
  XMCJAX_BODY T lowered(T number) const {
    XMCJAX_UNROLL
    for (int i = 0; i < kParts; ++i)
      if (i < count) number -= parts[i];
    return number;
  }
};

}  // namespace xmcjax::cuda
