// Penalties R(w) = Σ_j ρ(w_j) of a lane (penalties/): what coordinate steps need of them.
#pragma once

#include <cmath>
#include <limits>

#include "core/isa.h"

namespace xmcjax {

// A further penalty needs a case in each member below.
static_assert(kPenalties == 3, "ids.def has a penalty that penalties.h does not know");

// λ ρ; `parameter` is α of the elastic net, ε of the Huber penalty.
//   elastic net: ρ(w) = α |w| + (1 − α) ½ w²; α = 1 is the l1 norm
//   Huber:       ρ(w) = w² / 2ε for |w| ≤ ε, |w| − ε/2 beyond
template <class T>
class Penalty {
 public:
  Penalty(int32_t id, T lambda, T parameter)
      : huber_(id == kHuberPenalty), lambda_(lambda), parameter_(parameter) {}

  // λ ρ(w)
  double value(T w) const {
    const double a = std::fabs(double(w)), p = parameter_;
    if (huber_) return lambda_ * (a <= p ? 0.5 * a * a / p : a - 0.5 * p);
    return lambda_ * (p * a + 0.5 * (1 - p) * a * a);
  }

  // The distance of −g to λ ∂ρ(w)
  T violation(T g, T w) const {
    if (smooth_at(w)) return std::fabs(g + slope(w));
    return std::fmax(std::fabs(g) - lambda_ * parameter_, T(0));
  }

  // λ ρ is quadratic around w, not only to one side
  bool smooth_at(T w) const { return huber_ || w != 0; }

  // λ ρ'(w) and λ ρ''(w) where it is smooth
  T slope(T w) const {
    if (huber_) return lambda_ * (w > parameter_ ? T(1) : w < -parameter_ ? T(-1) : w / parameter_);
    return std::copysign(lambda_ * parameter_, w) + lambda_ * (1 - parameter_) * w;
  }
  T curvature(T w) const {
    if (huber_) return std::fabs(w) <= parameter_ ? lambda_ / parameter_ : T(0);
    return lambda_ * (1 - parameter_);
  }

  // How far w may move along v before it meets a kink of ρ
  T room(T w, T v) const { return !huber_ && w * v < 0 ? -w / v : std::numeric_limits<T>::infinity(); }

  // The end of a move from w to `to`, which stops at a kink of ρ
  T stop(T w, T to) const { return !huber_ && (w > 0) != (to > 0) ? T(0) : to; }

  // argmin_x ½ h (x − u)² + λ ρ(x), given h and h u
  T minimiser(T h, T hu) const {
    if (huber_) {
      const T inside = hu / (h + lambda_ / parameter_);
      return std::fabs(inside) <= parameter_ ? inside : (hu - std::copysign(lambda_, hu)) / h;
    }
    const T l1 = lambda_ * parameter_, over = std::fabs(hu) - l1;
    return over > 0 ? std::copysign(over, hu) / (h + (lambda_ - l1)) : T(0);
  }

 private:
  bool huber_;
  T lambda_, parameter_;
};

}  // namespace xmcjax
