// What the losses of a lane rise by if some of its weights are dropped. The lane has the scores of the rows; only rows
// near the margin are worked on.
#include <cmath>

#include "core/csr_rows.h"
#include "newton/margin_losses.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

// Σ_i c_i (ℓ(z_i − x_i δ) − ℓ(z_i)), a vector of rows at a time, in double from row to row.
template <class T, class Loss>
double risen(const RisenArgs<T>& a) {
  constexpr int N = kLanes<T>, kAhead = 4 * N;
  using V = Vec<T>;
  const Loss loss(a.loss_parameter);
  const int64_t n = a.X.n, lanes = a.lanes, lane = a.lane[0];
  const T *scores = a.z + lane, *weight = a.weight.data + lane * a.weight.lane_stride;
  const int8_t* targets = a.y + lane;
  alignas(64) T z[N] = {}, y[N] = {}, c[N] = {}, moved[N] = {}, nearest[N] = {};
  double sum = 0;
  const Poll poll;
  for (int64_t first = 0; first < n; first += N) {
    const int count = n - first < N ? int(n - first) : N;
    int64_t work = N;
    for (int k = 0; k < count; ++k) {
      const int64_t i = first + k;
      __builtin_prefetch(scores + (i + kAhead) * lanes);
      __builtin_prefetch(targets + (i + kAhead) * lanes);
      z[k] = scores[i * lanes];
      y[k] = T(targets[i * lanes]);
      nearest[k] = z[k] - a.reach * std::sqrt(T(a.X.offset[i + 1] - a.X.offset[i])) * y[k];
    }
    unsigned near = count < N ? (1u << count) - 1 : unsigned((uint64_t(1) << N) - 1);
    V before, after, slope, curvature;
    if constexpr (Loss::kVanishes) {  // the loss falls with y z
      loss(load(nearest), load(y), before, slope, curvature);
      near &= nonzero_lanes(before);
    }
    if (near) {
      for (int k = 0; k < N; ++k) {
        const int64_t i = first + k;
        moved[k] = z[k];
        c[k] = 0;
        if (!(near >> k & 1)) continue;
        const int64_t begin = a.X.offset[i], length = a.X.offset[i + 1] - begin;
        c[k] = weight[i * a.weight.row_stride];
        moved[k] -=
            partial_sums<Abreast<T, 1>, 4>(a.X.value + begin, a.X.column + begin, length, a.dropped, 1, 0);
        work += length;
      }
      loss(load(z), load(y), before, slope, curvature);
      loss(load(moved), load(y), after, slope, curvature);
      const LanesOf<V> rise(load(c) * (after - before));
      for (int k = 0; k < N; ++k) sum += near >> k & 1 ? double(rise[k]) : 0.0;
    }
    poll(work);
  }
  return sum;
}

}  // namespace

template <class T>
void risen_losses(const RisenArgs<T>& args) {
  with_loss<T>(args.loss, [&](auto loss) { args.rise[0] = risen<T, typename decltype(loss)::type>(args); });
}

template void risen_losses<float>(const RisenArgs<float>&);
template void risen_losses<double>(const RisenArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
