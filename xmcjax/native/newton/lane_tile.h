// A tile of lanes in a Newton step, without the loss: its arrays, the full product X·direction, and the rows
// that are near the margin of each lane.
#pragma once

#include <cmath>
#include <cstring>

#include "core/csr_rows.h"
#include "newton/lane_arrays.h"
#include "newton/newton_scratch.h"
#include "newton/plane_search.h"

namespace xmcjax::XMCJAX_ISA {

// A lane with more than the part 1 / kNearPart of the rows near is worked on with its tile.
constexpr int64_t kNearPart = 3;

template <class T>
class LaneTile {
 protected:
  static constexpr int N = kLanes<T>;
  using V = Vec<T>;

  LaneTile(const NewtonArgs<T>& args, int64_t first, int64_t width, Scratch<T>& scratch, TileScratch<T>& own)
      : a_(args), X_(args.X), first_(first), width_(int(width)), s_(scratch), own_(own),
        padded_((args.X.d + N - 1) / N * N) {
    for (int l = 0; l < width_; ++l) {
      const int32_t status = a_.status[first + l];
      fresh_[l] = status == kFresh;
      running_[l] = fresh_[l] || status == kRunning;
    }
    for (int l = 0; l < N; ++l) kept_[l] = fresh_[l] ? 0 : -1;
  }

  unsigned running_lanes() const {
    unsigned lanes = 0;
    for (int l = 0; l < width_; ++l) lanes |= unsigned(running_[l]) << l;
    return lanes;
  }

  // A full tile is worked on in place; one of fewer lanes in a padded copy.
  void open_tile() {
    if (width_ == N) {
      stride_ = a_.lanes;
      w_ = a_.w + first_;
      z_ = a_.z + first_;
      direction_ = a_.direction + first_;
      y_ = a_.y + first_;
      return;
    }
    stride_ = N;
    const auto copy = [&](const T* from, Array<T>& to, int64_t rows) {
      to.assign(rows * N, T(0));
      for (int64_t i = 0; i < rows; ++i)
        for (int l = 0; l < width_; ++l) to[i * N + l] = from[i * a_.lanes + first_ + l];
      return to.data();
    };
    w_ = copy(a_.w, own_.w, X_.d);
    z_ = copy(a_.z, own_.z, X_.n);
    direction_ = copy(a_.direction, own_.direction, X_.d);
    own_.signs.assign(X_.n * N, int8_t(-1));
    for (int64_t i = 0; i < X_.n; ++i)
      for (int l = 0; l < width_; ++l) own_.signs[i * N + l] = a_.y[i * a_.lanes + first_ + l];
    y_ = own_.signs.data();
  }

  void close_tile() {
    if (width_ == N) return;
    const auto copy = [&](const T* from, T* to, int64_t rows) {
      for (int64_t i = 0; i < rows; ++i)
        for (int l = 0; l < width_; ++l) to[i * a_.lanes + first_ + l] = from[i * N + l];
    };
    copy(w_, a_.w, X_.d);
    copy(z_, a_.z, X_.n);
    copy(direction_, a_.direction, X_.d);
  }

  V lanes_of(const Broadcast<T>& b, int64_t i) const {
    const T* p = b.data + i * b.row_stride;
    if (b.lane_stride == 0) return broadcast<T>(*p);
    V v{};
    for (int l = 0; l < width_; ++l) v[l] = p[(first_ + l) * b.lane_stride];
    return v;
  }

  void begin_search() {
    LaneSum<T> wd, dd;
    for_rows(
        X_.d,
        [&](int64_t j) {
          const V d = load(direction_ + j * stride_);
          wd.add(kept(load(w_ + j * stride_)) * d);
          dd.add(d * d);
        },
        [&] { wd.flush(), dd.flush(); });
    for (int l = 0; l < width_; ++l) {
      if (!running_[l]) continue;
      const int64_t lane = first_ + l;
      step_bias_[l] = a_.direction_bias[lane];
      plane_[l] = PlaneSearch<T>({fresh_[l], a_.steps[lane], a_.multiplier[lane], a_.l2, a_.l2_bias, wd[l],
                                  dd[l], fresh_[l] ? 0 : a_.bias[lane], a_.direction_bias[lane],
                                  a_.value[lane], a_.slope[lane], a_.armijo, a_.max_backtracks,
                                  a_.backtracking, 0.1 * a_.tolerance[lane]});
    }
  }

  // m = X d + d_b, the one full product of a step. In a lane most of whose rows lie too far beyond the
  // margin to matter, the others are gathered, and the search looks at these alone.
  void multiply() {
    for_blocks([&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        prefetch(i + kAhead);
        take_margin(i, row_dot_tile(X_, i, direction_, stride_));
      }
      gather(first, last);
    });
  }
  static void multiply_two(LaneTile& one, LaneTile& other) {
    one.for_blocks([&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        one.prefetch(i + kAhead);
        other.prefetch(i + kAhead);
        alignas(64) T product[2 * N];
        row_dots<2 * N>(one.X_, i, one.direction_, one.stride_, product);
        one.take_margin(i, load(product));
        other.take_margin(i, load(product + N));
      }
      one.gather(first, last);
      other.gather(first, last);
    });
  }
  // f(first, last) for all rows, N at a time.
  template <class F>
  void for_blocks(F&& f) const {
    const Poll poll;
    for (int64_t first = 0; first < X_.n; first += N) {
      const int64_t last = first + N < X_.n ? first + N : X_.n;
      f(first, last);
      poll(X_.offset[last] - X_.offset[first] + kPasses * (last - first));
    }
  }
  // `gather` reads z and y of few rows at a time, too few for the processor to fetch the next ones itself.
  static constexpr int64_t kAhead = 24;
  void prefetch(int64_t i) const {
    if (i >= X_.n) return;
    __builtin_prefetch(z_ + i * stride_);
    __builtin_prefetch(y_ + i * stride_);
    __builtin_prefetch(margins(i), 1);
  }
  void take_margin(int64_t i, V product) { store(margins(i), product + step_bias_); }

  int64_t most_near() const { return X_.n / kNearPart; }
  void open_lists(unsigned lanes) {
    gathering_ = lanes;
    for (int l = 0; l < width_; ++l) {
      if (!(lanes >> l & 1)) continue;
      own_.near[l].open();
      // the box includes the point itself, which may lie outside on the way back to (0, 0)
      longest_[l] = std::fmax(plane_[l].longest(), plane_[l].t());
      highest_[l] = std::fmax(plane_[l].highest(), plane_[l].beta());
      lowest_[l] = plane_[l].beta() - T(PlaneSearch<T>::kFarthest);
    }
  }
  // A lane that has left `gathering_` had too many rows near.
  void close_lists() {
    for (int l = 0; l < width_; ++l)
      if (gathering_ >> l & 1) own_.near[l].close();
  }

  // Adds each row to the lists of the lanes in which it has a loss at (0, 0), with which losses elsewhere are compared,
  // or may have one for a t in [0, longest] and a β in [lowest, highest]: there the margin is smallest at a
  // corner. `last` is at most N behind `first`.
  void gather(int64_t first, int64_t last) {
    if (!gathering_) return;
    uint16_t near[N];
    int count = 0;
    for (int64_t i = first; i < last; ++i) {
      const V y = load_signs<T>(y_ + i * stride_), beta = select(y > 0, lowest_, highest_),
              m = load(margins(i));
      const V here = shifted_margins(i);
      const V close = select(kept_, here, here + m) + beta, far = here + longest_ * m + beta;
      const auto beyond = (y * select(kept_, here, close) >= T(1)) & (y * close >= T(1)) & (y * far >= T(1));
      near[i - first] = uint16_t(~lanes_where(beyond) & gathering_);
      count += __builtin_popcount(near[i - first]);
    }
#if defined(__SSE2__)
    if (count > N && last - first == N) return list_block(first, near);
#endif
    if (!count) return;
    for (int64_t i = first; i < last; ++i) {
      if (!near[i - first]) continue;
      const LanesOf<V> z(shifted_margins(i)),
          c(a_.weight.row_stride ? lanes_of(a_.weight, i) : constant_weight_);
      for (unsigned rest = near[i - first]; rest; rest &= rest - 1) {
        const int l = __builtin_ctz(rest);
        if (has_room(l, 1)) own_.near[l].add(i, z[l], margins(i)[l], T(y_[i * stride_ + l]), c[l]);
      }
    }
  }

  // A lane with too many rows near leaves the lists, and looks at all rows.
  bool has_room(int l, int more) {
    if (!(gathering_ >> l & 1)) return false;
    if (own_.near[l].count() + more <= most_near()) return true;
    wide_[l] = true;
    gathering_ &= ~(1u << l);
    return false;
  }

#if defined(__SSE2__) && !defined(__AVX512F__)
  // gather() for N rows, lane by lane.
  void list_block(int64_t first, const uint16_t* near) {
    alignas(64) T zs[N * N], cs[N * N];
    const bool weights = a_.weight.row_stride;
    for (int k = 0; k < N; ++k) {
      store(zs + k * N, shifted_margins(first + k));
      if (weights) store(cs + k * N, lanes_of(a_.weight, first + k));
    }
    if (!weights) store(cs, constant_weight_);
    const BitColumns<N> near_rows(near);
    for (unsigned rest = gathering_; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      const unsigned rows = near_rows[l];
      if (!rows || !has_room(l, __builtin_popcount(rows))) continue;
      own_.near[l].add(first, rows, zs + l, margins(first) + l, y_ + first * stride_ + l, stride_, cs + l,
                       weights ? N : 0);
    }
  }
#elif defined(__AVX512F__)
  void list_block(int64_t first, const uint16_t* near) {
    V zs[N], ms[N], cs[N];
    uint16_t positive[N];
    const bool weights = a_.weight.row_stride;
    for (int k = 0; k < N; ++k) {
      zs[k] = shifted_margins(first + k), ms[k] = load(margins(first + k));
      const V y = load_signs<T>(y_ + (first + k) * stride_);
      positive[k] = uint16_t(lanes_where(y > 0));
      if (weights) cs[k] = lanes_of(a_.weight, first + k);
    }
    transpose_registers<T>(zs);
    transpose_registers<T>(ms);
    if (weights) transpose_registers<T>(cs);
    const BitColumns<N> near_rows(near), positive_rows(positive);
    for (unsigned rest = gathering_; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      const unsigned rows = near_rows[l];
      if (!rows || !has_room(l, __builtin_popcount(rows))) continue;
      const V c = weights ? cs[l] : broadcast<T>(constant_weight_[l]);
      own_.near[l].add(first, rows, zs[l], ms[l], positive_rows[l], c);
    }
  }
#endif

  // w += t d, and ‖w‖²
  void move() {
    LaneSum<T> norms;
    for_rows(
        X_.d,
        [&](int64_t j) {
          const V before = load(w_ + j * stride_);
          const V w = kept(before) + t_ * load(direction_ + j * stride_);
          store(w_ + j * stride_, w);
          norms.add(w * w);
        },
        [&] { norms.flush(); });
    for (int l = 0; l < width_; ++l) weight_norm2_[l] = norms[l];
  }

  // w or z before the step: zero in a fresh lane, whatever the array holds
  V kept(V before) const { return select(kept_, before, V{}); }
  V margins_before(int64_t i) const { return kept(loaded(z_ + i * stride_)); }
  V shifted_margins(int64_t i) const {
    const V z = margins_before(i);
    return a_.shift.data ? z + lanes_of(a_.shift, i) : z;
  }
  T* margins(int64_t i) const { return own_.step_margins.data() + i * N; }
  V margins_after(int64_t i) const { return margins_before(i) + t_ * load(margins(i)) + beta_; }

  const NewtonArgs<T>& a_;
  const Csr<T>& X_;
  const int64_t first_;
  const int width_;
  Scratch<T>& s_;
  TileScratch<T>& own_;
  const int64_t padded_;
  bool fresh_[N] = {}, running_[N] = {};
  bool wide_[N] = {};  // the search looks at all rows
  int64_t stride_ = 0;
  T *w_ = nullptr, *z_ = nullptr, *direction_ = nullptr;
  const int8_t* y_ = nullptr;
  IntVec<T> kept_{};  // lanes that have weights from a step before
  V constant_weight_{}, step_bias_{}, t_{}, beta_{};
  unsigned gathering_ = 0;              // lanes whose near rows are listed
  V longest_{}, highest_{}, lowest_{};  // where the near rows were gathered
  PlaneSearch<T> plane_[N];
  double weight_norm2_[N] = {};
};

}  // namespace xmcjax::XMCJAX_ISA
