// XLA FFI handler of products with a symmetric matrix (kernels/_gram.py).
#include <algorithm>
#include <cmath>
#include <vector>

#include "interface/ffi_support.h"

namespace xmcjax {
namespace {

// The upper half is cut into parts of equal size, each with sums of its own: how many there are depends on the
// matrix, not on the threads, so that neither do the sums.
constexpr int64_t kMostParts = 8, kPartBytes = 1 << 22;

template <class T>
void product(const T* M, int64_t n, const T* S, T* out, int64_t columns, int64_t threads) {
  const int64_t parts = std::clamp<int64_t>(n * n / 2 * int64_t(sizeof(T)) / kPartBytes, 1, kMostParts);
  // the first r rows hold n²/2 - (n - r)²/2 entries
  const auto edge = [&](int64_t part) {
    return part == parts ? n : int64_t(double(n) * (1 - std::sqrt(1 - double(part) / double(parts))));
  };
  std::vector<T> others((parts - 1) * n * columns);
  const auto sums = [&](int64_t part) { return part ? others.data() + (part - 1) * n * columns : out; };
  parallel(parts, 1, threads, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part)
      kernels<T>().symmetric_matmat(M, n, S, sums(part), columns, edge(part), edge(part + 1));
  });
  for (int64_t part = 1; part < parts; ++part)
    for (int64_t j = edge(part) * columns; j < n * columns; ++j) out[j] += sums(part)[j];
}

ffi::Error matmat(ffi::AnyBuffer M, ffi::AnyBuffer S, int64_t threads, ffi::Result<ffi::AnyBuffer> out) {
  const auto shape = M.dimensions(), columns = S.dimensions();
  if (shape.size() != 2 || shape[0] != shape[1] || columns.size() != 2 || columns[0] != shape[0] ||
      out->dimensions().size() != 2 || out->dimensions()[0] != columns[0] || out->dimensions()[1] != columns[1] ||
      S.element_type() != M.element_type() || out->element_type() != M.element_type())
    return expected("a matrix [n, n] and columns [n, k] of one dtype");
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    product(M.typed_data<T>(), shape[0], S.typed_data<T>(), out->typed_data<T>(), columns[1], threads);
    return ffi::Error::Success();
  };
  if (M.element_type() == ffi::DataType::F32) return run(float());
  if (M.element_type() == ffi::DataType::F64) return run(double());
  return expected("float32 or float64 values");
}

}  // namespace

XMCJAX_HANDLER(xmcjax_symmetric_matmat, matmat, buffers_and_threads<2>())

}  // namespace xmcjax
