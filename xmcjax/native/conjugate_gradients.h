// Conjugate gradients, one step at a time: the caller multiplies.
#pragma once

#include <cstdint>

#include "lane_arrays.h"
#include "simd.h"

namespace xmcjax::XMCJAX_ISA {

// S δ = r by steps that end at ‖r‖ ≤ tolerance ‖r_0‖ in the norm of M⁻¹. The vectors have `length`
// elements, a multiple of the tile.
template <class T>
struct ConjugateGradients {
  static constexpr int N = kLanes<T>;
  using V = Vec<T>;

  T *solution, *residual, *search;
  const T* image;    // S search
  const T* inverse;  // M⁻¹, or null for none
  int64_t length;
  double rz = 0, rz_first = 0;

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
    rz = rz_first = horizontal(sum);
  }

  // One step with `image` as it is now; false when there is no need for another.
  bool step(double tolerance) {
    const double curvature = dot(search, image, length);
    if (!(curvature > 0)) return false;  // a product that underflowed: what is solved so far stands
    const T alpha = T(rz / curvature);
    V sum{};
    for (int64_t j = 0; j < length; j += N) {
      store(solution + j, load(solution + j) + alpha * load(search + j));
      const V r = load(residual + j) - alpha * load(image + j);
      store(residual + j, r);
      sum += inverse ? r * r * load(inverse + j) : r * r;
    }
    const double next = horizontal(sum);
    if (next <= tolerance * tolerance * rz_first) return false;
    const T beta = T(next / rz);
    rz = next;
    for (int64_t j = 0; j < length; j += N) {
      const V z = inverse ? load(residual + j) * load(inverse + j) : load(residual + j);
      store(search + j, z + beta * load(search + j));
    }
    return true;
  }

  static double horizontal(V v) {
    T sum = 0;
    for (int l = 0; l < N; ++l) sum += v[l];
    return sum;
  }
};

}  // namespace xmcjax::XMCJAX_ISA
