// Products with symmetric matrices (kernels/_gram.py).
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/isa.h"
#include "core/parallel.h"

namespace xmcjax {

// Each upper half is cut into parts of equal size with sums of their own. The number of parts depends on the size of
// the matrices and not on the threads, so that the sums do not depend on the threads either.
constexpr int64_t kMostParts = 8, kPartBytes = 1 << 22;

template <class T>
void run(SymmetricArgs<T>& args) {
  const int64_t n = args.n, columns = args.columns, apart = args.count * columns;
  const int64_t parts = std::clamp<int64_t>(n * n / 2 * int64_t(sizeof(T)) / kPartBytes, 1, kMostParts);
  // the first r rows hold n²/2 - (n - r)²/2 entries
  const auto edge = [&](int64_t part) {
    return part == parts ? n : int64_t(double(n) * (1 - std::sqrt(1 - double(part) / double(parts))));
  };
  // the sums of all parts but the first of each matrix, whose sums stand in the result
  std::vector<T> others(args.count * (parts - 1) * n * columns);
  const auto sums = [&](int64_t l, int64_t part) {
    return others.data() + (l * (parts - 1) + part - 1) * n * columns;
  };
  parallel(args.count * parts, 1, args.threads, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t l = task / parts, part = task % parts;
      T* out = part ? sums(l, part) : args.out + l * columns;
      kernels<T>().symmetric_matmat(args.M + l * n * n, n, args.S + l * columns, apart, out,
                                    part ? columns : apart, columns, edge(part), edge(part + 1));
    }
  });
  for (int64_t l = 0; l < args.count; ++l)
    for (int64_t part = 1; part < parts; ++part)
      for (int64_t j = edge(part); j < n; ++j)
        for (int64_t k = 0; k < columns; ++k)
          args.out[j * apart + l * columns + k] += sums(l, part)[j * columns + k];
}
XMCJAX_RUNS(SymmetricArgs)

}  // namespace xmcjax
