// Conjugate gradients, one step at a time: the caller multiplies.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/simd.h"
#include "newton/lane_arrays.h"

namespace xmcjax::XMCJAX_ISA {

// When to stop; solvers/_cg.py says more.
struct CgEnd {
  double tolerance;   // at ‖r‖ ≤ tolerance ‖r_0‖ in the norm of M⁻¹, where progress is 0
  double progress;  // at step i where i times the last fall of the model is at most this part of its fall
  double least;  // λ > 0, no more than any eigenvalue of S
  // CG stops where the whole fall of the model is known to be at most this. Slow progress stops it only once the fall
  // so far is more than this, or the whole fall is known to be at most kSure times this. 0: it is not asked for.
  double enough = 0;
};
// The part of the bound on the unknown rest of the fall that counts: the bound lies far above it.
constexpr double kPartOfBound = 1.0 / 3;
constexpr double kSure = 3;  // see CgEnd::enough

// S δ = r by steps. The vectors have `length` elements, a multiple of the tile.
template <class T>
struct ConjugateGradients {
  static constexpr int N = kLanes<T>;
  using V = Vec<T>;

  T *solution, *residual, *search;
  const T* image;  // S search
  const T* inverse;  // M⁻¹, or null for none
  int64_t length;
  CgEnd end;
  double rz = 0, rz_first = 0;
  double fall = 0;  // of the model so far
  double radau = 0;  // ‖r‖² times this is above rᵀS⁻¹r
  int32_t steps = 0;
  bool settled = false;  // whether it stopped because of `enough`

  // `residual` holds the right-hand side.
  void start() {
    V sum{};
    for (int64_t j = 0; j < length; j += N) {
      const V r = load(residual + j);
      const V z = inverse ? r * load(inverse + j) : r;
      store(search + j, z);
      store(solution + j, V{});
      sum += r * z;
    }
    rz = rz_first = sum_of_lanes<T>(sum);
    fall = 0, steps = 0, settled = false;
    radau = 1 / end.least;
  }

  // One step with `image` as it is now; false when there is no need for another.
  bool step() {
    const double curvature = dot(search, image, length);
    if (!(curvature > 0)) return false;  // a product that underflowed: what is solved so far stands
    const double length_of_step = rz / curvature, last = 0.5 * length_of_step * rz;
    const T alpha = T(length_of_step);
    ++steps;
    fall += last;
    V sum{};
    for (int64_t j = 0; j < length; j += N) {
      store(solution + j, load(solution + j) + alpha * load(search + j));
      const V r = load(residual + j) - alpha * load(image + j);
      store(residual + j, r);
      sum += inverse ? r * r * load(inverse + j) : r * r;
    }
    const double next = sum_of_lanes<T>(sum), ratio = next / rz;
    const bool asked = end.enough > 0 && !inverse;
    double all = 0;  // the whole fall of the model, as far as it is known
    if (asked) {
      // ½ rᵀS⁻¹r ≤ ½ radau ‖r‖², the bound of Gauss and Radau
      const double above = radau - length_of_step;
      radau = above > 0 ? above / (end.least * above + ratio) : 1 / end.least;
      all = fall + kPartOfBound * 0.5 * radau * next;
      settled = all <= end.enough;
      if (settled) return false;
    }
    if (next == 0) return false;
    const bool unknown = asked && fall <= end.enough;  // whether the whole fall may be above `enough`
    const bool slow = end.progress > 0 ? steps * last <= end.progress * fall
                                       : next <= end.tolerance * end.tolerance * rz_first;
    settled = slow && unknown && all <= kSure * end.enough;
    if (settled || (slow && !unknown)) return false;
    const T beta = T(ratio);
    rz = next;
    for (int64_t j = 0; j < length; j += N) {
      const V z = inverse ? load(residual + j) * load(inverse + j) : load(residual + j);
      store(search + j, z + beta * load(search + j));
    }
    return true;
  }
};

}  // namespace xmcjax::XMCJAX_ISA
