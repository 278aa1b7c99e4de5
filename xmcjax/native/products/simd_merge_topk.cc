// Prediction: the scores X W + b of a block of labels, merged into the k best labels of each row.
#include "core/csr_rows.h"
#include "products/best_labels.h"

namespace xmcjax::XMCJAX_ISA {

template <class T>
void merge_topk(const MergeTopkArgs<T>& a, int64_t first, int64_t last) {
  const Poll poll;
  for (int64_t t = 0; t < a.lanes; t += kLanes<T>) {
    const Vec<T> b = load(a.b + t);
    for (int64_t i = first; i < last; poll(entries(a.X, i++))) {
      BestLabels<T> best{a.scores + i * a.k, a.labels + i * a.k, a.k};
      const Vec<T> z = row_dot_tile(a.X, i, a.W + t, a.lanes) + b;
      // Few scores are among the best so far.
      unsigned mask = nonzero_lanes(z > broadcast<T>(best.least()) ? broadcast<T>(1) : Vec<T>{});
      for (; mask; mask &= mask - 1) {
        const int l = __builtin_ctz(mask);
        best.offer(z[l], a.first_label + int32_t(t + l));
      }
    }
  }
}

template void merge_topk<float>(const MergeTopkArgs<float>&, int64_t, int64_t);
template void merge_topk<double>(const MergeTopkArgs<double>&, int64_t, int64_t);

}  // namespace xmcjax::XMCJAX_ISA
