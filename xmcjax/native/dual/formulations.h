// What tells one multi-class SVM from another: its gains, its dual set and its weights, written once. The table of all
// formulations stands in solvers/_formulations.py, whose twin this is; the projections of a visit, and the losses of
// the top-k SVMs, are those of instance_sets.h. Included by the simd_*.cc files only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "dual/multiclass.h"

namespace xmcjax::XMCJAX_ISA {

// |projected gradient| of a variable 0 <= a <= upper, of numbers or of vectors.
template <class V, class T>
inline V projected(V slope, V a, T upper) {
  const V rising = select((a <= 0) & (slope < 0), V{}, slope);
  const V moving = select((a >= upper) & (rising > 0), V{}, rising);
  return select(moving < 0, -moving, moving);
}

// A further formulation needs a case in each member below, and where simd_*.cc files ask for more.
static_assert(kFormulations == 5, "ids.def has a formulation that formulations.h does not know");

struct Formulation {
  int32_t id;
  int64_t m;
  double C;

  bool pairs() const { return id == kWestonWatkins || id == kCrammerSinger; }  // gains 1 + z_c - z_y
  bool simplex() const { return id == kCrammerSinger; }  // Σ α <= C
  bool centred() const { return id == kLeeLinWahba; }  // Σ_c w_c = 0
  bool squared() const { return id == kOneVsRestSquared; }
  bool exists(int64_t c, int64_t y) const { return c != y || !(pairs() || centred()); }

  // ρ, and the upper bound of a variable
  double ridge() const { return squared() ? 0.5 / C : 0; }
  double upper() const { return squared() ? std::numeric_limits<double>::infinity() : C; }
  // In a row of zeros all gains are 1. unopposed(): the value of its variables. driven(): how many of them have it, one
  // for Crammer-Singer; each adds C to P and to D.
  double unopposed() const { return squared() ? 1 / ridge() : C; }
  int64_t driven() const { return simplex() ? 1 : m - !exists(0, 0); }

  // more_loss(): the losses of a row over C, with one more gain. dual_gain(): α - ½ ρ α².
  double more_loss(double loss, double gain) const {
    const double g = std::max(0.0, gain);
    return simplex() ? std::max(loss, g) : loss + (squared() ? g * g : g);
  }
  double dual_gain(double a) const { return a - ridge() / 2 * a * a; }

  // The coefficient of x_i in w_c for α_ic = 1, but for the mean of Lee-Lin-Wahba and w_y of pairs.
  int sign(int64_t c, int64_t y) const { return c == y ? 1 : -1; }

  // Replaces the scores of a row of `width` classes by the linear part of its gains; 0 where there is no variable.
  template <class T>
  void linear(int64_t y, T* z, int64_t width) const {
    if (pairs()) {
      const T own = z[y];
      for (int64_t c = 0; c < width; c += kLanes<T>) store(z + c, load(z + c) - own);
    }
    z[y] = exists(y, y) ? -z[y] : 0;
    std::fill(z + m, z + width, T(0));
  }
  // The adjoint of linear() with the sign turned: replaces the variables of a row by its coefficients in the weights.
  template <class T>
  void coefficients(int64_t y, T* a, int64_t width) const {
    T sum = 0;
    for (int64_t c = 0; c < m; ++c) sum += exists(c, y) ? a[c] : 0;
    const T own = pairs() ? sum : centred() ? 0 : a[y], mean = centred() ? sum / T(m) : 0;
    for (int64_t c = 0; c < width; c += kLanes<T>) store(a + c, mean - load(a + c));
    a[y] = own + mean;
    std::fill(a + m, a + width, T(0));
  }
};

// The violation of Crammer-Singer: the largest gain less the smallest gain of a variable that could fall, as in
// LIBLINEAR. The slack C - Σ α counts as a variable with a gain of 0. A variable that is zero but for rounding must not
// count as one that could fall.
template <class T>
class SimplexViolation {
 public:
  SimplexViolation(T C, T sum)
      : least_(kRounding * sum), lowest_(C - sum > kRounding * C ? T(0) : infinity()) {}

  void add(T gain, T a) {
    highest_ = std::max(highest_, gain);
    if (a > least_) lowest_ = std::min(lowest_, gain);
  }
  T value() const { return std::max(T(0), highest_ - lowest_); }
  // The smallest gain of what could fall, or the largest gain where that is smaller.
  T floor() const { return std::min(lowest_, highest_); }

 private:
  static T infinity() { return std::numeric_limits<T>::infinity(); }
  // ε to the power 0.6. A call of std::pow would run, in this instruction set, when any processor loads the library.
  static constexpr T kRounding = sizeof(T) == 4 ? T(0x1.261112p-14) : T(0x1.bdb8cdadbe126p-32);

  T least_, lowest_, highest_ = 0;
};

// What instances add to the objectives: ‖W‖² = Σ_i Σ_c α_ic (1 - h_ic).
struct Tally {
  double loss = 0, dual = 0, norm = 0, worst = 0;

  Assessment at(double C) const { return {C * loss + norm / 2, dual - norm / 2, worst}; }
};

}  // namespace xmcjax::XMCJAX_ISA
