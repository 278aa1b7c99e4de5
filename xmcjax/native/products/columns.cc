// Some columns of a matrix as rows, and back: a line of the cache is read once for many numbers.
#include <algorithm>
#include <cstdint>

#include "core/interrupt.h"
#include "interface/calls.h"

namespace xmcjax {
namespace {

constexpr int64_t kRows = 64;

// f(first, last), which costs `work` per row, for pieces of the rows whose lines stay in the nearest cache while each
// column is visited.
template <class F>
void for_pieces(int64_t rows, int64_t work, F&& f) {
  const Poll poll;
  for (int64_t first = 0; first < rows; first += kRows) {
    f(first, std::min(first + kRows, rows));
    poll(kRows * work);
  }
}

// Asks for the lines of the next piece, which begins with row `first`.
template <class T>
void ask(const T* matrix, int64_t first, int64_t rows, int64_t columns) {
  const T* last = matrix + std::min(first + kRows, rows) * columns;
  for (const T* line = matrix + first * columns; line < last; line += 64 / sizeof(T))
    __builtin_prefetch(line);
}

}  // namespace

template <class T>
void run(TakeColumnsArgs<T>& args) {
  for_pieces(args.length, args.count, [&](int64_t first, int64_t last) {
    ask(args.matrix, last, args.length, args.columns);
    for (int64_t k = 0; k < args.count; ++k)
      for (int64_t j = first; j < last; ++j)
        args.rows[k * args.length + j] = args.matrix[j * args.columns + args.which[k]];
  });
}
XMCJAX_RUNS(TakeColumnsArgs)

template <class T>
void run(PutColumnsArgs<T>& args) {
  for_pieces(args.length, args.count, [&](int64_t first, int64_t last) {
    ask(args.matrix, last, args.length, args.columns);
    for (int64_t k = 0; k < args.count; ++k)
      for (int64_t j = first; j < last; ++j)
        args.matrix[j * args.columns + args.which[k]] = args.rows[k * args.length + j];
  });
}
XMCJAX_RUNS(PutColumnsArgs)

}  // namespace xmcjax
