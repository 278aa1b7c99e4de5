// Prediction: the scores X W + b of a block of labels, merged into the k best labels of each row.
#include "core/csr_rows.h"

namespace xmcjax::XMCJAX_ISA {

template <class T>
void merge_topk(const MergeTopkArgs<T>& a, int64_t first, int64_t last) {
  const Poll poll;
  for (int64_t t = 0; t < a.lanes; t += kLanes<T>) {
    const Vec<T> b = load(a.b + t);
    for (int64_t i = first; i < last; poll(entries(a.X, i++))) {
      T* score = a.scores + i * a.k;
      int32_t* label = a.labels + i * a.k;
      const Vec<T> z = row_dot_tile(a.X, i, a.W + t, a.lanes) + b;
      // Few scores are among the best so far. An equal one of an earlier label stays before; NaN never comes in.
      unsigned mask = nonzero_lanes(z > broadcast<T>(score[a.k - 1]) ? broadcast<T>(1) : Vec<T>{});
      for (; mask; mask &= mask - 1) {
        const int l = __builtin_ctz(mask);
        const T found = z[l];
        if (!(found > score[a.k - 1])) continue;  // another lane has taken the last place
        int64_t place = a.k - 1;
        for (; place > 0 && found > score[place - 1]; --place) {
          score[place] = score[place - 1];
          label[place] = label[place - 1];
        }
        score[place] = found;
        label[place] = a.first_label + int32_t(t + l);
      }
    }
  }
}

template void merge_topk<float>(const MergeTopkArgs<float>&, int64_t, int64_t);
template void merge_topk<double>(const MergeTopkArgs<double>&, int64_t, int64_t);

}  // namespace xmcjax::XMCJAX_ISA
