// The features that some rows have: products with many labels go through the weights of these again and again.
// Included by the simd_*.cc files only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "core/aligned.h"
#include "core/arrays.h"
#include "core/largest.h"

namespace xmcjax::XMCJAX_ISA {

// The features that rows first .. last-1 have, in ascending order.
struct UsedFeatures {
  Array<int32_t> feature, place;  // place[j]: where feature j is, if it is used
  Array<int32_t> entries;  // of each

  template <class T>
  UsedFeatures(const Csr<T>& X, int64_t first, int64_t last) : place(size_t(X.d), int32_t(0)) {
    for (int64_t k = X.offset[first]; k < X.offset[last]; ++k)
      if (!place[X.column[k]]++) feature.push_back(X.column[k]);
    if (kFew * count() < X.d) {
      std::sort(feature.begin(), feature.end());
    } else {
      feature.clear();
      for (int32_t j = 0; j < X.d; ++j)
        if (place[j]) feature.push_back(j);
    }
    for (const int32_t j : feature) entries.push_back(place[j]), place[j] = int32_t(entries.size()) - 1;
  }
  int64_t count() const { return int64_t(feature.size()); }

  // The entries of all features except the `most` that have the most entries.
  int64_t beyond(int64_t most) const {
    if (most >= count()) return 0;
    Array<int32_t> rest = entries;
    largest_first(rest.data(), most, count());
    return std::accumulate(rest.begin() + most, rest.end(), int64_t(0));
  }

 private:
  // With more than kFew features for each used one, sorting the used ones is less work than looking at all features.
  static constexpr int64_t kFew = 16;
};

}  // namespace xmcjax::XMCJAX_ISA
