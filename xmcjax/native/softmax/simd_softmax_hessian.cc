// Products with dense features of multinomial losses, block by block: scores, gradients, and with the Hessian two thin
// matrix products and what is between them.
#include <algorithm>
#include <cstring>

#include "core/aligned.h"
#include "core/interrupt.h"
#include "core/isa.h"
#include "core/simd.h"
#include "products/thin_products.h"
#include "softmax/probabilities.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

// R = c (P ∘ U - P (P·U)) of a block, in place of U. R stays the same if the score of its own class y is subtracted
// from all scores of an instance, which is done first: where p_y is nearly 1, the part of y in P·U would leave nothing
// but rounding of the others.
template <class T>
void curve(const T* P, const T* weight, const int32_t* y, int64_t classes, int64_t rows, T* U) {
  constexpr int N = kWide<T>;
  for (int64_t i = 0; i < rows; i += N) {
    alignas(64) T of_own[N];
    for (int64_t l = 0; l < N; ++l) of_own[l] = U[y[i + l] * rows + i + l];
    const Wide<T> own = load_wide(of_own);
    Wide<T> mean{};
    for (int64_t k = 0; k < classes; ++k)
      mean += load_wide(P + k * rows + i) * (load_wide(U + k * rows + i) - own);
    const Wide<T> c = load_wide(weight + i);
    for (int64_t k = 0; k < classes; ++k) {
      T* u = U + k * rows + i;
      store_wide(u, c * load_wide(P + k * rows + i) * (load_wide(u) - own - mean));
    }
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
    thin::scores(X, a.V, K, features, rows, U.get());
    curve(a.P + b * K * rows, a.weight + b * rows, a.y + b * rows, K, rows, U.get());
    thin::gradient(X, U.get(), K, features, rows, out);
  }
}

template <class T>
void softmax_scores_by_class(const SoftmaxScoresByClassArgs<T>& a, int64_t first, int64_t last) {
  const int64_t K = a.classes, rows = a.rows, features = a.features;
  const Zeros<T> U(K * rows);
  const Poll poll;
  for (int64_t b = first; b < last; ++b) {
    poll(K * features * (rows / kWide<T>));
    thin::scores(a.X + b * features * rows, a.V, K, features, rows, U.get());
    const int64_t count = std::clamp(a.n - b * rows, int64_t(0), rows);
    for (int64_t k = 0; k < K; ++k)
      std::memcpy(a.out + k * a.n + b * rows, U.get() + k * rows, size_t(count) * sizeof(T));
  }
}

// R = c (P - Y) of a block, and what it adds to R Xᵀ
template <class T>
void softmax_gradient_by_class(const SoftmaxGradientByClassArgs<T>& a, int64_t first, int64_t last,
                               double* out) {
  const int64_t K = a.classes, rows = a.rows, features = a.features;
  const Zeros<T> R(K * rows);
  const Poll poll;
  for (int64_t b = first; b < last; ++b) {
    poll(K * features * (rows / kWide<T>));
    const int64_t begin = b * rows, count = std::clamp(a.n - begin, int64_t(0), rows);
    for (int64_t k = 0; k < K; ++k) {
      const T* p = a.P + k * a.n + begin;
      T* r = R.get() + k * rows;
      for (int64_t i = 0; i < count; ++i) r[i] = a.weight[begin + i] * p[i];
      std::fill(r + count, r + rows, T(0));
    }
    for (int64_t i = 0; i < count; ++i) {
      const T p = a.P[a.y[begin + i] * a.n + begin + i];
      R[a.y[begin + i] * rows + i] = -a.weight[begin + i] * lacking(p, a.rest[begin + i]);
    }
    thin::gradient(a.X + b * features * rows, R.get(), K, features, rows, out);
  }
}

#define XMCJAX_BOTH(T)                                                                            \
  template void softmax_hessian<T>(const SoftmaxHessianArgs<T>&, int64_t, int64_t, T*);           \
  template void softmax_scores_by_class<T>(const SoftmaxScoresByClassArgs<T>&, int64_t, int64_t); \
  template void softmax_gradient_by_class<T>(const SoftmaxGradientByClassArgs<T>&, int64_t, int64_t, double*);
XMCJAX_BOTH(float)
XMCJAX_BOTH(double)
#undef XMCJAX_BOTH

}  // namespace xmcjax::XMCJAX_ISA
