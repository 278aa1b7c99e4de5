// The features as dual ascent over instances sees them: scores of a block of instances, products
// among its rows, and the weights that follow a change of its dual variables.
//
// `scores` and `changes` of a block are class-major: class j of the block's p-th instance stands at
// [j * stride + p] of the scores; changes are [instances, classes], rows of `padded` entries.
// a_i = (1ᵀx at y, -x elsewhere) are the coefficients of instance i: W = Xᵀ A.
#pragma once

#include <algorithm>
#include <cstring>

#include "core/aligned.h"
#include "core/csr_rows.h"
#include "core/interrupt.h"
#include "core/isa.h"
#include "dual/row_dots.h"

namespace xmcjax::XMCJAX_ISA {

// Features of one kind. The calls are few beside the work of each, so that they may be virtual, and the code of a
// visit is compiled once for all kinds.
template <class T>
class Features {
 public:
  virtual ~Features() = default;
  // Makes `ids` the rows that the other members are about.
  virtual void take(const int32_t* ids, int64_t count) = 0;
  // Asks for a row that will be taken soon.
  virtual void prefetch(int32_t) const {}
  virtual void scores(T* out, int64_t stride) const = 0;
  // Products of the rows, [count, count].
  virtual void gram(T* out, int64_t stride) const = 0;
  // Adds to the weights what the changes of the block's p-th instance give: w_j += change_j x_p.
  virtual void add_row(int64_t p, const T* change) const = 0;
  // Puts the weights back where they came from.
  virtual void finish() const {}
};

// w_j += a_j x_p for the classes j whose a_j in a row of changes is not 0.
template <class T, class Some>
inline void add_nonzeros(const Some& features, int64_t p, const T* change, int64_t m) {
  int64_t j = 0;
  for (; j + kWide<T> <= m; j += kWide<T>) {
    const Wide<T> c = load_wide(change + j);
    for (unsigned mask = nonzero(c); mask; mask &= mask - 1) {
      const int64_t l = j + __builtin_ctz(mask);
      features.add(p, l, change[l]);
    }
  }
  for (; j < m; ++j)
    if (change[j] != 0) features.add(p, j, change[j]);
}

// X as an array; weights [classes, d].
template <class T>
class DenseFeatures final : public Features<T> {
 public:
  static constexpr bool kInBlocks = true;

  DenseFeatures(const InstanceDualArgs<T>& args, T* weights, int64_t block)
      : X_(args.X), d_(args.columns), m_(args.classes), width_(whole<T>(d_)), weights_(weights),
        rows_(block * width_) {
    if (width_ == d_) {
      W_ = weights_;
      return;
    }
    copy_ = Zeros<T>(m_ * width_);
    W_ = copy_.get();
    for (int64_t j = 0; j < m_; ++j) std::memcpy(W_ + j * width_, weights_ + j * d_, d_ * sizeof(T));
  }

  void take(const int32_t* ids, int64_t count) override {
    count_ = count;
    if (width_ == d_ && ids[count - 1] - ids[0] + 1 == count && std::is_sorted(ids, ids + count)) {
      x_ = X_ + int64_t(ids[0]) * d_;
      return;
    }
    x_ = rows_.get();
    for (int64_t p = 0; p < count; ++p)
      std::memcpy(rows_.get() + p * width_, X_ + int64_t(ids[p]) * d_, d_ * sizeof(T));
  }
  void prefetch(int32_t id) const override {
    const T* row = X_ + int64_t(id) * d_;
    for (int64_t k = 0; k < d_; k += kAlignment / int64_t(sizeof(T))) __builtin_prefetch(row + k, 0, 2);
  }

  void scores(T* out, int64_t stride) const override {
    row_dots(x_, width_, count_, W_, width_, m_, width_, out, stride);
  }

  // The triangle on and above the diagonal is worked out.
  void gram(T* out, int64_t stride) const override {
    for (int64_t p = 0; p < count_; p += 2 * kTileW) {
      const int64_t rows = std::min<int64_t>(2 * kTileW, count_ - p);
      row_dots(x_ + p * width_, width_, count_ - p, x_ + p * width_, width_, rows, width_,
               out + p * stride + p, stride);
    }
    for (int64_t p = 1; p < count_; ++p)
      for (int64_t q = 0; q < p; ++q) out[p * stride + q] = out[q * stride + p];
  }

  // w_j += a x_p
  void add(int64_t p, int64_t j, T a) const { add_scaled(a, x_ + p * width_, width_, W_ + j * width_); }
  void add_row(int64_t p, const T* change) const override { add_nonzeros(*this, p, change, m_); }

  void finish() const override {
    if (W_ == weights_) return;
    for (int64_t j = 0; j < m_; ++j) std::memcpy(weights_ + j * d_, W_ + j * width_, d_ * sizeof(T));
  }

 private:
  const T* X_;
  int64_t d_, m_, width_, count_ = 0;
  T *weights_, *W_;
  const T* x_ = nullptr;  // the rows taken, in X itself where they follow each other there
  Zeros<T> rows_, copy_;
};

// The matrix K of inner products; "weights" are the scores of all instances, [classes, n].
template <class T>
class GramFeatures final : public Features<T> {
 public:
  static constexpr bool kInBlocks = true;

  GramFeatures(const InstanceDualArgs<T>& args, T* weights, int64_t)
      : K_(args.X), n_(args.n), m_(args.classes), scores_(weights) {}

  void take(const int32_t* ids, int64_t count) override { ids_ = ids, count_ = count; }

  void scores(T* out, int64_t stride) const override {
    for (int64_t j = 0; j < m_; ++j)
      for (int64_t p = 0; p < count_; ++p) out[j * stride + p] = scores_[j * n_ + ids_[p]];
  }
  void gram(T* out, int64_t stride) const override {
    for (int64_t p = 0; p < count_; ++p)
      for (int64_t q = 0; q < count_; ++q) out[p * stride + q] = K_[int64_t(ids_[p]) * n_ + ids_[q]];
  }
  void add(int64_t p, int64_t j, T a) const {
    add_scaled(a, K_ + int64_t(ids_[p]) * n_, n_, scores_ + j * n_);
  }
  void add_row(int64_t p, const T* change) const override { add_nonzeros(*this, p, change, m_); }

 private:
  const T* K_;
  int64_t n_, m_, count_ = 0;
  T* scores_;
  const int32_t* ids_ = nullptr;
};

// X in CSR form; weights [d, classes], so that one non-zero meets one run of classes.
template <class T>
class CsrFeatures final : public Features<T> {
 public:
  static constexpr bool kInBlocks = false;  // products among sparse rows cost more than scores

  CsrFeatures(const InstanceDualArgs<T>& args, T* weights, int64_t)
      : X_(args.csr), m_(args.classes), W_(weights), changed_(m_) {}

  void take(const int32_t* ids, int64_t) override { row_ = ids[0]; }

  void scores(T* out, int64_t) const override {
    row_scores<8>(X_, row_, W_, m_, static_cast<const T*>(nullptr), out);
  }

  void gram(T*, int64_t) const override {}

  // Few changed classes are reached one by one, many as a run.
  void add_row(int64_t, const T* change) const override {
    constexpr int N = kWide<T>;
    int64_t count = 0;
    for (int64_t j = 0; j < m_; ++j)
      if (change[j] != 0) changed_[count++] = int32_t(j);
    if (!count) return;
    if (count * N > m_ + 3 * N) return row_update(X_, row_, change, m_, W_);
    for (int64_t k = X_.offset[row_]; k < X_.offset[row_ + 1]; ++k) {
      T* w = W_ + X_.column[k] * m_;
      for (int64_t t = 0; t < count; ++t) w[changed_[t]] += X_.value[k] * change[changed_[t]];
    }
  }

 private:
  Csr<T> X_;
  int64_t m_, row_ = 0;
  T* W_;
  Zeros<int32_t> changed_;
};

}  // namespace xmcjax::XMCJAX_ISA
