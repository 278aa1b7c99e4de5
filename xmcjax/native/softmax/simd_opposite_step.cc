// Conjugate gradients of simd_softmax_newton.cc and simd_centred_step.cc for two classes. Vectors with the mean 0 over
// them are (-s, s), and so is what the Hessian and the preconditioner make of them: of both columns the second alone is
// worked out. Arguments are those of one column, a.P is 2 c p_0 p_1 of the rows, and sums are over both columns.
#include <algorithm>
#include <cmath>

#include "core/csr_rows.h"
#include "core/interrupt.h"
#include "core/isa.h"
#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

// f(j, count) of the weights among first .. last-1, in registers. Returns whether the intercept, which has other sums,
// is the last of them.
template <class T, class F>
XMCJAX_INLINE bool each_weight(const SoftmaxSolveCsrArgs<T>& a, int64_t first, int64_t last, F&& f) {
  const int64_t weights = std::min(last, a.features - 1);
  Poll()((last - first) / kWide<T> + 1);
  each_wide<T>(weights - first, [&](int64_t j, int64_t count) { f(first + j, count); });
  return weights < last;
}

}  // namespace

// u = X s + b, in its place w u for w = 2 c p_0 p_1, and what each row adds to both columns of sᵀH s: 2 w u².
template <class T>
void opposite_curved(const SoftmaxSolveCsrArgs<T>& a, const T* s, int64_t first, int64_t last,
                     double* along) {
  const RowProducts<T> product(s, a.X.d, 1);
  const T bias = s[a.X.d];
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    poll(entries(a.X, i));
    T u;
    product(a.X, i, &u);
    u += bias;
    a.U[i] = a.P[i] * u;
    along[i - first] = 2 * double(a.U[i]) * double(u);
  }
}

// out = Σ U
template <class T>
void opposite_sums(const T* U, int64_t n, int64_t, T* out) {
  constexpr int64_t kShort = 4096;  // rows whose sum is in T, before it is added in double
  double all = 0;
  const Poll poll;
  for (int64_t i = 0; i < n; i += kShort) {
    poll(kShort / kWide<T>);
    Wide<T> some{};
    each_wide<T>(std::min(kShort, n - i),
                 [&](int64_t j, int64_t count) { some += load_some(U + i + j, count); });
    all += double(total(some));
  }
  *out = T(all);
}

// p = z + turn p; Σ ridge p²
template <class T>
void opposite_turn(const SoftmaxSolveCsrArgs<T>& a, T turn, int64_t first, int64_t last, double* sums) {
  T* p = a.vectors;
  const T* z = p + 2 * a.features;
  Wide<T> squares{};
  const auto turned = [&](int64_t j, int64_t count) {
    const Wide<T> pj = load_some(z + j, count) + turn * load_some(p + j, count);
    store_some(p + j, count, pj);
    return pj * pj;
  };
  if (each_weight(a, first, last, [&](int64_t j, int64_t count) { squares += turned(j, count); }))
    turned(last - 1, 1);
  *sums += 2 * double(a.ridge) * double(total(squares));
}

// x += step p, r -= step (q + ridge p), z = inverse ∘ r; Σ r z, Σ r² of the weights, Σ |r| of the intercepts
template <class T>
void opposite_step(const SoftmaxSolveCsrArgs<T>& a, T step, int64_t first, int64_t last, double* sums) {
  const T *p = a.vectors, *q = p + a.features;
  T* z = a.vectors + 2 * a.features;
  Wide<T> along{}, squares{};
  const auto stepped = [&](int64_t j, int64_t count, T ridge) {
    const Wide<T> pj = load_some(p + j, count);
    store_some(a.x + j, count, load_some(a.x + j, count) + step * pj);
    const Wide<T> rj = load_some(a.r + j, count) - step * (load_some(q + j, count) + ridge * pj);
    const Wide<T> zj = load_some(a.inverse + j, count) * rj;
    store_some(a.r + j, count, rj);
    store_some(z + j, count, zj);
    along += rj * zj;
    return rj * rj;
  };
  const auto of_weights = [&](int64_t j, int64_t count) { squares += stepped(j, count, a.ridge); };
  if (each_weight(a, first, last, of_weights)) {
    stepped(last - 1, 1, T(0));
    sums[2] += 2 * std::fabs(double(a.r[last - 1]));
  }
  sums[0] += 2 * double(total(along)), sums[1] += 2 * double(total(squares));
}

#define XMCJAX_BOTH(T)                                                                                  \
  template void opposite_curved<T>(const SoftmaxSolveCsrArgs<T>&, const T*, int64_t, int64_t, double*); \
  template void opposite_sums<T>(const T*, int64_t, int64_t, T*);                                       \
  template void opposite_turn<T>(const SoftmaxSolveCsrArgs<T>&, T, int64_t, int64_t, double*);          \
  template void opposite_step<T>(const SoftmaxSolveCsrArgs<T>&, T, int64_t, int64_t, double*);
XMCJAX_BOTH(float)
XMCJAX_BOTH(double)
#undef XMCJAX_BOTH

}  // namespace xmcjax::XMCJAX_ISA
