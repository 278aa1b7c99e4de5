// The losses of a lane (losses/_lane.py) for a vector of lanes, of any width: value ℓ(s, y), and its slope and
// curvature in s. Those of the margin m = y s (losses/_margin.py) are φ(m), φ'(m) and φ''(m). A further one is
// a class here and a line of ids.def.
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

// log(1 + e) for 0 ≤ e ≤ 1.
template <class V>
inline V log1p(V e) {
  if constexpr (sizeof(ElementOf<V>) == 8) {
    LanesOf<V> lanes(e);
    for (double& lane : lanes.lane) lane = std::log1p(lane);
    return load_as<V>(lanes.lane);
  } else {
    // 2 artanh(s), s = e/(2+e) ≤ 1/3
    const V s = e / (e + 2.0f);
    const V s2 = s * s;
    V q = V{} + 1.0f / 13;
    q = q * s2 + 1.0f / 11;
    q = q * s2 + 1.0f / 9;
    q = q * s2 + 1.0f / 7;
    q = q * s2 + 1.0f / 5;
    q = q * s2 + 1.0f / 3;
    q = q * s2 + 1.0f;
    return 2.0f * s * q;
  }
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

// A loss as one of the score: φ is told by its operator, which takes no y.
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
    default: throw UnknownId("losses", id);
  }
}

}  // namespace xmcjax::XMCJAX_ISA
