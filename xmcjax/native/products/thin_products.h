// Two thin matrix products on a block of dense features while it is in the cache. Vectors lie along the instances, so
// that any number of classes fills them: X is [features, rows], transposed within a block, and scores are
// [classes, rows]. Included by the simd_*.cc files only.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA::thin {

// Classes of a tile and vectors of instances: their sums fill half of the registers or more.
constexpr int kClasses = 4;
#if defined(__AVX512F__)
constexpr int kVectors = 4;
#else
constexpr int kVectors = 2;
#endif
constexpr int kFeatures = 4;

// U[0:C, i:i+kVectors·N] = Σ_j V[0:C, j] X[j, the same]
template <int C, class T>
void scores_tile(const T* X, const T* V, int64_t features, int64_t rows, int64_t i, T* U) {
  constexpr int N = kWide<T>;
  Wide<T> sum[C][kVectors] = {};
  for (int64_t j = 0; j < features; ++j) {
    const T* x = X + j * rows + i;
    Wide<T> at[kVectors];
    for (int v = 0; v < kVectors; ++v) at[v] = load_wide(x + v * N);
    for (int c = 0; c < C; ++c)
      for (int v = 0; v < kVectors; ++v) sum[c][v] += V[c * features + j] * at[v];
  }
  for (int c = 0; c < C; ++c)
    for (int v = 0; v < kVectors; ++v) store_wide(U + c * rows + i + v * N, sum[c][v]);
}

// out[0:C, 0:F] += Σ_i R[0:C, i] X[0:F, i]
template <int C, int F, class T, class Sum>
void gradient_tile(const T* X, const T* R, int64_t features, int64_t rows, Sum* out) {
  constexpr int N = kWide<T>;
  Wide<T> sum[C][F] = {};
  for (int64_t i = 0; i < rows; i += N) {
    Wide<T> at[F];
    for (int f = 0; f < F; ++f) at[f] = load_wide(X + f * rows + i);
    for (int c = 0; c < C; ++c) {
      const Wide<T> r = load_wide(R + c * rows + i);
      for (int f = 0; f < F; ++f) sum[c][f] += r * at[f];
    }
  }
  for (int c = 0; c < C; ++c)
    for (int f = 0; f < F; ++f) out[c * features + f] += Sum(total(sum[c][f]));
}

template <int C, class T>
void scores_of(const T* X, const T* V, int64_t features, int64_t rows, T* U) {
  for (int64_t i = 0; i < rows; i += kVectors * kWide<T>) scores_tile<C>(X, V, features, rows, i, U);
}

template <int C, class T, class Sum>
void gradient_of(const T* X, const T* R, int64_t features, int64_t rows, Sum* out) {
  int64_t j = 0;
  for (; j + kFeatures <= features; j += kFeatures)
    gradient_tile<C, kFeatures>(X + j * rows, R, features, rows, out + j);
  for (; j < features; ++j) gradient_tile<C, 1>(X + j * rows, R, features, rows, out + j);
}

// f.template operator()<C>(k) of each tile of the classes
template <class F>
void tiles(int64_t classes, F&& f) {
  int64_t k = 0;
  for (; k + kClasses <= classes; k += kClasses) f(std::integral_constant<int, kClasses>(), k);
  switch (classes - k) {
    case 3: f(std::integral_constant<int, 3>(), k); break;
    case 2: f(std::integral_constant<int, 2>(), k); break;
    case 1: f(std::integral_constant<int, 1>(), k); break;
  }
}

// U [classes, rows] = V X, V [classes, features]; rows in a multiple of 64.
template <class T>
void scores(const T* X, const T* V, int64_t classes, int64_t features, int64_t rows, T* U) {
  tiles(classes, [&](auto count, int64_t k) {
    scores_of<decltype(count)::value>(X, V + k * features, features, rows, U + k * rows);
  });
}

// out [classes, features] += R Xᵀ, R [classes, rows]: sums over the rows in T, added up in the numbers of out.
template <class T, class Sum>
void gradient(const T* X, const T* R, int64_t classes, int64_t features, int64_t rows, Sum* out) {
  tiles(classes, [&](auto count, int64_t k) {
    gradient_of<decltype(count)::value>(X, R + k * rows, features, rows, out + k * features);
  });
}

}  // namespace xmcjax::XMCJAX_ISA::thin
