// What a product does with one row of a CSR matrix, for a tile of lanes and for a single lane.
//
// A lane's sums run in one order whatever its neighbours: the tile and the single-lane forms
// add the same terms in the same order (entries of a row take turns among four partial sums),
// so their results are equal to the bit, and a caller may choose between them by speed alone.
#pragma once

#include "core/aligned.h"
#include "core/interrupt.h"
#include "core/isa.h"
#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

// The work of a pass over row i, as Poll counts it.
template <class T>
inline int64_t entries(const Csr<T>& X, int64_t i) {
  return X.offset[i + 1] - X.offset[i] + 1;
}

// A vector of kCount lanes: W, or as many as four registers hold.
template <class T, int W>
struct Abreast {
  static constexpr int kCount = W < 4 * kWide<T> ? W : 4 * kWide<T>;
  using type = typename RegistersOf<T, int(sizeof(T)) * kCount>::type;
  static type load(const T* p) { return load_as<type>(p); }
  static void store(T* p, type v) { store_as(p, v); }
};
template <class T>
struct Abreast<T, 1> {
  static constexpr int kCount = 1;
  typedef T type;
  static T load(const T* p) { return *p; }
  static void store(T* p, T v) { *p = v; }
};

// Adds up kSums of the four partial sums of a row: all four, or the two from `first` on. The entries of the row take
// turns among the four sums; the up to three entries at its end that fill no turn go to the first sum.
template <class Some, int kSums, class T>
XMCJAX_INLINE typename Some::type partial_sums(const T* value, const int32_t* column, int64_t count,
                                               const T* v, int64_t stride, int first) {
  const int64_t fours = count & ~int64_t(3);
  typename Some::type a{}, b{}, c{}, d{};
  for (int64_t k = first; k < fours; k += 4) {
    a += value[k] * Some::load(v + column[k] * stride);
    b += value[k + 1] * Some::load(v + column[k + 1] * stride);
    if constexpr (kSums == 4) {
      c += value[k + 2] * Some::load(v + column[k + 2] * stride);
      d += value[k + 3] * Some::load(v + column[k + 3] * stride);
    }
  }
  if (first == 0)
    for (int64_t k = fours; k < count; ++k) a += value[k] * Some::load(v + column[k] * stride);
  if constexpr (kSums == 4) return (a + b) + (c + d);
  else return a + b;
}

// sum[0:W] = Σ_k value[k] V[column[k], 0:W]
//
// Eight registers of partial sums keep the units of the processor busy and leave room for the rest. Where the lanes
// fill four registers, there are two passes over the row, each for two of the four sums; two passes for half of the
// lanes each would read every entry twice, and only a part of the rows of V at once.
template <int W, class T>
inline void row_dots(const Csr<T>& X, int64_t i, const T* V, int64_t stride, T* sum) {
  using Some = Abreast<T, W>;
  constexpr int kRegisters = (Some::kCount + kWide<T> - 1) / kWide<T>;
  const T* value = X.value + X.offset[i];
  const int32_t* column = X.column + X.offset[i];
  const int64_t count = X.offset[i + 1] - X.offset[i];
  for (int part = 0; part < W; part += Some::kCount) {
    const T* v = V + part;
    if constexpr (kRegisters <= 2) {
      Some::store(sum + part, partial_sums<Some, 4>(value, column, count, v, stride, 0));
    } else {
      const auto first = partial_sums<Some, 2>(value, column, count, v, stride, 0);
      Some::store(sum + part, first + partial_sums<Some, 2>(value, column, count, v, stride, 2));
    }
  }
}

// row_dots for a tile.
template <class T>
inline Vec<T> row_dot_tile(const Csr<T>& X, int64_t i, const T* V, int64_t stride) {
  alignas(64) T sum[kLanes<T>];
  row_dots<kLanes<T>>(X, i, V, stride, sum);
  return load(sum);
}

// row_dots for one lane, whose numbers are the elements column[k] * stride of V.
template <class T>
inline T row_dot_lane(const Csr<T>& X, int64_t i, const T* V, int64_t stride) {
  T sum;
  row_dots<1>(X, i, V, stride, &sum);
  return sum;
}

// row_dots for two tiles, the second `apart` numbers behind the first: in one pass, where registers suffice.
template <class T>
inline void row_dot_tiles(const Csr<T>& X, int64_t i, const T* V, int64_t apart, int64_t stride, T* sum) {
  constexpr int N = kLanes<T>;
  if constexpr (kRegister == 64) {
    const T* value = X.value;
    const int32_t* column = X.column;
    const int64_t last = X.offset[i + 1];
    int64_t k = X.offset[i];
    Vec<T> one[4] = {}, other[4] = {};
    for (; k + 3 < last; k += 4)
      for (int p = 0; p < 4; ++p) {
        const T* v = V + column[k + p] * stride;
        one[p] += value[k + p] * load(v);
        other[p] += value[k + p] * load(v + apart);
      }
    for (; k < last; ++k) {
      const T* v = V + column[k] * stride;
      one[0] += value[k] * load(v);
      other[0] += value[k] * load(v + apart);
    }
    store(sum, (one[0] + one[1]) + (one[2] + one[3]));
    store(sum + apart, (other[0] + other[1]) + (other[2] + other[3]));
  } else {
    row_dots<N>(X, i, V, stride, sum);
    row_dots<N>(X, i, V + apart, stride, sum + apart);
  }
}

// The rows of X V, with any number of lanes. Where the lanes do not fill the last tile, it overlaps the tile before it
// and works out the shared lanes once more, with the same sums. Fewer lanes than a tile stand in the narrowest vectors
// that hold them, of 2, 4, 8 … lanes: V takes as few lines of the caches as it can.
//
// Where V is larger than the nearest caches, its rows are fetched some entries ahead: a row of X has few entries, and
// each of its tiles would wait for its own parts of V.
template <class T>
class RowProducts {
  static constexpr int kTile = kLanes<T>;
  static constexpr int64_t kNear = int64_t(1) << 19;  // bytes; a larger V is fetched ahead
  static constexpr int64_t kAhead = 16;  // entries by which V is fetched ahead
  static constexpr int64_t kLine = 64 / sizeof(T);  // numbers of a line of the cache

 public:
  RowProducts(const T* V, int64_t rows, int64_t lanes)
      : V_(V), lanes_(lanes), far_(rows * lanes * int64_t(sizeof(T)) > kNear && lanes >= kTile) {
    if (lanes >= kTile) return;
    while (width_ < lanes) width_ *= 2;
    if (width_ == lanes) return;
    padded_.assign(rows * width_, T(0));
    for (int64_t j = 0; j < rows; ++j)
      std::memcpy(padded_.data() + j * width_, V + j * lanes, lanes * sizeof(T));
    V_ = padded_.data();
  }

  // out[0:lanes] = Σ_k value[k] V[column[k]] of row i
  void operator()(const Csr<T>& X, int64_t i, T* out) const {
    if (far_) ask(X, i);
    if (lanes_ < kTile) {
      narrow<1>(X, i, out);
    } else {
      int64_t t = 0;
      for (; t + 2 * kTile <= lanes_; t += 2 * kTile) row_dots<2 * kTile>(X, i, V_ + t, lanes_, out + t);
      const int64_t last = lanes_ - kTile;
      if (t < last) row_dot_tiles(X, i, V_ + t, last - t, lanes_, out + t);
      else if (t < lanes_) row_dots<kTile>(X, i, V_ + last, lanes_, out + last);
    }
  }

 private:
  // For fewer lanes than a tile: in a vector of W lanes, or of 2 W, 4 W, … where W does not hold them.
  template <int W>
  void narrow(const Csr<T>& X, int64_t i, T* out) const {
    if constexpr (W < kTile)
      if (W < width_) return narrow<2 * W>(X, i, out);
    if (W == lanes_) return row_dots<W>(X, i, V_, W, out);
    alignas(64) T sum[W];
    row_dots<W>(X, i, V_, W, sum);
    std::memcpy(out, sum, lanes_ * sizeof(T));
  }

  void ask(const Csr<T>& X, int64_t i) const {
    const int64_t last = X.offset[i + 1] + kAhead < X.offset[X.n] ? X.offset[i + 1] + kAhead : X.offset[X.n];
    for (int64_t k = X.offset[i] + kAhead; k < last; ++k) {
      const T* v = V_ + X.column[k] * lanes_;
      for (int64_t j = 0; j < lanes_; j += kLine) __builtin_prefetch(v + j);
      __builtin_prefetch(v + lanes_ - 1);
    }
  }

  const T* V_;
  int64_t lanes_, width_ = 1;  // of V; of the vectors that hold fewer lanes than a tile
  bool far_;
  Array<T> padded_;
};

// out[column[k], 0:W] += value[k] factor[0:W]
template <int W, class T>
inline void row_adds(const Csr<T>& X, int64_t i, const T* factor, T* out, int64_t stride) {
  using Some = Abreast<T, W>;
  // in local variables: for all that the compiler knows, a store to `out` may change X
  const T* value = X.value;
  const int32_t* column = X.column;
  const int64_t first = X.offset[i], last = X.offset[i + 1];
  for (int part = 0; part < W; part += Some::kCount) {
    const auto f = Some::load(factor + part);
    for (int64_t k = first; k < last; ++k) {
      T* o = out + column[k] * stride + part;
      Some::store(o, Some::load(o) + value[k] * f);
    }
  }
}

// row_adds for a tile, and for one lane.
template <class T>
inline void row_add_tile(const Csr<T>& X, int64_t i, Vec<T> c, T* out, int64_t stride) {
  alignas(64) T factor[kLanes<T>];
  store(factor, c);
  row_adds<kLanes<T>>(X, i, factor, out, stride);
}
template <class T>
inline void row_add_lane(const Csr<T>& X, int64_t i, T c, T* out, int64_t stride) {
  row_adds<1>(X, i, &c, out, stride);
}

// z = start + Σ_k value[k] W[column[k]] of row i, [m], in tiles of kTile registers; a null start stands for 0.
template <int kTile, class T>
void row_scores(const Csr<T>& X, int64_t i, const T* W, int64_t m, const T* start, T* z) {
  constexpr int N = kWide<T>;
  const int64_t first = X.offset[i], last = X.offset[i + 1];
  int64_t j = 0;
  for (; j + kTile * N <= m; j += kTile * N) {
    Wide<T> sum[kTile];
    for (int t = 0; t < kTile; ++t) sum[t] = start ? load_wide(start + j + t * N) : Wide<T>{};
    for (int64_t k = first; k < last; ++k) {
      const T* w = W + X.column[k] * m + j;
      for (int t = 0; t < kTile; ++t) sum[t] += X.value[k] * load_wide(w + t * N);
    }
    for (int t = 0; t < kTile; ++t) store_wide(z + j + t * N, sum[t]);
  }
  for (; j + N <= m; j += N) {
    Wide<T> sum = start ? load_wide(start + j) : Wide<T>{};
    for (int64_t k = first; k < last; ++k) sum += X.value[k] * load_wide(W + X.column[k] * m + j);
    store_wide(z + j, sum);
  }
  for (int64_t t = j; t < m; ++t) z[t] = start ? start[t] : T(0);
  for (int64_t k = first; k < last; ++k) {
    const T* w = W + X.column[k] * m;
    for (int64_t t = j; t < m; ++t) z[t] += X.value[k] * w[t];
  }
}

// W[column[k]] += value[k] a of row i, a [m]
template <class T>
void row_update(const Csr<T>& X, int64_t i, const T* a, int64_t m, T* W) {
  for (int64_t k = X.offset[i]; k < X.offset[i + 1]; ++k) add_scaled(X.value[k], a, m, W + X.column[k] * m);
}

// p[0:W] *= c[0:W]
template <int W, class T>
inline void times(const T* c, T* p) {
  using Some = Abreast<T, W>;
  for (int part = 0; part < W; part += Some::kCount)
    Some::store(p + part, Some::load(p + part) * Some::load(c + part));
}

// out[column[k], 0:W] += value[k] c[0:W] (Σ_j value[j] V[column[j], 0:W]): what row i gives to Xᵀ(D ∘ (X V))
template <int W, class T>
inline void row_grams(const Csr<T>& X, int64_t i, const T* V, const T* c, T* out, int64_t stride) {
  alignas(64) T product[W];
  row_dots<W>(X, i, V, stride, product);
  times<W>(c, product);
  row_adds<W>(X, i, product, out, stride);
}

}  // namespace xmcjax::XMCJAX_ISA
