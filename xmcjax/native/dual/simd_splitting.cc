// The alternating direction method of multipliers for Lee-Lin-Wahba with sparse features: what a step of solvers/_admm.py
// does there, for tiles of classes side by side.
//
//   α⁺ = clip(A + ρ (1 + X W), 0, C),  O = centred(Xᵀ α⁺),  Δ = K⁻¹ (W + 2 O - V),  K = I + ρ XᵀX,
//   W -= κ Δ,  A += κ (α⁺ - A),  V += κ (O - V)
//
// Centring subtracts the mean over the classes, and K is the same for all classes: O and V are kept without centring,
// and their means as vectors of their own. The last mean s_i of a row is subtracted from its α⁺ first, which centring
// takes away anyhow: O is then a sum of small terms. It is summed in double.
//
// K⁻¹ has one of two forms, each with a dense system that the caller solves in between. By features, K = L (I ⊕ S) Lᵀ
// of gram_factor.h: forward through L, S⁻¹, back through Lᵀ. By rows, K⁻¹ = I - ρ Xᵀ (I + ρ XXᵀ)⁻¹ X.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/aligned.h"
#include "dual/driver.h"
#include "dual/gram_factor.h"
#include "dual/wide_sums.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

template <class T>
class Splitting final : public Driver<T, MulticlassSplitting> {
  using Base = Driver<T, MulticlassSplitting>;
  using Base::C_, Base::m_, Base::norm2_, Base::threads_, Base::X_, Base::y_;
  static constexpr int N = kLanes<T>, D = kLanes<double>;
  // Sums over classes are put together from at most so many parts, whatever the number of threads.
  static constexpr int64_t kParts = 16;
  // Numbers of a sum in T, which then goes into a double.
  static constexpr int64_t kSome = 64;
  // How far ahead numbers are fetched, in rows, and in entries and columns of a factor: a tile is as large as a cache.
  static constexpr int64_t kAhead = 4, kEntriesAhead = 16, kColumnsAhead = 8;
  using V = Vec<T>;

  // What a part of the tiles adds to sums over all classes.
  struct Part {
    double loss = 0, gain = 0, moved = 0, primal = 0, dual = 0, step = 0, curved = 0;
    std::vector<double> mean, rows;  // Σ_c O_jc, Σ_c α⁺_ic
  };

 public:
  explicit Splitting(const MulticlassNewArgs<T>& args)
      : Base(args), tiles_((m_ + N - 1) / N), W_(tiles_ * X_.d * N), best_W_(tiles_ * X_.d * N),
        V_(tiles_ * X_.d * N), R_(tiles_ * X_.d * N), A_(tiles_ * X_.n * N), new_(tiles_ * X_.n * N),
        best_(tiles_ * X_.n * N), mean_(X_.d, 0.0), shift_(X_.d, 0.0), rows_mean_(X_.n, 0.0),
        parts_(std::min(tiles_, kParts)) {}

  int64_t eliminate(int64_t most) override {
    if (!factor_) factor_ = std::make_unique<GramFactor<T>>(X_);
    factor_->eliminate(most);
    return factor_->dense();
  }
  int64_t factor_entries() const override { return factor_ ? factor_->entries() : 0; }

  void factor(double rho, double* S) override { factor_->factor(rho, S); }
  void by_rows() override { factor_.reset(); }
  bool factors() const override { return factor_ != nullptr; }
  int64_t size() const override { return factor_ ? factor_->dense() : X_.n; }

  // Makes V and W from α; returns ‖α‖² and ‖X W‖².
  Begun begin() override {
    Begun found{0, 0};
    std::vector<double> sums(X_.n, 0.0);
    for (int64_t t = 0; t < tiles_; ++t)
      for (int64_t i = 0; i < X_.n; ++i) sums[i] += sum_of_lanes<double>(load(A_.get() + (t * X_.n + i) * N));
    for (int64_t i = 0; i < X_.n; ++i) rows_mean_[i] = sums[i] / double(m_);
    each_part([&](Part& part, int64_t t, double* O) {
      const T* A = A_.get() + t * X_.n * N;
      const V real = mask(t);
      const Poll poll;
      for (int64_t i = 0; i < X_.n; ++i) {
        poll(2 * entries(X_, i));
        scatter(i, (load(A + i * N) - T(rows_mean_[i])) * real, O);
      }
      for (int64_t j = 0; j < X_.d; ++j) {
        part.mean[j] += sum_of<N>(O + j * N);
        store(V_.get() + (t * X_.d + j) * N, narrow<T>(O + j * N));
      }
    });
    take_means(1);
    parallel(tiles_, 1, threads_, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t)
        for (int64_t j = 0; j < X_.d; ++j)
          store(W_.get() + (t * X_.d + j) * N, (T(mean_[j]) - load(V_.get() + (t * X_.d + j) * N)) * mask(t));
    });
    std::vector<Begun> parts(parts_);
    parallel(parts_, 1, threads_, [&](int64_t first, int64_t last) {
      const Poll poll;
      for (int64_t g = first; g < last; ++g)
        for (int64_t t = tiles_ * g / parts_; t < tiles_ * (g + 1) / parts_; ++t)
          for (int64_t i = 0; i < X_.n; ++i) {
            poll(entries(X_, i));
            const V z = row_dot_tile(X_, i, W_.get() + t * X_.d * N, N),
                    a = load(A_.get() + (t * X_.n + i) * N);
            parts[g].variables += sum_of_lanes<double>(V(a * a));
            parts[g].scores += sum_of_lanes<double>(V(z * z));
          }
    });
    for (const Begun& part : parts) found.variables += part.variables, found.scores += part.scores;
    return found;
  }

  // Works out α⁺; returns the numbers of W and α⁺. Moves A and V, and leaves the dense system's right-hand side,
  // [size, m], in `into`.
  Looked look(double rho, double relaxed, bool keep, void* into) override {
    const T r = T(rho), k = T(relaxed);
    T* right = static_cast<T*>(into);
    each_part([&](Part& part, int64_t t, double* O) {
      gains(part, t, r, k, keep, O);
      sides(part, t, k, O);
      forward(t, right);
    });
    Looked found{};
    take_means(relaxed);
    double mean2 = 0;
    for (int64_t j = 0; j < X_.d; ++j) mean2 += latest_[j] * latest_[j];
    for (const Part& part : all_) {
      found.loss += part.loss, found.gain += part.gain, found.moved += part.moved;
      found.primal += part.primal, found.dual += part.dual;
    }
    found.dual -= double(m_) * mean2;
    for (int64_t i = 0; i < X_.n; ++i) {
      double sum = 0;
      for (const Part& part : all_) sum += part.rows[i];
      rows_mean_[i] = sum / double(m_);
    }
    without_mean(right);
    return found;
  }

  // W -= κ Δ, from the solution of the dense system; ‖Δ‖² and, by features, ‖·‖² of what went forward through L₁.
  Moved move(double rho, double relaxed, const void* from) override {
    const T r = T(rho), k = T(relaxed);
    const T* solution = static_cast<const T*>(from);
    each_part([&](Part& part, int64_t t, double*) { back(part, t, r, k, solution); }, false);
    Moved found{0, 0};
    for (const Part& part : all_) found.step += part.step, found.curved += part.curved;
    return found;
  }

  void keep_weights() override { std::copy(W_.get(), W_.get() + tiles_ * X_.d * N, best_W_.get()); }
  void keep_alpha() override { std::swap(new_, best_); }

  void get_weights(void* out) const override {
    T* W = static_cast<T*>(out);
    for (int64_t c = 0; c < m_; ++c)
      for (int64_t j = 0; j < X_.d; ++j) W[j * m_ + c] = best_W_[(c / N * X_.d + j) * N + c % N];
  }

 protected:
  void take_row(int64_t i, std::vector<DualEntry>& row) const override {
    for (int64_t c = 0; c < m_; ++c)
      if (const T a = best_[(c / N * X_.n + i) * N + c % N]; a != 0) row.push_back({int32_t(c), double(a)});
  }
  void clear() override { std::fill(A_.get(), A_.get() + tiles_ * X_.n * N, T(0)); }
  void put_row(int64_t i, const std::vector<DualEntry>& row) override {
    for (const DualEntry& e : row) A_[(e.c / N * X_.n + i) * N + e.c % N] = T(e.value);
  }
  void settle_alpha() override { std::copy(A_.get(), A_.get() + tiles_ * X_.n * N, best_.get()); }

 private:
  // 1 where a lane of a tile is a class
  V mask(int64_t t) const {
    V real;
    for (int l = 0; l < N; ++l) real[l] = t * N + l < m_ ? T(1) : T(0);
    return real;
  }

  // f(part, tile, O) of all tiles, O [d, N] being zeros of double; the parts are put together in order afterwards.
  template <class F>
  void each_part(F&& f, bool sums = true) {
    all_.resize(parts_);
    parallel(parts_, 1, threads_, [&](int64_t first, int64_t last) {
      Zeros<double> O(sums ? X_.d * N : 0);
      for (int64_t g = first; g < last; ++g) {
        Part& part = all_[g];
        part.loss = part.gain = part.moved = part.primal = part.dual = part.step = part.curved = 0;
        if (sums) part.mean.assign(X_.d, 0.0), part.rows.assign(X_.n, 0.0);
        for (int64_t t = tiles_ * g / parts_; t < tiles_ * (g + 1) / parts_; ++t) {
          if (sums) std::fill(O.get(), O.get() + X_.d * N, 0.0);
          f(part, t, O.get());
        }
      }
    });
  }

  // O += x_i vᵀ
  void scatter(int64_t i, V v, double* O) const {
    static_assert(N == D || N == 2 * D);
    const T* value = X_.value;
    const int32_t* column = X_.column;
    const int64_t last = X_.offset[i + 1];
    const Vec<double> head = widened<T>(v, 0), tail = widened<T>(v, N - D);
    for (int64_t e = X_.offset[i]; e < last; ++e) {
      double* o = O + column[e] * N;
      const double x = double(value[e]);
      store(o, load(o) + x * head);
      if constexpr (N > D) store(o + D, load(o + D) + x * tail);
    }
  }

  // Works out α⁺ of a tile of classes, moves A, and adds to O and to the sums over rows.
  void gains(Part& part, int64_t t, T rho, T relaxed, bool keep, double* O) {
    const T* W = W_.get() + t * X_.d * N;
    T *A = A_.get() + t * X_.n * N, *kept = new_.get() + t * X_.n * N;
    const V real = mask(t), upper = real * C_;
    const Poll poll;
    V losses{}, moved{};
    for (int64_t i = 0; i < X_.n; ++i) {
      poll(3 * entries(X_, i));
      if (i + kAhead < X_.n)
        for (int64_t e = X_.offset[i + kAhead]; e < X_.offset[i + kAhead + 1]; ++e) {
          const int64_t place = X_.column[e] * N;
          __builtin_prefetch(W + place);
          for (int part = 0; part < N; part += D) __builtin_prefetch(O + place + part, 1);
        }
      V h = 1 + row_dot_tile(X_, i, W, N), most = upper, there = real;
      if (const int64_t own = y_[i] - t * N; own >= 0 && own < N) most[own] = there[own] = 0;
      const V old = load(A + i * N), now = minimum(maximum(V(old + rho * h), V{}), most), change = now - old;
      losses += maximum(V(h * there), V{});
      moved += change * change;
      if (i % kSome == kSome - 1 || i + 1 == X_.n) {
        part.loss += total_of<T>(losses), part.moved += total_of<T>(moved);
        losses = moved = V{};
      }
      const double sum = total_of<T>(now);
      part.rows[i] += sum;
      part.gain += sum;
      store(A + i * N, old + relaxed * change);
      if (keep) store(kept + i * N, now);
      scatter(i, (now - T(rows_mean_[i])) * real, O);
    }
  }

  // R = W + 2 O - V, and V
  void sides(Part& part, int64_t t, T relaxed, const double* O) {
    T *W = W_.get() + t * X_.d * N, *V_now = V_.get() + t * X_.d * N, *R = R_.get() + t * X_.d * N;
    Vec<double> dual{};
    for (int64_t first = 0; first < X_.d; first += kSome) {
      V primal{};
      for (int64_t j = first; j < std::min(first + kSome, X_.d); ++j) {
        const V w = load(W + j * N), v = load(V_now + j * N), o = narrow<T>(O + j * N);
        primal += w * w;
        for (int l = 0; l < N; l += D) dual += load(O + j * N + l) * load(O + j * N + l);
        part.mean[j] += sum_of<N>(O + j * N);
        store(R + j * N, w + 2 * o - v);
        store(V_now + j * N, v + relaxed * (o - v));
      }
      part.primal += total_of<T>(primal);
    }
    part.dual += sum_of_lanes<double>(dual);
  }

  // Forward through L, or X R; the dense part goes to `right`.
  void forward(int64_t t, T* right) {
    T* R = R_.get() + t * X_.d * N;
    const int64_t c = t * N, count = std::min<int64_t>(N, m_ - c);
    const Poll poll;
    if (!factor_) {
      for (int64_t i = 0; i < X_.n; ++i) {
        poll(entries(X_, i));
        put(row_dot_tile(X_, i, R, N), right + i * m_ + c, count);
      }
      return;
    }
    const GramFactor<T>& L = *factor_;
    const int32_t *order = L.order(), *feature = L.feature();
    const T* value = L.value();
    const int64_t whole = L.entries() - kEntriesAhead;
    for (int64_t s = 0, e = 0; s < L.sparse(); ++s) {
      const int64_t last = L.end(s);
      poll(last - e);
      fetch_column(s + kColumnsAhead, R);
      T* own = R + order[s] * N;
      const V y = load(own) * T(L.reciprocal(s));
      store(own, y);
      for (; e < last; ++e) {
        if (e < whole) __builtin_prefetch(R + feature[e + kEntriesAhead] * N, 1);
        T* below = R + feature[e] * N;
        store(below, load(below) - value[e] * y);
      }
    }
    for (int64_t k = 0; k < L.dense(); ++k)
      put(load(R + L.order()[L.sparse() + k] * N), right + k * m_ + c, count);
  }
  // Fetches what column s of L begins with.
  void fetch_column(int64_t s, const T* R) const {
    if (s >= 0 && s < factor_->sparse()) __builtin_prefetch(R + factor_->order()[s] * N, 1);
  }
  static void put(V v, T* out, int64_t count) { std::memcpy(out, &v, count * sizeof(T)); }

  // take_means(): the means of O, V and R over the classes. without_mean(): takes the mean of R forward as R goes, and
  // subtracts it from the right-hand side.
  void take_means(double relaxed) {
    latest_.assign(X_.d, 0.0);
    for (const Part& part : all_)
      for (int64_t j = 0; j < X_.d; ++j) latest_[j] += part.mean[j];
    for (int64_t j = 0; j < X_.d; ++j) {
      latest_[j] /= double(m_);
      shift_[j] = 2 * latest_[j] - mean_[j];
      mean_[j] += relaxed * (latest_[j] - mean_[j]);
    }
  }
  void without_mean(T* right) {
    const auto take = [&](int64_t k, double mean) {
      for (int64_t c = 0; c < m_; ++c) right[k * m_ + c] = T(double(right[k * m_ + c]) - mean);
    };
    if (!factor_) {
      for (int64_t i = 0; i < X_.n; ++i) {
        double mean = 0;
        for (int64_t e = X_.offset[i]; e < X_.offset[i + 1]; ++e)
          mean += double(X_.value[e]) * shift_[X_.column[e]];
        take(i, mean);
      }
      return;
    }
    const GramFactor<T>& L = *factor_;
    for (int64_t s = 0; s < L.sparse(); ++s) {
      const double y = shift_[L.order()[s]] *= L.reciprocal(s);
      for (int64_t e = L.begin(s); e < L.end(s); ++e) shift_[L.feature()[e]] -= L.wide()[e] * y;
    }
    for (int64_t k = 0; k < L.dense(); ++k) take(k, shift_[L.order()[L.sparse() + k]]);
  }

  // Δ of a tile in the place of R, and W
  void back(Part& part, int64_t t, T rho, T relaxed, const T* solution) {
    T *R = R_.get() + t * X_.d * N, *W = W_.get() + t * X_.d * N;
    const int64_t c = t * N, count = std::min<int64_t>(N, m_ - c);
    const V real = mask(t);
    const Poll poll;
    const auto take = [&](int64_t k) {
      V v{};
      std::memcpy(&v, solution + k * m_ + c, count * sizeof(T));
      return v;
    };
    if (!factor_) {
      for (int64_t i = 0; i < X_.n; ++i) {
        poll(entries(X_, i));
        row_add_tile(X_, i, V(-rho * take(i)), R, N);
      }
      for (int64_t j = 0; j < X_.d; ++j) store(R + j * N, (load(R + j * N) - T(shift_[j])) * real);
    } else {
      const GramFactor<T>& L = *factor_;
      for (int64_t k = 0; k < L.dense(); ++k) store(R + L.order()[L.sparse() + k] * N, take(k));
      const int32_t *order = L.order(), *feature = L.feature();
      const T* value = L.value();
      V curved{};
      for (int64_t s = L.sparse() - 1; s >= 0; --s) {
        const int64_t first = L.begin(s), last = L.end(s);
        poll(last - first);
        fetch_column(s - kColumnsAhead, R);
        T* own = R + order[s] * N;
        const V y = (load(own) - T(shift_[order[s]])) * real;
        V x = y, more{};
        int64_t e = first;
        for (; e + 1 < last; e += 2) {
          x -= value[e] * load(R + feature[e] * N);
          more -= value[e + 1] * load(R + feature[e + 1] * N);
        }
        if (e < last) x -= value[e] * load(R + feature[e] * N);
        x += more;
        store(own, x * T(L.reciprocal(s)));
        curved += y * y;
        if (s % kSome == 0) part.curved += total_of<T>(curved), curved = V{};
      }
    }
    for (int64_t first = 0; first < X_.d; first += kSome) {
      V step{};
      for (int64_t j = first; j < std::min(first + kSome, X_.d); ++j) {
        const V delta = load(R + j * N);
        step += delta * delta;
        store(W + j * N, load(W + j * N) - relaxed * delta);
      }
      part.step += total_of<T>(step);
    }
  }

  const int64_t tiles_;
  Zeros<T> W_, best_W_, V_, R_;  // [tiles, d, N]
  Zeros<T> A_, new_, best_;  // [tiles, n, N]
  std::vector<double> mean_, shift_;  // [d], means of V and of R
  std::vector<double> latest_;  // of O
  std::vector<double> rows_mean_;  // [n], of the last α⁺
  const int64_t parts_;
  std::vector<Part> all_;
  std::unique_ptr<GramFactor<T>> factor_;
};

}  // namespace

template <class T>
MulticlassSplitting* multiclass_splitting(const MulticlassNewArgs<T>& args) {
  return new Splitting<T>(args);
}
template MulticlassSplitting* multiclass_splitting(const MulticlassNewArgs<float>&);
template MulticlassSplitting* multiclass_splitting(const MulticlassNewArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
