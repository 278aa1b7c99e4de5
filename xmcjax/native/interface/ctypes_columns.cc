// Some columns of a matrix as rows, and back (native/_columns.py).
#include <algorithm>
#include <cstdint>

#include "interface/guard.h"

namespace {

constexpr int64_t kRows = 64;

// f(first, last), so much `work` for a row, for pieces of the rows whose lines stay in the nearest cache while each column is visited.
template <class F>
void for_pieces(int64_t rows, int64_t work, F&& f) {
  const xmcjax::Poll poll;
  for (int64_t first = 0; first < rows; first += kRows) {
    f(first, std::min(first + kRows, rows));
    poll(kRows * work);
  }
}

// Asks for the lines of the next piece, which begins with row `first`.
template <class T>
void ask(const T* matrix, int64_t first, int64_t rows, int64_t columns) {
  const T* last = matrix + std::min(first + kRows, rows) * columns;
  for (const T* line = matrix + first * columns; line < last; line += 64 / sizeof(T)) __builtin_prefetch(line);
}

template <class T>
void take(const T* matrix, int64_t rows, int64_t columns, const int64_t* which, int64_t count, T* out) {
  for_pieces(rows, count, [&](int64_t first, int64_t last) {
    ask(matrix, last, rows, columns);
    for (int64_t k = 0; k < count; ++k)
      for (int64_t j = first; j < last; ++j) out[k * rows + j] = matrix[j * columns + which[k]];
  });
}

template <class T>
void put(T* matrix, int64_t rows, int64_t columns, const int64_t* which, int64_t count, const T* in) {
  for_pieces(rows, count, [&](int64_t first, int64_t last) {
    ask(matrix, last, rows, columns);
    for (int64_t k = 0; k < count; ++k)
      for (int64_t j = first; j < last; ++j) matrix[j * columns + which[k]] = in[k * rows + j];
  });
}

}  // namespace

// matrix [rows, columns]; which [count], columns of it; out and in [count, rows]. The caller has checked all.
// Both return how they ended, of guard.h.
XMCJAX_EXPORT int32_t xmcjax_take_columns(int32_t float64, const void* matrix, int64_t rows, int64_t columns,
                                          const int64_t* which, int64_t count, void* out) {
  return xmcjax::guarded_call([&] {
    if (float64) return take(static_cast<const double*>(matrix), rows, columns, which, count, static_cast<double*>(out));
    take(static_cast<const float*>(matrix), rows, columns, which, count, static_cast<float*>(out));
  });
}

XMCJAX_EXPORT int32_t xmcjax_put_columns(int32_t float64, void* matrix, int64_t rows, int64_t columns,
                                         const int64_t* which, int64_t count, const void* in) {
  return xmcjax::guarded_call([&] {
    if (float64) return put(static_cast<double*>(matrix), rows, columns, which, count, static_cast<const double*>(in));
    put(static_cast<float*>(matrix), rows, columns, which, count, static_cast<const float*>(in));
  });
}
