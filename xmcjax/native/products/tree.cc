// The passes over a tree of classes (kernels/_mixing.py). Nodes stand after their parents, and a row's numbers
// stay in the cache for a whole pass.
#include <algorithm>
#include <string>
#include <vector>

#include "core/interrupt.h"
#include "core/parallel.h"
#include "interface/calls.h"
#include "interface/guard.h"

namespace xmcjax {
namespace {

constexpr int64_t kRows = 16, kNumbers = 1 << 16;  // of a piece of work, at least

// S = 1: one lane, without a loop over lanes. S = 0: any number of lanes.
template <class T, int S>
void sums_below(const SumsBelowArgs<T>& args, int64_t first, int64_t last) {
  const int64_t P = args.nodes, C = args.leaves, lanes = S ? S : args.lanes;
  const int32_t *parent = args.parent, *leaf = args.leaf;
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    poll((P + C) * lanes);
    const T* row = args.x + i * C * lanes;
    T* nodes = args.out + i * P * lanes;
    for (int64_t j = 0; j < P * lanes; ++j) nodes[j] = 0;
    for (int64_t c = 0; c < C; ++c)
      for (int64_t b = 0; b < lanes; ++b) nodes[leaf[c] * lanes + b] = row[c * lanes + b];
    for (int64_t p = P - 1; p >= 0; --p)
      if (parent[p] >= 0)
        for (int64_t b = 0; b < lanes; ++b) nodes[parent[p] * lanes + b] += nodes[p * lanes + b];
  }
}

template <class T, int S>
void sums_of_paths(const SumsOfPathsArgs<T>& args, int64_t first, int64_t last) {
  const int64_t P = args.nodes, C = args.leaves, lanes = S ? S : args.lanes;
  const int32_t *parent = args.parent, *leaf = args.leaf;
  std::vector<T> nodes(P * lanes);
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    poll((P + C) * lanes);
    const T* row = args.x + i * P * lanes;
    T* u = args.out + i * C * lanes;
    for (int64_t p = 0; p < P; ++p)
      for (int64_t b = 0; b < lanes; ++b)
        nodes[p * lanes + b] = row[p * lanes + b] + (parent[p] >= 0 ? nodes[parent[p] * lanes + b] : T(0));
    for (int64_t c = 0; c < C; ++c)
      for (int64_t b = 0; b < lanes; ++b) u[c * lanes + b] = nodes[leaf[c] * lanes + b];
  }
}

// Rows that go through the tree together, where there is one lane: the numbers of a node then fill registers. One after
// the other, each sum would wait for the store of the sum before.
constexpr int64_t kTogether = 8;

// S = kTogether: of one lane, this many rows side by side. S = 0: one row, with any number of lanes.
template <class T, int S>
void mix(const MixArgs<T>& args, int64_t first, int64_t last) {
  const int64_t P = args.nodes, C = args.leaves, lanes = args.lanes, width = S ? S : lanes;
  const int32_t *parent = args.parent, *leaf = args.leaf;
  std::vector<T> nodes(P * width);
  const Poll poll;
  for (int64_t i = first; i < last; i += S ? S : 1) {
    const int64_t rows = S ? std::min<int64_t>(S, last - i) : 1;
    poll((P + C) * width);
    const T* in = args.x + i * C * lanes;
    T* out = args.out + i * C * lanes;
    std::fill(nodes.begin(), nodes.end(), T(0));
    for (int64_t c = 0; c < C; ++c) {
      T* node = &nodes[leaf[c] * width];
      if (S)
        for (int64_t r = 0; r < rows; ++r) node[r] = in[r * C + c];
      else
        for (int64_t b = 0; b < lanes; ++b) node[b] = in[c * lanes + b];
    }
    for (int64_t p = P - 1; p >= 0; --p) {
      if (parent[p] < 0) continue;
      const T* node = &nodes[p * width];
      T* above = &nodes[parent[p] * width];
      for (int64_t b = 0; b < width; ++b) above[b] += node[b];
    }
    for (int64_t p = 0; p < P; ++p) {
      T* node = &nodes[p * width];
      for (int64_t b = 0; b < width; ++b) node[b] *= args.v[p];
      if (parent[p] < 0) continue;
      const T* above = &nodes[parent[p] * width];
      for (int64_t b = 0; b < width; ++b) node[b] += above[b];
    }
    for (int64_t c = 0; c < C; ++c) {
      const T* node = &nodes[leaf[c] * width];
      if (S)
        for (int64_t r = 0; r < rows; ++r) out[r * C + c] = node[r];
      else
        for (int64_t b = 0; b < lanes; ++b) out[c * lanes + b] = node[b];
    }
  }
}

// pass(first, last) for pieces of the rows of a call, whose tree is checked.
template <class Args, class F>
void over_rows(const char* call, const Args& args, F&& pass) {
  for (int64_t p = 0; p < args.nodes; ++p)
    if (args.parent[p] < -1 || args.parent[p] >= p)
      throw BadArgument(std::string(call) + ": expected parents before their children");
  const int64_t numbers = std::max<int64_t>((args.nodes + args.leaves) * args.lanes, 1);
  parallel(args.rows, std::max(kRows, kNumbers / numbers), args.threads, pass);
}

}  // namespace

template <class T>
void run(SumsBelowArgs<T>& args) {
  over_rows("tree_sums_below", args, [&](int64_t first, int64_t last) {
    (args.lanes == 1 ? sums_below<T, 1> : sums_below<T, 0>)(args, first, last);
  });
}
XMCJAX_RUNS(SumsBelowArgs)

template <class T>
void run(SumsOfPathsArgs<T>& args) {
  over_rows("tree_sums_of_paths", args, [&](int64_t first, int64_t last) {
    (args.lanes == 1 ? sums_of_paths<T, 1> : sums_of_paths<T, 0>)(args, first, last);
  });
}
XMCJAX_RUNS(SumsOfPathsArgs)

template <class T>
void run(MixArgs<T>& args) {
  over_rows("tree_mix", args, [&](int64_t first, int64_t last) {
    (args.lanes == 1 ? mix<T, kTogether> : mix<T, 0>)(args, first, last);
  });
}
XMCJAX_RUNS(MixArgs)

}  // namespace xmcjax
