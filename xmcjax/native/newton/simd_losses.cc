// The losses of a lane, elementwise.
#include <algorithm>

#include "core/interrupt.h"
#include "core/isa.h"
#include "core/simd.h"
#include "newton/margin_losses.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

template <class T, class Loss>
void evaluate(const LaneLossesArgs<T>& a) {
  constexpr int N = kLanes<T>;
  constexpr int64_t kPiece = 1 << 16;
  using V = Vec<T>;
  const Loss loss(a.loss_parameter);
  alignas(64) T z[N] = {}, y[N] = {};
  const Poll poll;
  for (int64_t first = 0; first < a.n; first += N) {
    const int64_t count = std::min<int64_t>(N, a.n - first);
    std::copy_n(a.z + first, count, z);
    std::copy_n(a.y + first, count, y);
    V value, slope, curvature;
    const V s = load(z);
    loss(s, load(y), value, slope, curvature);
    const auto known = s == s;
    const LanesOf<V> values(select(known, value, s)), slopes(select(known, slope, s)),
        curvatures(select(known, curvature, s));
    for (int64_t k = 0; k < count; ++k) {
      a.value[first + k] = values[k];
      a.slope[first + k] = slopes[k];
      a.curvature[first + k] = curvatures[k];
    }
    if (first % kPiece == 0) poll(kPiece);
  }
}

}  // namespace

template <class T>
void lane_losses(const LaneLossesArgs<T>& args) {
  with_loss<T>(args.loss, [&](auto loss) { evaluate<T, typename decltype(loss)::type>(args); });
}

template void lane_losses<float>(const LaneLossesArgs<float>&);
template void lane_losses<double>(const LaneLossesArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
