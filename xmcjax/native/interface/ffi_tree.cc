// XLA FFI handlers of the passes over a tree of classes (kernels/_mixing.py). Nodes stand after their
// parents, and a row's numbers stay in the cache for a whole pass.
#include <algorithm>

#include "interface/ffi_support.h"

namespace xmcjax {
namespace {

constexpr int64_t kRows = 16, kNumbers = 1 << 16;  // of a piece of work, at least

// S = 0: any number of lanes. For one lane the loop over lanes is none.
template <class T, int S>
void sums_below(const int32_t* parent, int64_t P, const int32_t* leaf, int64_t C, const T* s, T* out,
                int64_t given_lanes, int64_t first, int64_t last) {
  const int64_t lanes = S ? S : given_lanes;
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    poll((P + C) * lanes);
    const T* row = s + i * C * lanes;
    T* nodes = out + i * P * lanes;
    for (int64_t j = 0; j < P * lanes; ++j) nodes[j] = 0;
    for (int64_t c = 0; c < C; ++c)
      for (int64_t b = 0; b < lanes; ++b) nodes[leaf[c] * lanes + b] = row[c * lanes + b];
    for (int64_t p = P - 1; p >= 0; --p)
      if (parent[p] >= 0)
        for (int64_t b = 0; b < lanes; ++b) nodes[parent[p] * lanes + b] += nodes[p * lanes + b];
  }
}

template <class T, int S>
void sums_of_paths(const int32_t* parent, int64_t P, const int32_t* leaf, int64_t C, const T* x, T* out,
                   int64_t given_lanes, int64_t first, int64_t last) {
  const int64_t lanes = S ? S : given_lanes;
  std::vector<T> nodes(P * lanes);
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    poll((P + C) * lanes);
    const T* row = x + i * P * lanes;
    T* u = out + i * C * lanes;
    for (int64_t p = 0; p < P; ++p)
      for (int64_t b = 0; b < lanes; ++b)
        nodes[p * lanes + b] = row[p * lanes + b] + (parent[p] >= 0 ? nodes[parent[p] * lanes + b] : T(0));
    for (int64_t c = 0; c < C; ++c)
      for (int64_t b = 0; b < lanes; ++b) u[c * lanes + b] = nodes[leaf[c] * lanes + b];
  }
}

ffi::Error pass(bool below, const ffi::AnyBuffer& parent, const ffi::AnyBuffer& leaf, const ffi::AnyBuffer& in,
                int64_t threads, ffi::Result<ffi::AnyBuffer>& out) {
  const auto from = in.dimensions(), to = out->dimensions();
  if (parent.element_type() != ffi::DataType::S32 || leaf.element_type() != ffi::DataType::S32)
    return expected("int32 places");
  const int64_t P = parent.element_count(), C = leaf.element_count();
  if (from.size() != 3 || to.size() != 3 || from[0] != to[0] || from[2] != to[2] || from[1] != (below ? C : P) ||
      to[1] != (below ? P : C) || in.element_type() != out->element_type())
    return expected("arrays [rows, classes or nodes, lanes] of one dtype");
  const int32_t *parents = parent.typed_data<int32_t>(), *leaves = leaf.typed_data<int32_t>();
  for (int64_t p = 0; p < P; ++p)
    if (parents[p] < -1 || parents[p] >= p) return expected("parents before their children");
  for (int64_t c = 0; c < C; ++c)
    if (leaves[c] < 0 || leaves[c] >= P) return expected("leaves that are nodes");
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const int64_t lanes = from[2];
    const int64_t rows_of_piece = std::max(kRows, kNumbers / std::max<int64_t>((P + C) * lanes, 1));
    parallel(from[0], rows_of_piece, threads, [&](int64_t first, int64_t last) {
      const auto rows = below ? (lanes == 1 ? sums_below<T, 1> : sums_below<T, 0>)
                              : (lanes == 1 ? sums_of_paths<T, 1> : sums_of_paths<T, 0>);
      rows(parents, P, leaves, C, in.typed_data<T>(), out->typed_data<T>(), lanes, first, last);
    });
    return ffi::Error::Success();
  };
  if (in.element_type() == ffi::DataType::F32) return run(float());
  if (in.element_type() == ffi::DataType::F64) return run(double());
  return expected("float32 or float64 values");
}

ffi::Error below(ffi::AnyBuffer parent, ffi::AnyBuffer leaf, ffi::AnyBuffer s, int64_t threads,
                 ffi::Result<ffi::AnyBuffer> out) {
  return pass(true, parent, leaf, s, threads, out);
}
ffi::Error paths(ffi::AnyBuffer parent, ffi::AnyBuffer leaf, ffi::AnyBuffer x, int64_t threads,
                 ffi::Result<ffi::AnyBuffer> out) {
  return pass(false, parent, leaf, x, threads, out);
}

}  // namespace

XMCJAX_HANDLER(xmcjax_tree_sums_below, below, buffers_and_threads<3>())
XMCJAX_HANDLER(xmcjax_tree_sums_of_paths, paths, buffers_and_threads<3>())

}  // namespace xmcjax
