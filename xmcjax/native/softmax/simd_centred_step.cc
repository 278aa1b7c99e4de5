// A step of conjugate gradients whose preconditioner is a diagonal and a mean over the lanes that is subtracted
// (solvers/multinomial/_preconditioners.py): all that such a step does with its vectors, in two passes over them.
#include "core/interrupt.h"
#include "core/isa.h"
#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

template <class T>
inline T ridge_of(const CentredStepArgs<T>& a, int64_t row) {
  return row + 1 < a.rows ? a.ridge : T(0);
}

}  // namespace

// Σ p (q + ridge p)
template <class T>
void centred_along(const CentredStepArgs<T>& a, int64_t first, int64_t last, double* sums) {
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    poll(a.lanes / kWide<T> + 1);
    const T *p = a.p + i * a.lanes, *q = a.q + i * a.lanes, ridge = ridge_of(a, i);
    Wide<T> sum{};
    each_wide<T>(a.lanes, [&](int64_t j, int64_t count) {
      const Wide<T> pj = load_some(p + j, count);
      sum += pj * (load_some(q + j, count) + ridge * pj);
    });
    *sums += double(total(sum));
  }
}

// x += step p, r -= step (q + ridge p), z = inverse ∘ r less its mean, and Σ r z
template <class T>
void centred_step(const CentredStepArgs<T>& a, T step, int64_t first, int64_t last, double* sums) {
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    poll(2 * (a.lanes / kWide<T> + 1));
    const int64_t at = i * a.lanes;
    const T *p = a.p + at, *q = a.q + at, *inverse = a.inverse + at, ridge = ridge_of(a, i);
    T *x = a.x + at, *r = a.r + at, *z = a.z + at;
    Wide<T> sum{};
    each_wide<T>(a.lanes, [&](int64_t j, int64_t count) {
      const Wide<T> pj = load_some(p + j, count);
      store_some(x + j, count, load_some(x + j, count) + step * pj);
      const Wide<T> rj = load_some(r + j, count) - step * (load_some(q + j, count) + ridge * pj);
      const Wide<T> zj = load_some(inverse + j, count) * rj;
      store_some(r + j, count, rj);
      store_some(z + j, count, zj);
      sum += zj;
    });
    const T mean = total(sum) / T(a.lanes);
    Wide<T> along{};
    each_wide<T>(a.lanes, [&](int64_t j, int64_t count) {
      const Wide<T> zj = load_some(z + j, count) - mean;
      store_some(z + j, count, zj);
      along += load_some(r + j, count) * zj;
    });
    *sums += double(total(along));
  }
}

#define XMCJAX_BOTH(T)                                                                  \
  template void centred_along<T>(const CentredStepArgs<T>&, int64_t, int64_t, double*); \
  template void centred_step<T>(const CentredStepArgs<T>&, T, int64_t, int64_t, double*);
XMCJAX_BOTH(float)
XMCJAX_BOTH(double)
#undef XMCJAX_BOTH

}  // namespace xmcjax::XMCJAX_ISA
