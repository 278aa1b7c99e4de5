// What a product does with one row of a CSR matrix, for a tile of lanes and for a single lane.
//
// A lane's sums run in one order whatever its neighbours: the tile and the single-lane forms
// add the same terms in the same order (entries of a row take turns among four partial sums),
// so their results are equal to the bit, and a caller may choose between them by speed alone.
#pragma once

#include "isa.h"
#include "simd.h"
#include "wide.h"

namespace xmcjax::XMCJAX_ISA {

// Σ_k value[k] V[column[k], 0:tile], a register at a time: GCC keeps the sums of wider vectors in memory.
template <class T>
inline Vec<T> row_dot_tile(const Csr<T>& X, int64_t i, const T* V, int64_t stride) {
  const T* value = X.value;
  const int32_t* column = X.column;
  const int64_t last = X.offset[i + 1];
  alignas(64) T sum[kLanes<T>];
  for (int part = 0; part < kLanes<T>; part += kWide<T>) {
    const T* v = V + part;
    int64_t k = X.offset[i];
    Wide<T> a{}, b{}, c{}, d{};
    for (; k + 3 < last; k += 4) {
      a += value[k] * load_wide(v + column[k] * stride);
      b += value[k + 1] * load_wide(v + column[k + 1] * stride);
      c += value[k + 2] * load_wide(v + column[k + 2] * stride);
      d += value[k + 3] * load_wide(v + column[k + 3] * stride);
    }
    for (; k < last; ++k) a += value[k] * load_wide(v + column[k] * stride);
    store_wide(sum + part, (a + b) + (c + d));
  }
  return load(sum);
}

// Whether the partial sums of two tiles fit the registers.
#if defined(__AVX512F__)
constexpr bool kTwoTiles = true;
#else
constexpr bool kTwoTiles = false;
#endif

// The same for two tiles side by side: the entries of the row are read once.
template <class T>
struct TwoTiles {
  Vec<T> one, other;
};
template <class T>
inline TwoTiles<T> row_dot_two_tiles(const Csr<T>& X, int64_t i, const T* V, int64_t stride) {
  const T* value = X.value;
  const int32_t* column = X.column;
  int64_t k = X.offset[i];
  const int64_t last = X.offset[i + 1];
  Vec<T> a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{};
  const auto add = [&](int64_t k, Vec<T>& one, Vec<T>& other) {
    const T* v = V + column[k] * stride;
    one += value[k] * load(v);
    other += value[k] * load(v + kLanes<T>);
  };
  for (; k + 3 < last; k += 4) {
    add(k, a, e);
    add(k + 1, b, f);
    add(k + 2, c, g);
    add(k + 3, d, h);
  }
  for (; k < last; ++k) add(k, a, e);
  return {(a + b) + (c + d), (e + f) + (g + h)};
}

// The same for one lane: element column[k] * stride of V.
template <class T>
inline T row_dot_lane(const Csr<T>& X, int64_t i, const T* V, int64_t stride) {
  const T* value = X.value;
  const int32_t* column = X.column;
  int64_t k = X.offset[i];
  const int64_t last = X.offset[i + 1];
  T a = 0, b = 0, c = 0, d = 0;
  for (; k + 3 < last; k += 4) {
    a += value[k] * V[column[k] * stride];
    b += value[k + 1] * V[column[k + 1] * stride];
    c += value[k + 2] * V[column[k + 2] * stride];
    d += value[k + 3] * V[column[k + 3] * stride];
  }
  for (; k < last; ++k) a += value[k] * V[column[k] * stride];
  return (a + b) + (c + d);
}

// out[column[k], 0:tile] += value[k] c
template <class T>
inline void row_add_tile(const Csr<T>& X, int64_t i, Vec<T> c, T* out, int64_t stride) {
  // in variables: to the compiler a vector that is stored may be a part of X
  const T* value = X.value;
  const int32_t* column = X.column;
  const int64_t first = X.offset[i], last = X.offset[i + 1];
  alignas(64) T factor[kLanes<T>];
  store(factor, c);
  for (int part = 0; part < kLanes<T>; part += kWide<T>) {
    const Wide<T> f = load_wide(factor + part);
    for (int64_t k = first; k < last; ++k) {
      T* o = out + column[k] * stride + part;
      store_wide(o, load_wide(o) + value[k] * f);
    }
  }
}

template <class T>
inline void row_add_lane(const Csr<T>& X, int64_t i, T c, T* out, int64_t stride) {
  for (int64_t k = X.offset[i]; k < X.offset[i + 1]; ++k) {
    out[X.column[k] * stride] += X.value[k] * c;
  }
}

}  // namespace xmcjax::XMCJAX_ISA
