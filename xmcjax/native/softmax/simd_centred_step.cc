// What a Newton step on CSR features does with vectors [features, classes] (solvers/multinomial/block_newton.py): steps
// of conjugate gradients whose preconditioner is a diagonal and a mean over the classes that is subtracted, and what
// comes before and after them. Each function reads its vectors once.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/aligned.h"
#include "core/csr_rows.h"
#include "core/interrupt.h"
#include "core/isa.h"
#include "core/simd.h"
#include "softmax/class_rows.h"
#include "softmax/probabilities.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

// p, q and z of the working arrays, at a feature
template <class T>
struct Rows {
  T *p, *q, *z;
  T ridge;
  Rows(const SoftmaxSolveCsrArgs<T>& a, int64_t row) {
    const int64_t size = a.features * a.classes;
    p = a.vectors + row * a.classes, q = p + size, z = q + size;
    ridge = row + 1 < a.features ? a.ridge : T(0);
  }
};

// A sum over rows: sums of a few rows are in T, and their total in double.
template <class T>
class RowSums {
 public:
  void add(Wide<T> one) {
    some_ += one;
    if (++rows_ % kRows == 0) end();
  }
  double sum() {
    end();
    return sum_;
  }

 private:
  static constexpr int kRows = 16;
  void end() {
    sum_ += double(total(some_));
    some_ = Wide<T>{};
  }

  Wide<T> some_{};
  int rows_ = 0;
  double sum_ = 0;
};

// f(j, V()) for all of `size` numbers: V is a register of doubles from j on, or at the end one double.
template <class F>
XMCJAX_INLINE void each_double(int64_t size, F&& f) {
  int64_t j = 0;
  for (; j + kWide<double> <= size; j += kWide<double>) f(j, Wide<double>{});
  for (; j < size; ++j) f(j, 0.0);
}
struct DoubleSum {
  Wide<double> many{};
  double one = 0;
  XMCJAX_INLINE void operator+=(Wide<double> v) { many += v; }
  XMCJAX_INLINE void operator+=(double v) { one += v; }
  double sum() const { return total(many) + one; }
};
// Numbers of T as V, and V as numbers of T.
template <class V, class T>
XMCJAX_INLINE V as_doubles(const T* p) {
  if constexpr (std::is_same_v<V, double>) return double(*p);
  else return __builtin_convertvector(load_as<typename VectorOf<T, kWide<double> * sizeof(T)>::type>(p), V);
}
template <class T>
XMCJAX_INLINE void store_doubles(T* p, double v) {
  *p = T(v);
}
template <class T>
XMCJAX_INLINE void store_doubles(T* p, Wide<double> v) {
  using Narrow = typename VectorOf<T, kWide<double> * sizeof(T)>::type;
  store_as<Narrow>(p, __builtin_convertvector(v, Narrow));
}

// What softmax_diagonal, below, does for two classes, which have the same p (1 - p).
template <class T>
void diagonal_of_two(const SoftmaxDiagonalArgs<T>& a, int64_t first, int64_t last) {
  const auto of = [&](int64_t i) { return a.weight[i] * (a.P[2 * i] * a.P[2 * i + 1]); };
  const Poll poll;
  for (int64_t j = first; j < last; ++j) {
    const bool weights = j < a.Xt.n;
    T one = 0, other = 0;
    if (weights) {
      poll(entries(a.Xt, j));
      const int32_t* column = a.Xt.column;
      const T* value = a.Xt.value;
      int64_t e = a.Xt.offset[j];
      const int64_t end = a.Xt.offset[j + 1];
      for (; e + 1 < end; e += 2) {
        one += value[e] * value[e] * of(column[e]);
        other += value[e + 1] * value[e + 1] * of(column[e + 1]);
      }
      if (e < end) one += value[e] * value[e] * of(column[e]);
    } else {
      poll(a.Xt.d);
      for (int64_t i = 0; i < a.Xt.d; ++i) one += of(i);
    }
    const T sum = one + other + T(weights ? a.ridge : a.last_ridge);
    a.inverse[2 * j] = a.inverse[2 * j + 1] = T(1) / std::max(sum, std::numeric_limits<T>::min());
  }
}

// What softmax_right_side, below, does for two classes, whose right sides are (-s, s).
template <class T>
void right_side_of_two(const SoftmaxRightSideArgs<T>& a, int64_t first, int64_t last, double* sums) {
  double squares = 0, own = 0, pressed = 0;
  Poll()(last - first);
  for (int64_t i = first; i < last; ++i) {
    const bool weights = i + 1 < a.rows;
    const double part = weights ? 1.0 : 0.0, ridge = weights ? a.ridge : 0.0;
    const double v = part * a.V[2 * i], w = part * a.V[2 * i + 1];
    const double g = a.gradient[2 * i] + ridge * v, h = a.gradient[2 * i + 1] + ridge * w;
    const T s = T((g - h) / 2);
    a.r[2 * i] = -s, a.r[2 * i + 1] = s;
    squares += g * g + h * h, own += v * v + w * w;
    pressed += double(s) * double(s) * (double(a.inverse[2 * i]) + double(a.inverse[2 * i + 1]));
  }
  sums[0] += squares, sums[1] += own, sums[2] += pressed;
}

}  // namespace

// p = z + turn p; Σ ridge p²
template <class T>
void centred_turn(const SoftmaxSolveCsrArgs<T>& a, T turn, int64_t first, int64_t last, double* sums) {
  RowSums<T> all;
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    poll(a.classes / kWide<T> + 1);
    const Rows<T> row(a, i);
    Wide<T> squares{};
    each_wide<T>(a.classes, [&](int64_t j, int64_t count) {
      const Wide<T> pj = load_some(row.z + j, count) + turn * load_some(row.p + j, count);
      squares += pj * pj;
      store_some(row.p + j, count, pj);
    });
    if (i + 1 < a.features) all.add(squares);
  }
  *sums += double(a.ridge) * all.sum();
}

// x += step p, r -= step (q + ridge p), z = inverse ∘ r less its mean; Σ r z, Σ r² of the weights, Σ |r| of the intercepts
template <class T>
void centred_step(const SoftmaxSolveCsrArgs<T>& a, T step, int64_t first, int64_t last, double* sums) {
  const T part = T(1) / T(a.classes);
  RowSums<T> all_along, all_squares;
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    poll(2 * (a.classes / kWide<T> + 1));
    const Rows<T> row(a, i);
    const int64_t at = i * a.classes;
    const T* inverse = a.inverse + at;
    T *x = a.x + at, *r = a.r + at;
    Wide<T> sum{};
    each_wide<T>(a.classes, [&](int64_t j, int64_t count) {
      const Wide<T> pj = load_some(row.p + j, count);
      store_some(x + j, count, load_some(x + j, count) + step * pj);
      const Wide<T> rj = load_some(r + j, count) - step * (load_some(row.q + j, count) + row.ridge * pj);
      const Wide<T> zj = load_some(inverse + j, count) * rj;
      store_some(r + j, count, rj);
      store_some(row.z + j, count, zj);
      sum += zj;
    });
    const T mean = part * total(sum);
    Wide<T> along{}, squares{};
    each_wide<T>(a.classes, [&](int64_t j, int64_t count) {
      const Wide<T> rj = load_some(r + j, count);
      const Wide<T> zj = load_some(row.z + j, count) - mean;
      store_some(row.z + j, count, zj);
      along += rj * zj;
      squares += rj * rj;
    });
    all_along.add(along);
    if (i + 1 < a.features) {
      all_squares.add(squares);
    } else {
      for (int64_t j = 0; j < a.classes; ++j) sums[2] += std::fabs(double(r[j]));
    }
  }
  sums[0] += all_along.sum(), sums[1] += all_squares.sum();
}

// 1 / (Σ_i c_i p_i (1 - p_i) x_ij² + ridge) of the features first .. last-1
template <class T>
void softmax_diagonal(const SoftmaxDiagonalArgs<T>& a, int64_t first, int64_t last) {
  const int64_t m = a.classes;
  if (m == 2) return diagonal_of_two(a, first, last);
  const T tiny = std::numeric_limits<T>::min();
  const Poll poll;
  for (int64_t j = first; j < last; ++j) {
    T* sum = a.inverse + j * m;
    const bool weights = j < a.Xt.n;
    const auto of = [&](int64_t i, int64_t k, int64_t count) {
      const Wide<T> p = load_some(a.P + i * m + k, count);
      return p * lacking(p, wide(a.rest[i]));
    };
    if (weights) {
      poll(entries(a.Xt, j) * (m / kWide<T> + 1));
      const int64_t begin = a.Xt.offset[j], end = a.Xt.offset[j + 1];
      const auto c = [&](int64_t e) { return a.weight[a.Xt.column[e]] * a.Xt.value[e] * a.Xt.value[e]; };
      if (m >= kManyClasses<T>)
        class_sums(
            begin, end, m,
            [&](int64_t e, int64_t k) {
              const int64_t i = a.Xt.column[e];
              return [x = c(e), rest = wide(a.rest[i]), p = a.P + i * m + k](int64_t l) {
                const Wide<T> at = load_wide(p + l);
                return x * (at * lacking(at, rest));
              };
            },
            sum);
      else
        each_wide<T>(m, [&](int64_t k, int64_t count) {
          Wide<T> one{}, other{};
          int64_t e = begin;
          for (; e + 1 < end; e += 2) {
            one += c(e) * of(a.Xt.column[e], k, count);
            other += c(e + 1) * of(a.Xt.column[e + 1], k, count);
          }
          if (e < end) one += c(e) * of(a.Xt.column[e], k, count);
          store_some(sum + k, count, one + other);
        });
    } else {
      std::fill(sum, sum + m, T(0));
      for (int64_t i = 0; i < a.Xt.d; ++i) {
        poll(m / kWide<T> + 1);
        each_wide<T>(m, [&](int64_t k, int64_t count) {
          store_some(sum + k, count, load_some(sum + k, count) + a.weight[i] * of(i, k, count));
        });
      }
    }
    const T ridge = weights ? a.ridge : a.last_ridge;
    for (int64_t k = 0; k < m; ++k) sum[k] = T(1) / std::max(sum[k] + ridge, tiny);
  }
}

template <class T>
void softmax_right_side(const SoftmaxRightSideArgs<T>& a, int64_t first, int64_t last, double* sums) {
  const int64_t m = a.lanes;
  if (m == 2) return right_side_of_two(a, first, last, sums);
  const double share = 1 / double(m);
  DoubleSum squares, own;
  RowSums<T> all_along;
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    poll(3 * (m / kWide<T> + 1));
    const double* V = a.V + i * m;
    const T *gradient = a.gradient + i * m, *inverse = a.inverse + i * m;
    T* r = a.r + i * m;
    const bool weights = i + 1 < a.rows;
    const double part = weights ? 1.0 : 0.0, ridge = weights ? a.ridge : 0.0;
    DoubleSum sum;
    each_double(m, [&](int64_t j, auto of) {
      using D = decltype(of);
      const D v = part * as_doubles<D>(V + j), g = as_doubles<D>(gradient + j) + ridge * v;
      squares += g * g, own += v * v, sum += g;
      store_doubles(r + j, -g);
    });
    const T mean = T(-share * sum.sum());
    Wide<T> pressed{};
    each_wide<T>(m, [&](int64_t j, int64_t count) {
      const Wide<T> rj = load_some(r + j, count) - mean;
      store_some(r + j, count, rj);
      pressed += load_some(inverse + j, count) * rj;
    });
    const T z = T(share) * total(pressed);
    Wide<T> along{};
    each_wide<T>(m, [&](int64_t j, int64_t count) {
      const Wide<T> rj = load_some(r + j, count);
      along += rj * (load_some(inverse + j, count) * rj - z);
    });
    all_along.add(along);
  }
  sums[0] += squares.sum(), sums[1] += own.sum(), sums[2] += all_along.sum();
}

template <class T>
void softmax_moved(const SoftmaxMovedArgs<T>& a, int64_t first, int64_t last, double* sums) {
  const int64_t m = a.lanes;
  DoubleSum along, squares;
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    poll(2 * (m / kWide<double> + 1));
    const double* V = a.V + i * m;
    const T* direction = a.direction + i * m;
    double* moved = a.moved + i * m;
    const double part = i + 1 < a.rows ? 1.0 : 0.0;
    each_double(m, [&](int64_t j, auto of) {
      using D = decltype(of);
      const D v = as_doubles<D>(V + j), d = as_doubles<D>(direction + j), of_weights = part * d;
      store_doubles(moved + j, v + d);
      along += v * of_weights, squares += of_weights * of_weights;
    });
  }
  sums[0] += along.sum(), sums[1] += squares.sum();
}

#define XMCJAX_BOTH(T)                                                                            \
  template void centred_turn<T>(const SoftmaxSolveCsrArgs<T>&, T, int64_t, int64_t, double*);     \
  template void centred_step<T>(const SoftmaxSolveCsrArgs<T>&, T, int64_t, int64_t, double*);     \
  template void softmax_diagonal<T>(const SoftmaxDiagonalArgs<T>&, int64_t, int64_t);             \
  template void softmax_right_side<T>(const SoftmaxRightSideArgs<T>&, int64_t, int64_t, double*); \
  template void softmax_moved<T>(const SoftmaxMovedArgs<T>&, int64_t, int64_t, double*);
XMCJAX_BOTH(float)
XMCJAX_BOTH(double)
#undef XMCJAX_BOTH

}  // namespace xmcjax::XMCJAX_ISA
