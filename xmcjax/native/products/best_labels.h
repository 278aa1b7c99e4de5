// The k best labels of a row so far, best first. A later label of equal score stays behind; NaN never comes in.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/simd.h"
#include "products/sorted_scores.h"

namespace xmcjax::XMCJAX_ISA {

// The largest k for which a score goes to its place when it is found; for a larger one, scores are collected, sorted
// and merged into the best.
constexpr int64_t kListed = 128;
constexpr int64_t kCollected = 1024;  // scores of one row at a time, or 2 k where that is more

template <class T>
struct BestLabels {
  T* score;
  int32_t* label;  // -1 where there are fewer than k
  int64_t k;

  // Offers the scores z of `count` labels from `first` on, which are above the labels that were offered before.
  void offer(const T* z, int32_t first, int64_t count) const {
    if (k > kListed) return collect(z, first, count);
    for_better(z, first, count, [this](T found, int32_t which) { put(found, which); });
  }

 private:
  // What a score has to exceed.
  T least() const { return score[k - 1]; }

  // take(score, label) of scores that exceed the least, which few do.
  template <class Take>
  void for_better(const T* z, int32_t first, int64_t count, const Take& take) const {
    constexpr int N = kWide<T>;
    int64_t l = 0;
    for (; l + N <= count; l += N) {
      const Wide<T> some = load_wide(z + l);
      unsigned mask = lanes_where(some > least());
      for (; mask; mask &= mask - 1) {
        const int lane = __builtin_ctz(mask);
        take(some[lane], first + int32_t(l + lane));
      }
    }
    for (; l < count; ++l)
      if (z[l] > least()) take(z[l], first + int32_t(l));
  }

  void put(T found, int32_t which) const {
    if (!(found > least())) return;
    int64_t place = k - 1;
    for (; place > 0 && found > score[place - 1]; --place) {
      score[place] = score[place - 1];
      label[place] = label[place - 1];
    }
    score[place] = found;
    label[place] = which;
  }

  void collect(const T* z, int32_t first, int64_t count) const {
    const int64_t room = std::min(count, std::max(2 * k, kCollected));
    SortedScores<T> found;
    for_better(z, first, count, [&](T better, int32_t which) {
      if (!found.size()) found.reserve(size_t(room));
      found.push(better, uint32_t(which - first));
      if (found.size() == room) merge(found, z, first);
    });
    merge(found, z, first);
  }

  // Puts what was found among the best, from the last place to the first.
  void merge(SortedScores<T>& found, const T* z, int32_t first) const {
    found.sort(z, k);
    int64_t known = std::partition_point(label, label + k, [](int32_t l) { return l >= 0; }) - label;
    int64_t more = std::min(found.size(), k);
    const auto worse = [&] { return known > 0 && score[known - 1] < z[found.place(more - 1)]; };
    while (known + more > k) --(worse() ? known : more);
    for (int64_t place = known + more - 1; more > 0; --place) {
      if (worse()) {
        --known;
        score[place] = score[known];
        label[place] = label[known];
      } else {
        --more;
        score[place] = z[found.place(more)];
        label[place] = first + int32_t(found.place(more));
      }
    }
    found.clear();
  }
};

}  // namespace xmcjax::XMCJAX_ISA
