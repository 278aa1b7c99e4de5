// One step of the truncated Newton method of solvers/newton_cg.py for a tile of lanes, in one
// call: minimise over the step and the bias together, take the gradient, solve for the next
// direction. The jnp step there is the reference and its test compares the two.
//
// The full product X·direction is made for all lanes of two tiles at once, in one pass over X. Everything
// else is made lane by lane over the few rows that matter to a lane, or, where these are many, over all
// rows for the whole tile. Which of the two depends on the lane alone, so that its bits do not depend on
// its neighbours.
#include <cmath>

#include "core/csr_rows.h"
#include "newton/conjugate_gradients.h"
#include "newton/lane_arrays.h"
#include "newton/margin_losses.h"
#include "newton/newton_scratch.h"
#include "newton/plane_search.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

// A lane with more than this part of the rows near, or active, is worked on with its tile.
constexpr int64_t kNearPart = 3, kActivePart = 8;

template <class T, class Loss>
class NewtonTile {
  static constexpr int N = kLanes<T>;
  using V = Vec<T>;

 public:
  NewtonTile(const NewtonArgs<T>& args, int64_t first, int64_t width, Scratch<T>& scratch, TileScratch<T>& own)
      : a_(args), X_(args.X), first_(first), width_(int(width)), loss_(args.loss_parameter),
        s_(scratch), own_(own), padded_((args.X.d + N - 1) / N * N) {
    for (int l = 0; l < width_; ++l) {
      const int32_t status = a_.status[first + l];
      fresh_[l] = status == kFresh;
      running_[l] = fresh_[l] || status == kRunning;
    }
    for (int l = 0; l < N; ++l) kept_[l] = fresh_[l] ? 0 : -1;
  }

  // Of two tiles side by side, the second perhaps without lanes.
  static void step(NewtonTile& one, NewtonTile& other) {
    const bool both = kTwoTiles && one.width_ == N && other.width_ == N && one.running() && other.running();
    for (NewtonTile* tile : {&one, &other})
      if (tile->running()) tile->open();
    if (both) {
      multiply_two(one, other);
    } else {
      if (one.running()) one.multiply();
      if (other.running()) other.multiply();
    }
    for (NewtonTile* tile : {&one, &other})
      if (tile->opened_) tile->take_step();
    solve_broad(one, other);
    for (NewtonTile* tile : {&one, &other})
      if (tile->opened_) tile->close();
  }

 private:
  bool running() const { return running_lanes(); }

  void open() {
    opened_ = true;
    open_tile();
    constant_weight_ = lanes_of(a_.weight, 0);
    own_.step_margins.resize(X_.n * N);
    begin_search();
    open_lists(Loss::kVanishes ? running_lanes() : 0);
  }

  // m = X d + d_b, the one full product of a step. In a lane most of whose rows lie too far beyond the
  // margin to matter, the others are gathered, and the search looks at these alone.
  void multiply() {
    for_blocks([&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) take_margin(i, row_dot_tile(X_, i, direction_, stride_));
      gather(first, last);
    });
  }
  static void multiply_two(NewtonTile& one, NewtonTile& other) {
    one.for_blocks([&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const TwoTiles<T> product = row_dot_two_tiles(one.X_, i, one.direction_, one.stride_);
        one.take_margin(i, product.one);
        other.take_margin(i, product.other);
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
  void take_margin(int64_t i, V product) { store(margins(i), product + step_bias_); }

  void take_step() {
    search();
    move();
    collect_active();
    take_gradient();
    for (int l = 0; l < width_; ++l) {
      if (!running_[l]) continue;
      if (broad_[l]) {
        close_step(l, dot(gradient(l), gradient(l), padded_));
      } else {
        solve_lane(l);
      }
    }
    if (!any_broad_) close();
  }

  void close() {
    opened_ = false;
    for (int l = 0; l < N; ++l) {
      if (l < width_ && running_[l]) continue;
      std::memset(gradient(l), 0, padded_ * sizeof(T));
      if (l < width_) a_.direction_bias[first_ + l] = a_.slope[first_ + l] = 0;
    }
    to_tile(own_.gradient.data(), padded_, X_.d, direction_, stride_);
    close_tile();
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

  // c ℓ(z + o, y) and its two derivatives in z
  void evaluate(int64_t i, V z, V& value, V& slope, V& curvature) const {
    const V y = load_signs<T>(y_ + i * stride_);
    if (a_.shift.data) z += lanes_of(a_.shift, i);
    loss_(z, y, value, slope, curvature);
    const V c = a_.weight.row_stride ? lanes_of(a_.weight, i) : constant_weight_;
    value *= c;
    slope *= c;
    curvature *= c;
  }

  // The plane search of every lane.
  void search() {
    while (close_lists(), true) {
      unsigned again = 0;
      for (int l = 0; l < width_; ++l)
        if (running_[l] && !wide_[l] && !search_near(l)) again |= 1u << l;
      if (!again) break;
      open_lists(again);
      for_blocks([&](int64_t first, int64_t last) { gather(first, last); });
    }
    search_wide();
    for (int l = 0; l < width_; ++l) {
      if (!running_[l]) continue;
      const int64_t lane = first_ + l;
      t_[l] = plane_[l].t(), beta_[l] = plane_[l].beta();
      if (plane_[l].failed()) a_.status[lane] = kLineSearchFailed;
      a_.multiplier[lane] = t_[l];
      a_.bias[lane] = (fresh_[l] ? 0 : a_.bias[lane]) + t_[l] * a_.direction_bias[lane] + beta_[l];
    }
  }

  void begin_search() {
    LaneSum<T> wd, dd;
    for_rows(
        X_.d,
        [&](int64_t j) {
          const V d = load(direction_ + j * stride_);
          wd.add((kept_ ? load(w_ + j * stride_) : V{}) * d);
          dd.add(d * d);
        },
        [&] { wd.flush(), dd.flush(); });
    for (int l = 0; l < width_; ++l) {
      if (!running_[l]) continue;
      const int64_t lane = first_ + l;
      wide_[l] = !Loss::kVanishes;
      step_bias_[l] = a_.direction_bias[lane];
      plane_[l] = PlaneSearch<T>({fresh_[l], a_.steps[lane], a_.multiplier[lane], a_.l2, a_.l2_bias, wd[l], dd[l],
                                  fresh_[l] ? 0 : a_.bias[lane], a_.direction_bias[lane], a_.value[lane],
                                  a_.slope[lane], a_.armijo, a_.max_backtracks, 0.1 * a_.tolerance[lane]});
    }
  }

  unsigned running_lanes() const {
    unsigned lanes = 0;
    for (int l = 0; l < width_; ++l) lanes |= unsigned(running_[l]) << l;
    return lanes;
  }

  int64_t most_near() const { return X_.n / kNearPart; }
  int64_t most_active() const { return X_.n / kActivePart; }
  void open_lists(unsigned lanes) {
    gathering_ = lanes;
    for (int l = 0; l < width_; ++l) {
      if (!(lanes >> l & 1)) continue;
      own_.near[l].open();
      // with the point itself, which may lie outside on the way back to (0, 0)
      longest_[l] = std::fmax(plane_[l].longest(), plane_[l].t());
      highest_[l] = std::fmax(plane_[l].highest(), plane_[l].beta());
      lowest_[l] = plane_[l].beta() - T(PlaneSearch<T>::kFarthest);
    }
  }
  // A lane that has left `gathering_` had too many.
  void close_lists() {
    for (int l = 0; l < width_; ++l)
      if (gathering_ >> l & 1) own_.near[l].close();
  }

  // Adds rows to the lists of the lanes in which they have a loss at (0, 0), which the others are compared
  // with, or may have one for a t in [0, longest] and a β in [lowest, highest]; the margin is smallest at a
  // corner. `last` is at most N behind `first`.
  void gather(int64_t first, int64_t last) {
    if (!Loss::kVanishes || !gathering_) return;
    uint16_t near[N];
    int count = 0;
    for (int64_t i = first; i < last; ++i) {
      const V y = load_signs<T>(y_ + i * stride_), beta = y > 0 ? lowest_ : highest_, m = load(margins(i));
      const V here = shifted_margins(i);
      const V close = (kept_ ? here : here + m) + beta, far = here + longest_ * m + beta;
      const auto beyond = (y * (kept_ ? here : close) >= T(1)) & (y * close >= T(1)) & (y * far >= T(1));
      near[i - first] = uint16_t(nonzero_lanes(beyond ? V{} : broadcast<T>(1)) & gathering_);
      count += __builtin_popcount(near[i - first]);
    }
#if defined(__AVX512F__)
    if (count > N && last - first == N) return list_block(first, near);
#endif
    if (!count) return;
    for (int64_t i = first; i < last; ++i) {
      if (!near[i - first]) continue;
      const V z = shifted_margins(i), c = a_.weight.row_stride ? lanes_of(a_.weight, i) : constant_weight_;
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

#if defined(__AVX512F__)
  // The same for N rows, lane by lane.
  void list_block(int64_t first, const uint16_t* near) {
    V zs[N], ms[N], cs[N];
    uint16_t positive[N];
    const bool weights = a_.weight.row_stride;
    for (int k = 0; k < N; ++k) {
      zs[k] = shifted_margins(first + k), ms[k] = load(margins(first + k));
      const V y = load_signs<T>(y_ + (first + k) * stride_);
      positive[k] = uint16_t(nonzero_lanes(y > 0 ? y : V{}));
      if (weights) cs[k] = lanes_of(a_.weight, first + k);
    }
    transpose_block<T>(zs);
    transpose_block<T>(ms);
    if (weights) transpose_block<T>(cs);
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

  // False where the search has left the box in which the rows were gathered.
  bool search_near(int l) {
    PlaneSearch<T>& plane = plane_[l];
    while (plane.searching()) {
      if (plane.t() > longest_[l] || plane.beta() > highest_[l] || plane.beta() < lowest_[l]) return false;
      plane.advance(own_.near[l].sums(loss_, plane.t(), plane.beta(), fresh_[l]));
    }
    return true;
  }

  // The lanes that look at all rows, together.
  void search_wide() {
    const auto searches = [&](int l) { return running_[l] && wide_[l] && plane_[l].searching(); };
    for (bool any = true; any;) {
      any = false;
      for (int l = 0; l < width_; ++l) {
        t_[l] = plane_[l].t(), beta_[l] = plane_[l].beta();
        any |= searches(l);
      }
      if (!any) return;
      LaneSum<T> change, slope, slope_m, curvature, curvature_m, curvature_mm;
      for_rows(
          X_.n,
          [&](int64_t i) {
            const V z = margins_before(i), m = load(margins(i));
            V before, after, first, second;
            evaluate(i, z, before, first, second);
            evaluate(i, z + t_ * m + beta_, after, first, second);
            change.add(kept_ ? after - before : after);
            slope.add(first);
            slope_m.add(first * m);
            curvature.add(second);
            curvature_m.add(second * m);
            curvature_mm.add(second * m * m);
          },
          [&] {
            change.flush(), slope.flush(), slope_m.flush();
            curvature.flush(), curvature_m.flush(), curvature_mm.flush();
          });
      for (int l = 0; l < width_; ++l)
        if (searches(l))
          plane_[l].advance({change[l], slope[l], slope_m[l], curvature[l], curvature_m[l], curvature_mm[l]});
    }
  }

  // w += t d, and ‖w‖²
  void move() {
    LaneSum<T> norms;
    for_rows(
        X_.d,
        [&](int64_t j) {
          const V before = load(w_ + j * stride_);
          const V w = (kept_ ? before : V{}) + t_ * load(direction_ + j * stride_);
          store(w_ + j * stride_, w);
          norms.add(w * w);
        },
        [&] { norms.flush(); });
    for (int l = 0; l < width_; ++l) weight_norm2_[l] = norms[l];
  }

  // z before the step: zero in a fresh lane, whatever was there before it
  V margins_before(int64_t i) const {
    const V z = load(z_ + i * stride_);
    return kept_ ? z : V{};
  }
  V shifted_margins(int64_t i) const {
    const V z = margins_before(i);
    return a_.shift.data ? z + lanes_of(a_.shift, i) : z;
  }
  // z += t m + β, the value, and the rows whose slope or curvature is not zero.
  void collect_active() {
    unsigned wide = 0;
    for (int l = 0; l < width_; ++l) {
      std::vector<Entry<T>>& entries = s_.entries[l];
      entries.clear();
      if (!running_[l]) continue;
      if (!wide_[l]) {
        own_.near[l].active(loss_, t_[l], beta_[l], entries, loss_value_[l], slope_sum_[l], curvature_sum_[l]);
        a_.active[first_ + l] = int32_t(entries.size());
      }
      if (solved(l) && (wide_[l] || int64_t(entries.size()) > most_active())) {
        entries.clear();
        wide |= 1u << l;
      }
    }
    if (wide) {
      collect_wide(wide);
    } else {
      for (int64_t i = 0; i < X_.n; ++i) store(z_ + i * stride_, margins_after(i));
    }
  }

  T* margins(int64_t i) const { return own_.step_margins.data() + i * N; }
  V margins_after(int64_t i) const {
    return margins_before(i) + t_ * load(margins(i)) + beta_;
  }

  // The same for the lanes that looked at all rows, or that have many active ones. Those with many are broad:
  // their products are made together, over the rows that are active in any of them.
  void collect_wide(unsigned wide) {
    ActiveRows<T>& active = own_.active;
    active.count = 0;
    active.row.resize(X_.n);
    active.curvatures.resize(X_.n * N);
    s_.slopes.resize(X_.n * N);
    unsigned listing = wide;
    IntVec<T> counts{};
    LaneSum<T> values, slopes, curvatures;
    for_rows(
        X_.n,
        [&](int64_t i) {
          V value, slope, curvature;
          const V z = margins_after(i);
          store(z_ + i * stride_, z);
          evaluate(i, z, value, slope, curvature);
          values.add(value);
          slopes.add(slope);
          curvatures.add(curvature);
          counts -= (slope != 0) | (curvature != 0);
          const unsigned mask = (nonzero_lanes(slope) | nonzero_lanes(curvature)) & wide;
          if (!mask) return;
          active.row[active.count] = int32_t(i);
          store(&active.curvatures[active.count * N], curvature);
          store(&s_.slopes[active.count++ * N], slope);
          for (unsigned rest = mask & listing; rest; rest &= rest - 1) {
            const int l = __builtin_ctz(rest);
            s_.entries[l].push_back({int32_t(i), slope[l], curvature[l]});
            if (int64_t(s_.entries[l].size()) > most_active()) listing &= ~(1u << l);
          }
        },
        [&] { values.flush(), slopes.flush(), curvatures.flush(); });
    for (int l = 0; l < width_; ++l) {
      if (!(wide >> l & 1)) continue;
      loss_value_[l] = values[l];
      slope_sum_[l] = slopes[l];
      curvature_sum_[l] = curvatures[l];
      a_.active[first_ + l] = int32_t(counts[l]);
      if (counts[l] > most_active()) broad_[l] = -1, any_broad_ = true;
    }
  }

  bool solved(int l) const { return running_[l] && a_.status[first_ + l] != kLineSearchFailed; }

  // g = λ w + Xᵀ ℓ' of the broad lanes, λ w of the others.
  void take_gradient() {
    own_.gradient.resize(N * padded_);
    if (!any_broad_) return to_lanes(a_.l2, w_, stride_, X_.d, own_.gradient.data(), padded_);
    s_.sums.resize(X_.d * N);
    T* sums = s_.sums.data();
    for (int64_t j = 0; j < X_.d; ++j) store(sums + j * N, a_.l2 * load(w_ + j * stride_));
    const ActiveRows<T>& active = own_.active;
    const Poll poll;
    for (size_t u = 0; u < active.count; poll(entries(X_, active.row[u++])))
      row_add_tile(X_, active.row[u], broad_ ? load(&s_.slopes[u * N]) : V{}, sums, N);
    to_lanes(T(1), sums, N, X_.d, own_.gradient.data(), padded_);
  }

  void solve_lane(int l) {
    LaneSystem<T>& system = s_.system;
    const bool ends = may_end(l);
    double norm2 = 0;
    if (solved(l) && ends) {
      system.add_slopes(X_, s_.entries[l], gradient(l));
      norm2 = dot(gradient(l), gradient(l), padded_);
    } else if (solved(l)) {
      system.build(X_, s_.entries[l], a_.l2, gradient(l), padded_, false);
      norm2 = system.gradient_norm2();
    }
    if (!close_step(l, norm2)) return;
    if (ends) system.build(X_, s_.entries[l], a_.l2, gradient(l), padded_, true);
    const auto direction = system.solve(T(gradient_bias_[l]), bias_curvature(l), cg_end(l), a_);
    system.spread_direction();
    a_.cg_steps[first_ + l] += direction.cg_steps;
    open_step(l, direction.slope, direction.bias, direction.settled);
  }

  // The step before promised little: the gradient, which needs no system, may show that the lane has converged.
  bool may_end(int l) const {
    constexpr double kLittle = 20;
    const int64_t lane = first_ + l;
    return !fresh_[l] && a_.gradient_norm[lane] <= kLittle * a_.tolerance[lane] &&
           -0.5 * a_.slope[lane] <= kLittle * a_.decrement * std::fabs(double(a_.value[lane]));
  }

  // Value, norm of the gradient and status of a lane at its new point; false where it ends there.
  bool close_step(int l, double gradient_norm2) {
    const int64_t lane = first_ + l;
    int32_t& status = a_.status[lane];
    if (!fresh_[l]) ++a_.steps[lane];
    if (status == kLineSearchFailed) return running_[l] = false;
    const double b = a_.bias[lane];
    gradient_bias_[l] = a_.l2_bias >= 0 ? slope_sum_[l] + a_.l2_bias * b : 0;
    a_.value[lane] = T(loss_value_[l] + 0.5 * a_.l2 * weight_norm2_[l] + (a_.l2_bias > 0 ? 0.5 * a_.l2_bias * b * b : 0));
    a_.gradient_norm[lane] = T(std::sqrt(gradient_norm2 + gradient_bias_[l] * gradient_bias_[l]));
    if (!std::isfinite(a_.value[lane]) || !std::isfinite(a_.gradient_norm[lane])) {
      status = kNonFinite;
    } else if (a_.gradient_norm[lane] <= a_.tolerance[lane]) {
      // f − f* ≤ ‖∇f‖²/2λ, but for a bias that is free, about g_b²/2h. A part of that settles it for most; for
      // the others the decrement is worked out.
      const double norm = a_.gradient_norm[lane], gap = a_.decrement * std::fabs(double(a_.value[lane]));
      const double of_bias = a_.l2_bias == 0 ? gradient_bias_[l] * gradient_bias_[l] : 0;
      candidate_[l] = kPartOfBound * norm * norm > 2 * a_.l2 * gap ||
                      kPartOfBound * of_bias > 2 * bias_curvature(l) * gap;
      status = candidate_[l] ? kRunning : kConverged;
    } else {
      status = a_.steps[lane] >= a_.max_steps ? kMaxSteps : kRunning;
    }
    return running_[l] = status == kRunning;
  }

  // CG ends early where it has shown that a lane has converged.
  CgEnd cg_end(int l) const {
    CgEnd end{a_.cg_tolerance, a_.cg_progress, a_.l2};
    if (!candidate_[l]) return end;
    const double h = bias_curvature(l), b2 = gradient_bias_[l] * gradient_bias_[l];
    if (!(h > 0) && b2 > 0) return end;  // a free bias that has no curvature here
    const double of_bias = h > 0 ? b2 / (2 * h) : 0;
    end.enough = a_.decrement * std::fabs(double(a_.value[first_ + l])) - of_bias;
    return end;
  }

  // A direction is known. A lane whose gradient is small enough has converged where CG has settled that its
  // decrement is too; else it goes on.
  void open_step(int l, double slope, double direction_bias, bool settled) {
    const int64_t lane = first_ + l;
    a_.direction_bias[lane] = T(direction_bias);
    a_.slope[lane] = T(slope + gradient_bias_[l] * direction_bias);
    if (!candidate_[l]) return;
    if (settled) {
      a_.status[lane] = kConverged;
    } else if (a_.steps[lane] >= a_.max_steps) {
      a_.status[lane] = kMaxSteps;
    }
    running_[l] = a_.status[lane] == kRunning;
  }

  // h = λ_b + 1ᵀ D 1, zero where there is no bias to eliminate.
  T bias_curvature(int l) const {
    const T h = T(curvature_sum_[l] + a_.l2_bias);
    return a_.l2_bias >= 0 && h > 0 ? h : T(0);
  }

  T* gradient(int l) { return own_.gradient.data() + l * padded_; }

  // The broad lanes of both tiles, together.
  static void solve_broad(NewtonTile& one, NewtonTile& other) {
    Scratch<T>& scratch = one.s_;
    scratch.broad_lanes.clear();
    for (NewtonTile* tile : {&one, &other}) {
      if (!tile->any_broad_) tile->own_.active.count = 0;
      for (int l = 0; l < tile->width_; ++l)
        if (tile->running_[l] && tile->broad_[l])
          scratch.broad_lanes.push_back({l + (tile == &other ? N : 0), size_t(tile->a_.active[tile->first_ + l]),
                                         tile->gradient_bias_[l], tile->bias_curvature(l), tile->cg_end(l),
                                         tile->gradient(l)});
    }
    if (scratch.broad_lanes.empty()) return;
    scratch.broad.solve(one.X_, one.own_.active, other.own_.active, one.padded_, scratch.broad_lanes, one.a_);
    for (const auto& lane : scratch.broad_lanes) {
      NewtonTile& tile = lane.number < N ? one : other;
      const int l = lane.number % N;
      tile.a_.cg_steps[tile.first_ + l] += lane.cg_steps;
      tile.open_step(l, lane.slope, lane.bias, lane.settled);
    }
  }

  const NewtonArgs<T>& a_;
  const Csr<T>& X_;
  const int64_t first_;
  const int width_;
  const Loss loss_;
  Scratch<T>& s_;
  TileScratch<T>& own_;
  const int64_t padded_;
  bool fresh_[N] = {}, running_[N] = {}, candidate_[N] = {};
  bool wide_[N] = {};        // the search looks at all rows
  IntVec<T> broad_{};        // too many rows are active for a system of its own
  bool any_broad_ = false;
  bool opened_ = false;
  int64_t stride_ = 0;
  T *w_ = nullptr, *z_ = nullptr, *direction_ = nullptr;
  const int8_t* y_ = nullptr;
  IntVec<T> kept_{};  // lanes that have weights from a step before
  V constant_weight_{}, step_bias_{}, t_{}, beta_{};
  unsigned gathering_ = 0;  // lanes whose near rows are listed
  V longest_{}, highest_{}, lowest_{};  // where the near rows were gathered
  PlaneSearch<T> plane_[N];
  double weight_norm2_[N] = {}, loss_value_[N] = {}, slope_sum_[N] = {}, curvature_sum_[N] = {}, gradient_bias_[N] = {};
};

template <class T, class Loss>
void step_tiles(const NewtonArgs<T>& args, int64_t first, int64_t last) {
  ScratchLoan<T> loan;
  Scratch<T>& scratch = *loan;
  constexpr int64_t N = kLanes<T>;
  for (int64_t t = first; t < last; t += 2 * N) {
    const int64_t lanes = last - t;
    NewtonTile<T, Loss> one(args, t, lanes < N ? lanes : N, scratch, scratch.tile[0]);
    NewtonTile<T, Loss> other(args, t + N, lanes < N ? 0 : lanes < 2 * N ? lanes - N : N, scratch, scratch.tile[1]);
    NewtonTile<T, Loss>::step(one, other);
  }
}

}  // namespace

template <class T>
void newton_step(const NewtonArgs<T>& args, int64_t first, int64_t last) {
  with_loss<T>(args.loss, [&](auto loss) { step_tiles<T, typename decltype(loss)::type>(args, first, last); });
}

template void newton_step<float>(const NewtonArgs<float>&, int64_t, int64_t);
template void newton_step<double>(const NewtonArgs<double>&, int64_t, int64_t);

}  // namespace xmcjax::XMCJAX_ISA
