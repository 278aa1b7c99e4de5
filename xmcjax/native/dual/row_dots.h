// Products of rows with rows: out = W Xᵀ for a few thousand numbers per row, in tiles that fill the registers.
#pragma once

#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

// out[s * stride + r] (+)= ⟨x_r, w_s⟩ over `length` entries, a multiple of a vector.
template <class T, int R, int S>
inline void dot_tile(const T* x, int64_t x_stride, const T* w, int64_t w_stride, int64_t length, bool add,
                     T* out, int64_t stride) {
  Wide<T> sum[R][S];
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < S; ++s) sum[r][s] = Wide<T>{};
  for (int64_t c = 0; c < length; c += kWide<T>) {
    Wide<T> ws[S];
    for (int s = 0; s < S; ++s) ws[s] = load_wide(w + s * w_stride + c);
    for (int r = 0; r < R; ++r) {
      const Wide<T> xr = load_wide(x + r * x_stride + c);
      for (int s = 0; s < S; ++s) sum[r][s] += xr * ws[s];
    }
  }
  for (int s = 0; s < S; ++s)
    for (int r = 0; r < R; ++r) {
      const T value = T(total(sum[r][s]));
      out[s * stride + r] = add ? out[s * stride + r] + value : value;
    }
}

// Rows of x and of w in a tile: as many as 32 or 16 registers hold.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileX = 6, kTileW = 4;
#else
constexpr int kTileX = 3, kTileW = 3;
#endif

// out[s * stride + r] = ⟨x_r, w_s⟩ for `rows` rows of x and `classes` rows of w, both padded with
// zeros to whole vectors. Long rows are cut so that a tile stays in the first cache.
template <class T>
inline void row_dots(const T* x, int64_t x_stride, int64_t rows, const T* w, int64_t w_stride,
                     int64_t classes, int64_t length, T* out, int64_t stride) {
  constexpr int64_t kPiece = 4096 / sizeof(T);
  for (int64_t c = 0; c < length; c += kPiece) {
    const int64_t piece = length - c < kPiece ? length - c : kPiece;
    const bool add = c > 0;
    int64_t s = 0;
    for (; s + kTileW <= classes; s += kTileW) {
      const T* ws = w + s * w_stride + c;
      T* o = out + s * stride;
      int64_t r = 0;
      for (; r + kTileX <= rows; r += kTileX)
        dot_tile<T, kTileX, kTileW>(x + r * x_stride + c, x_stride, ws, w_stride, piece, add, o + r, stride);
      for (; r < rows; ++r)
        dot_tile<T, 1, kTileW>(x + r * x_stride + c, x_stride, ws, w_stride, piece, add, o + r, stride);
    }
    for (; s < classes; ++s) {
      const T* ws = w + s * w_stride + c;
      T* o = out + s * stride;
      int64_t r = 0;
      for (; r + kTileX <= rows; r += kTileX)
        dot_tile<T, kTileX, 1>(x + r * x_stride + c, x_stride, ws, w_stride, piece, add, o + r, stride);
      for (; r < rows; ++r)
        dot_tile<T, 1, 1>(x + r * x_stride + c, x_stride, ws, w_stride, piece, add, o + r, stride);
    }
  }
}

}  // namespace xmcjax::XMCJAX_ISA
