// Prediction of few rows: the scores of a row are made of the weights of its features alone, which lie side by side.
#include <cstring>

#include "core/aligned.h"
#include "core/interrupt.h"
#include "core/isa.h"
#include "core/simd.h"
#include "products/best_labels.h"

namespace xmcjax::XMCJAX_ISA {

template <class T>
void predict_topk(const PredictTopkArgs<T>& a, int64_t first, int64_t last) {
  constexpr int N = kWide<T>;
  const Zeros<T> z(a.labels);
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    // z = b + Σ_j x_j W[j]
    std::memcpy(z.get(), a.b, size_t(a.labels) * sizeof(T));
    int64_t work = a.labels / N;
    for (int64_t k = a.X.offset[i]; k < a.X.offset[i + 1]; ++k) {
      const T value = a.X.value[k];
      const int64_t begin = a.W.offset[a.X.column[k]], end = a.W.offset[a.X.column[k] + 1];
      for (int64_t e = begin; e < end; ++e) z[a.W.column[e]] += value * a.W.value[e];
      work += end - begin;
    }
    poll(work);
    BestLabels<T> best{a.scores + i * a.k, a.best + i * a.k, a.k};
    int64_t l = 0;
    for (; l + N <= a.labels; l += N) {
      const Wide<T> some = load_wide(z.get() + l);
      unsigned mask = nonzero(some > wide(best.least()) ? wide(T(1)) : Wide<T>{});
      for (; mask; mask &= mask - 1) best.offer(some[__builtin_ctz(mask)], int32_t(l + __builtin_ctz(mask)));
    }
    for (; l < a.labels; ++l) best.offer(z[l], int32_t(l));
  }
}

template void predict_topk<float>(const PredictTopkArgs<float>&, int64_t, int64_t);
template void predict_topk<double>(const PredictTopkArgs<double>&, int64_t, int64_t);

}  // namespace xmcjax::XMCJAX_ISA
