// Multinomial logistic regression on CSR features (solvers/multinomial): value and gradient in one
// pass over the rows, and rounds of dual ascent over instances. Weights are [d, classes], so that an
// entry of X meets one contiguous row of them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/aligned.h"
#include "core/csr_rows.h"
#include "core/exponential.h"
#include "core/interrupt.h"
#include "core/isa.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

template <class T>
constexpr T kNever = T(-1e30);  // log p of the entries that fill the last vector

// What a row costs beside its products, in entries.
constexpr int64_t kExponentials = 40;

// log p + s p = t - ν with Σ p = sum: the dual variables of one instance, the others being fixed.
// `u` holds log p, at the start a guess, and p = e^u; `count` is a multiple of a vector, filled up
// with u = kNever. Newton's method in u and ν together, quadratic near the solution. Returns the
// number of its steps, or 0 where it did not get there: u and p are of no use then.
constexpr int kMostSteps = 60;

template <class T>
int solve_row(const T* t, T s, T sum, int64_t count, T* u, T* p) {
  constexpr int N = kWide<T>;
  const T cap = std::log(sum);
  for (int step = 1; step <= kMostSteps; ++step) {
    Wide<T> mass{}, drift{}, slope{};
    for (int64_t j = 0; j < count; j += N) {
      // du_j = (t_j - ν - u_j - s p_j) / (1 + s p_j), and Σ p_j (1 + du_j) = sum
      const Wide<T> pj = load_wide(p + j);
      const Wide<T> share = pj / (1 + s * pj);
      mass += pj;
      drift += share * (load_wide(t + j) - load_wide(u + j) - s * pj);
      slope += share;
    }
    const T nu = (total(mass) + total(drift) - sum) / total(slope);
    Wide<T> moved{};
    mass = Wide<T>{};
    for (int64_t j = 0; j < count; j += N) {
      const Wide<T> pj = load_wide(p + j), uj = load_wide(u + j);
      const Wide<T> change = (load_wide(t + j) - nu - uj - s * pj) / (1 + s * pj);
      const Wide<T> next = minimum(uj + change, wide(cap));
      const Wide<T> pn = exponential(next);
      moved += (pj + pn) * (change < 0 ? -change : change);
      mass += pn;
      store_wide(u + j, next);
      store_wide(p + j, pn);
    }
    const T found = total(mass), distance = total(moved);
    if (!(found > 0)) return 0;
    if (distance <= T(0.01) * sum) {
      const T factor = sum / found, shift = std::log(factor);
      for (int64_t j = 0; j < count; j += N) {
        store_wide(p + j, load_wide(p + j) * factor);
        store_wide(u + j, maximum(load_wide(u + j) + shift, wide(kNever<T>)));
      }
      return step;
    }
  }
  return 0;
}

enum Count { kPairs, kActiveEpochs, kSteps, kSkipped };  // the order of calls.def

template <class T>
class Round {
 public:
  Round(const SoftmaxRoundArgs<T>& args, int64_t* counts)
      : a_(args), counts_(counts), m_(args.classes), padded_(whole<T>(m_)), bias_(padded_), t_(padded_),
        u_(padded_), p_(padded_), old_(padded_), change_(padded_) {
    for (int64_t j = 0; j < m_; ++j) bias_[j] = args.bias[j];
  }

  void run() {
    full_epoch();
    const double pairs = double(classes_.size());
    if (pairs == 0) return;
    // As much work as the full epoch: a pair costs kPairCost times as much here as there.
    const int64_t most = int64_t(double(a_.X.n) * double(m_) / (kPairCost * pairs));
    first_change_ = -1;
    for (int64_t epoch = 0; epoch < most; ++epoch) {
      const double change = active_epoch();
      ++counts_[kActiveEpochs];
      if (first_change_ < 0) first_change_ = change;
      if (change <= kEnough * first_change_) break;
    }
    keep();
  }

 private:
  static constexpr double kPairCost = 18, kEnough = 0.05;

  // All classes of every instance. What is large enough to need more than one visit is listed.
  void full_epoch() {
    constexpr int N = kWide<T>;
    const Poll poll;
    for (int64_t visit = 0; visit < a_.X.n; ++visit) {
      const int64_t i = a_.order[visit];
      poll((a_.X.offset[i + 1] - a_.X.offset[i] + kExponentials) * (padded_ / N));
      const T weight = a_.weight[i];
      if (!(weight > 0)) continue;
      const T s = weight * a_.squared_norms[i] / a_.l2;
      T* log_p = a_.log_p + i * m_;
      row_scores<4>(a_.X, i, a_.W, m_, bias_.get(), t_.get());
      std::memcpy(u_.get(), log_p, m_ * sizeof(T));
      for (int64_t j = m_; j < padded_; ++j) t_[j] = u_[j] = kNever<T>;
      for (int64_t j = 0; j < padded_; j += N) {
        const Wide<T> p = exponential(load_wide(u_.get() + j));
        store_wide(old_.get() + j, p);
        store_wide(p_.get() + j, p);
        store_wide(t_.get() + j, load_wide(t_.get() + j) + s * p);
      }
      const int steps = solve_row(t_.get(), s, T(1), padded_, u_.get(), p_.get());
      if (!steps) {
        ++counts_[kSkipped];
        continue;
      }
      counts_[kSteps] += steps;
      std::memcpy(log_p, u_.get(), m_ * sizeof(T));
      const T scale = weight / a_.l2;
      const T level = 1 / s;  // s p > 1: the coupling through W outweighs the entropy
      const size_t begin = classes_.size();
      for (int64_t j = 0; j < padded_; j += N) {
        const Wide<T> p = load_wide(p_.get() + j);
        store_wide(change_.get() + j, scale * (load_wide(old_.get() + j) - p));
        for (unsigned mask = at_least(p, level); mask; mask &= mask - 1)
          classes_.push_back(int32_t(j + __builtin_ctz(mask)));
      }
      row_update(a_.X, i, change_.get(), m_, a_.W);
      const size_t count = classes_.size() - begin;
      if (count < 2) {  // the sum gives the p of a single class: nothing to be done
        classes_.resize(begin);
        continue;
      }
      rows_.push_back({i, int64_t(begin), int64_t(count)});
      T total = 0;
      for (size_t q = begin; q < classes_.size(); ++q) {
        log_p_.push_back(log_p[classes_[q]]);
        total += p_[classes_[q]];
      }
      totals_.push_back(total);
    }
  }

  // The listed classes of the listed instances, the others being fixed; Σ of the changes of p.
  double active_epoch() {
    constexpr int N = kWide<T>;
    double sum = 0;
    const Poll poll;
    for (size_t r = 0; r < rows_.size(); ++r) {
      const Row row = rows_[r];
      poll((a_.X.offset[row.instance + 1] - a_.X.offset[row.instance] + kExponentials) * row.count);
      const int64_t i = row.instance, count = row.count, width = whole<T>(count);
      const T weight = a_.weight[i], s = weight * a_.squared_norms[i] / a_.l2;
      const int32_t* ids = classes_.data() + row.first;
      T* log_p = log_p_.data() + row.first;
      for (int64_t q = 0; q < count; ++q) t_[q] = bias_[ids[q]], u_[q] = log_p[q];
      for (int64_t q = count; q < width; ++q) t_[q] = u_[q] = kNever<T>;
      for (int64_t k = a_.X.offset[i]; k < a_.X.offset[i + 1]; ++k) {
        const T value = a_.X.value[k];
        const T* w = a_.W + a_.X.column[k] * m_;
        for (int64_t q = 0; q < count; ++q) t_[q] += value * w[ids[q]];
      }
      for (int64_t q = 0; q < width; q += N) {
        const Wide<T> p = exponential(load_wide(u_.get() + q));
        store_wide(old_.get() + q, p);
        store_wide(p_.get() + q, p);
        store_wide(t_.get() + q, load_wide(t_.get() + q) + s * p);
      }
      if (!solve_row(t_.get(), s, totals_[r], width, u_.get(), p_.get())) continue;
      const T scale = weight / a_.l2;
      for (int64_t q = 0; q < count; ++q) {
        log_p[q] = u_[q];
        const T change = old_[q] - p_[q];
        sum += std::fabs(double(change));
        change_[q] = scale * change;
      }
      for (int64_t k = a_.X.offset[i]; k < a_.X.offset[i + 1]; ++k) {
        const T value = a_.X.value[k];
        T* w = a_.W + a_.X.column[k] * m_;
        for (int64_t q = 0; q < count; ++q) w[ids[q]] += value * change_[q];
      }
    }
    return sum;
  }

  void keep() {
    for (const Row& row : rows_)
      for (int64_t q = row.first; q < row.first + row.count; ++q)
        a_.log_p[row.instance * m_ + classes_[q]] = log_p_[q];
    counts_[kPairs] = int64_t(classes_.size());
  }

  struct Row {
    int64_t instance, first, count;
  };
  const SoftmaxRoundArgs<T>& a_;
  int64_t* const counts_;
  const int64_t m_, padded_;
  Zeros<T> bias_, t_, u_, p_, old_, change_;
  std::vector<Row> rows_;
  std::vector<int32_t> classes_;
  std::vector<T> log_p_, totals_;
  double first_change_ = -1;
};

// z ← e^{z - top} of the m scores of a row, top being the largest; what fills the last vector becomes 0.
template <class T>
struct Exponentials {
  T top, sum;
  Exponentials(T* z, int64_t m, int64_t padded) {
    constexpr int N = kWide<T>;
    for (int64_t j = m; j < padded; ++j) z[j] = kNever<T>;
    Wide<T> highest = wide(kNever<T>);
    for (int64_t j = 0; j < padded; j += N) highest = maximum(highest, load_wide(z + j));
    top = largest<T>(highest);
    Wide<T> sums{};
    for (int64_t j = 0; j < padded; j += N) {
      const Wide<T> e = exponential(load_wide(z + j) - top);
      sums += e;
      store_wide(z + j, e);
    }
    sum = total(sums);
  }
};

// Xᵀ R and Rᵀ1 of rows of R that come one after another; end() writes Rᵀ1.
template <class T>
class GradientSums {
 public:
  GradientSums(const Csr<T>& X, int64_t m, T* gradient, T* bias_gradient)
      : X_(X), m_(m), gradient_(gradient), bias_gradient_(bias_gradient), mass_(m, 0.0), block_(m, T(0)) {
    std::memset(gradient, 0, size_t(X.d * m) * sizeof(T));
  }
  void add(int64_t i, const T* row) {
    for (int64_t j = 0; j < m_; ++j) block_[j] += row[j];
    row_update(X_, i, row, m_, gradient_);
  }
  void after(int64_t i) {
    if (i % 256 == 255 || i + 1 == X_.n)  // short sums in T, their total in double
      for (int64_t j = 0; j < m_; ++j) mass_[j] += double(block_[j]), block_[j] = 0;
  }
  void end() {
    for (int64_t j = 0; j < m_; ++j) bias_gradient_[j] = T(mass_[j]);
  }

 private:
  const Csr<T>& X_;
  const int64_t m_;
  T *const gradient_, *const bias_gradient_;
  std::vector<double> mass_;
  std::vector<T> block_;
};

// What a row costs, for the poll.
template <class T>
inline int64_t cost_of(const Csr<T>& X, int64_t i, int64_t padded) {
  return (X.offset[i + 1] - X.offset[i] + kExponentials) * (padded / kWide<T>);
}

}  // namespace

template <class T>
void softmax_round(const SoftmaxRoundArgs<T>& args, int64_t* counts) {
  Round<T>(args, counts).run();
}

template <class T>
void softmax_pass(const SoftmaxPassArgs<T>& a) {
  constexpr int N = kWide<T>;
  const int64_t m = a.classes, padded = whole<T>(m);
  const Zeros<T> bias(padded), z(padded);
  std::copy_n(a.bias, m, bias.get());
  GradientSums<T> sums(a.X, m, a.gradient, a.bias_gradient);
  double loss = 0;
  const Poll poll;
  for (int64_t i = 0; i < a.X.n; ++i) {
    const T weight = a.weight[i];
    poll(cost_of(a.X, i, padded));
    if (weight > 0) {
      row_scores<4>(a.X, i, a.W, m, bias.get(), z.get());
      const T own = z[a.y[i]];
      const Exponentials<T> of(z.get(), m, padded);
      // log Σ e^z - z_y; the largest score and that of the class may cancel
      loss += double(weight) * ((double(of.top) - double(own)) + std::log(double(of.sum)));
      // c (p - e_y)
      const T scale = T(double(weight) / double(of.sum));
      for (int64_t j = 0; j < padded; j += N) store_wide(z.get() + j, scale * load_wide(z.get() + j));
      z[a.y[i]] -= weight;
      sums.add(i, z.get());
    }
    sums.after(i);
  }
  sums.end();
  *a.loss = T(loss);
}

template <class T>
void softmax_exponentials(const SoftmaxExponentialsArgs<T>& a) {
  const int64_t m = a.classes, padded = whole<T>(m);
  const Zeros<T> bias(padded), z(padded);
  std::copy_n(a.bias, m, bias.get());
  const Poll poll;
  for (int64_t i = 0; i < a.X.n; ++i) {
    poll(cost_of(a.X, i, padded));
    row_scores<4>(a.X, i, a.W, m, bias.get(), z.get());
    a.own[i] = a.y[i] >= 0 && a.y[i] < m ? z[a.y[i]] : T(0);
    const Exponentials<T> of(z.get(), m, padded);
    a.top[i] = of.top, a.sum[i] = of.sum;
    std::copy_n(z.get(), m, a.E + i * m);
  }
}

template <class T>
void softmax_gradient(const SoftmaxGradientArgs<T>& a) {
  const int64_t m = a.classes;
  const Zeros<T> z(m);
  GradientSums<T> sums(a.X, m, a.gradient, a.bias_gradient);
  const Poll poll;
  for (int64_t i = 0; i < a.X.n; ++i) {
    poll(cost_of(a.X, i, whole<T>(m)));
    if (a.weight[i] > 0) {
      for (int64_t j = 0; j < m; ++j) z[j] = a.scale[i] * a.E[i * m + j];
      if (a.y[i] >= 0 && a.y[i] < m) z[a.y[i]] -= a.weight[i];
      sums.add(i, z.get());
    }
    sums.after(i);
  }
  sums.end();
}

template void softmax_round<float>(const SoftmaxRoundArgs<float>&, int64_t*);
template void softmax_round<double>(const SoftmaxRoundArgs<double>&, int64_t*);
template void softmax_pass<float>(const SoftmaxPassArgs<float>&);
template void softmax_pass<double>(const SoftmaxPassArgs<double>&);
template void softmax_exponentials<float>(const SoftmaxExponentialsArgs<float>&);
template void softmax_exponentials<double>(const SoftmaxExponentialsArgs<double>&);
template void softmax_gradient<float>(const SoftmaxGradientArgs<float>&);
template void softmax_gradient<double>(const SoftmaxGradientArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
