// The product of the Hessian of multinomial losses with weights, on dense features: two thin matrix products and what
// is between them, block by block while a block is in the cache. Vectors lie along the instances, so that any number
// of classes fills them: X is [blocks, features, rows], transposed within a block.
#include <type_traits>

#include "core/aligned.h"
#include "core/interrupt.h"
#include "core/isa.h"
#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

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
template <int C, int F, class T>
void gradient_tile(const T* X, const T* R, int64_t features, int64_t rows, T* out) {
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
    for (int f = 0; f < F; ++f) out[c * features + f] += total(sum[c][f]);
}

template <int C, class T>
void scores(const T* X, const T* V, int64_t features, int64_t rows, T* U) {
  for (int64_t i = 0; i < rows; i += kVectors * kWide<T>) scores_tile<C>(X, V, features, rows, i, U);
}

template <int C, class T>
void gradient(const T* X, const T* R, int64_t features, int64_t rows, T* out) {
  int64_t j = 0;
  for (; j + kFeatures <= features; j += kFeatures)
    gradient_tile<C, kFeatures>(X + j * rows, R, features, rows, out + j);
  for (; j < features; ++j) gradient_tile<C, 1>(X + j * rows, R, features, rows, out + j);
}

// R = c (P ∘ U - P (P·U)) of a block, in place of U
template <class T>
void curve(const T* P, const T* weight, int64_t classes, int64_t rows, T* U) {
  constexpr int N = kWide<T>;
  for (int64_t i = 0; i < rows; i += N) {
    Wide<T> mean{};
    for (int64_t k = 0; k < classes; ++k) mean += load_wide(P + k * rows + i) * load_wide(U + k * rows + i);
    const Wide<T> c = load_wide(weight + i);
    for (int64_t k = 0; k < classes; ++k) {
      T* u = U + k * rows + i;
      store_wide(u, c * load_wide(P + k * rows + i) * (load_wide(u) - mean));
    }
  }
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

}  // namespace

template <class T>
void softmax_hessian(const SoftmaxHessianArgs<T>& a, int64_t first, int64_t last, T* out) {
  const int64_t K = a.classes, rows = a.rows, features = a.features;
  const Zeros<T> U(K * rows);
  const Poll poll;
  for (int64_t b = first; b < last; ++b) {
    poll(2 * K * features * (rows / kWide<T>));
    const T* X = a.X + b * features * rows;
    tiles(K, [&](auto count, int64_t k) {
      scores<decltype(count)::value>(X, a.V + k * features, features, rows, U.get() + k * rows);
    });
    curve(a.P + b * K * rows, a.weight + b * rows, K, rows, U.get());
    tiles(K, [&](auto count, int64_t k) {
      gradient<decltype(count)::value>(X, U.get() + k * rows, features, rows, out + k * features);
    });
  }
}

template void softmax_hessian<float>(const SoftmaxHessianArgs<float>&, int64_t, int64_t, float*);
template void softmax_hessian<double>(const SoftmaxHessianArgs<double>&, int64_t, int64_t, double*);

}  // namespace xmcjax::XMCJAX_ISA
