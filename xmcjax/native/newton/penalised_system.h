// The quadratic model of one lane with a penalty that is not ½ ‖w‖², on its active rows and on the
// columns in which these have entries, and its minimum by coordinate descent and conjugate gradients.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/aligned.h"
#include "core/isa.h"
#include "core/simd.h"
#include "newton/near_rows.h"
#include "newton/penalties.h"

namespace xmcjax::XMCJAX_ISA {

// min_p  gᵀp + ½ pᵀ Xᵀ D X p + R(w + p),  the bias as a column of ones with a penalty of its own.
//
// Glmnet's step: G. Yuan, C. Ho, C. Lin, "An improved GLMNET for l1-regularized logistic regression",
// 2012. In columns without an active entry the minimum is at w + p = 0. A sweep of coordinate descent finds
// which weights are zero; conjugate gradients on the others, along which the model is quadratic as far as
// no weight changes its sign, take the place of the hundreds of sweeps that correlated columns need.
template <class T>
class PenalisedSystem {
 public:
  // g = Xᵀ ℓ' and the diagonal of Xᵀ D X in the columns of the active rows. `w` is the lane's.
  void build(const Csr<T>& X, const std::vector<Entry<T>>& entries, const T* w) {
    rows_ = int64_t(entries.size()), padded_ = (rows_ + N - 1) / N * N;
    if (int64_t(slot_.size()) < X.d) slot_.assign(X.d, -1);
    global_.clear(), gradient_.clear(), diagonal_.clear();
    slope_.assign(padded_, T(0)), curvature_.assign(padded_, T(0)), margin_.assign(padded_, T(0));
    gradient_bias_ = curvature_sum_ = 0;
    int64_t count = 0;
    for (int64_t r = 0; r < rows_; ++r) {
      const T slope = slope_[r] = entries[r].slope, curvature = curvature_[r] = entries[r].curvature;
      gradient_bias_ += slope, curvature_sum_ += curvature;
      count += X.offset[entries[r].row + 1] - X.offset[entries[r].row];
    }
    whole_ = rows_ > 0 && count >= rows_ * X.d / 2;
    if (whole_) list_whole(X, entries);
    else list_entries(X, entries);
    before_.resize(columns_), point_.resize(columns_);
    for (int64_t s = 0; s < columns_; ++s) point_[s] = before_[s] = w[global_[s]];
  }

  // ‖v‖², v_j the distance of −g_j to ∂R(w_j), without the bias. The columns that are not here have g = 0.
  double violation2(const Penalty<T>& penalty, const T* w, int64_t d) const {
    double sum = 0;
    for (int64_t j = 0; j < d; ++j) {
      if (slot_[j] < 0 && w[j] == 0) continue;
      const double v = penalty.violation(slot_[j] < 0 ? T(0) : gradient_[slot_[j]], w[j]);
      sum += v * v;
    }
    return sum;
  }
  double gradient_bias() const { return gradient_bias_; }

  struct Direction {
    T bias;           // of p
    double slope;     // gᵀp + R(w + p) − R(w)
    double decrease;  // of the model, −(slope + ½ pᵀ Xᵀ D X p)
    int32_t sweeps;
  };

  // Sweeps of cyclic coordinate descent, conjugate gradients between them, until a sweep changes little.
  // Replaces `w` by p. `most` bounds sweeps and products together.
  Direction solve(const Penalty<T>& penalty, const Penalty<T>* of_bias, T bias, T tolerance, int32_t most,
                  T* w, int64_t d) {
    Direction result{0, 0, 0, 1};
    at_bias_ = bias;
    const double first = sweep(penalty, of_bias);
    for (double moved = first; moved > 0 && result.sweeps < most;) {
      for (bool kink = true; kink && result.sweeps < most;)
        result.sweeps += face(penalty, of_bias, most - result.sweeps, kink);
      ++result.sweeps;
      moved = sweep(penalty, of_bias);
      if (moved <= tolerance * first) break;
    }
    for (int64_t j = 0; j < d; ++j) {  // elsewhere the minimum is 0
      if (slot_[j] >= 0) continue;
      if (w[j] != 0) result.slope -= penalty.value(w[j]);
      w[j] = -w[j];
    }
    for (int64_t s = 0; s < columns_; ++s) {
      const T p = point_[s] - before_[s];
      if (p != 0)
        result.slope += double(gradient_[s]) * p + (penalty.value(point_[s]) - penalty.value(before_[s]));
      w[global_[s]] = p;
    }
    result.bias = at_bias_ - bias;
    result.slope += gradient_bias_ * result.bias;
    if (of_bias) result.slope += of_bias->value(at_bias_) - of_bias->value(bias);
    double square = 0;
    for (int64_t r = 0; r < rows_; ++r) square += double(curvature_[r]) * margin_[r] * margin_[r];
    result.decrease = -(result.slope + 0.5 * square);
    return result;
  }

  // Leaves the numbering as it was found.
  void close() {
    for (const int32_t c : global_) slot_[c] = -1;
  }

  bool has_bias = false;

 private:
  static constexpr int N = kLanes<T>;

  // The columns by their entries.
  void list_entries(const Csr<T>& X, const std::vector<Entry<T>>& entries) {
    begin_.assign(1, 0);
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t k = X.offset[entries[r].row]; k < X.offset[entries[r].row + 1]; ++k) {
        const int32_t c = X.column[k];
        if (slot_[c] < 0) {
          slot_[c] = int32_t(global_.size());
          global_.push_back(c), begin_.push_back(0), gradient_.push_back(0), diagonal_.push_back(0);
        }
        const int32_t s = slot_[c];
        ++begin_[s + 1];
        gradient_[s] += slope_[r] * X.value[k];
        diagonal_[s] += curvature_[r] * X.value[k] * X.value[k];
      }
    columns_ = int64_t(global_.size());
    for (int64_t s = 0; s < columns_; ++s) begin_[s + 1] += begin_[s];
    row_.resize(begin_[columns_]), value_.resize(begin_[columns_]);
    fill_.assign(begin_.begin(), begin_.end() - 1);
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t k = X.offset[entries[r].row]; k < X.offset[entries[r].row + 1]; ++k) {
        const int64_t at = fill_[slot_[X.column[k]]]++;
        row_[at] = int32_t(r), value_[at] = X.value[k];
      }
  }

  // All columns with all active rows, where at least half of the entries are there.
  void list_whole(const Csr<T>& X, const std::vector<Entry<T>>& entries) {
    columns_ = X.d;
    value_.assign(columns_ * padded_, T(0));
    begin_.resize(columns_ + 1), global_.resize(columns_), gradient_.resize(columns_);
    diagonal_.resize(columns_);
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t k = X.offset[entries[r].row]; k < X.offset[entries[r].row + 1]; ++k)
        value_[X.column[k] * padded_ + r] += X.value[k];
    for (int64_t s = 0; s <= columns_; ++s) begin_[s] = s * padded_;
    for (int64_t s = 0; s < columns_; ++s) {
      slot_[s] = global_[s] = int32_t(s);
      gradient_[s] = product(s, [&](int64_t r) { return load(&slope_[r]); });
      diagonal_[s] = product(s, [&](int64_t r) { return load(&curvature_[r]) * column(s, r); });
    }
  }

  Vec<T> column(int64_t s, int64_t r) const { return load(&value_[begin_[s] + r]); }

  // Σ_r x_rs f(r) of a whole column, f of a vector of rows.
  template <class F>
  T product(int64_t s, const F& f) const {
    Vec<T> a{}, b{};
    int64_t r = 0;
    for (; r + N < padded_; r += 2 * N) a += column(s, r) * f(r), b += column(s, r + N) * f(r + N);
    if (r < padded_) a += column(s, r) * f(r);
    const Vec<T> sums = a + b;
    return total<T, sizeof(sums)>(&sums);
  }

  // Σ_j h_j |change of w_j|
  double sweep(const Penalty<T>& penalty, const Penalty<T>* of_bias) {
    double moved = 0;
    if (has_bias && curvature_sum_ > 0) {
      double g = gradient_bias_;
      for (int64_t r = 0; r < rows_; ++r) g += curvature_[r] * margin_[r];
      const T h = T(curvature_sum_), hu = h * at_bias_ - T(g);
      const T change = (of_bias ? of_bias->minimiser(h, hu) : hu / h) - at_bias_;
      move_bias(change);
      moved += std::fabs(double(h) * change);
    } else if (has_bias && of_bias && gradient_bias_ == 0) {
      move_bias(-at_bias_);  // no loss changes, and the penalty is least at 0
    }
    const Poll poll;
    for (int64_t s = 0; s < columns_; ++s) {
      poll(2 * (begin_[s + 1] - begin_[s]) + 1);
      const T h = diagonal_[s];
      if (!(h > 0) && gradient_[s] != 0) continue;
      // where all entries of the column are zero, the minimum is 0
      const T hu = h * point_[s] - (gradient_[s] + against(s, margin_));
      const T change = (h > 0 ? penalty.minimiser(h, hu) : T(0)) - point_[s];
      if (change == 0) continue;
      point_[s] += change;
      along(s, change, margin_);
      moved += std::fabs(double(h) * change);
    }
    return moved;
  }

  void move_bias(T change) {
    at_bias_ += change;
    for (int64_t r = 0; r < rows_; ++r) margin_[r] += change;
  }

  // x_sᵀ D v
  T against(int64_t s, const Array<T>& v) const {
    if (whole_) return product(s, [&](int64_t r) { return load(&curvature_[r]) * load(&v[r]); });
    T a = 0, b = 0;
    int64_t k = begin_[s];
    const int64_t last = begin_[s + 1];
    for (; k + 1 < last; k += 2) {
      a += value_[k] * (curvature_[row_[k]] * v[row_[k]]);
      b += value_[k + 1] * (curvature_[row_[k + 1]] * v[row_[k + 1]]);
    }
    if (k < last) a += value_[k] * (curvature_[row_[k]] * v[row_[k]]);
    return a + b;
  }
  // v += t x_s
  void along(int64_t s, T t, Array<T>& v) const {
    if (whole_) {
      for (int64_t r = 0; r < padded_; r += N) store(&v[r], load(&v[r]) + t * column(s, r));
    } else {
      for (int64_t k = begin_[s]; k < begin_[s + 1]; ++k) v[row_[k]] += t * value_[k];
    }
  }
  T against_ones(const Array<T>& v) const {
    double sum = 0;
    for (int64_t r = 0; r < rows_; ++r) sum += double(curvature_[r]) * v[r];
    return T(sum);
  }

  // Conjugate gradients with the diagonal as preconditioner on the weights around which the penalty is smooth,
  // the bias last among them. They end where a weight meets a `kink`, at which it then stays: the columns of
  // these weights may depend on each other, and then there is no minimum before a kink. Returns the products made.
  int32_t face(const Penalty<T>& penalty, const Penalty<T>* of_bias, int32_t most, bool& kink) {
    kink = false;
    face_.clear(), residual_.clear(), inverse_.clear(), added_.clear();
    const auto open = [&](int64_t s, T gradient, T diagonal, T added) {
      face_.push_back(s), residual_.push_back(-gradient), added_.push_back(added);
      inverse_.push_back(T(1) / (diagonal + added));
    };
    for (int64_t s = 0; s < columns_; ++s)
      if (penalty.smooth_at(point_[s]) && diagonal_[s] > 0)
        open(s, gradient_[s] + against(s, margin_) + penalty.slope(point_[s]), diagonal_[s],
             penalty.curvature(point_[s]));
    if (has_bias && curvature_sum_ > 0 && (!of_bias || of_bias->smooth_at(at_bias_)))
      open(-1, T(gradient_bias_) + against_ones(margin_) + (of_bias ? of_bias->slope(at_bias_) : T(0)),
           T(curvature_sum_), of_bias ? of_bias->curvature(at_bias_) : T(0));
    const size_t size = face_.size();
    if (size == 0) return 0;
    step_.assign(size, T(0)), search_.resize(size);
    double rz = 0;
    for (size_t f = 0; f < size; ++f)
      search_[f] = inverse_[f] * residual_[f], rz += double(residual_[f]) * search_[f];
    const double enough = kFaceTolerance * kFaceTolerance * rz;
    int32_t products = 0;
    while (products < most && products < kMostFaceSteps && rz > enough && rz > 0) {
      ++products;
      spread(search_);
      double curved = 0;
      image_.resize(size);
      for (size_t f = 0; f < size; ++f) {
        const T hit = face_[f] < 0 ? against_ones(moved_) : against(face_[f], moved_);
        image_[f] = hit + added_[f] * search_[f];
        curved += double(image_[f]) * search_[f];
      }
      if (!(curved > 0)) break;
      const T alpha = T(rz / curved);
      T room = alpha;
      for (size_t f = 0; f < size; ++f) {
        const Penalty<T>* own = face_[f] < 0 ? of_bias : &penalty;
        const T at = (face_[f] < 0 ? at_bias_ : point_[face_[f]]) + step_[f];
        if (own) room = std::fmin(room, own->room(at, search_[f]));
      }
      if (room < alpha) {
        kink = true;
        // all weights that would pass a kink stop there, or, if that does not lower the model, only the first of them
        longer_ = step_;
        for (size_t f = 0; f < size; ++f) longer_[f] += alpha * search_[f], step_[f] += room * search_[f];
        std::swap(longer_, step_);
        products += 2;
        if (take(T(1), penalty, of_bias)) return products;
        std::swap(longer_, step_);
        for (size_t f = 0; f < size; ++f) {  // the first one ends exactly at it
          const T from = face_[f] < 0 ? at_bias_ : point_[face_[f]];
          if ((face_[f] >= 0 || of_bias) && std::fabs(from + step_[f]) <= 4 * kEpsilon * std::fabs(from))
            step_[f] = -from;
        }
        kink = take(T(1), penalty, of_bias);
        return products;
      }
      double next = 0;
      for (size_t f = 0; f < size; ++f) {
        step_[f] += alpha * search_[f];
        residual_[f] -= alpha * image_[f];
        next += double(residual_[f]) * residual_[f] * inverse_[f];
      }
      const T beta = T(next / rz);
      rz = next;
      for (size_t f = 0; f < size; ++f) search_[f] = inverse_[f] * residual_[f] + beta * search_[f];
    }
    search_.resize(size);
    for (T part = 1; part > T(0.01); part *= T(0.5))
      if (take(part, penalty, of_bias)) break;
    return products;
  }

  // moved = X v of a vector on the face
  void spread(const std::vector<T>& v) {
    moved_.assign(padded_, T(0));
    const Poll poll;
    for (size_t f = 0; f < face_.size(); ++f) {
      poll(face_[f] < 0 ? rows_ : begin_[face_[f] + 1] - begin_[face_[f]]);
      if (face_[f] >= 0) along(face_[f], v[f], moved_);
      else
        for (T& m : moved_) m += v[f];
    }
  }

  // Makes a part of the step where that lowers the model.
  bool take(T part, const Penalty<T>& penalty, const Penalty<T>* of_bias) {
    double change = 0;
    for (size_t f = 0; f < face_.size(); ++f) {
      const int64_t s = face_[f];
      const Penalty<T>* own = s < 0 ? of_bias : &penalty;
      const T from = s < 0 ? at_bias_ : point_[s], to = from + part * step_[f];
      search_[f] = (own ? own->stop(from, to) : to) - from;
      change += (s < 0 ? gradient_bias_ : double(gradient_[s])) * search_[f];
      if (own) change += own->value(from + search_[f]) - own->value(from);
    }
    spread(search_);
    for (int64_t r = 0; r < rows_; ++r)
      change += double(curvature_[r]) * moved_[r] * (margin_[r] + T(0.5) * moved_[r]);
    if (!(change < 0)) return false;
    for (size_t f = 0; f < face_.size(); ++f) (face_[f] < 0 ? at_bias_ : point_[face_[f]]) += search_[f];
    for (int64_t r = 0; r < rows_; ++r) margin_[r] += moved_[r];
    return true;
  }

  static constexpr T kEpsilon = sizeof(T) == 4 ? T(0x1p-23) : T(0x1p-52);
  static constexpr double kFaceTolerance = 0.1;
  static constexpr int32_t kMostFaceSteps = 50;

  std::vector<int64_t> face_;    // columns, −1 for the bias
  std::vector<T> residual_, inverse_, added_, search_, image_, step_, longer_;  // on the face
  std::vector<int32_t> slot_;    // [d], the new number of a column; −1 between lanes
  std::vector<int32_t> global_;  // [columns], the old one
  std::vector<int64_t> begin_, fill_;
  std::vector<int32_t> row_;
  std::vector<T> gradient_, diagonal_, before_, point_;          // of columns
  Array<T> value_;                                               // column by column
  Array<T> slope_, curvature_, margin_, moved_;                  // of rows: ℓ', D, X p, X v
  double gradient_bias_ = 0, curvature_sum_ = 0;
  T at_bias_ = 0;
  int64_t rows_ = 0, padded_ = 0, columns_ = 0;
  bool whole_ = false;  // whether columns have all rows, and zeros up to `padded_`
};

}  // namespace xmcjax::XMCJAX_ISA
