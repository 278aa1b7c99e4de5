// Scores of a few rows with weights by label: one pass over all weights.
//
// A sum begins with the bias and takes the features in ascending order, as the sums of simd_predict.cc do. What it adds
// beyond these are products with the zeros of the row, so that both files give the same bits.
#include <algorithm>

#include "core/csr_rows.h"

namespace xmcjax::XMCJAX_ISA {

// z[0:count, 0:W] = b + Σ_j w_j X[j, 0:W] of the labels from `label` on. An addition to a sum waits for the one before
// it, so that the sums of several labels run side by side.
template <int W, int kLabels, class T>
void label_sums(const PredictFewArgs<T>& a, int64_t label, int64_t row) {
  using Some = Abreast<T, W>;
  const T* value[kLabels];
  const int32_t* column[kLabels];
  int64_t count[kLabels];
  typename Some::type sum[kLabels];
  for (int l = 0; l < kLabels; ++l) {
    const int64_t begin = a.W.offset[label + l];
    value[l] = a.W.value + begin;
    column[l] = a.W.column + begin;
    count[l] = a.W.offset[label + l + 1] - begin;
    sum[l] = typename Some::type{} + a.b[label + l];
  }
  const T* X = a.X + row;
  const int64_t rows = a.rows, common = *std::min_element(count, count + kLabels);
  for (int64_t k = 0; k < common; ++k)
    for (int l = 0; l < kLabels; ++l) sum[l] += value[l][k] * Some::load(X + column[l][k] * rows);
  for (int l = 0; l < kLabels; ++l) {
    for (int64_t k = common; k < count[l]; ++k) sum[l] += value[l][k] * Some::load(X + column[l][k] * rows);
    Some::store(a.z + (label + l) * rows + row, sum[l]);
  }
}

// label_sums for the labels first .. last-1.
template <int W, class T>
void sums_of_rows(const PredictFewArgs<T>& a, int64_t row, int64_t first, int64_t last) {
  constexpr int kRegisters = (Abreast<T, W>::kCount + kWide<T> - 1) / kWide<T>;
  constexpr int kLabels = 8 / kRegisters;
  const Poll poll;
  int64_t label = first;
  for (; label + kLabels <= last; label += kLabels) {
    label_sums<W, kLabels>(a, label, row);
    poll(a.W.offset[label + kLabels] - a.W.offset[label] + kLabels);
  }
  for (; label < last; ++label) label_sums<W, 1>(a, label, row);
}

template <class T>
void predict_few(const PredictFewArgs<T>& a, int64_t first, int64_t last) {
  constexpr int kTile = kLanes<T>, kMost = Abreast<T, 2 * kTile>::kCount;
  int64_t row = 0;
  for (; row + kMost <= a.rows; row += kMost) sums_of_rows<kMost>(a, row, first, last);
  for (; row + kTile <= a.rows; row += kTile) sums_of_rows<kTile>(a, row, first, last);
  for (; row < a.rows; ++row) sums_of_rows<1>(a, row, first, last);
}

template void predict_few(const PredictFewArgs<float>&, int64_t, int64_t);
template void predict_few(const PredictFewArgs<double>&, int64_t, int64_t);

}  // namespace xmcjax::XMCJAX_ISA
