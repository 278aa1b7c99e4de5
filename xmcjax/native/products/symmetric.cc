// Products with a symmetric matrix (kernels/_gram.py).
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/isa.h"
#include "core/parallel.h"

namespace xmcjax {

// The upper half is cut into parts of equal size, each with sums of its own: how many there are depends on the
// matrix, not on the threads, so that neither do the sums.
constexpr int64_t kMostParts = 8, kPartBytes = 1 << 22;

template <class T>
void run(SymmetricArgs<T>& args) {
  const int64_t n = args.n, columns = args.columns;
  const int64_t parts = std::clamp<int64_t>(n * n / 2 * int64_t(sizeof(T)) / kPartBytes, 1, kMostParts);
  // the first r rows hold n²/2 - (n - r)²/2 entries
  const auto edge = [&](int64_t part) {
    return part == parts ? n : int64_t(double(n) * (1 - std::sqrt(1 - double(part) / double(parts))));
  };
  std::vector<T> others((parts - 1) * n * columns);
  const auto sums = [&](int64_t part) { return part ? others.data() + (part - 1) * n * columns : args.out; };
  parallel(parts, 1, args.threads, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part)
      kernels<T>().symmetric_matmat(args.M, n, args.S, sums(part), columns, edge(part), edge(part + 1));
  });
  for (int64_t part = 1; part < parts; ++part)
    for (int64_t j = edge(part) * columns; j < n * columns; ++j) args.out[j] += sums(part)[j];
}
XMCJAX_RUNS(SymmetricArgs)

}  // namespace xmcjax
