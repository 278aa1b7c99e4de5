// What simd_pair_ascent.cc fetches before it needs it: another core has written much of it. Included by the simd_*.cc
// files only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dual/class_lists.h"
#include "dual/panels.h"

namespace xmcjax::XMCJAX_ISA {

// Entries of a row whose weights are fetched ahead.
constexpr int64_t kFetched = 16;

// fetch(w) for the weights w of the entries of row i in the panel of class c.
template <class T, class F>
void fetch_weights(const Csr<T>& X, int64_t i, const Panels<T>& W, int64_t c, F fetch) {
  const T* panel = W.panel(c / Panels<T>::N);
  const int64_t first = X.offset[i], last = std::min(X.offset[i + 1], first + kFetched);
  for (int64_t p = first; p < last; ++p) fetch(panel + X.column[p] * Panels<T>::N);
}
template <class T>
void fetch_row(const Csr<T>& X, int64_t i) {
  __builtin_prefetch(X.column + X.offset[i]);
  __builtin_prefetch(X.value + X.offset[i]);
}

// What the visits after the k-th of row(0) .. row(count - 1) will read: first an instance, then its list and row, then
// the weights, if its row is short.
template <class T, class Row>
void fetch_visits(const Csr<T>& X, const ListedInstance<T>* at, const Panels<T>& W, size_t k, size_t count,
                  Row row) {
  if (k + 12 < count) {
    __builtin_prefetch(at + row(k + 12));
    __builtin_prefetch(X.offset + row(k + 12));
  }
  if (k + 7 < count) {
    __builtin_prefetch(at[row(k + 7)].list.data());
    fetch_row(X, row(k + 7));
  }
  if (k + 3 >= count) return;
  const int32_t i = row(k + 3);
  const auto weights = [&](int64_t c) {
    fetch_weights(X, i, W, c, [](const T* w) { __builtin_prefetch(w); });
  };
  int64_t panel = at[i].y / Panels<T>::N;
  weights(at[i].y);
  for (const ListEntry<T>& e : at[i].list)
    if (e.c / Panels<T>::N != panel) weights(e.c), panel = e.c / Panels<T>::N;
}

// What the moves after the k-th will read and write: first where a row begins, then the row, then weights.
template <class T>
void fetch_moves(const Csr<T>& X, const int32_t* y, const Panels<T>& W, const Moved& moved,
                 const int32_t* row, const int32_t* c, int64_t k, int64_t count) {
  if (k + 32 < count) __builtin_prefetch(X.offset + row[k + 32]), __builtin_prefetch(y + row[k + 32]);
  if (k + 20 < count) fetch_row(X, row[k + 20]);
  if (k + 8 >= count) return;
  const int32_t i = row[k + 8];
  const auto weights = [&](int64_t of) {
    if (moved.has(of)) fetch_weights(X, i, W, of, [](const T* w) { __builtin_prefetch(w, 1); });
  };
  weights(c[k + 8]);
  if (row[k + 7] != i) weights(y[i]);
}

}  // namespace xmcjax::XMCJAX_ISA
