// How a Newton step of a tile of lanes ends, without the loss: gradients, which lanes have converged, and the
// directions of the others, given the rows that are active at the new point.
#pragma once

#include <cmath>
#include <cstring>

#include "newton/conjugate_gradients.h"
#include "newton/lane_tile.h"

namespace xmcjax::XMCJAX_ISA {

// A lane with more than the part 1 / kActivePart of the rows active is worked on with its tile.
constexpr int64_t kActivePart = 8;

template <class T>
class TileDirections : protected LaneTile<T> {
 protected:
  using Base = LaneTile<T>;
  using Base::a_, Base::direction_, Base::first_, Base::fresh_, Base::N, Base::own_, Base::padded_,
      Base::running_, Base::s_, Base::stride_, Base::w_, Base::weight_norm2_, Base::width_, Base::X_;
  using Base::LaneTile;
  using typename Base::V;

  int64_t most_active() const { return X_.n / kActivePart; }

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
      row_add_tile(X_, active.row[u], select(broad_, load(&s_.slopes[u * N]), V{}), sums, N);
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

  // Whether the step before promised so little that the gradient, which needs no system, may show that the lane has
  // converged.
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
    a_.value[lane] =
        T(loss_value_[l] + 0.5 * a_.l2 * weight_norm2_[l] + (a_.l2_bias > 0 ? 0.5 * a_.l2_bias * b * b : 0));
    a_.gradient_norm[lane] = T(std::sqrt(gradient_norm2 + gradient_bias_[l] * gradient_bias_[l]));
    if (!std::isfinite(a_.value[lane]) || !std::isfinite(a_.gradient_norm[lane])) {
      status = kNonFinite;
    } else if (a_.gradient_norm[lane] <= a_.tolerance[lane]) {
      // f − f* ≤ ‖∇f‖²/2λ; a bias that is free or has λ_b < λ adds about g_b²/2h. A part of that bound settles it for
      // most lanes; for the others CG works out the decrement.
      const double norm = a_.gradient_norm[lane], gap = a_.decrement * std::fabs(double(a_.value[lane]));
      const double of_bias = a_.l2_bias < a_.l2 ? gradient_bias_[l] * gradient_bias_[l] : 0;
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

  // Stores a direction. A lane whose gradient is small enough has converged where CG has settled that its
  // decrement is small enough too; else it goes on.
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
  static void solve_broad(TileDirections& one, TileDirections& other) {
    Scratch<T>& scratch = one.s_;
    scratch.broad_lanes.clear();
    for (TileDirections* tile : {&one, &other}) {
      if (!tile->any_broad_) tile->own_.active.count = 0;
      for (int l = 0; l < tile->width_; ++l)
        if (tile->running_[l] && tile->broad_[l])
          scratch.broad_lanes.push_back({l + (tile == &other ? N : 0),
                                         size_t(tile->a_.active[tile->first_ + l]), tile->gradient_bias_[l],
                                         tile->bias_curvature(l), tile->cg_end(l), tile->gradient(l)});
    }
    if (scratch.broad_lanes.empty()) return;
    scratch.broad.solve(one.X_, one.own_.active, other.own_.active, one.padded_, scratch.broad_lanes, one.a_);
    for (const auto& lane : scratch.broad_lanes) {
      TileDirections& tile = lane.number < N ? one : other;
      const int l = lane.number % N;
      tile.a_.cg_steps[tile.first_ + l] += lane.cg_steps;
      tile.open_step(l, lane.slope, lane.bias, lane.settled);
    }
  }

  bool candidate_[N] = {};
  IntVec<T> broad_{};  // too many rows are active for a system of its own
  bool any_broad_ = false;
  double loss_value_[N] = {}, slope_sum_[N] = {}, curvature_sum_[N] = {}, gradient_bias_[N] = {};
};

}  // namespace xmcjax::XMCJAX_ISA
