// One proximal Newton step of solvers/newton_cg.py for lanes with a penalty other than ½ ‖w‖², in one
// call: the twin of solvers/_proximal_step.py.
//
// The full product X·direction is made for a tile of lanes at once; everything else lane by lane, over
// all rows for the margins and over the active rows for the next direction, so that the bits of a lane
// do not depend on its neighbours.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/csr_rows.h"
#include "newton/lane_arrays.h"
#include "newton/margin_losses.h"
#include "newton/penalised_system.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

constexpr int kMostBiasMoves = 20;
constexpr double kFarthestBias = 2;  // in one move: the width of the hinge
// A row counts with at least this part of φ'²/2φ as its curvature, which is that of the parabola that
// touches φ and has its minimum: φ may be nearly straight.
constexpr double kLeastCurvature = 0.1;

template <class T>
struct PenalisedScratch {
  Array<T> tile, margins;      // [d, N], [n, N]
  Array<T> w, p, z, m, y, c;   // of one lane, [d] and [n, padded]
  std::vector<Entry<T>> entries;
  PenalisedSystem<T> system;
};

// What does not depend on the loss, which is compiled once for all of them.
template <class T>
class PenalisedLane {
 protected:
  static constexpr int N = kLanes<T>;

  struct Sums {
    double value = 0, slope = 0, curvature = 0;
  };

 public:
  // `margins` is X·direction of the lane's tile, element i N + l.
  PenalisedLane(const NewtonArgs<T>& a, int64_t lane, PenalisedScratch<T>& s)
      : a_(a), lane_(lane), s_(s), padded_((a.X.n + N - 1) / N * N),
        penalty_(a.penalty, a.l2, a.penalty_parameter),
        of_bias_(a.penalty, a.l2_bias > 0 ? a.l2_bias : T(1), a.penalty_parameter),
        fresh_(a.status[lane] == kFresh) {}

  virtual ~PenalisedLane() = default;

  void step(const T* margins) {
    gather(margins);
    if (!search()) return close(kLineSearchFailed);
    shift_bias();
    for (int64_t j = 0; j < a_.X.d; ++j) s_.w[j] += t_ * s_.p[j];
    // worked out anew: if changes were added to a value far above, its rounding would stay
    f_ = collect() + penalty_value();
    a_.value[lane_] = T(f_);
    s_.system.has_bias = a_.l2_bias >= 0;
    s_.system.build(a_.X, s_.entries, s_.w.data());
    finish();
    s_.system.close();
  }

 protected:
  // Σ c ℓ, Σ c ℓ', Σ c ℓ'' at z + t m + β, less the values at z where `change`.
  virtual Sums sums(T t, T beta, bool change) const = 0;
  // Lists the rows with a slope or a curvature at the new point, moves z there, and returns Σ c ℓ.
  virtual double collect() = 0;

  const NewtonArgs<T>& a_;
  const int64_t lane_;
  PenalisedScratch<T>& s_;
  const int64_t padded_;
  T t_ = 1, beta_ = 0;

 private:
  const Penalty<T>* of_bias() const { return a_.l2_bias > 0 ? &of_bias_ : nullptr; }
  double bias_value(T b) const { return a_.l2_bias > 0 ? of_bias_.value(b) : 0; }

  // The lane's arrays without a stride; rows beyond n have no weight.
  void gather(const T* margins) {
    const int64_t n = a_.X.n, lanes = a_.lanes;
    for (auto* v : {&s_.w, &s_.p}) v->resize(a_.X.d);
    for (auto* v : {&s_.z, &s_.m, &s_.y, &s_.c}) v->assign(padded_, T(0));
    for (int64_t j = 0; j < a_.X.d; ++j) {
      s_.w[j] = fresh_ ? T(0) : a_.w[j * lanes + lane_];
      s_.p[j] = a_.direction[j * lanes + lane_];
    }
    const auto of = [&](const Broadcast<T>& b, int64_t i) {
      return b.data[i * b.row_stride + lane_ * b.lane_stride];
    };
    for (int64_t i = 0; i < n; ++i) {
      s_.y[i] = T(a_.y[i * lanes + lane_]);
      s_.c[i] = of(a_.weight, i);
      s_.z[i] = (fresh_ ? T(0) : a_.z[i * lanes + lane_]) + (a_.shift.data ? of(a_.shift, i) : T(0));
      s_.m[i] = margins[i * N] + a_.direction_bias[lane_];
    }
    for (int64_t i = n; i < padded_; ++i) s_.y[i] = 1;
    bias_ = fresh_ ? T(0) : a_.bias[lane_];
  }

  // R(w + t p) − R(w), bias included
  double penalty_change(T t) const {
    double sum = bias_value(bias_ + t * a_.direction_bias[lane_]) - bias_value(bias_);
    for (int64_t j = 0; j < a_.X.d; ++j)
      if (s_.p[j] != 0) sum += penalty_.value(s_.w[j] + t * s_.p[j]) - penalty_.value(s_.w[j]);
    return sum;
  }

  // R(w), bias included
  double penalty_value() const {
    double sum = bias_value(bias_);
    for (int64_t j = 0; j < a_.X.d; ++j)
      if (s_.w[j] != 0) sum += penalty_.value(s_.w[j]);
    return sum;
  }

  double rounding(double f) const { return 4 * (sizeof(T) == 4 ? 0x1p-24 : 0x1p-53) * std::fabs(f); }

  // Takes the largest t of 1, ½, ¼, … with f(t) − f(0) ≤ η t (gᵀp + R(w + p) − R(w)), and halves a t
  // below 1 as long as f falls: the first that is good enough may be far behind the minimum. A fresh
  // lane takes 1. False where there is none.
  bool search() {
    if (!fresh_) {
      const auto change = [&](T t) { return sums(t, T(0), true).value + penalty_change(t); };
      int halvings = 0;
      double here = change(t_);
      for (; !(here <= a_.armijo * t_ * a_.slope[lane_] + rounding(a_.value[lane_])); here = change(t_)) {
        if (!(halvings++ < a_.max_backtracks)) return false;
        t_ *= T(0.5);
      }
      while (t_ < 1 && halvings++ < a_.max_backtracks) {
        const double half = change(T(0.5) * t_);
        if (!(half < here)) break;
        here = half, t_ *= T(0.5);
      }
    }
    bias_ += t_ * a_.direction_bias[lane_];
    return true;
  }

  // The minimum over the bias on the margins, by Newton steps that are halved where f would rise.
  void shift_bias() {
    if (a_.l2_bias < 0) return;
    const T tolerance = T(0.1) * a_.tolerance[lane_];
    Sums at = sums(t_, beta_, false);
    for (int move = 0; move < kMostBiasMoves; ++move) {
      const T b = bias_ + beta_;
      const T left = of_bias() ? of_bias_.violation(T(at.slope), b) : std::fabs(T(at.slope));
      if (!(left > tolerance)) break;
      // rows near the hinge may have no curvature yet
      const T h = std::fmax(T(at.curvature), std::fabs(T(at.slope)) / T(kFarthestBias));
      const T hu = h * b - T(at.slope);
      T change = (of_bias() ? of_bias_.minimiser(h, hu) : hu / h) - b;
      change = std::fmax(T(-kFarthestBias), std::fmin(change, T(kFarthestBias)));
      bool better = false;
      for (int halvings = 0; change != 0 && halvings < a_.max_backtracks; ++halvings, change *= T(0.5)) {
        const Sums next = sums(t_, beta_ + change, false);
        const double rise = next.value - at.value + bias_value(b + change) - bias_value(b);
        if (!(rise <= 0)) continue;
        beta_ += change, at = next, better = true;
        break;
      }
      if (!better) break;
    }
    bias_ += beta_;
  }

  // Status, and the next direction where the lane goes on.
  void finish() {
    const double g_b = a_.l2_bias < 0 ? 0 : s_.system.gradient_bias();
    const double v_b = of_bias() ? of_bias_.violation(T(g_b), bias_) : g_b;
    const double norm = std::sqrt(s_.system.violation2(penalty_, s_.w.data(), a_.X.d) + v_b * v_b);
    a_.gradient_norm[lane_] = T(norm);
    const int32_t steps = a_.steps[lane_] + !fresh_;
    if (!std::isfinite(f_) || !std::isfinite(norm)) return close(kNonFinite);
    const bool small = norm <= a_.tolerance[lane_];
    if (norm == 0) return close(kConverged);
    if (!small && steps >= a_.max_steps) return close(kMaxSteps);
    s_.p = s_.w;
    const auto direction =
        s_.system.solve(penalty_, of_bias(), bias_, a_.cg_tolerance, a_.max_cg, s_.p.data(), a_.X.d);
    a_.cg_steps[lane_] += direction.sweeps;
    if (small && direction.decrease <= a_.decrement * std::fabs(f_)) return close(kConverged);
    if (steps >= a_.max_steps) return close(kMaxSteps);
    next_bias_ = direction.bias, next_slope_ = T(direction.slope);
    close(kRunning);
  }

  // Writes the lane back. A search that failed leaves it where it was.
  void close(int32_t status) {
    const int64_t lanes = a_.lanes;
    if (!fresh_) ++a_.steps[lane_];
    const bool moved = status != kLineSearchFailed, goes_on = status == kRunning;
    for (int64_t j = 0; j < a_.X.d; ++j) {
      a_.w[j * lanes + lane_] = s_.w[j];
      a_.direction[j * lanes + lane_] = goes_on ? s_.p[j] : T(0);
    }
    for (int64_t i = 0; i < a_.X.n; ++i) {
      const T shift =
          a_.shift.data ? a_.shift.data[i * a_.shift.row_stride + lane_ * a_.shift.lane_stride] : T(0);
      a_.z[i * lanes + lane_] = s_.z[i] - shift;
    }
    a_.bias[lane_] = bias_;
    a_.multiplier[lane_] = moved ? t_ : T(0);
    a_.direction_bias[lane_] = goes_on ? next_bias_ : T(0);
    a_.slope[lane_] = goes_on ? next_slope_ : T(0);
    a_.status[lane_] = status;
  }

  const Penalty<T> penalty_, of_bias_;
  const bool fresh_;
  double f_ = 0;
  T bias_ = 0, next_bias_ = 0, next_slope_ = 0;
};

template <class T, class Loss>
class LaneOfLoss final : public PenalisedLane<T> {
  using Base = PenalisedLane<T>;
  using Base::a_, Base::beta_, Base::lane_, Base::N, Base::padded_, Base::s_, Base::t_;
  using typename Base::Sums;
  using V = Vec<T>;

 public:
  LaneOfLoss(const NewtonArgs<T>& a, int64_t lane, PenalisedScratch<T>& s)
      : Base(a, lane, s), loss_(a.loss_parameter) {}

 private:
  Sums sums(T t, T beta, bool change) const override {
    Sums s;
    const Poll poll;
    for (int64_t i = 0; i < padded_; poll(64 * kPasses)) {
      const int64_t block = i + 64 * N < padded_ ? i + 64 * N : padded_;
      V value{}, slope{}, curvature{};
      for (; i < block; i += N) {
        const V z = load(&s_.z[i]), y = load(&s_.y[i]), c = load(&s_.c[i]);
        V here, first, second, before{};
        loss_(z + t * load(&s_.m[i]) + beta, y, here, first, second);
        if (change) {
          V unused, unused_too;
          loss_(z, y, before, unused, unused_too);
        }
        value += c * (here - before), slope += c * first, curvature += c * second;
      }
      const LanesOf<V> values(value), slopes(slope), curvatures(curvature);
      for (int l = 0; l < N; ++l) s.value += values[l], s.slope += slopes[l], s.curvature += curvatures[l];
    }
    return s;
  }

  double collect() override {
    s_.entries.clear();
    double sum = 0;
    const auto look_at = [&](int64_t i, V& values) {
      const V z = load(&s_.z[i]) + t_ * load(&s_.m[i]) + beta_, c = load(&s_.c[i]);
      V value, slope, curvature;
      loss_(z, load(&s_.y[i]), value, slope, curvature);
      value *= c, slope *= c, curvature *= c;
      values += value;
      const V least = select(value > 0, T(0.5 * kLeastCurvature) * slope * slope / value, V{});
      curvature = maximum(curvature, least);
      const LanesOf<V> slopes(slope), curvatures(curvature);
      for (unsigned mask = nonzero_lanes(slope) | nonzero_lanes(curvature); mask; mask &= mask - 1) {
        const int l = __builtin_ctz(mask);
        if (i + l < a_.X.n) s_.entries.push_back({int32_t(i + l), slopes[l], curvatures[l]});
      }
      store(&s_.z[i], z);
    };
    for (int64_t i = 0; i < padded_;) {
      V values{};
      for (const int64_t block = std::min(i + 64 * N, padded_); i < block; i += N) look_at(i, values);
      const LanesOf<V> of_lanes(values);
      for (int l = 0; l < N; ++l) sum += of_lanes[l];
    }
    a_.active[lane_] = int32_t(s_.entries.size());
    return sum;
  }

  const Loss loss_;
};

}  // namespace

template <class T>
void penalised_step(const NewtonArgs<T>& a) {
  constexpr int N = kLanes<T>;
  PenalisedScratch<T> s;
  for (int64_t t = 0; t < a.lanes; t += N) {
    const int64_t width = a.lanes - t < N ? a.lanes - t : N;
    bool any = false;
    for (int64_t l = t; l < t + width; ++l) any |= a.status[l] == kFresh || a.status[l] == kRunning;
    if (!any) continue;
    s.tile.assign(a.X.d * N, T(0)), s.margins.resize(a.X.n * N);
    for (int64_t j = 0; j < a.X.d; ++j)
      for (int64_t l = 0; l < width; ++l) s.tile[j * N + l] = a.direction[j * a.lanes + t + l];
    const Poll poll;
    for (int64_t i = 0; i < a.X.n; poll(entries(a.X, i++)))
      store(&s.margins[i * N], row_dot_tile(a.X, i, s.tile.data(), N));
    for (int64_t l = t; l < t + width; ++l)
      if (a.status[l] == kFresh || a.status[l] == kRunning)
        with_loss<T>(a.loss, [&](auto loss) {
          LaneOfLoss<T, typename decltype(loss)::type>(a, l, s).step(s.margins.data() + (l - t));
        });
  }
}

template void penalised_step<float>(const NewtonArgs<float>&);
template void penalised_step<double>(const NewtonArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
