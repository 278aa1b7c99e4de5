// Rows of scores as distributions over the classes, and how far others are from them: what a bound of the distance to
// the minimum is made of (solvers/multinomial/_distributions.py).
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

// z ← e^{z - top} of a row but for the place of the largest, which becomes 0; their sum: log Σ e^z is top + log(1 + sum)
// with all digits of what is beside the largest.
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

// q ← c (q - e_y) of a row, where q_y - 1 is what the others are together.
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

}  // namespace

template <class T>
void softmax_residuals(const SoftmaxResidualsArgs<T>& a, int64_t first, int64_t last) {
  const int64_t m = a.classes;
  const Poll poll;
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
      const Wide<T> beside = load_some(log_p + j, count, kNever), p = exponential(beside);
      distance += p + select(now > 0, now * (logarithm(now) - beside) - now, Wide<T>{});
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
