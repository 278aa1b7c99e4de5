// What a Newton step of multinomial logistic regression does with scores (solvers/multinomial/block_newton.py): of CSR
// features half of the product with the Hessian of the losses, and the losses along a line. Scores are [n, classes] for
// products with CSR features, and [classes, n] for products with dense ones, where no vector has a lane without a class.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/aligned.h"
#include "core/csr_rows.h"
#include "core/exponential.h"
#include "core/interrupt.h"
#include "core/isa.h"
#include "core/simd.h"
#include "softmax/class_rows.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

constexpr int64_t kAtHand = 128;  // instances whose scores of all classes stay in the cache
constexpr int64_t kExponential = 8;  // what e^x costs, in products

// Σ over the classes for instances side by side, in arrays that stay in the cache.
template <class T>
struct Columns {
  alignas(64) T top[kAtHand], tied[kAtHand], others[kAtHand], first[kAtHand], second[kAtHand], own[kAtHand],
      along[kAtHand];
};

// Σ c log s: one logarithm for the product of many s ≥ 1 with the same c.
class Logarithms {
 public:
  void add(double c, double s) {
    if (c != c_ || product_ > kLarge) end(), c_ = c;
    product_ *= s;
  }
  double sum() {
    end();
    return sum_;
  }

 private:
  static constexpr double kLarge = 1e150;

  void end() {
    sum_ += c_ * std::log(product_);
    product_ = 1;
  }

  double product_ = 1, c_ = 0, sum_ = 0;
};

// Adds e = e^(now - top) to the sum of the others, or counts it among the tied ones where now is the top.
template <class T>
XMCJAX_INLINE void add_apart(Wide<T> now, Wide<T> top, Wide<T> e, Wide<T>& tied, Wide<T>& others) {
  tied += select(now == top, wide(T(1)), Wide<T>{});
  others += select(now == top, Wide<T>{}, e);
}

// Makes a row of X p, whose sums are in registers, into the row of the product with the Hessian. Where the classes do
// not fill the last register, it overlaps the one before it: what both have counts once.
template <class T>
class CurvedRow {
 public:
  CurvedRow(int64_t m, const T* bias) : bias_(bias) {
    constexpr int64_t N = kWide<T>;
    for (int64_t l = 0, twice = (m + N - 1) / N * N - m; l < N; ++l) once_[l] = T(l >= twice);
  }

  // u = c (P ∘ U - P (P·U)) for U = sum + b, from which its number of class y is subtracted; returns c Σ P (U - P·U)².
  template <int R>
  XMCJAX_INLINE double operator()(const Wide<T> (&sum)[R], int64_t end, const T* P, T c, int32_t y,
                                  T* u) const {
    constexpr int N = kWide<T>;
    Wide<T> now[R];
    const Wide<T> last = once_ * load_wide(P + end);
    now[R - 1] = sum[R - 1] + load_wide(bias_ + end);
    store_wide(u + end, now[R - 1]);
#pragma GCC unroll 12
    for (int r = 0; r < R - 1; ++r) {
      now[r] = sum[r] + load_wide(bias_ + r * N);
      store_wide(u + r * N, now[r]);
    }
    const T own = u[y];
    now[R - 1] -= own;
    Wide<T> some = last * now[R - 1];
#pragma GCC unroll 12
    for (int r = 0; r < R - 1; ++r) {
      now[r] -= own;
      some += load_wide(P + r * N) * now[r];
    }
    const T mean = total(some);
    now[R - 1] -= mean;
    store_wide(u + end, c * load_wide(P + end) * now[R - 1]);
    Wide<T> squares = c * last * now[R - 1] * now[R - 1];
#pragma GCC unroll 12
    for (int r = 0; r < R - 1; ++r) {
      now[r] -= mean;
      const Wide<T> curved = c * load_wide(P + r * N) * now[r];
      squares += curved * now[r];
      store_wide(u + r * N, curved);
    }
    return double(total(squares));
  }

 private:
  const T* bias_;
  Wide<T> once_{};
};

// What softmax_along, below, does for two classes: with the gap g = z_1 - z_0, the lower p is e^-|g| of the higher one.
template <class T>
void along_of_two(const SoftmaxAlongArgs<T>& a, int64_t first, int64_t last, double* sums) {
  alignas(64) T gap[kAtHand], lower[kAtHand];
  Logarithms logarithms;
  const Poll poll;
  for (int64_t i = first; i < last; i += kAtHand) {
    const int64_t width = std::min(kAtHand, last - i);
    poll(2 * kExponential * width);
    const T *z = a.Z + 2 * i, *u = a.U + 2 * i;
    for (int64_t j = 0; j < width; ++j)
      gap[j] = (z[2 * j + 1] + a.t * u[2 * j + 1]) - (z[2 * j] + a.t * u[2 * j]);
    each_wide<T>(width, [&](int64_t j, int64_t count) {
      store_wide(lower + j, exponential(-absolute(load_some(gap + j, count))));
    });
    for (int64_t j = 0; j < width; ++j) {
      const double sum = 1 + double(lower[j]), c = a.weight[i + j];
      const T most = T(1 / sum), rest = T(double(lower[j]) / sum);
      T* p = a.P + 2 * (i + j);
      p[0] = gap[j] > 0 ? rest : most, p[1] = gap[j] > 0 ? most : rest;
      a.rest[i + j] = rest;
      // of the class that is not the row's own
      const bool first_is_own = a.y[i + j] == 0;
      const double v = first_is_own ? double(u[2 * j + 1]) - u[2 * j] : double(u[2 * j]) - u[2 * j + 1];
      const double other = first_is_own ? p[1] : p[0], above = first_is_own ? gap[j] : -gap[j];
      sums[0] += c * std::max(above, 0.0);
      logarithms.add(c, sum);
      sums[1] += c * other * v;
      sums[2] += c * double(most) * double(rest) * v * v;
    }
  }
  sums[0] += logarithms.sum();
}

}  // namespace

// U = X p + 1 bᵀ, and R = c (P ∘ U - P (P·U)) in its place while a row is at hand; b is the last row of p. `along` is
// what each row adds to pᵀH p: c Σ P (U - P·U)². Subtracting one number from all of a row changes neither: as in
// simd_softmax_hessian.cc, the number of the row's own class is subtracted.
template <class T>
void softmax_curved(const SoftmaxSolveCsrArgs<T>& a, const T* p, int64_t first, int64_t last, double* along) {
  const int64_t m = a.classes;
  const T* bias = p + a.X.d * m;
  const ClassRows<T> product(p, a.X.d, m);
  const CurvedRow<T> curved(m, bias);
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    poll((entries(a.X, i) + 2) * (m / kWide<T> + 1));
    const T *P = a.P + i * m, c = a.weight[i];
    T* u = a.U + i * m;
    double& sum = along[i - first];
    if constexpr (kManyClasses<T> <= kMostRegisters * kWide<T>)
      if (product.at_once()) {
        product(a.X, i, [&](const auto& sums, int64_t end) { sum = curved(sums, end, P, c, a.y[i], u); });
        continue;
      }
    product(a.X, i, u);
    const T own = u[a.y[i]] + bias[a.y[i]];
    Wide<T> sums{};
    each_wide<T>(m, [&](int64_t j, int64_t count) {
      const Wide<T> now = load_some(u + j, count) + load_some(bias + j, count) - own;
      store_some(u + j, count, now);
      sums += load_some(P + j, count) * now;
    });
    const T mean = total(sums);
    Wide<T> squares{};
    each_wide<T>(m, [&](int64_t j, int64_t count) {
      const Wide<T> from = load_some(u + j, count) - mean;
      const Wide<T> r = c * load_some(P + j, count) * from;
      squares += r * from;
      store_some(u + j, count, r);
    });
    sum = double(total(squares));
  }
}

// out = X V
template <class T>
void softmax_product(const SoftmaxProductArgs<T>& a, int64_t first, int64_t last) {
  const ClassRows<T> product(a.V, a.X.d, a.classes);
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    poll(entries(a.X, i) * (a.classes / kWide<T> + 1));
    product(a.X, i, a.out + i * a.classes);
  }
}

// out = Uᵀ 1
template <class T>
void softmax_sums(const T* U, int64_t n, int64_t m, T* out) {
  constexpr int64_t kShort = 256;  // rows whose sum is in T, before it is added in double
  std::vector<double> all(m, 0.0);
  const Zeros<T> some(m);
  const Poll poll;
  for (int64_t i = 0; i < n; ++i) {
    poll(m / kWide<T> + 1);
    each_wide<T>(m, [&](int64_t j, int64_t count) {
      store_some(some.get() + j, count, load_some(some.get() + j, count) + load_some(U + i * m + j, count));
    });
    if (i % kShort != kShort - 1 && i + 1 < n) continue;
    for (int64_t j = 0; j < m; ++j) all[j] += double(some[j]), some[j] = 0;
  }
  for (int64_t j = 0; j < m; ++j) out[j] = T(all[j]);
}

// With z = Z + t U, p = softmax(z) and v = u - u_y: φ = Σ c (log Σ e^z - z_y), φ' = Σ c p·v, φ'' = Σ c (p·v² - (p·v)²).
// The classes of the highest z, whose e^(z - highest) is 1, are summed up apart from the others.
template <class T>
void softmax_along(const SoftmaxAlongArgs<T>& a, int64_t first, int64_t last, double* sums) {
  const int64_t m = a.classes;
  if (m == 2) return along_of_two(a, first, last, sums);
  const T never = -std::numeric_limits<T>::infinity();
  Logarithms logarithms;
  const Poll poll;
  for (int64_t i = first; i < last; ++i) {
    poll(kExponential * m);
    const T *z = a.Z + i * m, *u = a.U + i * m;
    T* p = a.P + i * m;
    Wide<T> top = wide(never);
    each_wide<T>(m, [&](int64_t j, int64_t count) {
      const Wide<T> now = load_some(z + j, count, never) + a.t * load_some(u + j, count);
      store_some(p + j, count, now);
      top = maximum(now, top);
    });
    const T highest = largest<T>(top), own = p[a.y[i]], along = u[a.y[i]];
    Wide<T> tied{}, others{}, one{}, two{};
    each_wide<T>(m, [&](int64_t j, int64_t count) {
      const Wide<T> now = load_some(p + j, count, never), v = load_some(u + j, count) - along;
      const Wide<T> e = exponential(now - highest);
      add_apart<T>(now, wide(highest), e, tied, others);
      one += e * v, two += e * v * v;
      store_some(p + j, count, e);
    });
    const double rest = double(total(tied)) - 1 + double(total(others)), sum = 1 + rest;
    const double mean = total(one) / sum, c = a.weight[i];
    sums[0] += c * (double(highest) - double(own));
    logarithms.add(c, sum);
    sums[1] += c * mean;
    sums[2] += c * (total(two) / sum - mean * mean);
    a.rest[i] = T(rest / sum);
    const T scale = T(1 / sum);
    each_wide<T>(
        m, [&](int64_t j, int64_t count) { store_some(p + j, count, scale * load_some(p + j, count)); });
  }
  sums[0] += logarithms.sum();
}

template <class T>
void softmax_along_by_class(const SoftmaxAlongByClassArgs<T>& a, int64_t first, int64_t last, double* sums) {
  Columns<T> s;
  Logarithms logarithms;
  const Poll poll;
  for (int64_t i = first; i < last; i += kAtHand) {
    const int64_t width = last - i < kAtHand ? last - i : kAtHand;
    poll(kExponential * width * a.classes);
    for (int64_t j = 0; j < kAtHand; ++j) {
      s.top[j] = -std::numeric_limits<T>::infinity();
      s.tied[j] = s.others[j] = s.first[j] = s.second[j] = 0;
    }
    for (int64_t j = 0; j < width; ++j) {
      const int64_t at = a.y[i + j] * a.n + i + j;
      s.own[j] = a.Z[at] + a.t * a.U[at], s.along[j] = a.U[at];
    }
    for (int64_t k = 0; k < a.classes; ++k) {
      const T *z = a.Z + k * a.n + i, *u = a.U + k * a.n + i;
      T* p = a.P + k * a.n + i;
      each_wide<T>(width, [&](int64_t j, int64_t count) {
        const Wide<T> now = load_some(z + j, count) + a.t * load_some(u + j, count);
        store_wide(s.top + j, maximum(now, load_wide(s.top + j)));
        store_some(p + j, count, now);
      });
    }
    for (int64_t k = 0; k < a.classes; ++k) {
      const T* u = a.U + k * a.n + i;
      T* p = a.P + k * a.n + i;
      each_wide<T>(width, [&](int64_t j, int64_t count) {
        const Wide<T> v = load_some(u + j, count) - load_wide(s.along + j);
        const Wide<T> now = load_some(p + j, count), top = load_wide(s.top + j);
        const Wide<T> e = exponential(now - top);
        Wide<T> tied = load_wide(s.tied + j), others = load_wide(s.others + j);
        add_apart<T>(now, top, e, tied, others);
        store_wide(s.tied + j, tied), store_wide(s.others + j, others);
        store_wide(s.first + j, load_wide(s.first + j) + e * v);
        store_wide(s.second + j, load_wide(s.second + j) + e * v * v);
        store_some(p + j, count, e);
      });
    }
    for (int64_t j = 0; j < width; ++j) {
      const double rest = double(s.tied[j]) - 1 + double(s.others[j]), sum = 1 + rest;
      const double mean = s.first[j] / sum, c = a.weight[i + j];
      sums[0] += c * (double(s.top[j]) - double(s.own[j]));
      logarithms.add(c, sum);
      sums[1] += c * mean;
      sums[2] += c * (s.second[j] / sum - mean * mean);
      a.rest[i + j] = T(rest / sum);
      s.others[j] = T(1 / sum);  // the factor of each e
    }
    for (int64_t k = 0; k < a.classes; ++k) {
      T* p = a.P + k * a.n + i;
      each_wide<T>(width, [&](int64_t j, int64_t count) {
        store_some(p + j, count, load_wide(s.others + j) * load_some(p + j, count));
      });
    }
  }
  sums[0] += logarithms.sum();
}

#define XMCJAX_BOTH(T)                                                                                 \
  template void softmax_curved<T>(const SoftmaxSolveCsrArgs<T>&, const T*, int64_t, int64_t, double*); \
  template void softmax_product<T>(const SoftmaxProductArgs<T>&, int64_t, int64_t);                    \
  template void softmax_sums<T>(const T*, int64_t, int64_t, T*);                                       \
  template void softmax_along<T>(const SoftmaxAlongArgs<T>&, int64_t, int64_t, double*);               \
  template void softmax_along_by_class<T>(const SoftmaxAlongByClassArgs<T>&, int64_t, int64_t, double*);
XMCJAX_BOTH(float)
XMCJAX_BOTH(double)
#undef XMCJAX_BOTH

}  // namespace xmcjax::XMCJAX_ISA
