// The k best labels of a row so far, best first; an equal score of a later label stays behind, and NaN comes never in.
#pragma once

#include <cstdint>

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
};

}  // namespace xmcjax::XMCJAX_ISA
