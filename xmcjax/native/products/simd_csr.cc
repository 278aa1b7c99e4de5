// The three products of linops/csr.py with a block of lanes: X V, Xᵀ C, Xᵀ(D ∘ (X V)).

#include <algorithm>
#include <cstring>

#include "core/aligned.h"
#include "core/csr_rows.h"
#include "products/used_features.h"

namespace xmcjax::XMCJAX_ISA {

namespace {

// A part of V that is copied has kPanel lanes, and kMostBytes at most. A copy pays for kLeastPanels parts or more.
constexpr int64_t kPanel = 64, kLeastPanels = 4, kMostBytes = 64 << 20;
// kNear: bytes of V that a core has at hand. A copy pays where, for each feature in it, kShared entries wait for V.
constexpr int64_t kNear = int64_t(1) << 22, kShared = 4;
// Rows of more entries are taken in two halves: a copy of their columns is made, which numbers their features anew.
constexpr int64_t kMostEntries = int64_t(1) << 24;

// The columns first .. first+width-1 of a [rows, lanes] array, padded with zeros to a tile.
template <class T>
Array<T> padded(const T* a, int64_t rows, int64_t lanes, int64_t first, int64_t width) {
  Array<T> tile(rows * kLanes<T>, T(0));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t l = 0; l < width; ++l) tile[i * kLanes<T> + l] = a[i * lanes + first + l];
  return tile;
}
template <class T>
void unpadded(const Array<T>& tile, T* a, int64_t rows, int64_t lanes, int64_t first, int64_t width) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t l = 0; l < width; ++l) a[i * lanes + first + l] = tile[i * kLanes<T> + l];
}

// One tile of Xᵀ C: a row without a non-zero lane costs nothing, one with a single lane is a
// scalar, one with more is a vector.
template <class T>
void rmatmat_tile(const Csr<T>& X, const T* C, int64_t c_stride, T* out, int64_t stride) {
  const Poll poll;
  for (int64_t i = 0; i < X.n; poll(entries(X, i++))) {
    const Vec<T> c = load(C + i * c_stride);
    const unsigned mask = nonzero_lanes(c);
    if (!mask) continue;
    if (mask & (mask - 1)) {
      row_add_tile(X, i, c, out, stride);
    } else {
      const int l = __builtin_ctz(mask);
      row_add_lane(X, i, C[i * c_stride + l], out + l, stride);
    }
  }
}

template <class T>
void gram_tile(const Csr<T>& X, const T* D, int64_t d_stride, const T* V, int64_t v_stride, T* out,
               int64_t stride) {
  const Poll poll;
  for (int64_t i = 0; i < X.n; poll(entries(X, i++))) {
    const Vec<T> weight = load(D + i * d_stride);
    const unsigned mask = nonzero_lanes(weight);
    if (!mask) continue;
    if (mask & (mask - 1)) {
      row_add_tile(X, i, weight * row_dot_tile(X, i, V, v_stride), out, stride);
    } else {
      const int l = __builtin_ctz(mask);
      row_add_lane(X, i, D[i * d_stride + l] * row_dot_lane(X, i, V + l, v_stride), out + l, stride);
    }
  }
}

template <class T>
void clear(T* out, int64_t rows, int64_t lanes, int64_t first, int64_t last) {
  for (int64_t j = 0; j < rows; ++j) std::memset(out + j * lanes + first, 0, (last - first) * sizeof(T));
}

// Rows first .. last-1 of X V, some lanes at a time: their part of V is copied, so that a cache holds it while all rows
// pass by.
template <class T>
void panel_products(const Csr<T>& X, const UsedFeatures& used, const T* V, T* out, int64_t lanes,
                    int64_t first, int64_t last) {
  const int64_t begin = X.offset[first];
  Array<int32_t> column(X.column + begin, X.column + X.offset[last]);
  for (int32_t& j : column) j = used.place[j];
  Array<int64_t> offset(X.offset + first, X.offset + last + 1);
  for (int64_t& at : offset) at -= begin;
  const Csr<T> rows{last - first, used.count(), X.value + begin, column.data(), offset.data()};
  const Zeros<T> panel(used.count() * kPanel);
  const Poll poll;
  for (int64_t t = 0; t < lanes; t += kPanel) {
    const int64_t width = std::min(kPanel, lanes - t);
    T* w = panel.get();
    for (const int32_t j : used.feature) std::memcpy(w, V + j * lanes + t, width * sizeof(T)), w += width;
    poll(used.count() * width / kLanes<T>);
    const RowProducts<T> product(panel.get(), rows.d, width);
    for (int64_t i = 0; i < rows.n; poll(kPanel / kLanes<T> * entries(rows, i++)))
      product(rows, i, out + (first + i) * lanes + t);
  }
}

}  // namespace

template <class T>
void matmat(const Csr<T>& X, const T* V, T* out, int64_t lanes, int64_t first, int64_t last) {
  const int64_t entries_here = X.offset[last] - X.offset[first];
  if (lanes >= kLeastPanels * kPanel && last - first >= kShared && kShared * entries_here >= X.d) {
    const int64_t near = kNear / (lanes * int64_t(sizeof(T)));
    if (entries_here > kMostEntries) {
      const int64_t middle = first + (last - first) / 2;
      matmat(X, V, out, lanes, first, middle);
      return matmat(X, V, out, lanes, middle, last);
    }
    if (X.d > near && entries_here >= kShared * near) {
      const UsedFeatures used(X, first, last);
      const int64_t bytes = used.count() * kPanel * int64_t(sizeof(T));
      if (used.beyond(near) >= kShared * used.count() && bytes <= kMostBytes)
        return panel_products(X, used, V, out, lanes, first, last);
    }
  }
  const RowProducts<T> product(V, X.d, lanes);
  const int64_t tiles = (lanes + kLanes<T> - 1) / kLanes<T>;
  const Poll poll;
  for (int64_t i = first; i < last; poll(tiles * entries(X, i++))) product(X, i, out + i * lanes);
}

template <class T>
void rmatmat(const Csr<T>& X, const T* C, T* out, int64_t lanes, int64_t first, int64_t last) {
  constexpr int N = kLanes<T>;
  clear(out, X.d, lanes, first, last);
  for (int64_t t = first; t < last; t += N) {
    const int64_t width = last - t < N ? last - t : N;
    if (width == N) {
      rmatmat_tile(X, C + t, lanes, out + t, lanes);
    } else {
      const Array<T> c = padded(C, X.n, lanes, t, width);
      Array<T> tile(X.d * N, T(0));
      rmatmat_tile(X, c.data(), N, tile.data(), N);
      unpadded(tile, out, X.d, lanes, t, width);
    }
  }
}

template <class T>
void gram_matmat(const Csr<T>& X, const T* D, const T* V, T* out, int64_t lanes, int64_t first,
                 int64_t last) {
  constexpr int N = kLanes<T>;
  clear(out, X.d, lanes, first, last);
  for (int64_t t = first; t < last; t += N) {
    const int64_t width = last - t < N ? last - t : N;
    if (width == N) {
      gram_tile(X, D + t, lanes, V + t, lanes, out + t, lanes);
    } else {
      const Array<T> weight = padded(D, X.n, lanes, t, width);
      const Array<T> v = padded(V, X.d, lanes, t, width);
      Array<T> tile(X.d * N, T(0));
      gram_tile(X, weight.data(), N, v.data(), N, tile.data(), N);
      unpadded(tile, out, X.d, lanes, t, width);
    }
  }
}

template void matmat(const Csr<float>&, const float*, float*, int64_t, int64_t, int64_t);
template void rmatmat(const Csr<float>&, const float*, float*, int64_t, int64_t, int64_t);
template void gram_matmat(const Csr<float>&, const float*, const float*, float*, int64_t, int64_t, int64_t);
template void matmat(const Csr<double>&, const double*, double*, int64_t, int64_t, int64_t);
template void rmatmat(const Csr<double>&, const double*, double*, int64_t, int64_t, int64_t);
template void gram_matmat(const Csr<double>&, const double*, const double*, double*, int64_t, int64_t,
                          int64_t);

}  // namespace xmcjax::XMCJAX_ISA
