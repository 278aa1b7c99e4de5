// Prediction with weights by feature: the scores of each row, z = b + Σ_j x_j W[j], and the best labels of a row.
//
// For few rows the sums run over the weights of a row's features alone. For many rows it is less work to make dense
// blocks of labels, whose sums stay in registers. Both add in the order of the row's entries, so that the result
// does not depend on which it was.
#include <algorithm>
#include <cstring>

#include "core/aligned.h"
#include "core/interrupt.h"
#include "core/isa.h"
#include "core/simd.h"
#include "products/best_labels.h"
#include "products/used_features.h"

namespace xmcjax::XMCJAX_ISA {

constexpr int64_t kBlock = 64;  // labels of a block
constexpr int64_t kMostBytes = 64 << 20;  // of a block of weights at most
constexpr int64_t kLeastRows = 16;  // rows from which on blocks may pay
constexpr int kRegisters = 4;  // registers that hold sums
// Costs, in additions to a label's sum, of an addition to a register of a block and of putting a weight into a block.
constexpr int64_t kOfRegister = 2, kOfWeight = 2;

// What becomes of the scores z of `count` labels from `first` on: sink(i, z, first, count).
template <class T>
struct ToBest {
  const PredictTopkArgs<T>& a;

  void operator()(int64_t i, const T* z, int64_t first, int64_t count) const {
    BestLabels<T>{a.scores + i * a.k, a.best + i * a.k, a.k}.offer(z, a.first_label + int32_t(first), count);
  }
};
template <class T>
struct ToAll {
  const PredictScoresArgs<T>& a;

  void operator()(int64_t i, const T* z, int64_t first, int64_t count) const {
    std::memcpy(a.z + i * a.labels + first, z, size_t(count) * sizeof(T));
  }
};

template <class T, class Args, class Sink>
void sparse_sums(const Args& a, const Sink& sink, int64_t first, int64_t last) {
  const Zeros<T> z(a.labels);
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    std::memcpy(z.get(), a.b, size_t(a.labels) * sizeof(T));
    int64_t work = a.labels / kWide<T>;
    for (int64_t k = a.X.offset[i]; k < a.X.offset[i + 1]; ++k) {
      const T value = a.X.value[k];
      const int64_t begin = a.W.offset[a.X.column[k]], end = a.W.offset[a.X.column[k] + 1];
      for (int64_t e = begin; e < end; ++e) {
        const int32_t l = a.W.column[e];
        // W may be a file that somebody changes: nothing is written elsewhere
        if (uint64_t(l) < uint64_t(a.labels)) z[l] += value * a.W.value[e];
      }
      work += end - begin;
    }
    sink(i, z.get(), 0, a.labels);
    poll(work);
  }
}

// The features of some rows, and how many weights they have. Nothing is read of other features: W may be a file.
struct Used : UsedFeatures {
  int64_t weights = 0;  // of all of them
  int64_t sparse = 0;  // of the entries of the rows

  template <class T>
  Used(const Csr<T>& X, const Csr<T>& W, int64_t first, int64_t last) : UsedFeatures(X, first, last) {
    const auto of = [&](int32_t j) { return W.offset[j + 1] - W.offset[j]; };
    for (int64_t u = 0; u < count(); ++u) weights += of(feature[u]), sparse += of(feature[u]) * entries[u];
  }
};

// V [used features, kBlock]: the weights of the labels from `label` on; next[j]: the first weight of the j-th used
// feature that no block has had.
template <class T>
void dense_block(const Csr<T>& W, const Used& used, int64_t label, int64_t* next, T* V) {
  for (const int32_t j : used.feature) {
    std::memset(V, 0, kBlock * sizeof(T));
    int64_t e = *next;
    for (const int64_t end = W.offset[j + 1]; e < end && W.column[e] < label + kBlock; ++e)
      if (W.column[e] >= label) V[W.column[e] - label] = W.value[e];
    *next++ = e;
    V += kBlock;
  }
}

// z[0:kBlock] = b + Σ_j x_j V[j], kRegisters registers at a time
template <class T>
void row_sums(const Csr<T>& X, int64_t i, const int32_t* place, const T* V, const T* b, T* z) {
  constexpr int N = kWide<T>;
  for (int64_t part = 0; part < kBlock; part += kRegisters * N) {
    Wide<T> s[kRegisters];
    for (int r = 0; r < kRegisters; ++r) s[r] = load_wide(b + part + r * N);
    for (int64_t k = X.offset[i]; k < X.offset[i + 1]; ++k) {
      const T* v = V + place[X.column[k]] * kBlock + part;
      const Wide<T> x = wide(X.value[k]);
      for (int r = 0; r < kRegisters; ++r) s[r] += x * load_wide(v + r * N);
    }
    for (int r = 0; r < kRegisters; ++r) store_wide(z + part + r * N, s[r]);
  }
}

template <class T, class Args, class Sink>
void block_sums(const Args& a, const Sink& sink, const Used& used, int64_t first, int64_t last) {
  const int64_t features = used.count();
  const Zeros<T> V(features * kBlock), b(kBlock), z(kBlock);
  Array<int64_t> next;
  for (const int32_t j : used.feature) next.push_back(a.W.offset[j]);
  const Poll poll;
  for (int64_t label = 0; label < a.labels; label += kBlock) {
    const int64_t count = std::min(kBlock, a.labels - label);
    std::memcpy(b.get(), a.b + label, size_t(count) * sizeof(T));
    dense_block(a.W, used, label, next.data(), V.get());
    poll(features * kBlock / kWide<T>);
    for (int64_t i = first; i < last; ++i) {
      row_sums(a.X, i, used.place.data(), V.get(), b.get(), z.get());
      sink(i, z.get(), label, count);
      poll((a.X.offset[i + 1] - a.X.offset[i] + 1) * kBlock / kWide<T>);
    }
  }
}

template <class T, class Args, class Sink>
void sums(const Args& a, const Sink& sink, int64_t first, int64_t last) {
  if (last - first >= kLeastRows) {
    const Used used(a.X, a.W, first, last);
    const int64_t entries = a.X.offset[last] - a.X.offset[first], features = used.count();
    const int64_t blocks = (a.labels + kBlock - 1) / kBlock;
    const int64_t dense = kOfRegister * (entries + features) * blocks * (kBlock / kWide<T>)+kOfWeight *
                          (used.weights + features * blocks);
    const bool fits = features * kBlock * int64_t(sizeof(T)) <= kMostBytes;
    if (fits && dense < used.sparse) return block_sums<T>(a, sink, used, first, last);
  }
  sparse_sums<T>(a, sink, first, last);
}

template <class T>
void predict_topk(const PredictTopkArgs<T>& a, int64_t first, int64_t last) {
  sums<T>(a, ToBest<T>{a}, first, last);
}

template <class T>
void predict_scores(const PredictScoresArgs<T>& a, int64_t first, int64_t last) {
  sums<T>(a, ToAll<T>{a}, first, last);
}

template <class T>
void best_labels(const BestLabelsArgs<T>& a, int64_t first, int64_t last) {
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    BestLabels<T>{a.scores + i * a.k, a.best + i * a.k, a.k}.offer(a.z + i * a.labels, a.first_label,
                                                                   a.labels);
    poll(a.labels / kWide<T>);
  }
}

#define XMCJAX_BOTH(name, Args)                                    \
  template void name<float>(const Args<float>&, int64_t, int64_t); \
  template void name<double>(const Args<double>&, int64_t, int64_t);
XMCJAX_BOTH(predict_topk, PredictTopkArgs)
XMCJAX_BOTH(predict_scores, PredictScoresArgs)
XMCJAX_BOTH(best_labels, BestLabelsArgs)

}  // namespace xmcjax::XMCJAX_ISA
