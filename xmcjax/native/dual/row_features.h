// What ascents that visit one class after another have in common, and the features as they see them: a product with a
// row, a row added to the weights of a class, and the scores of all rows in some classes. Weights of a class lie side by
// side, padded with zeros to whole vectors. Included by the simd_*.cc files only.
#pragma once

#include <algorithm>

#include "core/aligned.h"
#include "core/csr_rows.h"
#include "core/parallel.h"
#include "dual/row_dots.h"
#include "newton/lane_arrays.h"

namespace xmcjax::XMCJAX_ISA {

// A look leaves rows out until the next look. kSmall: rows whose part of the gap is below this share of the mean part.
// kRest: rows that all together would have less than this share of the gap that is asked for.
constexpr double kSmall = 0.03, kRest = 0.5;
// Sweeps between two looks: until the share kFall of the gap is left, and at most kSweeps.
constexpr double kFall = 0.2;
constexpr int kSweeps = 10;
// Passes without a fall of the gap by a tenth after which rounding is taken to be the reason: kIdlePasses, or half of
// all passes where that is more.
template <class T>
constexpr double kIdlePasses = sizeof(T) == 4 ? 200 : 1000;
constexpr size_t kAhead = 6;  // visits by which a row is fetched ahead

template <class T>
inline int64_t in_vectors(int64_t count) {
  return (count + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

// out[j, c] = w[c, j] for d features and `classes` classes, whose weights are `apart` numbers apart.
template <class T>
void by_features(const T* w, int64_t apart, int64_t d, int64_t classes, int64_t threads, void* out) {
  constexpr int64_t kFeatures = 64;  // at a time, so that their lines stay in the cache
  T* W = static_cast<T*>(out);
  parallel(d, kFeatures, threads, [&](int64_t first, int64_t end) {
    for (; first < end; first += kFeatures)
      for (int64_t c = 0; c < classes; ++c)
        for (int64_t j = first; j < std::min(first + kFeatures, end); ++j)
          W[j * classes + c] = w[c * apart + j];
  });
}

// The rows of CSR features.
template <class T>
class SparseRows {
  static constexpr int N = kLanes<T>;

 public:
  // What scores() works with; each thread has its own.
  struct Scratch {
    explicit Scratch(const SparseRows& rows) : panel(rows.X_.d * N), scores(kBlock * N) {}
    Zeros<T> panel, scores;  // the weights by features, and scores by rows
  };

  explicit SparseRows(const Csr<T>& X) : X_(X) {}

  T dot(int64_t i, const T* w) const { return row_dot_lane(X_, i, w, 1); }
  void add(int64_t i, T factor, T* w) const { row_add_lane(X_, i, factor, w, 1); }
  int64_t work(int64_t i) const { return entries(X_, i); }
  // Has a row that is wanted soon brought into the cache.
  void prefetch(int64_t i) const {
    __builtin_prefetch(X_.value + X_.offset[i]);
    __builtin_prefetch(X_.column + X_.offset[i]);
  }

  // The classes for which w and z of scores() need room, where at most `count` are asked for.
  static int64_t lanes(int64_t count) { return count < kFewest ? count : N; }

  // z[l * z_stride + i] = ⟨x_i, w_l⟩, w_l at w + l * w_stride, for l < count <= N.
  void scores(const T* w, int64_t w_stride, int64_t count, T* z, int64_t z_stride, Scratch& scratch) const {
    const Poll poll;
    if (count < kFewest) {
      for (int64_t l = 0; l < count; ++l)
        for (int64_t i = 0; i < X_.n; ++i) {
          poll(entries(X_, i));
          z[l * z_stride + i] = dot(i, w + l * w_stride);  // with the same bits as in a panel
        }
      return;
    }
    T *panel = scratch.panel.get(), *tile = scratch.scores.get();
    to_tile(w, w_stride, X_.d, panel, N);
    poll(X_.d);
    for (int64_t first = 0; first < X_.n; first += kBlock) {
      const int64_t rows = std::min(kBlock, X_.n - first);
      for (int64_t r = 0; r < rows; ++r) {
        poll(entries(X_, first + r));
        row_dots<N>(X_, first + r, panel, N, tile + r * N);
      }
      to_lanes(T(1), tile, N, rows, z + first, in_vectors<T>(rows), z_stride);
    }
  }

 private:
  // kFewest: classes from which on one pass for a panel is cheaper than one pass for each. kBlock: rows whose scores
  // are transposed at once.
  static constexpr int64_t kFewest = 3, kBlock = 64;

  const Csr<T> X_;
};

// The rows of features of which most are not zero, as arrays of all features.
template <class T>
class DenseRows {
 public:
  struct Scratch {
    explicit Scratch(const DenseRows&) {}
  };

  explicit DenseRows(const Csr<T>& X) : n_(X.n), length_(in_vectors<T>(X.d)), rows_(n_ * length_) {
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t p = X.offset[i]; p < X.offset[i + 1]; ++p) rows_[i * length_ + X.column[p]] = X.value[p];
  }

  T dot(int64_t i, const T* w) const {
    constexpr int N = kWide<T>;
    const T* x = rows_.get() + i * length_;
    Wide<T> a{}, b{}, c{}, d{};
    int64_t j = 0;
    for (; j + 4 * N <= length_; j += 4 * N) {
      a += load_wide(x + j) * load_wide(w + j);
      b += load_wide(x + j + N) * load_wide(w + j + N);
      c += load_wide(x + j + 2 * N) * load_wide(w + j + 2 * N);
      d += load_wide(x + j + 3 * N) * load_wide(w + j + 3 * N);
    }
    for (; j < length_; j += N) a += load_wide(x + j) * load_wide(w + j);
    return total((a + b) + (c + d));
  }
  void add(int64_t i, T factor, T* w) const { add_scaled(factor, rows_.get() + i * length_, length_, w); }
  int64_t work(int64_t) const { return length_ / kWide<T> + 1; }
  void prefetch(int64_t i) const {
    constexpr int64_t kMost = 16, kLine = kLanes<T>;  // lines; the processor fetches later ones itself
    const T* x = rows_.get() + i * length_;
    for (int64_t j = 0; j < std::min(length_, kMost * kLine); j += kLine) __builtin_prefetch(x + j);
  }

  static int64_t lanes(int64_t count) { return count; }
  void scores(const T* w, int64_t w_stride, int64_t count, T* z, int64_t z_stride, Scratch&) const {
    const Poll poll;
    for (int64_t first = 0; first < n_; first += kBlock) {
      const int64_t rows = std::min(kBlock, n_ - first);
      poll(rows * count * work(first));
      row_dots(rows_.get() + first * length_, length_, rows, w, w_stride, count, length_, z + first,
               z_stride);
    }
  }

 private:
  static constexpr int64_t kBlock =
      24;  // rows at a time: four tiles, which stay in the cache with the weights

  const int64_t n_, length_;
  Zeros<T> rows_;
};

}  // namespace xmcjax::XMCJAX_ISA
