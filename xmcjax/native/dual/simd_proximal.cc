// Proximal point steps on the dual of a multi-class SVM, each solved by a semismooth Newton method in
// the weights: the method of solvers/multiclass_dual/_proximal.py, in double, with the Newton systems
// solved by factorisation where they are small.
//
// Everything about an instance is a row of `width` numbers, one per class, padded to whole vectors. Where
// there is no dual variable the gain is -inf, which every projection sends to 0. For Crammer-Singer
// the variables are those of the simplex, with the slack in the place of the true class.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/aligned.h"
#include "core/csr_rows.h"
#include "core/interrupt.h"
#include "dual/cholesky.h"
#include "dual/driver.h"
#include "projections/projection_math.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

constexpr int64_t kMaxNewton = 60;
constexpr int kMaxSearch = 25;
constexpr size_t kTogether = 8;  // rows whose squares are added at once
constexpr int64_t kProjection = 20;  // passes over a row that the projection costs, about
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Proximal final : public MulticlassProximal {
  static constexpr int N = kLanes<double>;
  using V = Vec<double>;

 public:
  template <class T>
  explicit Proximal(const MulticlassNewArgs<T>& args)
      : MulticlassProximal(args.X.n), value_(args.X.value, args.X.value + args.X.offset[args.X.n]),
        X_{args.X.n, args.X.d, value_.data(), args.X.column, args.X.offset}, wide_(sizeof(T) == 8),
        y_(args.y), m_(args.classes), width_((m_ + N - 1) / N * N), stride_(m_ == 1 ? 1 : width_),
        form_{args.formulation, args.classes, args.C}, C_(args.C), upper_(form_.upper()),
        ridge_(form_.ridge()), cost_(args.cost), W_(X_.d * stride_), D_(X_.d * stride_),
        gradient_(X_.d * stride_), alpha_(X_.n * width_), a_(X_.n * width_), gains_(X_.n * width_),
        h_(X_.n * width_), row_(width_), work_(projection_work(width_)) {
    double longest = 0;
    for (int64_t i = 0; i < X_.n; ++i) longest = std::max(longest, squared_norm(X_, i));
    reach_ = std::sqrt(2 * longest);
  }

  Assessment step(double tolerance, int64_t most) override {
    if (!(sigma_ > 0)) {
      here_ = certify();
      // the first step is to bring the violation to a third of the margin 1, or of itself where it is smaller
      sigma_ = 3 * mean_cost() / std::min(1.0, std::max(here_.violation, 1e-12));
    }
    const int64_t newton = minimise(tolerance, std::min(most, kMaxNewton));
    newton_steps += newton;
    old_.assign(alpha_.get(), alpha_.get() + X_.n * width_);
    std::copy(a_.get(), a_.get() + X_.n * width_, alpha_.get());
    weights(W_.get());
    const Assessment found = certify();
    const double rounding = 1e-15 * std::fabs(found.primal);
    if (found.dual >= here_.dual - rounding) {
      failures = found.dual > here_.dual ? 0 : failures + 1;
      sigma_ *= newton <= 8 ? 10 : 4;
      here_ = found;
    } else {
      ++failures;
      sigma_ /= 10;
      std::copy(old_.begin(), old_.end(), alpha_.get());
      weights(W_.get());
    }
    return here_;
  }

  void get_weights(void* out) const override {
    if (wide_) put_weights(static_cast<double*>(out));
    else put_weights(static_cast<float*>(out));
  }

 protected:
  void take_row(int64_t i, std::vector<DualEntry>& row) const override {
    for (int64_t c = 0; c < m_; ++c)
      if (form_.exists(c, y_[i]) && alpha_[i * width_ + c] > 0)
        row.push_back({int32_t(c), alpha_[i * width_ + c]});
  }
  void clear() override { std::fill(alpha_.get(), alpha_.get() + X_.n * width_, 0.0); }
  void put_row(int64_t i, const std::vector<DualEntry>& row) override {
    double sum = 0;
    for (const DualEntry& e : row) alpha_[i * width_ + e.c] = e.value, sum += e.value;
    if (form_.simplex()) alpha_[i * width_ + y_[i]] = std::max(0.0, C_ - sum);
  }
  void settle_alpha() override {
    weights(W_.get());
    sigma_ = 0;
  }

 private:
  template <class T>
  void put_weights(T* W) const {
    for (int64_t j = 0; j < X_.d; ++j)
      for (int64_t c = 0; c < m_; ++c) W[j * m_ + c] = T(W_[j * stride_ + c]);
  }

  // --- products with the rows of X

  // Whether a row has all features.
  bool full(int64_t i) const { return X_.offset[i + 1] - X_.offset[i] == X_.d; }
  const double* values(int64_t i) const { return X_.value + X_.offset[i]; }

  // z = x_iᵀ W, `width` numbers
  void scores(int64_t i, const double* W, double* z) const {
    Poll()(entries(X_, i) * width_ / N);
    if (stride_ == 1) {
      z[0] = full(i) ? inner(values(i), W, X_.d) : row_dot_lane(X_, i, W, 1);
      return;
    }
    for (int64_t t = 0; t < width_; t += N) {
      V even{}, odd{};
      int64_t p = X_.offset[i];
      for (; p + 1 < X_.offset[i + 1]; p += 2) {
        even += X_.value[p] * load(W + X_.column[p] * width_ + t);
        odd += X_.value[p + 1] * load(W + X_.column[p + 1] * width_ + t);
      }
      if (p < X_.offset[i + 1]) even += X_.value[p] * load(W + X_.column[p] * width_ + t);
      store(z + t, even + odd);
    }
  }
  // out += x_i cᵀ
  void add(int64_t i, const double* c, double* out) const {
    Poll()(entries(X_, i) * width_ / N);
    if (stride_ == 1) {
      if (full(i)) add_scaled(c[0], values(i), X_.d, out);
      else row_add_lane(X_, i, c[0], out, 1);
      return;
    }
    for (int64_t t = 0; t < width_; t += N) {
      const V u = load(c + t);
      for (int64_t p = X_.offset[i]; p < X_.offset[i + 1]; ++p) {
        double* o = out + X_.column[p] * width_ + t;
        store(o, load(o) + X_.value[p] * u);
      }
    }
  }

  // W = Xᵀ coefficients(α)
  void weights(double* W) {
    std::fill(W, W + X_.d * stride_, 0.0);
    for (int64_t i = 0; i < X_.n; ++i) accumulate(i, alpha_.get(), W);
  }
  void accumulate(int64_t i, const double* variables, double* W) {
    const double* a = variables + i * width_;
    V any{};
    for (int64_t t = 0; t < width_; t += N) any += absolute(load(a + t));
    if (!nonzero_lanes(any)) return;
    std::copy(a, a + width_, row_.get());
    form_.coefficients(y_[i], row_.get(), width_);
    add(i, row_.get(), W);
  }

  void find_gains() {
    for (int64_t i = 0; i < X_.n; ++i) {
      double* g = gains_.get() + i * width_;
      scores(i, W_.get(), g);
      form_.linear(y_[i], g, width_);
      for (int64_t c = 0; c < m_; ++c) g[c] = form_.exists(c, y_[i]) ? g[c] + 1 : -kInfinity;
      if (form_.simplex()) g[y_[i]] = 0;
      for (int64_t c = m_; c < width_; ++c) g[c] = -kInfinity;
    }
  }

  // The upper bound of the variables of row i; rows differ only for one-vs-rest with a C of each row.
  double upper(int64_t i) const { return cost_ ? cost_[i] : upper_; }
  double mean_cost() const { return cost_ ? std::accumulate(cost_, cost_ + X_.n, 0.0) / double(X_.n) : C_; }

  // --- the proximal map

  // a = argmax over the dual set of a·(g + t h) - ½ρ‖a‖² - ‖a - α‖²/(2σ), for one instance
  void prox(int64_t i, double t, double* a) {
    const double *g = gains_.get() + i * width_, *h = h_.get() + i * width_,
                 *alpha = alpha_.get() + i * width_;
    const double inverse = 1 / sigma_, scale = 1 / (inverse + ridge_);
    if (form_.simplex()) {
      for (int64_t j = 0; j < width_; j += N)
        store(row_.get() + j, load(alpha + j) + sigma_ * (load(g + j) + t * load(h + j)));
      const Clip<double> c = simplex(row_.get(), m_, C_, work_.data());
      apply(c, row_.get(), m_, a);
      return;
    }
    for (int64_t j = 0; j < width_; j += N) {
      const V free = (load(alpha + j) * inverse + load(g + j) + t * load(h + j)) * scale;
      store(a + j, minimum(maximum(free, V{}), broadcast(upper(i))));
    }
  }
  // The weights of the variables strictly inside the set, 0 elsewhere: the derivative of a.
  double slope(int64_t i, double a) const { return a > 0 && a < upper(i) ? 1 / (1 / sigma_ + ridge_) : 0; }

  // ψ'(W + t D) along D
  double derivative(double t, double WD, double DD) {
    double sum = WD + t * DD;
    alignas(64) double lanes[N];
    const Poll poll;
    for (int64_t i = 0; i < X_.n; ++i) {
      double* a = a_.get() + i * width_;
      poll(kProjection * width_ / N);
      prox(i, t, a);
      V part{};
      for (int64_t j = 0; j < width_; j += N) part += load(a + j) * load(h_.get() + i * width_ + j);
      store(lanes, part);
      for (int l = 0; l < N; ++l) sum += lanes[l];
    }
    return sum;
  }

  // --- Newton's method on ψ from W; leaves the maximiser in a_ and returns the steps made

  int64_t minimise(double tolerance, int64_t most) {
    const int64_t size = X_.d * stride_;
    find_gains();
    std::fill(h_.get(), h_.get() + X_.n * width_, 0.0);
    for (int64_t newton = 0;; ++newton) {
      // ∇ψ = W - Xᵀ coefficients(a), and how far a is from α
      std::copy(W_.get(), W_.get() + size, gradient_.get());
      std::fill(D_.get(), D_.get() + size, 0.0);
      double moved = 0;
      const Poll poll;
      for (int64_t i = 0; i < X_.n; ++i) {
        double* a = a_.get() + i * width_;
        poll(kProjection * width_ / N);
        prox(i, 0, a);
        V largest{};
        for (int64_t j = 0; j < width_; j += N)
          largest = maximum(largest, absolute(load(a + j) - load(alpha_.get() + i * width_ + j)));
        moved = std::max(moved, largest_lane(largest));
        accumulate(i, a_.get(), D_.get());
      }
      double square = 0;
      for (int64_t j = 0; j < size; ++j) {
        gradient_[j] -= D_[j];
        square += gradient_[j] * gradient_[j];
      }
      const double norm = std::sqrt(square);
      if (reach_ * norm <= 0.2 * std::max(moved / sigma_, tolerance) || newton == most || norm == 0)
        return newton;
      if (!(form_.pairs() ? coupled() : separate())) return newton;
      double WD = 0, DD = 0, start = 0;
      for (int64_t j = 0; j < size; ++j) {
        WD += W_[j] * D_[j];
        DD += D_[j] * D_[j];
        start += gradient_[j] * D_[j];
      }
      for (int64_t i = 0; i < X_.n; ++i) {
        double* h = h_.get() + i * width_;
        scores(i, D_.get(), h);
        form_.linear(y_[i], h, width_);
      }
      const double t = search(WD, DD, start);
      if (!(t > 0)) return newton;
      for (int64_t j = 0; j < size; ++j) W_[j] += t * D_[j];
      for (int64_t j = 0; j < X_.n * width_; ++j) gains_[j] += t * h_[j];
    }
  }

  // t in (0, 1] where the monotone ψ' is at most half as large as `start` < 0, its value at 0; 1 where ψ' is
  // still negative there; 0 for none.
  double search(double WD, double DD, double start) {
    if (!(start < 0)) return 0;
    double low = 0, low_value = start, high = 1, t = 1, value = derivative(1, WD, DD);
    if (value <= 0) return 1;
    double high_value = value;
    for (int k = 0; std::fabs(value) > 0.5 * std::fabs(start); ++k) {
      if (k == kMaxSearch) return low;
      const double span = high - low;
      t = low - low_value * span / (high_value - low_value);
      t = std::min(std::max(t, low + span / 10), high - span / 10);
      value = derivative(t, WD, DD);
      if (value > 0) {
        high = t, high_value = value;
      } else {
        low = t, low_value = value;
      }
    }
    return t;
  }

  // --- the Newton system H D = -∇ψ, H = I + Σ over the variables inside the set

  // Adds s x xᵀ to a block of a matrix of classes of features; of a block on the diagonal, to its lower triangle.
  void add_square(int64_t i, double s, double* block, int64_t stride, bool triangle) const {
    const Poll poll;
    for (int64_t p = X_.offset[i]; p < X_.offset[i + 1]; ++p) {
      double* out = block + X_.column[p] * stride;
      const double v = s * X_.value[p];
      const int64_t last = triangle ? p + 1 : X_.offset[i + 1];
      poll(last - X_.offset[i]);
      if (!full(i)) {
        for (int64_t q = X_.offset[i]; q < last; ++q) out[X_.column[q]] += v * X_.value[q];
        continue;
      }
      add_scaled(v, X_.value + X_.offset[i], last - X_.offset[i], out);
    }
  }

  // Adds Σ s x xᵀ over some rows to the lower triangle of a system. Full rows go together, so that it is read and
  // written once for all of them.
  void add_squares(const std::vector<int64_t>& rows, double s, double* system) const {
    std::vector<const double*> whole;
    for (const int64_t i : rows) {
      if (full(i)) whole.push_back(values(i));
      else add_square(i, s, system, X_.d, true);
    }
    const Poll poll;
    for (size_t k = 0; k < whole.size(); k += kTogether) {
      const double* x[kTogether];
      for (size_t r = 0; r < kTogether; ++r) x[r] = whole[std::min(k + r, whole.size() - 1)];
      poll(kTogether * X_.d * X_.d / N);
      for (int64_t p = 0; p < X_.d; ++p) {
        double *out = system + p * X_.d, v[kTogether];
        for (size_t r = 0; r < kTogether; ++r) v[r] = k + r < whole.size() ? s * x[r][p] : 0;
        each_wide<double>(p + 1, [&](int64_t q, int64_t count) {
          Wide<double> sum = load_some(out + q, count);
          for (size_t r = 0; r < kTogether; ++r) sum += v[r] * load_some(x[r] + q, count);
          store_some(out + q, count, sum);
        });
      }
    }
  }

  // All classes in one system: Weston-Watkins and Crammer-Singer.
  bool coupled() {
    const int64_t d = X_.d, size = d * m_;
    system_.assign(size * size, 0);
    const auto block = [&](int64_t b, int64_t c) { return system_.data() + b * d * size + c * d; };
    for (int64_t j = 0; j < size; ++j) system_[j * size + j] = 1;
    std::vector<int64_t> inside;
    for (int64_t i = 0; i < X_.n; ++i) {
      const double* a = a_.get() + i * width_;
      inside.clear();
      const bool cs = form_.simplex();
      for (int64_t c = 0; c < m_; ++c)
        if (cs ? a[c] > 0 : slope(i, a[c]) > 0) inside.push_back(c);
      if (inside.empty() || (cs && inside.size() == 1)) continue;
      const double s = cs ? sigma_ : 1 / (1 / sigma_ + ridge_);
      if (cs) {  // σ (I - 11ᵀ/|S|)
        const double share = s / double(inside.size());
        for (int64_t c : inside) {
          for (int64_t b : inside)
            if (b < c) add_square(i, -share, block(c, b), size, false);
          add_square(i, s - share, block(c, c), size, true);
        }
        continue;
      }
      // σ Σ_c (e_y - e_c)(e_y - e_c)ᵀ
      const int64_t y = y_[i];
      add_square(i, s * double(inside.size()), block(y, y), size, true);
      for (int64_t c : inside) {
        add_square(i, s, block(c, c), size, true);
        add_square(i, -s, block(std::max(c, y), std::min(c, y)), size, false);
      }
    }
    if (!Cholesky::factor(system_.data(), size, size)) return false;
    right_.resize(size);
    for (int64_t j = 0; j < d; ++j)
      for (int64_t c = 0; c < m_; ++c) right_[c * d + j] = -gradient_[j * stride_ + c];
    Cholesky::solve(system_.data(), size, size, right_.data());
    for (int64_t j = 0; j < d; ++j)
      for (int64_t c = 0; c < m_; ++c) D_[j * stride_ + c] = right_[c * d + j];
    return true;
  }

  // A system for each class; for Lee-Lin-Wahba they share a multiplier λ for Σ_c D_c = 0:
  // D_c = -H_c^-1 (∇_c + λ), (Σ_c H_c^-1) λ = -Σ_c H_c^-1 ∇_c.
  bool separate() {
    const int64_t d = X_.d;
    const bool centred = form_.centred();
    system_.assign(d * d, 0);
    right_.assign(m_ * d, 0);
    std::vector<double> inverses, factors, lambda(d, 0.0), column(d);
    std::vector<int64_t> inside;
    if (centred) inverses.assign(d * d, 0), factors.resize(m_ * d * d);
    for (int64_t c = 0; c < m_; ++c) {
      std::fill(system_.begin(), system_.end(), 0.0);
      for (int64_t j = 0; j < d; ++j) system_[j * d + j] = 1;
      inside.clear();
      for (int64_t i = 0; i < X_.n; ++i)
        if (slope(i, a_[i * width_ + c]) > 0) inside.push_back(i);
      add_squares(inside, 1 / (1 / sigma_ + ridge_), system_.data());
      if (!Cholesky::factor(system_.data(), d, d)) return false;
      double* x = right_.data() + c * d;
      for (int64_t j = 0; j < d; ++j) x[j] = -gradient_[j * stride_ + c];
      Cholesky::solve(system_.data(), d, d, x);
      if (!centred) continue;
      std::copy(system_.begin(), system_.end(), factors.begin() + c * d * d);
      for (int64_t j = 0; j < d; ++j) {
        lambda[j] += x[j];
        std::fill(column.begin(), column.end(), 0.0);
        column[j] = 1;
        Cholesky::solve(system_.data(), d, d, column.data());
        for (int64_t k = j; k < d; ++k) inverses[k * d + j] += column[k];
      }
    }
    if (centred) {
      if (!Cholesky::factor(inverses.data(), d, d)) return false;
      Cholesky::solve(inverses.data(), d, d, lambda.data());
    }
    for (int64_t c = 0; c < m_; ++c) {
      double* x = right_.data() + c * d;
      if (centred) {
        std::copy(lambda.begin(), lambda.end(), column.begin());
        Cholesky::solve(factors.data() + c * d * d, d, d, column.data());
        for (int64_t j = 0; j < d; ++j) x[j] -= column[j];
      }
      for (int64_t j = 0; j < d; ++j) D_[j * stride_ + c] = x[j];
    }
    return true;
  }

  double box_violation(const double* g, const double* a, int64_t i) const {
    double worst = 0;
    for (int64_t c = 0; c < m_; ++c)
      if (form_.exists(c, y_[i])) worst = std::max(worst, projected(g[c] - ridge_ * a[c], a[c], upper(i)));
    return worst;
  }
  double simplex_violation(const double* g, const double* a, int64_t y) const {
    double sum = 0;
    for (int64_t c = 0; c < m_; ++c) sum += c == y ? 0 : a[c];
    SimplexViolation<double> violation(C_, sum);
    for (int64_t c = 0; c < m_; ++c)
      if (c != y) violation.add(g[c], a[c]);
    return violation.value();
  }

  // --- objectives and violation at W and α = weights(α)

  Assessment certify() {
    find_gains();
    Tally tally;
    for (int64_t i = 0; i < X_.n; ++i) {
      const double *g = gains_.get() + i * width_, *a = alpha_.get() + i * width_;
      const int64_t y = y_[i];
      double loss = 0;
      for (int64_t c = 0; c < m_; ++c) {
        if (!form_.exists(c, y)) continue;
        loss = form_.more_loss(loss, g[c]);
        tally.dual += form_.dual_gain(a[c]);
      }
      tally.loss += cost_ ? cost_[i] * loss : loss;
      tally.worst =
          std::max(tally.worst, form_.simplex() ? simplex_violation(g, a, y) : box_violation(g, a, i));
    }
    for (int64_t j = 0; j < X_.d * stride_; ++j) tally.norm += W_[j] * W_[j];
    return tally.at(cost_ ? 1 : C_);
  }

  const std::vector<double> value_;
  const Csr<double> X_;
  const bool wide_;  // whether weights are asked for in double
  const int32_t* y_;
  const int64_t m_, width_, stride_;  // stride_: width_ of a row of W, or 1 for one class
  const Formulation form_;
  const double C_, upper_, ridge_;
  const double* const cost_;  // C of each row; null where it is C_
  double reach_;  // √2 times the longest row: how much a gain follows the weights
  double sigma_ = 0;  // 0: not yet known
  Assessment here_{};
  Zeros<double> W_, D_, gradient_;  // [d, stride]
  Zeros<double> alpha_, a_, gains_, h_;  // [n, width]
  Zeros<double> row_;
  std::vector<double> work_, old_, system_, right_;
};

}  // namespace

template <class T>
MulticlassProximal* multiclass_proximal(const MulticlassNewArgs<T>& args) {
  return new Proximal(args);
}
template MulticlassProximal* multiclass_proximal(const MulticlassNewArgs<float>&);
template MulticlassProximal* multiclass_proximal(const MulticlassNewArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
