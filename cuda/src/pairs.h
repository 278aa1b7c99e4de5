// Scores of sparse rows with sparse weights that stand by feature. Only the pairs of an entry and a weight are
// read, and no other numbers.
#pragma once

#include "warp.h"

namespace xmcjax::cuda {

template <class T>
struct PairArguments {
  const T* x;  // [entries], of the rows
  const int32_t* feature;  // [entries]
  const int32_t* indptr;  // [n + 1], where the entries of a row begin
  const T* value;  // [weights], by feature; no feature has two of a label
  const int32_t* label;  // [weights]
  const int32_t* begin;  // [d + 1], where the weights of a feature begin
  T* out;  // [n, labels]
  int32_t n, labels;
};

// The scores of a row, by one warp. The entries of the row come one after the other, and the weights of an entry all
// have different labels, so that each sum has the order of the entries.
template <class T>
struct Pairs {
  PairArguments<T> of;

  XMCJAX_BODY void operator()(int64_t row) const {
    constexpr int kOnce = 4;  // weights that a thread has under way
    T* scores = of.out + row * of.labels;
    EACH(t) for (int32_t c = t; c < of.labels; c += kWarp) scores[c] = T(0);
    const int32_t end = load(of.indptr + row + 1);
    for (int32_t e = load(of.indptr + row); e < end; ++e) {
      together();  // what other threads have written so far is there
      const int32_t feature = load(of.feature + e);
      const T x = load(of.x + e);
      const int64_t stop = load(of.begin + feature + 1);
      for (int64_t first = load(of.begin + feature); first < stop; first += kOnce * kWarp) EACH(t) {
          int32_t label[kOnce];
          T sum[kOnce] = {};
          XMCJAX_UNROLL
          for (int k = 0; k < kOnce; ++k) {
            const int64_t place = first + k * kWarp + t;
            label[k] = place < stop ? load(of.label + place) : -1;
            if (label[k] >= 0) sum[k] = multiply_add(x, load(of.value + place), scores[label[k]]);
          }
          XMCJAX_UNROLL
          for (int k = 0; k < kOnce; ++k)
            if (label[k] >= 0) scores[label[k]] = sum[k];
        }
    }
  }
};

}  // namespace xmcjax::cuda
