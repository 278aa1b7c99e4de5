// The losses of a lane (losses/_lane.py) for a vector of lanes, of any width: value ℓ(s, y), and its slope and
// curvature in s. Losses of the margin m = y s (losses/_margin.py) have φ(m), φ'(m) and φ''(m) instead. A further
// loss is a class here and a line of ids.def.
#pragma once

#include <cmath>
#include <type_traits>

#include "core/exponential.h"
#include "core/simd.h"
#include "interface/ids.h"

namespace xmcjax::XMCJAX_ISA {

template <class T>
struct SquaredHinge {  // φ(m) = max(0, 1 − m)²
  static constexpr bool kVanishes = true;  // for m ≥ 1
  explicit SquaredHinge(T) {}
  template <class V>
  void operator()(V m, V& value, V& slope, V& curvature) const {
    const V s = maximum(T(1) - m, V{});
    value = s * s;
    slope = T(-2) * s;
    curvature = select(s > 0, V{} + T(2), V{});
  }
};

template <class T>
struct HuberHinge {  // 0 for m ≥ 1, (1−m)²/2δ for 1−δ ≤ m ≤ 1, (1−m) − δ/2 below
  static constexpr bool kVanishes = true;
  T delta;
  explicit HuberHinge(T parameter) : delta(parameter) {}
  template <class V>
  void operator()(V m, V& value, V& slope, V& curvature) const {
    const V s = maximum(T(1) - m, V{});
    const V q = minimum(s, V{} + delta);
    value = q * (s - T(0.5) * q) / delta;
    slope = -q / delta;
    curvature = select((s > 0) & (s < delta), V{} + 1 / delta, V{});
  }
};

// log(1 + e) for 0 ≤ e ≤ 1, to an ulp or two: 2 artanh s for s = f / (2 + f) by its Taylor polynomial, of f = e. In
// float64 f = (e − 1) / 2 where e is large, which is log 2 less.
template <class V>
inline V log1p(V e) {
  constexpr bool kFloat = sizeof(ElementOf<V>) == 4;
  using T = ElementOf<V>;
  constexpr int kTerms = kFloat ? 6 : 10;
  V f = e, begin{};
  if constexpr (!kFloat) {
    const auto large = e > T(0.41421356237309504880);
    f = select(large, T(0.5) * (e - T(1)), e);
    begin = select(large, V{} + T(0.69314718055994530942), V{});
  }
  const V s = f / (f + T(2)), square = s * s;
  V p = V{} + T(1) / T(2 * kTerms + 1);
  for (int i = kTerms - 1; i > 0; --i) p = p * square + T(1) / T(2 * i + 1);
  if constexpr (kFloat) return T(2) * s * (p * square + T(1));
  // of 2 s = f − s f the larger part is exact
  return begin + (f - s * (f - T(2) * (square * p)));
}

template <class T>
struct Logistic {  // φ(m) = log(1 + e^{−m})
  static constexpr bool kVanishes = false;
  explicit Logistic(T) {}
  template <class V>
  void operator()(V m, V& value, V& slope, V& curvature) const {
    const V e = exponential(-absolute(m)), share = T(1) / (e + T(1));
    value = maximum(-m, V{}) + log1p(e);
    slope = -select(m > 0, e * share, share);
    curvature = e * share * share;
  }
};

template <class T, class Phi>
struct OfMargin {
  static constexpr bool kVanishes = Phi::kVanishes;
  const Phi phi;
  explicit OfMargin(T parameter) : phi(parameter) {}
  template <class V>
  void operator()(V s, V y, V& value, V& slope, V& curvature) const {
    phi(y * s, value, slope, curvature);
    slope *= y;
  }
};

template <class T>
struct Poisson {  // ℓ(s, y) = e^s − s for y = 1, e^s for y = −1
  static constexpr bool kVanishes = false;
  explicit Poisson(T) {}
  template <class V>
  void operator()(V s, V y, V& value, V& slope, V& curvature) const {
    const V small = exponential(-absolute(s));
    const V e = select(s > 0, T(1) / small, small);
    const auto positive = y > 0;
    value = select(positive, e - s, e);
    slope = select(positive, e - T(1), e);
    curvature = e;
  }
};

// A loss as one of the score. A loss of the margin is recognised by its operator, which takes no y.
template <class T, class Loss>
using OfScore = std::conditional_t<std::is_invocable_v<const Loss&, Vec<T>, Vec<T>&, Vec<T>&, Vec<T>&>,
                                   OfMargin<T, Loss>, Loss>;

// f(Type<Loss>()) for the loss of a number.
template <class Loss>
struct Type {
  using type = Loss;
};
template <class T, class F>
void with_loss(int32_t id, F&& f) {
  switch (id) {
#define XMCJAX_LOSS(name, Class) \
  case k##Class: return f(Type<OfScore<T, Class<T>>>());
#include "interface/ids.def"
    default: unknown_id("losses", id);
  }
}

}  // namespace xmcjax::XMCJAX_ISA
