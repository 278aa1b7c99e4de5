// The k best labels of a row so far, best first; an equal score of a later label stays behind, and NaN comes never in.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/aligned.h"
#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

// The largest k for which a score goes to its place when it is found; for a larger one, scores are collected, sorted
// and merged into the best.
constexpr int64_t kListed = 128;
constexpr int64_t kCollected = 1024;  // of one row at a time, or k where that is more

template <class T>
struct BestLabels {
  T* score;
  int32_t* label;  // -1 where there are fewer than k
  int64_t k;

  // The scores z of `count` labels from `first` on, which are above those that were offered before.
  void offer(const T* z, int32_t first, int64_t count) const {
    if (k > kListed) return collect(z, first, count);
    for_better(z, first, count, [this](T found, int32_t which) { put(found, which); });
  }

 private:
  struct Found {
    T score;
    int32_t label;
  };

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
    const size_t room = size_t(std::min(count, std::max(k, kCollected)));
    Array<Found> found;
    for_better(z, first, count, [&](T better, int32_t which) {
      if (found.empty()) found.reserve(room);
      found.push_back({better, which});
      if (found.size() == room) merge(found);
    });
    merge(found);
  }

  // Puts what was found among the best, from the last place to the first.
  void merge(Array<Found>& found) const {
    const auto before = [](const Found& a, const Found& b) {
      return a.score > b.score || (a.score == b.score && a.label < b.label);
    };
    if (int64_t(found.size()) > k) {
      std::nth_element(found.begin(), found.begin() + k, found.end(), before);
      found.resize(size_t(k));
    }
    std::sort(found.begin(), found.end(), before);
    int64_t known = std::partition_point(label, label + k, [](int32_t l) { return l >= 0; }) - label;
    int64_t more = int64_t(found.size());
    const auto worse = [&] { return known > 0 && score[known - 1] < found[size_t(more - 1)].score; };
    while (known + more > k) --(worse() ? known : more);
    for (int64_t place = known + more - 1; more > 0; --place) {
      if (worse()) {
        --known;
        score[place] = score[known];
        label[place] = label[known];
      } else {
        --more;
        score[place] = found[size_t(more)].score;
        label[place] = found[size_t(more)].label;
      }
    }
    found.clear();
  }
};

}  // namespace xmcjax::XMCJAX_ISA
