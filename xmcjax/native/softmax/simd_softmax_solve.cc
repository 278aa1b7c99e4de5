// Conjugate gradients for a Newton direction of multinomial logistic regression on dense features
// (solvers/multinomial/_preconditioners.py), and the blocks of their preconditioner, one for each class.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/aligned.h"
#include "core/interrupt.h"
#include "core/isa.h"
#include "core/largest.h"
#include "core/parallel.h"
#include "core/simd.h"
#include "dual/cholesky.h"
#include "products/thin_products.h"
#include "softmax/probabilities.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

constexpr int64_t kSample = 1000;  // rows of a sample that tells which curvatures are large

// The vectors of conjugate gradients, [classes, features].
template <class T>
class Directions {
 public:
  explicit Directions(const SoftmaxSolveArgs<T>& args)
      : a_(args), f_(args.features), K_(args.classes), size_(f_ * K_), p_(size_), q_(size_), z_(size_),
        mean_(f_) {}

  void run(Reference<const T*, T*> hessian) {
    std::fill(a_.x, a_.x + size_, T(0));
    double now = pressed(), fall = 0, products = 0;
    const double most = std::max(a_.least[0] * now, a_.least[1]);
    if (now <= most || residual_is_small()) {
      std::copy(z_.get(), z_.get() + size_, a_.x);
      fall = now;
    } else {
      std::copy(z_.get(), z_.get() + size_, p_.get());
      while (products < a_.max_steps && now > 0) {
        hessian(p_.get(), q_.get());
        ++products;
        double along = 0;
        for (int64_t k = 0; k < K_; ++k) {
          add_scaled(a_.ridge, p_.get() + k * f_, f_ - 1, q_.get() + k * f_);
          along += inner(p_.get() + k * f_, q_.get() + k * f_, f_);
        }
        if (!(along > 0)) break;
        const double before = now, step = before / along;
        fall += step * before;
        add_scaled(T(step), p_.get(), size_, a_.x);
        add_scaled(T(-step), q_.get(), size_, a_.r);
        now = pressed();
        if (now <= most || residual_is_small()) break;
        const T turn = T(now / before);
        each_wide<T>(size_, [&](int64_t j, int64_t count) {
          store_some(p_.get() + j, count,
                     load_some(z_.get() + j, count) + turn * load_some(p_.get() + j, count));
        });
      }
    }
    a_.sums[0] = products, a_.sums[1] = fall;
  }

 private:
  // z = M r, and rᵀz
  double pressed() {
    const Poll poll;
    std::fill(mean_.get(), mean_.get() + f_, T(0));
    for (int64_t k = 0; k < K_; ++k) {
      poll(f_ * (f_ / kWide<T> + 1));
      T* z = z_.get() + k * f_;
      std::fill(z, z + f_, T(0));
      // the inverse is symmetric: its rows are its columns
      for (int64_t j = 0; j < f_; ++j) add_scaled(a_.r[k * f_ + j], a_.inverse + (k * f_ + j) * f_, f_, z);
      add_scaled(T(1), z, f_, mean_.get());
    }
    double along = 0;
    for (int64_t k = 0; k < K_; ++k) {
      add_scaled(T(-1) / T(K_), mean_.get(), f_, z_.get() + k * f_);
      along += inner(a_.r + k * f_, z_.get() + k * f_, f_);
    }
    return along;
  }

  bool residual_is_small() const {
    if (a_.least[2] < 0) return false;
    double squares = 0, sizes = 0;
    for (int64_t k = 0; k < K_; ++k) {
      const T* r = a_.r + k * f_;
      squares += inner(r, r, f_ - 1);
      sizes += std::fabs(double(r[f_ - 1]));
    }
    return squares <= a_.least[2] && sizes <= a_.least[3];
  }

  const SoftmaxSolveArgs<T>& a_;
  const int64_t f_, K_, size_;
  Zeros<T> p_, q_, z_, mean_;
};

// The inverse of the block of one class.
template <class T>
class Block {
 public:
  explicit Block(const SoftmaxBlocksArgs<T>& args)
      : a_(args), f_(args.features), n_(args.blocks * args.rows), w_(n_), A_(f_ * f_), L_(f_ * f_),
        root_(n_) {
    for (int64_t i = 0; i < n_; ++i) mass_ += double(a_.weight[i]);
  }

  void operator()(int64_t k) {
    Poll()(f_ * f_ * (f_ / kWide<double> + 1));
    std::fill(A_.get(), A_.get() + f_ * f_, 0.0);
    const double rest = choose(k);
    gather();
    add_up();
    const double part = mass_ > 0 ? std::max(rest, 0.0) / mass_ : 0.0;
    for (int64_t i = 0; i < f_; ++i) {
      for (int64_t j = 0; j <= i; ++j) A_[i * f_ + j] = A_[j * f_ + i] + part * a_.gram[i * f_ + j];
      const double ridge = i + 1 < f_ ? a_.ridge : a_.last_ridge;
      A_[i * f_ + i] += std::max(ridge, a_.least * A_[i * f_ + i]);
    }
    a_.found[k] = invert(a_.inverse + k * f_ * f_);
  }

 private:
  // Chooses the rows of the largest curvatures; returns Σ w of the others.
  double choose(int64_t k) {
    double all = 0;
    for (int64_t b = 0; b < a_.blocks; ++b) {
      const T *p = a_.P + (b * a_.classes + k) * a_.rows, *c = a_.weight + b * a_.rows;
      const T* rest = a_.rest + b * a_.rows;
      T* w = w_.get() + b * a_.rows;
      Wide<T> sum{};
      each_wide<T>(a_.rows, [&](int64_t i, int64_t count) {
        const Wide<T> pi = load_some(p + i, count);
        const Wide<T> wi = load_some(c + i, count) * pi * lacking(pi, load_some(rest + i, count));
        store_some(w + i, count, wi);
        sum += wi;
      });
      all += double(total(sum));
    }
    T level = 0;
    if (a_.most < n_) {
      some_.clear();
      for (int64_t i = 0, by = std::max<int64_t>(1, n_ / kSample); i < n_; i += by) some_.push_back(w_[i]);
      const int64_t count = int64_t(some_.size()),
                    most = int64_t(double(count) * double(a_.most) / double(n_));
      const int64_t rank = std::min(most, count - 1);
      largest_first(some_.data(), rank, count);
      level = some_[rank];
    }
    chosen_.clear();
    const T above = std::nextafter(level, std::numeric_limits<T>::max());
    each_wide<T>(n_, [&](int64_t i, int64_t count) {
      for (unsigned mask = at_least(load_some(w_.get() + i, count), above); mask; mask &= mask - 1)
        chosen_.push_back(i + __builtin_ctz(mask));
    });
    for (int64_t i : chosen_) all -= double(w_[i]);
    return all;
  }

  // √w x of the rows that are chosen, [features, rows], filled up with zeros
  void gather() {
    constexpr int N = kWide<T>;
    const int64_t count = int64_t(chosen_.size());
    width_ = (count + N - 1) / N * N;
    S_.assign(size_t(f_ * width_), T(0));
    for (int64_t r = 0; r < count; ++r) {
      root_[r] = std::sqrt(w_[chosen_[r]]);
      // where the first feature of the row is in X
      chosen_[r] += chosen_[r] / a_.rows * a_.rows * (f_ - 1);
    }
    for (int64_t j = 0; j < f_; ++j) {
      T* s = S_.data() + j * width_;
      const T* x = a_.X + j * a_.rows;
      for (int64_t r = 0; r < count; ++r) s[r] = root_[r] * x[chosen_[r]];
    }
  }

  // The upper half of S Sᵀ, and a little more, as it is made in tiles.
  void add_up() {
    const T* S = S_.data();
    thin::tiles(f_, [&](auto count, int64_t k) {
      constexpr int C = decltype(count)::value;
      int64_t j = k;
      for (; j + thin::kFeatures <= f_; j += thin::kFeatures)
        thin::gradient_tile<C, thin::kFeatures>(S + j * width_, S + k * width_, f_, width_,
                                                A_.get() + k * f_ + j);
      for (; j < f_; ++j)
        thin::gradient_tile<C, 1>(S + j * width_, S + k * width_, f_, width_, A_.get() + k * f_ + j);
    });
  }

  // A⁻¹ = L⁻ᵀ L⁻¹ for A = L Lᵀ; the lower half of A is given
  bool invert(T* out) {
    const bool found = Cholesky::factor(A_.get(), f_, f_);
    double *L = L_.get(), sum = 0;
    std::fill(L, L + f_ * f_, 0.0);
    for (int64_t i = 0; found && i < f_; ++i) {
      double* row = L + i * f_;
      row[i] = 1;
      for (int64_t j = 0; j < i; ++j) add_scaled(-A_[i * f_ + j], L + j * f_, j + 1, row);
      for (int64_t j = 0; j <= i; ++j) row[j] /= A_[i * f_ + i], sum += row[j];
    }
    if (!found || !std::isfinite(sum)) {
      std::fill(out, out + f_ * f_, T(0));
      return false;
    }
    double* whole = A_.get();
    std::fill(whole, whole + f_ * f_, 0.0);
    for (int64_t i = 0; i < f_; ++i)
      for (int64_t j = 0; j <= i; ++j) add_scaled(L[i * f_ + j], L + i * f_, j + 1, whole + j * f_);
    for (int64_t i = 0; i < f_; ++i)
      for (int64_t j = 0; j <= i; ++j) out[i * f_ + j] = out[j * f_ + i] = T(whole[i * f_ + j]);
    return true;
  }

  const SoftmaxBlocksArgs<T>& a_;
  const int64_t f_, n_;
  double mass_ = 0;
  Zeros<T> w_;
  Zeros<double> A_, L_;
  Zeros<T> root_;
  std::vector<T> some_;
  std::vector<int64_t> chosen_;
  Array<T> S_;
  int64_t width_ = 0;
};

}  // namespace

template <class T>
void softmax_solve(const SoftmaxSolveArgs<T>& a, Reference<const T*, T*> hessian) {
  Directions<T>(a).run(hessian);
}

template <class T>
void softmax_blocks(const SoftmaxBlocksArgs<T>& a, int64_t first, int64_t last) {
  Block<T> block(a);
  for (int64_t k = first; k < last; ++k) block(k);
}

#define XMCJAX_BOTH(T)                                                                 \
  template void softmax_solve<T>(const SoftmaxSolveArgs<T>&, Reference<const T*, T*>); \
  template void softmax_blocks<T>(const SoftmaxBlocksArgs<T>&, int64_t, int64_t);
XMCJAX_BOTH(float)
XMCJAX_BOTH(double)
#undef XMCJAX_BOTH

}  // namespace xmcjax::XMCJAX_ISA
