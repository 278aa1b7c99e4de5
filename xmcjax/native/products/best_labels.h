// The k best labels of a row so far, best first; an equal score of a later label stays behind, and NaN comes never in.
#pragma once

#include <cstdint>

#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

template <class T>
struct BestLabels {
  T* score;
  int32_t* label;
  int64_t k;

  // What a score has to exceed.
  T least() const { return score[k - 1]; }

  void offer(T found, int32_t which) {
    if (!(found > least())) return;
    int64_t place = k - 1;
    for (; place > 0 && found > score[place - 1]; --place) {
      score[place] = score[place - 1];
      label[place] = label[place - 1];
    }
    score[place] = found;
    label[place] = which;
  }

  // The scores z of `count` labels from `first` on; few of them are among the best so far.
  void offer(const T* z, int32_t first, int64_t count) {
    constexpr int N = kWide<T>;
    int64_t l = 0;
    for (; l + N <= count; l += N) {
      const Wide<T> some = load_wide(z + l);
      unsigned mask = lanes_where(some > least());
      for (; mask; mask &= mask - 1) {
        const int lane = __builtin_ctz(mask);
        offer(some[lane], first + int32_t(l + lane));
      }
    }
    for (; l < count; ++l) offer(z[l], first + int32_t(l));
  }
};

}  // namespace xmcjax::XMCJAX_ISA
