// The product of the Hessian of multinomial losses with weights, on dense features: two thin matrix products and what
// is between them, block by block.
#include "core/aligned.h"
#include "core/interrupt.h"
#include "core/isa.h"
#include "core/simd.h"
#include "products/thin_products.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

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
    curve(a.P + b * K * rows, a.weight + b * rows, K, rows, U.get());
    thin::gradient(X, U.get(), K, features, rows, out);
  }
}

template void softmax_hessian<float>(const SoftmaxHessianArgs<float>&, int64_t, int64_t, float*);
template void softmax_hessian<double>(const SoftmaxHessianArgs<double>&, int64_t, int64_t, double*);

}  // namespace xmcjax::XMCJAX_ISA
