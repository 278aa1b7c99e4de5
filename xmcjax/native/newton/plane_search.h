// How far a lane moves along its direction, and by how much it shifts its bias.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

// Sums over the rows at a point (t, β), with m = X d + d_b.
struct PlaneSums {
  double change = 0;                                        // Σ c (ℓ(z + t m + β) − ℓ(z))
  double slope = 0, slope_m = 0;                            // Σ c ℓ', Σ c ℓ' m
  double curvature = 0, curvature_m = 0, curvature_mm = 0;  // Σ c ℓ'', Σ c ℓ'' m, Σ c ℓ'' m²
};

// The minimum of f over the plane of w + t d and b + t d_b + β,
//
//   φ(t, β) = Σ c ℓ(z + t m + β) + λ (t wᵀd + ½ t² ‖d‖²) + ½ λ_b (b + t d_b + β)²,
//
// by Newton's method on the margins alone: X is not multiplied. From a point that is worse than the one
// before, the search goes back half the way; β goes back three quarters of it as long as no point is better
// than (0, 0), from where f falls along d alone for certain. The search stays in a box, t ≤ t_max and
// β ≤ β_max, until it stands at a side and wants out: most rows have no loss anywhere in the box. A fresh lane,
// which goes from zero to its starting weights, keeps t = 1. The jnp twin is solvers/_plane_search.py.
template <class T>
class PlaneSearch {
 public:
  static constexpr double kLongest = 2;   // t at most
  static constexpr double kLeast = 0.1;   // the part of t that one move leaves at least
  static constexpr double kFarthest = 2;  // change of β in one move at most: the width of the hinge
  static constexpr double kFlat = 1e-3;   // the search ends where a move promises less than this part
  static constexpr int kMaxTrials = 50;
  // The first point is (t_0, −kBack t_0 d_b): the quadratic model that gave d_b does not know the rows that are
  // still to become active. Where features lie far from zero, d_b makes up for that, and says nothing of the
  // margins: its size counts as kMostBias at most. The box leaves room around this point: kRoom is a factor of
  // t, kBiasRoom an addition to β, and kFreshBiasRoom that of a fresh lane.
  static constexpr double kBack = 0.25, kMostBias = 2, kRoom = 1.25, kBiasRoom = 0.02, kFreshBiasRoom = 0.1;

  // The lane before its step.
  struct Lane {
    bool fresh;
    int32_t steps;                // made so far
    double multiplier;            // t of the last one
    double l2, l2_bias;           // λ_b < 0: no bias
    double wd, dd;                // wᵀd, ‖d‖²
    double bias, direction_bias;
    double value, slope;          // f, and f' along the direction
    double armijo;
    int32_t max_halvings;
    double backtracking;  // α of a search that takes the first of t = 1, α, α², …; 0 for the minimum
    double bias_tolerance;  // of a fresh lane: on |∂f/∂b|
  };

  PlaneSearch() = default;
  explicit PlaneSearch(const Lane& lane) : lane_(lane), searching_(true) {
    if (lane.backtracking > 0) {
      t_ = 1, longest_ = 1;
      return;
    }
    // The first steps of a lane are too long, each less than the one before.
    const double start = lane.fresh ? 1 : lane.steps == 0 ? 0.5 : (1 + 2 * lane.multiplier) / 3;
    const double bias = start * std::fmax(-kMostBias, std::fmin(lane.direction_bias, kMostBias));
    t_ = T(start);
    beta_ = T(lane.fresh ? 0 : -kBack * bias);
    longest_ = lane.fresh ? 1 : std::fmin(kRoom * start, kLongest);
    bias_room_ = lane.fresh ? kFreshBiasRoom : kBiasRoom + 0.1 * std::fabs(bias);
    highest_ = beta_ + bias_room_;
  }

  bool searching() const { return searching_; }
  bool failed() const { return failed_; }
  T t() const { return t_; }
  T beta() const { return beta_; }
  T longest() const { return T(longest_); }  // t_max
  T highest() const { return T(highest_); }  // β_max

  // Looks at the point (t, β) and chooses the next, or ends.
  void advance(const PlaneSums& sums) {
    const double t = t_, beta = beta_;
    const double l2_bias = lane_.l2_bias > 0 ? lane_.l2_bias : 0;
    const double d_b = lane_.direction_bias, b = lane_.bias + t * d_b + beta;
    const double change = sums.change + lane_.l2 * t * (lane_.wd + 0.5 * t * lane_.dd) +
                          0.5 * l2_bias * (b - lane_.bias) * (b + lane_.bias);
    const bool first = trial_++ == 0;
    if (first && lane_.fresh && !std::isfinite(change)) return end(t, beta, change);
    if (lane_.backtracking > 0) return backtrack(t, change);
    if (!(first && lane_.fresh) && !(change <= best_change_ + rounding())) {
      const double of_bias = best_t_ == 0 ? 0.25 : 0.5;
      if (halvings_++ < lane_.max_halvings &&
          move(0.5 * (t + best_t_), best_beta_ + of_bias * (beta - best_beta_)))
        return;
      return end(best_t_, best_beta_, best_change_);
    }
    best_t_ = t, best_beta_ = beta, best_change_ = change;
    // (0, 0), towards which the search goes back, may lie outside of the box.
    longest_ = std::fmax(longest_, t), highest_ = std::fmax(highest_, beta);
    const bool turns = !lane_.fresh, has_bias = lane_.l2_bias >= 0;
    const double g_b = sums.slope + l2_bias * b;
    const double g_t = sums.slope_m + lane_.l2 * (lane_.wd + t * lane_.dd) + l2_bias * d_b * b;
    const double h_bb = sums.curvature + l2_bias, h_tb = sums.curvature_m + l2_bias * d_b;
    const double h_tt = sums.curvature_mm + lane_.l2 * lane_.dd + l2_bias * d_b * d_b;
    const double determinant = h_tt * h_bb - h_tb * h_tb;
    const bool at_longest = t_ >= T(kLongest);
    double dt = 0, dbeta = 0;
    if (turns && has_bias && determinant > 1e-6 * h_tt * h_bb) {
      dt = (h_tb * g_b - h_bb * g_t) / determinant;
      dbeta = (h_tb * g_t - h_tt * g_b) / determinant;
    } else if (turns && h_tt > 0) {
      dt = -g_t / h_tt;
    }
    if (at_longest && dt > 0) dt = dbeta = 0;
    if (has_bias && dt == 0 && dbeta == 0) dbeta = h_bb > 0 ? -g_b / h_bb : -std::copysign(kFarthest, g_b);
    // The quadratic model's promise for one more move.
    const double gain = -0.5 * (g_t * dt + g_b * dbeta);
    const bool flat = turns ? !(gain > kFlat * std::fabs(change)) : !(std::fabs(g_b) > lane_.bias_tolerance);
    if (flat || trial_ > kMaxTrials) return end(t, beta, change);
    dbeta = std::fmax(-kFarthest, std::fmin(dbeta, kFarthest));
    if ((dt > 0 && t_ >= longest()) || (dbeta > 0 && beta_ >= highest())) {
      longest_ = turns ? std::fmin(kRoom * longest_, kLongest) : 1;
      highest_ += bias_room_;
      bias_room_ *= 2;
    }
    // As far as the box allows.
    double part = 1;
    if (t + dt > longest_) part = std::fmin(part, (longest_ - t) / dt);
    if (t + dt < kLeast * t) part = std::fmin(part, (kLeast - 1) * t / dt);
    if (beta + dbeta > highest_) part = std::fmin(part, (highest_ - beta) / dbeta);
    if (!move(t + part * dt, beta + part * dbeta)) end(t, beta, change);
  }

 private:
  double rounding() const {
    const double epsilon = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
    return 4 * epsilon * std::fabs(lane_.fresh ? best_change_ : lane_.value);
  }

  // Schultheis and Babbar 2022, section 2: the first point of 1, α, α², … where f has fallen enough.
  void backtrack(double t, double change) {
    const bool enough = lane_.fresh || change <= lane_.armijo * t * lane_.slope + rounding();
    if (enough || halvings_++ >= lane_.max_halvings || !move(lane_.backtracking * t, 0)) end(t, 0, change);
  }

  bool move(double t, double beta) {
    const bool moves = T(t) != t_ || T(beta) != beta_;
    t_ = T(t), beta_ = T(beta);
    return moves;
  }

  // Ends the search at a point. It has failed unless f has fallen enough: φ(t, β) − φ(0, 0) ≤ η t f'(0).
  void end(double t, double beta, double change) {
    searching_ = false;
    // The minimum over the plane may be at a t that rounds to zero: then β alone makes the fall.
    const bool falls = t > 0 || change < -rounding();
    failed_ = !lane_.fresh && !(falls && change <= lane_.armijo * t * lane_.slope + rounding());
    t_ = failed_ ? T(0) : T(t);
    beta_ = failed_ ? T(0) : T(beta);
  }

  Lane lane_{};
  bool searching_ = false, failed_ = false;
  int trial_ = 0, halvings_ = 0;
  T t_ = 0, beta_ = 0;
  double longest_ = 0, highest_ = 0, bias_room_ = 0;
  double best_t_ = 0, best_beta_ = 0, best_change_ = 0;
};

}  // namespace xmcjax::XMCJAX_ISA
