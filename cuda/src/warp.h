// What the body of a kernel is written in: a warp of 32 threads, in a form that nvcc compiles for a GPU and
// any C++ compiler for the CPU. There the threads of a warp take turns, and the arithmetic is the same
// operation by operation, so that the sums of a kernel can be checked without a GPU.
//
//     EACH(t) { … }        what every thread of the warp does, t = 0 … 31, with no other thread's values
//     Each<T> x;           a variable of each thread, x[t]
//     ballot(x), from(x, i), across(x, bits), behind(x)  what the threads tell each other; outside of EACH, and
//                          by all of them
//     together()             before a thread reads in memory what another one has written
//
// All control flow outside of EACH is the same for the threads of a warp.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define XMCJAX_BODY __device__ __forceinline__
#define EACH(t) if (const int t = int(threadIdx.x & 31); true)
#define EACH_OF(THREADS, t) if (const int t = int(threadIdx.x % (THREADS)); true)
#define XMCJAX_UNROLL _Pragma("unroll")
#define XMCJAX_ONCE _Pragma("unroll 1")
#else
#define XMCJAX_BODY inline
#define EACH(t) for (int t = 0; t < 32; ++t)
#define EACH_OF(THREADS, t) for (int t = 0; t < (THREADS); ++t)
#define XMCJAX_UNROLL
#define XMCJAX_ONCE
#endif

namespace xmcjax::cuda {

constexpr int kWarp =
    32;  // threads, and lanes of a tile, one each: 128 bytes of float32, which memory delivers at once

template <class T, int THREADS = kWarp>
struct Each {
#ifdef __CUDACC__
  T mine;
  XMCJAX_BODY T& operator[](int) { return mine; }
#else
  T all[THREADS] = {};
  T& operator[](int t) { return all[t]; }
#endif
};

// The threads in which x is true, as bits.
XMCJAX_BODY uint32_t ballot(Each<bool>& x) {
#ifdef __CUDACC__
  return __ballot_sync(0xffffffffu, x.mine);
#else
  uint32_t bits = 0;
  for (int t = 0; t < kWarp; ++t) bits |= uint32_t(x[t]) << t;
  return bits;
#endif
}

// What a thread has written before this is there for the others after it.
XMCJAX_BODY void together() {
#ifdef __CUDACC__
  __syncwarp();
#endif
}

// The value of thread i, for all.
template <class T>
XMCJAX_BODY T from(Each<T>& x, int i) {
#ifdef __CUDACC__
  return __shfl_sync(0xffffffffu, x.mine, i);
#else
  return x[i];
#endif
}

// Gives each thread the value of the thread whose number differs in `bits`.
template <class T>
XMCJAX_BODY Each<T> across(Each<T>& x, int bits) {
  Each<T> y;
#ifdef __CUDACC__
  y.mine = __shfl_xor_sync(0xffffffffu, x.mine, bits);
#else
  for (int t = 0; t < kWarp; ++t) y[t] = x[t ^ bits];
#endif
  return y;
}

// Gives each thread the value of the thread before it, and the first thread its own.
template <class T>
XMCJAX_BODY Each<T> behind(Each<T>& x) {
  Each<T> y;
#ifdef __CUDACC__
  y.mine = __shfl_up_sync(0xffffffffu, x.mine, 1);
#else
  for (int t = 0; t < kWarp; ++t) y[t] = x[t == 0 ? 0 : t - 1];
#endif
  return y;
}

XMCJAX_BODY int count_bits(uint32_t x) {
#ifdef __CUDACC__
  return __popc(x);
#else
  return __builtin_popcount(x);
#endif
}

// The number of the lowest bit that is set; x is not 0.
XMCJAX_BODY int lowest_bit(uint32_t x) {
#ifdef __CUDACC__
  return __ffs(int(x)) - 1;
#else
  return __builtin_ctz(x);
#endif
}

XMCJAX_BODY uint32_t bits_below(int t) { return (1u << t) - 1u; }

// a b + c, rounded once
XMCJAX_BODY float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
XMCJAX_BODY double multiply_add(double a, double b, double c) { return fma(a, b, c); }

// W neighbouring numbers, which a thread loads in one piece.
template <class T, int W>
struct Pack {
  T of[W];
};

template <class T>
XMCJAX_BODY T load(const T* p) {
#ifdef __CUDACC__
  return __ldg(p);
#else
  return *p;
#endif
}

template <int W, class T>
XMCJAX_BODY Pack<T, W> load_pack(const T* p) {
  Pack<T, W> pack;
#ifdef __CUDACC__
  if constexpr (sizeof(pack) == 16) {
    const int4 bits = __ldg(reinterpret_cast<const int4*>(p));
    memcpy(&pack, &bits, 16);
  } else {
    for (int i = 0; i < W; ++i) pack.of[i] = load(p + i);
  }
#else
  for (int i = 0; i < W; ++i) pack.of[i] = p[i];
#endif
  return pack;
}

template <int W, class T>
XMCJAX_BODY void store_pack(T* p, const Pack<T, W>& pack) {
#ifdef __CUDACC__
  if constexpr (sizeof(pack) == 16) {
    int4 bits;
    memcpy(&bits, &pack, 16);
    *reinterpret_cast<int4*>(p) = bits;
  } else {
    for (int i = 0; i < W; ++i) p[i] = pack.of[i];
  }
#else
  for (int i = 0; i < W; ++i) p[i] = pack.of[i];
#endif
}

}  // namespace xmcjax::cuda
