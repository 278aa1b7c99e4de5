// The Newton system of one lane on its active rows, and on the columns in which these have entries:
// both are numbered anew, so that the products of CG stay in the nearest cache.
//
// In the other columns the system is λ I and its right-hand side −λ w: whatever CG does there is a
// multiple of w. One further column stands for all of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/aligned.h"
#include "core/csr_rows.h"
#include "core/isa.h"
#include "core/simd.h"
#include "newton/conjugate_gradients.h"
#include "newton/near_rows.h"

namespace xmcjax::XMCJAX_ISA {

template <class T>
class LaneSystem {
  static constexpr int N = kLanes<T>;
  using V = Vec<T>;

 public:
  // w += Xᵀ ℓ'
  static void add_slopes(const Csr<T>& X, const std::vector<Entry<T>>& entries, T* w) {
    const int64_t rows = int64_t(entries.size());
    const Poll poll;
    for (int64_t r = 0; r < rows; poll(XMCJAX_ISA::entries(X, entries[r++].row))) {
      if (r + kAhead < rows) prefetch(X, entries[r + kAhead].row);
      row_add_lane(X, entries[r].row, entries[r].slope, w, 1);
    }
  }

  // Builds g = λ w + Xᵀ ℓ' and u = Xᵀ ℓ'' 1. `w` has λ w of the lane in d elements and zeros up to `padded`, and if
  // `added` Xᵀ ℓ' too; it is zero in the active columns afterwards.
  void build(const Csr<T>& X, const std::vector<Entry<T>>& entries, T l2, T* w, int64_t padded, bool added) {
    w_ = w, padded_ = padded, l2_ = l2;
    rows_ = int64_t(entries.size());
    if (int64_t(slot_.size()) < X.d) slot_.assign(X.d, -1);
    int64_t entry_count = 0;
    for (const Entry<T>& e : entries) entry_count += X.offset[e.row + 1] - X.offset[e.row];
    make_room(begin_, rows_ + 1);
    make_room(curvature_, rows_);
    make_room(column_, entry_count);
    make_room(value_, entry_count);
    make_room(global_, entry_count + 1);
    int64_t at = 0;
    int32_t columns = 0;
    for (int64_t r = 0; r < rows_; ++r) {
      begin_[r] = at;
      curvature_[r] = entries[r].curvature;
      if (r + kAhead < rows_) prefetch(X, entries[r + kAhead].row);
      for (int64_t k = X.offset[entries[r].row]; k < X.offset[entries[r].row + 1]; ++k, ++at) {
        const int32_t c = X.column[k];
        const int32_t s = slot_[c], mine = s < 0 ? columns : s;
        global_[columns] = c;
        columns += s < 0;
        slot_[c] = mine;
        column_[at] = mine;
        value_[at] = X.value[k];
      }
    }
    begin_[rows_] = at;
    columns_ = columns;
    length_ = (columns_ + 1 + N - 1) / N * N;
    for (auto* v : {&gradient_, &ones_, &solution_, &residual_, &search_, &image_}) make_room(*v, length_);
    make_room(sums_, columns_);
    for (int64_t j = 0; j < columns_; ++j) {
      const int32_t c = global_[j];
      sums_[j] = Sums{w[c], 0};
      w[c] = 0;
      slot_[c] = -1;
    }
    rest_ = std::sqrt(dot(w, w, padded));
    for (int64_t r = 0; r < rows_; ++r) {
      const Sums of_row{added ? T(0) : entries[r].slope, entries[r].curvature};
      for (int64_t k = begin_[r]; k < begin_[r + 1]; ++k) sums_[column_[k]] += value_[k] * of_row;
    }
    for (int64_t j = 0; j < columns_; ++j) gradient_[j] = sums_[j][0], ones_[j] = sums_[j][1];
    for (int64_t j = columns_; j < length_; ++j) gradient_[j] = ones_[j] = 0;
    gradient_[columns_] = rest_;
  }

  double gradient_norm2() const { return dot(gradient_.data(), gradient_.data(), length_); }

  struct Direction {
    double slope, bias;  // gᵀδ, and δ_b
    int32_t cg_steps;
    bool settled;  // of CG
  };

  // CG on S δ = −g + u g_b / h with the bias eliminated,
  //   S = λ I + Xᵀ D X − u uᵀ / h,  δ_b = −(g_b + uᵀ δ) / h;  h = 0: no bias.
  Direction solve(T gradient_bias, T h, const CgEnd& end, const NewtonArgs<T>& a) {
    const T share = h > 0 ? gradient_bias / h : T(0);
    for (int64_t j = 0; j < length_; j += N)
      store(&residual_[j], share * load(&ones_[j]) - load(&gradient_[j]));
    if (a.preconditioner > 0) take_diagonal(a.preconditioner);
    ConjugateGradients<T> cg{solution_.data(),
                             residual_.data(),
                             search_.data(),
                             image_.data(),
                             a.preconditioner > 0 ? inverse_.data() : nullptr,
                             length_,
                             end};
    cg.start();
    Direction result{0, 0, 0, false};
    const Poll poll;
    for (bool more = true; more && result.cg_steps < a.max_cg; ++result.cg_steps) {
      multiply(h);
      poll(begin_[rows_] + length_ / N);
      more = cg.step();
    }
    if (h > 0) result.bias = -(gradient_bias + dot(ones_.data(), solution_.data(), length_)) / h;
    result.slope = dot(gradient_.data(), solution_.data(), length_);
    result.settled = cg.settled;
    return result;
  }

  // δ in all columns, in the place of what is left of λ w.
  void spread_direction() {
    const T factor = rest_ > 0 ? solution_[columns_] / rest_ : T(0);
    for (int64_t j = 0; j < padded_; j += N) store(w_ + j, factor * load(w_ + j));
    for (int64_t j = 0; j < columns_; ++j) w_[global_[j]] = solution_[j];
  }

 private:
  // image = S search
  void multiply(T h) {
    const T* p = search_.data();
    T* out = image_.data();
    const T mean = h > 0 ? T(dot(ones_.data(), p, length_)) / h : T(0);
    for (int64_t j = 0; j < length_; j += N) store(out + j, l2_ * load(p + j) - mean * load(&ones_[j]));
    const T* value = value_.data();
    const int32_t* column = column_.data();
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t last = begin_[r + 1];
      int64_t k = begin_[r];
      T a = 0, b = 0, c = 0, d = 0;
      for (; k + 3 < last; k += 4) {
        a += value[k] * p[column[k]];
        b += value[k + 1] * p[column[k + 1]];
        c += value[k + 2] * p[column[k + 2]];
        d += value[k + 3] * p[column[k + 3]];
      }
      for (; k < last; ++k) a += value[k] * p[column[k]];
      const T s = curvature_[r] * ((a + b) + (c + d));
      for (k = begin_[r]; k < last; ++k) out[column[k]] += value[k] * s;
    }
  }

  // Arrays that only grow: a part that is added is filled with zeros.
  template <class Numbers>
  static void make_room(Numbers& numbers, int64_t count) {
    if (int64_t(numbers.size()) < count) numbers.resize(count);
  }

  // The rows lie far apart: each is asked for before its turn.
  static constexpr int64_t kAhead = 3;
  static void prefetch(const Csr<T>& X, int64_t row) {
    const int64_t last = X.offset[row + 1];
    for (int64_t k = X.offset[row]; k < last; k += N) {
      __builtin_prefetch(X.column + k);
      __builtin_prefetch(X.value + k);
    }
  }

  // 1 / ((1−α) + α (λ + Σ_i D_i x_i²)), the preconditioner of LIBLINEAR
  void take_diagonal(T alpha) {
    inverse_.assign(length_, l2_);
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t k = begin_[r]; k < begin_[r + 1]; ++k)
        inverse_[column_[k]] += curvature_[r] * (value_[k] * value_[k]);
    for (T& one : inverse_) one = T(1) / ((1 - alpha) + alpha * one);
  }

  Array<int32_t> slot_;    // [d], the new number of a column; −1 between calls
  Array<int32_t> global_;  // [columns], the old one
  Array<int64_t> begin_;
  Array<int32_t> column_;
  Array<T> value_, curvature_;
  using Sums = typename VectorOf<T, 2 * sizeof(T)>::type;
  Array<Sums> sums_;  // g and u of a column, side by side
  Array<T> gradient_, ones_, solution_, residual_, search_, image_, inverse_;  // [length]
  T* w_ = nullptr;
  T l2_ = 0, rest_ = 0;  // rest: ‖λ w‖ in the columns that are not active
  int64_t rows_ = 0, columns_ = 0, length_ = 0, padded_ = 0;
};

}  // namespace xmcjax::XMCJAX_ISA
