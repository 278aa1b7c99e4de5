// Rows of scores as distributions over the classes, and how far other distributions are from them: what a bound of the
// distance to the minimum is made of (solvers/multinomial/_distributions.py).
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/exponential.h"
#include "core/interrupt.h"
#include "core/isa.h"
#include "core/logarithm.h"
#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

constexpr int64_t kExponential = 8;  // what e^x or log x costs, in products

// The m numbers z + shift of a row, [m] each, in the place of z; the largest one.
template <class T>
T shifted(T* z, const T* shift, int64_t m) {
  constexpr T kNever = -std::numeric_limits<T>::infinity();
  Wide<T> top = wide(kNever);
  each_wide<T>(m, [&](int64_t j, int64_t count) {
    const Wide<T> now = load_some(z + j, count, kNever) + load_some(shift + j, count);
    store_some(z + j, count, now);
    top = maximum(now, top);
  });
  return largest<T>(top);
}

// Where the first number that is `value` stands. Where none is, as a NaN is no number, 0.
template <class T>
int64_t place_of(const T* z, T value, int64_t m) {
  for (int64_t j = 0; j < m; ++j)
    if (z[j] == value) return j;
  return 0;
}

// z ← e^{z - top} of a row, except at the place of the largest, which becomes 0. Returns their sum: log Σ e^z is
// top + log(1 + sum), with all digits of what is beside the largest.
template <class T>
T exponentials(T* z, int64_t m, T top, int64_t place) {
  constexpr T kNever = -std::numeric_limits<T>::infinity();
  z[place] = kNever;
  Wide<T> sum{};
  each_wide<T>(m, [&](int64_t j, int64_t count) {
    const Wide<T> e = exponential(load_some(z + j, count, kNever) - top);
    store_some(z + j, count, e);
    sum += e;
  });
  return total(sum);
}

// q ← c (q - e_y) of a row, where 1 - q_y is the sum of the others.
template <class T>
void less_own(T* q, int64_t m, int32_t y, T c) {
  q[y] = 0;
  Wide<T> others{};
  each_wide<T>(m, [&](int64_t j, int64_t count) {
    const Wide<T> now = c * load_some(q + j, count);
    store_some(q + j, count, now);
    others += now;
  });
  q[y] = -total(others);
}

// q log(q/p) - q + p, which is p for q = 0.
template <class T>
Wide<T> one_distance(Wide<T> q, Wide<T> log_p) {
  return exponential(log_p) + select(q > 0, q * (logarithm(q) - log_p) - q, Wide<T>{});
}

// Rows of few classes side by side, a lane each: at [k * kWide + l] is class k of row l.
constexpr int64_t kFewClasses = 48;

template <class T>
class FewClasses {
 public:
  FewClasses(int64_t m, int64_t rows) : m_(m), rows_(rows) {}

  Wide<T> operator[](int64_t k) const { return load_wide(at_ + k * kWide<T>); }
  void put(int64_t k, Wide<T> v) { store_wide(at_ + k * kWide<T>, v); }
  // Reads the rows of a matrix from one on; lanes without a row repeat the first one.
  void read(const T* from) {
    for (int64_t l = 0; l < kWide<T>; ++l) {
      const T* row = from + (l < rows_ ? l : 0) * m_;
      for (int64_t k = 0; k < m_; ++k) at_[k * kWide<T> + l] = row[k];
    }
  }
  void write(T* to) const {
    for (int64_t l = 0; l < rows_; ++l)
      for (int64_t k = 0; k < m_; ++k) to[l * m_ + k] = at_[k * kWide<T> + l];
  }
  // What f(k, v) makes of each, in its place.
  template <class F>
  void each(F&& f) {
    for (int64_t k = 0; k < m_; ++k) put(k, f(k, (*this)[k]));
  }

 private:
  const int64_t m_, rows_;
  alignas(64) T at_[kFewClasses * kWide<T>];
};

// Where classes are few, f(i, rows) for the rows from i on, as many as there are lanes or are left. Returns the first
// row that is left to the form for many classes.
template <class T, class F>
int64_t rows_together(int64_t m, int64_t first, int64_t last, F&& f) {
  if (m > kFewClasses) return first;
  for (int64_t i = first; i < last; i += kWide<T>) f(i, std::min<int64_t>(last - i, kWide<T>));
  return last;
}

// A number of each row, as a real; lanes without a row repeat the first one.
template <class T, class N>
Wide<T> of_rows(const N* from, int64_t rows) {
  T all[kWide<T>];
  for (int64_t l = 0; l < kWide<T>; ++l) all[l] = T(from[l < rows ? l : 0]);
  return load_wide(all);
}

// log(1 + x) for x ≥ 0, with all digits where x is small.
template <class T>
Wide<T> logarithm_of_more(Wide<T> x) {
  const Wide<T> sum = x + T(1);
  return logarithm(sum) + (x - (sum - T(1))) / sum;
}

// The largest of each row, and the place of the first that is.
template <class T>
struct Largest {
  Wide<T> top, place;
  Largest(const FewClasses<T>& z, int64_t m) : top(z[0]), place{} {
    for (int64_t k = 1; k < m; ++k) {
      const Wide<T> now = z[k];
      const auto better = (now > top) | (now != now);  // a NaN stays, and makes all others NaN
      place = select(better, wide(T(k)), place);
      top = select(better, now, top);
    }
  }
};

// less_own() for each row.
template <class T>
void less_own_each(FewClasses<T>& q, int64_t m, Wide<T> y, Wide<T> c) {
  Wide<T> others{};
  q.each([&](int64_t k, Wide<T> v) {
    const Wide<T> now = select(y == T(k), Wide<T>{}, c * v);
    others += now;
    return now;
  });
  for (int64_t k = 0; k < m; ++k) q.put(k, select(y == T(k), -others, q[k]));
}

}  // namespace

template <class T>
void softmax_residuals(const SoftmaxResidualsArgs<T>& a, int64_t first, int64_t last) {
  const int64_t m = a.classes;
  const Poll poll;
  first = rows_together<T>(m, first, last, [&](int64_t at, int64_t rows) {
    poll(kExponential * m);
    FewClasses<T> z(m, rows);
    z.read(a.Z + at * m);
    const Wide<T> y = of_rows<T>(a.y + at, rows), c = of_rows<T>(a.weight + at, rows);
    Wide<T> own{}, sum{};
    z.each([&](int64_t k, Wide<T> v) { return v + a.bias[k]; });
    const Largest<T> of(z, m);
    z.each([&](int64_t k, Wide<T> v) {
      own = select(y == T(k), v, own);
      const Wide<T> e = exponential(v - of.top);
      sum += select(of.place == T(k), Wide<T>{}, e);
      return e;
    });
    store_part<T>(a.losses + at, rows, of.top - own + logarithm_of_more<T>(sum));
    less_own_each(z, m, y, c / (T(1) + sum));
    z.write(a.Z + at * m);
  });
  for (int64_t i = first; i < last; ++i) {
    poll(kExponential * m);
    T* z = a.Z + i * m;
    const int32_t y = a.y[i];
    const T top = shifted(z, a.bias, m), own = z[y];
    const int64_t place = place_of(z, top, m);
    const T sum = exponentials(z, m, top, place);
    a.losses[i] = (top - own) + std::log1p(sum);
    z[place] = 1;
    less_own(z, m, y, a.weight[i] / (1 + sum));
  }
}

template <class T>
void softmax_stepped(const SoftmaxSteppedArgs<T>& a, int64_t first, int64_t last, double* totals) {
  constexpr T kFar = std::numeric_limits<T>::infinity(), kNever = -kFar;
  const int64_t m = a.classes;
  const Poll poll;
  first = rows_together<T>(m, first, last, [&](int64_t at, int64_t rows) {
    poll(2 * kExponential * m);
    FewClasses<T> z(m, rows), u(m, rows);
    z.read(a.Z + at * m), u.read(a.U + at * m);
    const Wide<T> c = of_rows<T>(a.weight + at, rows);
    z.each([&](int64_t k, Wide<T> v) { return v + a.bias[k]; });
    const Largest<T> of(z, m);
    Wide<T> others{}, mean{}, least = wide(kFar), most = wide(kNever), mass{};
    for (int64_t k = 0; k < m; ++k) others += select(of.place == T(k), Wide<T>{}, exponential(z[k] - of.top));
    const Wide<T> of_all = logarithm_of_more<T>(others);
    z.each([&](int64_t k, Wide<T> v) {
      const Wide<T> log_p = (v - of.top) - of_all, now = u[k] + a.direction[k];
      u.put(k, now);
      mean += exponential(log_p) * now;
      return log_p;
    });
    u.each([&](int64_t, Wide<T> v) {
      const Wide<T> now = v - mean;
      least = minimum(now, least), most = maximum(now, most);
      return now;
    });
    const bool linear = -largest<T>(-least) > -1;
    u.each([&](int64_t k, Wide<T> v) {
      const Wide<T> p = exponential(z[k]);
      const Wide<T> straight = p * (v + T(1));
      const Wide<T> q = linear ? straight : select(least > T(-1), straight, p * exponential(v - most));
      mass += q;
      return q;
    });
    const Wide<T> scale = T(1) / mass;
    u.each([&](int64_t k, Wide<T> v) {
      const Wide<T> q = scale * v, part = c * q;
      for (int64_t l = 0; l < rows; ++l) totals[k] += double(part[l]);
      return q;
    });
    z.write(a.Z + at * m), u.write(a.U + at * m);
  });
  for (int64_t i = first; i < last; ++i) {
    poll(2 * kExponential * m);
    T *z = a.Z + i * m, *u = a.U + i * m;
    const T top = shifted(z, a.bias, m);
    const int64_t place = place_of(z, top, m);
    z[place] = kNever;
    Wide<T> others{};  // Σ e^{z - top} of all but the largest
    each_wide<T>(
        m, [&](int64_t j, int64_t count) { others += exponential(load_some(z + j, count, kNever) - top); });
    z[place] = top;
    const T of_all = std::log1p(total(others));
    Wide<T> means{};
    each_wide<T>(m, [&](int64_t j, int64_t count) {
      const Wide<T> log_p = (load_some(z + j, count, kNever) - top) - of_all;
      const Wide<T> now = load_some(u + j, count) + load_some(a.direction + j, count);
      store_some(z + j, count, log_p), store_some(u + j, count, now);
      means += exponential(log_p) * now;
    });
    const T mean = total(means);
    Wide<T> least = wide(kFar), most = wide(kNever);
    each_wide<T>(m, [&](int64_t j, int64_t count) {
      const Wide<T> now = load_some(u + j, count) - mean;
      store_some(u + j, count, now);
      least = minimum(load_some(u + j, count, kFar), least);
      most = maximum(load_some(u + j, count, kNever), most);
    });
    const bool linear = -largest<T>(-least) > -1;
    const T highest = largest<T>(most);
    Wide<T> mass{};
    each_wide<T>(m, [&](int64_t j, int64_t count) {
      const Wide<T> now = load_some(u + j, count), p = exponential(load_some(z + j, count, kNever));
      const Wide<T> q = p * (linear ? now + T(1) : exponential(now - highest));
      store_some(u + j, count, q);
      mass += q;
    });
    const T scale = 1 / total(mass);
    const double c = a.weight[i];
    for (int64_t j = 0; j < m; ++j) {
      u[j] *= scale;
      totals[j] += c * double(u[j]);
    }
  }
}

template <class T>
void softmax_distances(const SoftmaxDistancesArgs<T>& a, int64_t first, int64_t last) {
  const int64_t m = a.classes;
  const Poll poll;
  first = rows_together<T>(m, first, last, [&](int64_t at, int64_t rows) {
    poll(2 * kExponential * m);
    FewClasses<T> log_p(m, rows), q(m, rows);
    log_p.read(a.log_p + at * m), q.read(a.Q + at * m);
    Wide<T> free{}, distance{};
    for (int64_t k = 0; k < m; ++k) free += q[k] * (1 - a.kept[k]);
    q.each([&](int64_t k, Wide<T> v) {
      const Wide<T> now = v * a.kept[k] + free * a.taken[k];
      distance += one_distance<T>(now, log_p[k]);
      return now;
    });
    store_part(a.distances + at, rows, distance);
    less_own_each(q, m, of_rows<T>(a.y + at, rows), of_rows<T>(a.weight + at, rows));
    q.write(a.Q + at * m);
  });
  constexpr T kNever = -std::numeric_limits<T>::infinity();
  for (int64_t i = first; i < last; ++i) {
    poll(2 * kExponential * m);
    const T* log_p = a.log_p + i * m;
    T* q = a.Q + i * m;
    Wide<T> given{};
    each_wide<T>(m, [&](int64_t j, int64_t count) {
      given += load_some(q + j, count) * (T(1) - load_some(a.kept + j, count, T(1)));
    });
    const T free = total(given);
    Wide<T> distance{};
    each_wide<T>(m, [&](int64_t j, int64_t count) {
      const Wide<T> now =
          load_some(q + j, count) * load_some(a.kept + j, count) + free * load_some(a.taken + j, count);
      store_some(q + j, count, now);
      distance += one_distance<T>(now, load_some(log_p + j, count, kNever));
    });
    a.distances[i] = total(distance);
    less_own(q, m, a.y[i], a.weight[i]);
  }
}

#define XMCJAX_BOTH(T)                                                                              \
  template void softmax_residuals<T>(const SoftmaxResidualsArgs<T>&, int64_t, int64_t);             \
  template void softmax_stepped<T>(const SoftmaxSteppedArgs<T>&, int64_t, int64_t, double* totals); \
  template void softmax_distances<T>(const SoftmaxDistancesArgs<T>&, int64_t, int64_t);
XMCJAX_BOTH(float)
XMCJAX_BOTH(double)
#undef XMCJAX_BOTH

}  // namespace xmcjax::XMCJAX_ISA
