// Products of a symmetric matrix with few columns (kernels/_gram.py). Such a product is as fast as the matrix can
// be read, so that only its upper half is: an entry M_ij serves row i and row j of all columns at once.
#include "core/aligned.h"
#include "core/interrupt.h"
#include "core/isa.h"
#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

constexpr int kRows = 4;  // rows whose sums stay in registers together
constexpr int64_t kPanel = 64;  // rows that stay in the cache for all groups of columns
constexpr int kMostColumns = 5;  // columns of a group: with kRows sums for each, these fit 32 registers

// The entries right of the diagonal in the rows i .. i + R - 1, for K columns of x, [K, stride] and padded with
// zeros to a whole vector beyond n; y is laid out alike.
template <class T, int R, int K>
void rows_times(const T* M, int64_t n, int64_t i, const T* x, T* y, int64_t stride) {
  constexpr int N = kWide<T>;
  Wide<T> sum[R][K] = {};
  const T* row[R];
  for (int r = 0; r < R; ++r) row[r] = M + (i + r) * n;
  const auto add = [&](int64_t j, const Wide<T>* m) {
    for (int k = 0; k < K; ++k) {
      const Wide<T> xj = load_wide(x + k * stride + j);
      Wide<T> yj = load_wide(y + k * stride + j);
      for (int r = 0; r < R; ++r) {
        sum[r][k] += m[r] * xj;
        yj += m[r] * x[k * stride + i + r];
      }
      store_wide(y + k * stride + j, yj);
    }
  };
  int64_t j = i + R;
  for (; j + N <= n; j += N) {
    Wide<T> m[R];
    for (int r = 0; r < R; ++r) m[r] = load_wide(row[r] + j);
    add(j, m);
  }
  if (j < n) {
    Wide<T> m[R];
    for (int r = 0; r < R; ++r) m[r] = load_part(row[r] + j, n - j, T(0));
    add(j, m);
  }
  for (int k = 0; k < K; ++k) {
    const T* xk = x + k * stride + i;
    T* yk = y + k * stride + i;
    for (int r = 0; r < R; ++r) {
      T all = total(sum[r][k]) + row[r][i + r] * xk[r];
      for (int s = 0; s < R; ++s)
        if (s != r) all += (s > r ? row[r][i + s] : row[s][i + r]) * xk[s];
      yk[r] += all;
    }
  }
}

template <class T, int K>
void panel_times(const T* M, int64_t n, int64_t first, int64_t last, const T* x, T* y, int64_t stride) {
  int64_t i = first;
  for (; i + kRows <= last; i += kRows) rows_times<T, kRows, K>(M, n, i, x, y, stride);
  for (; i < last; ++i) rows_times<T, 1, K>(M, n, i, x, y, stride);
}

}  // namespace

template <class T>
void symmetric_matmat(const T* M, int64_t n, const T* S, int64_t apart, T* out, int64_t out_apart,
                      int64_t columns, int64_t begin, int64_t end) {
  constexpr int64_t N = kWide<T>;
  const int64_t stride = (n + 2 * N - 1) / N * N;  // a vector that begins below n ends within it
  const Zeros<T> x(columns * stride), y(columns * stride);
  for (int64_t j = 0; j < n; ++j)
    for (int64_t k = 0; k < columns; ++k) x[k * stride + j] = S[j * apart + k];
  const Poll poll;
  const int64_t groups = (columns + kMostColumns - 1) / kMostColumns;
  for (int64_t first = begin; first < end; first += kPanel) {
    const int64_t last = first + kPanel < end ? first + kPanel : end;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t k = columns * g / groups;
      poll((last - first) * (n - first));
      const T* xk = x.get() + k * stride;
      T* yk = y.get() + k * stride;
      switch (columns * (g + 1) / groups - k) {
        case 1: panel_times<T, 1>(M, n, first, last, xk, yk, stride); break;
        case 2: panel_times<T, 2>(M, n, first, last, xk, yk, stride); break;
        case 3: panel_times<T, 3>(M, n, first, last, xk, yk, stride); break;
        case 4: panel_times<T, 4>(M, n, first, last, xk, yk, stride); break;
        default: panel_times<T, 5>(M, n, first, last, xk, yk, stride);
      }
    }
  }
  for (int64_t j = 0; j < n; ++j)
    for (int64_t k = 0; k < columns; ++k) out[j * out_apart + k] = y[k * stride + j];
}

template void symmetric_matmat<float>(const float*, int64_t, const float*, int64_t, float*, int64_t, int64_t,
                                      int64_t, int64_t);
template void symmetric_matmat<double>(const double*, int64_t, const double*, int64_t, double*, int64_t,
                                       int64_t, int64_t, int64_t);

}  // namespace xmcjax::XMCJAX_ISA
