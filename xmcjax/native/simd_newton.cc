// One step of the truncated Newton method of solvers/newton_cg.py for a tile of lanes, in one
// call: move along the direction, minimise over the bias, take the gradient, solve for the next
// direction. The jnp step there is the reference and its test compares the two.
//
// The full product X·direction is made for all lanes at once. The gradient and the
// Hessian-vector products touch active rows only; they are made lane by lane where lanes share
// few rows and for the whole tile where they share many. Both forms give the same bits, so a
// lane does not depend on its neighbours.
#include <cmath>
#include <vector>

#include "csr_rows.h"
#include "lane_arrays.h"
#include "margin_losses.h"
#include "newton_scratch.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

// Lanes are taken together where their active rows overlap at least this much on average.
constexpr double kShared = 3.0;

template <class T, class Loss>
class NewtonTile {
  static constexpr int N = kLanes<T>;
  using V = Vec<T>;

 public:
  NewtonTile(const NewtonArgs<T>& args, int64_t first, int64_t width, Scratch<T>& scratch)
      : a_(args), X_(args.X), first_(first), width_(int(width)), loss_(args.loss_parameter),
        s_(scratch), padded_((args.X.d + N - 1) / N * N) {
    for (int l = 0; l < width_; ++l) {
      const int32_t status = a_.status[first + l];
      fresh_[l] = status == kFresh;
      running_[l] = fresh_[l] || status == kRunning;
    }
    for (int l = 0; l < N; ++l) kept_[l] = fresh_[l] ? 0 : -1;
  }

  void step() {
    bool any = false;
    for (int l = 0; l < width_; ++l) any |= running_[l];
    if (!any) return;
    open_tile();
    step_margins();
    line_search();
    move();
    if (a_.l2_bias >= 0) bias_step();
    collect_active();
    take_gradient();
    update_status();
    solve_direction();
    close_tile();
  }

 private:
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
    const auto copy = [&](const T* from, std::vector<T>& to, int64_t rows) {
      to.assign(rows * N, T(0));
      for (int64_t i = 0; i < rows; ++i)
        for (int l = 0; l < width_; ++l) to[i * N + l] = from[i * a_.lanes + first_ + l];
      return to.data();
    };
    w_ = copy(a_.w, s_.w, X_.d);
    z_ = copy(a_.z, s_.z, X_.n);
    direction_ = copy(a_.direction, s_.direction, X_.d);
    s_.signs.assign(X_.n * N, int8_t(-1));
    for (int64_t i = 0; i < X_.n; ++i)
      for (int l = 0; l < width_; ++l) s_.signs[i * N + l] = a_.y[i * a_.lanes + first_ + l];
    y_ = s_.signs.data();
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

  // m = X d + d_b
  void step_margins() {
    constant_weight_ = lanes_of(a_.weight, 0);
    s_.step_margins.resize(X_.n * N);
    V db{};
    for (int l = 0; l < width_; ++l) db[l] = a_.direction_bias[first_ + l];
    T* m = s_.step_margins.data();
    for (int64_t i = 0; i < X_.n; ++i) store(m + i * N, row_dot_tile(X_, i, direction_, stride_) + db);
  }

  // Backtracking: the largest t in 1, ½, ¼, … with f(t) − f(0) ≤ η t f'(0), on the margins
  // alone. The difference is summed row by row, so that it keeps its digits near the optimum.
  // A fresh lane goes from zero to its starting weights: t = 1. The same pass sums the
  // derivatives in b that the bias step begins with.
  void line_search() {
    const T* m = s_.step_margins.data();
    LaneSum<T> wd, dd;
    for_rows(
        X_.d,
        [&](int64_t j) {
          const V d = load(direction_ + j * stride_);
          wd.add((kept_ ? load(w_ + j * stride_) : V{}) * d);
          dd.add(d * d);
        },
        [&] { wd.flush(), dd.flush(); });
    bool searching[N] = {};
    for (int l = 0; l < N; ++l) {
      t_[l] = l < width_ && running_[l] ? T(1) : T(0);
      searching[l] = l < width_ && running_[l] && !fresh_[l];
    }
    bool any = true;
    for (int trial = 0; any; ++trial) {
      LaneSum<T> change, slopes, curvatures;
      for_rows(
          X_.n,
          [&](int64_t i) {
            const V z = margins_before(i);
            V before, after, slope, curvature;
            evaluate(i, z, before, slope, curvature);
            evaluate(i, z + t_ * load(m + i * N), after, slope, curvature);
            change.add(after - before);
            slopes.add(slope);
            curvatures.add(curvature);
          },
          [&] { change.flush(), slopes.flush(), curvatures.flush(); });
      any = false;
      for (int l = 0; l < width_; ++l) {
        slope_sum_[l] = slopes[l];
        curvature_sum_[l] = curvatures[l];
        if (!searching[l]) continue;
        const int64_t lane = first_ + l;
        const double t = t_[l], b = a_.bias[lane], db = a_.direction_bias[lane];
        const double l2_bias = a_.l2_bias > 0 ? a_.l2_bias : 0;
        const double difference = change[l] + a_.l2 * t * (wd[l] + 0.5 * t * dd[l]) +
                                  l2_bias * t * db * (b + 0.5 * t * db);
        const double rounding = 4 * epsilon() * std::fabs(double(a_.value[lane]));
        if (difference <= a_.armijo * t * a_.slope[lane] + rounding) {
          searching[l] = false;
        } else if (trial == a_.max_backtracks) {
          searching[l] = false;
          t_[l] = 0;
          a_.status[lane] = kLineSearchFailed;
        } else {
          t_[l] *= T(0.5);
          any = true;
        }
      }
    }
    for (int l = 0; l < width_; ++l) {
      if (!running_[l]) continue;
      a_.multiplier[first_ + l] = t_[l];
      a_.bias[first_ + l] = (fresh_[l] ? 0 : a_.bias[first_ + l]) + t_[l] * a_.direction_bias[first_ + l];
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
  // z + t m, before the bias step; once it is stored, read back
  V margins(int64_t i) const {
    if (stored_) return load(z_ + i * stride_);
    return margins_before(i) + t_ * load(s_.step_margins.data() + i * N);
  }

  // β = argmin ½ λ_b (b+β)² + Σ_i ℓ_i(z_i + β): Newton's method in one unknown, kept inside the
  // bracket that the signs of the derivative have shown. The sums at β = 0 are known already.
  void bias_step() {
    double shift[N] = {}, low[N], high[N];
    bool searching[N] = {};
    bool any = false;
    for (int l = 0; l < N; ++l) {
      low[l] = -INFINITY, high[l] = INFINITY;
      any |= searching[l] = l < width_ && running_[l] && a_.status[first_ + l] != kLineSearchFailed;
    }
    for (int trial = 0; any && trial < kMaxBiasSteps; ++trial) {
      if (trial > 0) {
        LaneSum<T> slopes, curvatures;
        for_rows(
            X_.n,
            [&](int64_t i) {
              V value, slope, curvature;
              const V z = margins(i);
              if (!stored_) store(z_ + i * stride_, z);
              evaluate(i, z + beta_, value, slope, curvature);
              slopes.add(slope);
              curvatures.add(curvature);
            },
            [&] { slopes.flush(), curvatures.flush(); });
        stored_ = true;
        for (int l = 0; l < width_; ++l) slope_sum_[l] = slopes[l], curvature_sum_[l] = curvatures[l];
      }
      any = false;
      for (int l = 0; l < width_; ++l) {
        if (!searching[l]) continue;
        const double b = a_.bias[first_ + l] + shift[l];
        const double g = slope_sum_[l] + a_.l2_bias * b;
        const double h = curvature_sum_[l] + a_.l2_bias;
        (g < 0 ? low : high)[l] = shift[l];
        if (!(std::fabs(g) > bias_tolerance(l))) {
          searching[l] = false;
          continue;
        }
        // At most 2, the width of the hinge, from where nothing is known.
        double next = shift[l] - (h * 2 > std::fabs(g) ? g / h : std::copysign(2.0, g));
        // A step that rounds to none ends the search: the middle of a bracket open at one end is infinite.
        const bool moves = T(next) != T(shift[l]);
        if (!(next > low[l] && next < high[l])) next = 0.5 * (low[l] + high[l]);
        searching[l] = moves && T(next) != T(shift[l]);
        if (searching[l]) shift[l] = next;
        any |= searching[l];
      }
      for (int l = 0; l < width_; ++l) beta_[l] = T(shift[l]);
    }
    for (int l = 0; l < width_; ++l) a_.bias[first_ + l] += beta_[l];
  }

  // A tenth of the tolerance changes nothing in the gradient's norm; while the gradient is large,
  // a twentieth of it is as good.
  double bias_tolerance(int l) const {
    const double last = fresh_[l] ? 0 : 0.05 * a_.gradient_norm[first_ + l];
    const double strict = 0.1 * a_.tolerance[first_ + l];
    return last > strict ? last : strict;
  }

  // z, the value, and the rows whose slope or curvature is not zero.
  void collect_active() {
    s_.rows.resize(X_.n);
    s_.slopes.resize(X_.n * N);
    s_.curvatures.resize(X_.n * N);
    rows_ = 0;
    IntVec<T> keep{};
    unsigned lanes = 0;
    for (int l = 0; l < width_; ++l)
      if (running_[l] && a_.status[first_ + l] != kLineSearchFailed) keep[l] = -1, lanes |= 1u << l;
    LaneSum<T> values, slopes, curvatures;
    for (int l = 0; l < N; ++l) s_.entries[l].clear();
    for_rows(
        X_.n,
        [&](int64_t i) {
          V value, slope, curvature;
          const V z = margins(i) + beta_;
          store(z_ + i * stride_, z);
          evaluate(i, z, value, slope, curvature);
          values.add(value);
          slopes.add(slope);
          curvatures.add(curvature);
          const unsigned mask = (nonzero_lanes(slope) | nonzero_lanes(curvature)) & lanes;
          if (!mask) return;
          s_.rows[rows_] = int32_t(i);
          store(s_.slopes.data() + rows_ * N, keep ? slope : V{});
          store(s_.curvatures.data() + rows_ * N, keep ? curvature : V{});
          ++rows_;
          for (unsigned rest = mask; rest; rest &= rest - 1) {
            const int l = __builtin_ctz(rest);
            s_.entries[l].push_back({int32_t(i), slope[l], curvature[l]});
          }
        },
        [&] { values.flush(), slopes.flush(), curvatures.flush(); });
    size_t entries = 0;
    for (int l = 0; l < width_; ++l) {
      loss_value_[l] = values[l];
      slope_sum_[l] = slopes[l];
      curvature_sum_[l] = curvatures[l];
      entries += s_.entries[l].size();
      if (running_[l]) a_.active[first_ + l] = int32_t(s_.entries[l].size());
    }
    together_ = entries > kShared * rows_;
  }

  // g = λ w + Xᵀ slope, lane by lane in s_.gradient
  void take_gradient() {
    s_.gradient.resize(N * padded_);
    s_.tile_out.resize(X_.d * N);
    if (together_) {
      T* tile = s_.tile_out.data();
      for (int64_t j = 0; j < X_.d; ++j) store(tile + j * N, a_.l2 * load(w_ + j * stride_));
      for (size_t u = 0; u < rows_; ++u)
        row_add_tile(X_, s_.rows[u], load(s_.slopes.data() + u * N), tile, N);
      to_lanes(T(1), tile, N, X_.d, s_.gradient.data(), padded_);
    } else {
      to_lanes(a_.l2, w_, stride_, X_.d, s_.gradient.data(), padded_);
    }
    for (int l = 0; l < width_; ++l) {
      const int64_t lane = first_ + l;
      if (!running_[l] || a_.status[lane] == kLineSearchFailed) continue;
      if (!together_)
        for (const Entry<T>& e : s_.entries[l]) row_add_lane(X_, e.row, e.slope, gradient(l), 1);
      const double b = a_.bias[lane];
      a_.value[lane] = T(loss_value_[l] + 0.5 * a_.l2 * weight_norm2_[l] + (a_.l2_bias > 0 ? 0.5 * a_.l2_bias * b * b : 0));
      double g_bias = 0;
      if (a_.l2_bias >= 0) g_bias = slope_sum_[l] + a_.l2_bias * b;
      gradient_bias_[l] = g_bias;
      a_.gradient_norm[lane] = T(std::sqrt(double(dot(gradient(l), gradient(l), padded_)) + g_bias * g_bias));
    }
  }

  void update_status() {
    for (int l = 0; l < width_; ++l) {
      if (!running_[l]) continue;
      const int64_t lane = first_ + l;
      int32_t& status = a_.status[lane];
      if (!fresh_[l]) ++a_.steps[lane];
      if (status == kLineSearchFailed) {
        running_[l] = false;
        continue;
      }
      if (!std::isfinite(a_.value[lane]) || !std::isfinite(a_.gradient_norm[lane])) {
        status = kNonFinite;
      } else if (a_.gradient_norm[lane] <= a_.tolerance[lane]) {
        // f − f* ≤ ‖∇f‖²/2λ settles it for most; for the others the decrement is worked out.
        const double norm = a_.gradient_norm[lane], gap = a_.decrement * std::fabs(double(a_.value[lane]));
        candidate_[l] = norm * norm > 2 * a_.l2 * gap;
        status = candidate_[l] ? kRunning : kConverged;
      } else {
        status = a_.steps[lane] >= a_.max_steps ? kMaxSteps : kRunning;
      }
      running_[l] = status == kRunning;
    }
  }

  // ½ gᵀH⁻¹g of a lane whose gradient is small enough: converged, or on with the direction.
  void settle(int l) {
    const int64_t lane = first_ + l;
    if (-0.5 * a_.slope[lane] <= a_.decrement * std::fabs(double(a_.value[lane]))) {
      a_.status[lane] = kConverged;
    } else if (a_.steps[lane] >= a_.max_steps) {
      a_.status[lane] = kMaxSteps;
    }
    if (a_.status[lane] == kRunning) return;
    running_[l] = false;
    std::memset(delta(l), 0, padded_ * sizeof(T));
    a_.direction_bias[lane] = a_.slope[lane] = 0;
  }

  T* gradient(int l) { return s_.gradient.data() + l * padded_; }
  T* delta(int l) { return s_.delta.data() + l * padded_; }
  T* residual(int l) { return s_.residual.data() + l * padded_; }
  T* search(int l) { return s_.search.data() + l * padded_; }
  T* image(int l) { return s_.image.data() + l * padded_; }
  T* diagonal(int l) { return s_.diagonal.data() + l * padded_; }

  // Conjugate gradients on S δ = −g + Xᵀ D 1 g_b / h, with the bias eliminated:
  //   S = λ I + Xᵀ (D − D 1 1ᵀ D / h) X,  h = λ_b + 1ᵀ D 1,  δ_b = −(g_b + 1ᵀ D X δ) / h
  void solve_direction() {
    for (auto* v : {&s_.delta, &s_.residual, &s_.search, &s_.image}) v->resize(N * padded_);
    if (a_.preconditioner > 0) s_.diagonal.resize(N * padded_);
    int group[N], count = 0;
    for (int l = 0; l < width_; ++l)
      if (running_[l]) group[count++] = l;
    if (together_) {
      if (count > 0) solve(group, count, true);
    } else {
      for (int g = 0; g < count; ++g) solve(group + g, 1, false);
    }
    for (int l = 0; l < N; ++l) {
      const bool moves = l < width_ && running_[l];
      if (!moves) std::memset(delta(l), 0, padded_ * sizeof(T));
      if (l >= width_) continue;
      const int64_t lane = first_ + l;
      double db = 0;
      if (moves && a_.l2_bias >= 0 && bias_curvature(l) > 0)
        db = -(gradient_bias_[l] + curved_sum_[l]) / bias_curvature(l);
      a_.direction_bias[lane] = T(db);
      a_.slope[lane] = moves ? T(double(dot(gradient(l), delta(l), padded_)) + gradient_bias_[l] * db) : T(0);
      if (candidate_[l]) settle(l);
    }
    to_tile(s_.delta.data(), padded_, X_.d, direction_, stride_);
  }

  double bias_curvature(int l) const { return curvature_sum_[l] + a_.l2_bias; }

  // One function for both forms, never inlined: two compilations could round differently.
  __attribute__((noinline)) void solve(const int* group, int count, bool together) {
    double rz[N], rz_first[N];
    bool open[N] = {};
    bool any = false;
    for (int g = 0; g < count; ++g) {
      any = open[group[g]] = true;
      curved_sum_[group[g]] = 0;
    }
    if (a_.preconditioner > 0) take_diagonal(group, count);
    for (int g = 0; g < count; ++g) {
      const int l = group[g];
      T *r = residual(l), *p = search(l), *v = delta(l);
      const T* gr = gradient(l);
      const T* inverse = a_.preconditioner > 0 ? diagonal(l) : nullptr;
      for (int64_t j = 0; j < padded_; j += N) store(r + j, -load(gr + j));
      // What the bias step left of g_b: nothing beside g where features are small, more than g
      // where they are large.
      const bool has_bias = a_.l2_bias >= 0 && bias_curvature(l) > 0;
      const T share = has_bias ? T(gradient_bias_[l] / bias_curvature(l)) : T(0);
      if (share != 0)
        for (const Entry<T>& e : s_.entries[l])
          if (e.curvature != 0) row_add_lane(X_, e.row, e.curvature * share, r, 1);
      V sum{};
      for (int64_t j = 0; j < padded_; j += N) {
        const V rj = load(r + j);
        const V zj = inverse ? rj * load(inverse + j) : rj;
        store(p + j, zj);
        store(v + j, V{});
        sum += rj * zj;
      }
      rz[l] = rz_first[l] = horizontal(sum);
    }
    for (int iteration = 0; any && iteration < a_.max_cg; ++iteration) {
      if (together) {
        product_of_tile(group, count);
      } else {
        product_of_lane(group[0]);
      }
      any = false;
      for (int g = 0; g < count; ++g) {
        const int l = group[g];
        if (!open[l]) continue;
        ++a_.cg_steps[first_ + l];
        T *r = residual(l), *p = search(l), *v = delta(l);
        const T* hp = image(l);
        const T* inverse = a_.preconditioner > 0 ? diagonal(l) : nullptr;
        const double curvature = dot(p, hp, padded_);
        if (!(curvature > 0)) {  // a product that underflowed: what is solved so far stands
          open[l] = false;
          continue;
        }
        const T alpha = T(rz[l] / curvature);
        curved_sum_[l] += alpha * search_sum_[l];
        V sum{};
        for (int64_t j = 0; j < padded_; j += N) {
          store(v + j, load(v + j) + alpha * load(p + j));
          const V rj = load(r + j) - alpha * load(hp + j);
          store(r + j, rj);
          sum += inverse ? rj * rj * load(inverse + j) : rj * rj;
        }
        const double next = horizontal(sum);
        if (next <= double(a_.cg_tolerance) * a_.cg_tolerance * rz_first[l]) {
          open[l] = false;
          continue;
        }
        const T beta = T(next / rz[l]);
        rz[l] = next;
        for (int64_t j = 0; j < padded_; j += N) {
          const V zj = inverse ? load(r + j) * load(inverse + j) : load(r + j);
          store(p + j, zj + beta * load(p + j));
        }
        any = true;
      }
    }
  }

  // image = S search, search_sum = 1ᵀ D X search
  void product_of_lane(int l) {
    const std::vector<Entry<T>>& entries = s_.entries[l];
    s_.products.resize(entries.size());
    const T* p = search(l);
    T* out = image(l);
    T sum = 0;
    for (size_t e = 0; e < entries.size(); ++e) {
      s_.products[e] = row_dot_lane(X_, entries[e].row, p, 1);
      sum += entries[e].curvature * s_.products[e];
    }
    search_sum_[l] = sum;
    const T mean = eliminated(l);
    for (int64_t j = 0; j < padded_; j += N) store(out + j, a_.l2 * load(p + j));
    for (size_t e = 0; e < entries.size(); ++e)
      row_add_lane(X_, entries[e].row, entries[e].curvature * (s_.products[e] - mean), out, 1);
  }

  // The same for the whole tile.
  void product_of_tile(const int* group, int count) {
    s_.tile_in.resize(X_.d * N);
    T* in = s_.tile_in.data();
    T* out = s_.tile_out.data();
    to_tile(s_.search.data(), padded_, X_.d, in, N);
    s_.products.resize(rows_ * N);
    T* products = s_.products.data();
    const T* curvatures = s_.curvatures.data();
    V sum{};
    for (size_t u = 0; u < rows_; ++u) {
      const V product = row_dot_tile(X_, s_.rows[u], in, N);
      store(products + u * N, product);
      sum += load(curvatures + u * N) * product;
    }
    V mean{};
    for (int g = 0; g < count; ++g) {
      const int l = group[g];
      search_sum_[l] = sum[l];
      mean[l] = eliminated(l);
    }
    for (int64_t j = 0; j < X_.d; ++j) store(out + j * N, a_.l2 * load(in + j * N));
    for (size_t u = 0; u < rows_; ++u)
      row_add_tile(X_, s_.rows[u], load(curvatures + u * N) * (load(products + u * N) - mean), out, N);
    to_lanes(T(1), out, N, X_.d, s_.image.data(), padded_);
  }

  // s of D(X p − s): what the eliminated bias takes away
  T eliminated(int l) const {
    if (a_.l2_bias < 0 || !(bias_curvature(l) > 0)) return 0;
    return T(search_sum_[l] / bias_curvature(l));
  }

  // 1 / ((1−α) + α (λ + Σ_i D_i x_i²)), the preconditioner of LIBLINEAR
  void take_diagonal(const int* group, int count) {
    for (int g = 0; g < count; ++g) {
      const int l = group[g];
      T* diag = diagonal(l);
      const T alpha = a_.preconditioner;
      for (int64_t j = 0; j < padded_; j += N) store(diag + j, broadcast<T>(a_.l2));
      for (const Entry<T>& e : s_.entries[l])
        for (int64_t k = X_.offset[e.row]; k < X_.offset[e.row + 1]; ++k)
          diag[X_.column[k]] += e.curvature * (X_.value[k] * X_.value[k]);
      for (int64_t j = 0; j < padded_; j += N)
        store(diag + j, T(1) / ((1 - alpha) + alpha * load(diag + j)));
    }
  }

  static T horizontal(V v) {
    T sum = 0;
    for (int l = 0; l < N; ++l) sum += v[l];
    return sum;
  }
  static double epsilon() { return sizeof(T) == 4 ? 0x1p-24 : 0x1p-53; }

  static constexpr int kMaxBiasSteps = 50;

  const NewtonArgs<T>& a_;
  const Csr<T>& X_;
  const int64_t first_;
  const int width_;
  const Loss loss_;
  Scratch<T>& s_;
  const int64_t padded_;
  bool fresh_[N] = {}, running_[N] = {}, candidate_[N] = {};
  int64_t stride_ = 0;
  T *w_ = nullptr, *z_ = nullptr, *direction_ = nullptr;
  const int8_t* y_ = nullptr;
  IntVec<T> kept_{};  // lanes that have weights from a step before
  V constant_weight_{}, t_{}, beta_{};
  bool stored_ = false;    // z holds the margins after the move
  bool together_ = false;  // products are made for the whole tile
  size_t rows_ = 0;        // with an active lane
  double weight_norm2_[N] = {}, loss_value_[N] = {}, slope_sum_[N] = {}, curvature_sum_[N] = {}, gradient_bias_[N] = {};
  double curved_sum_[N] = {}, search_sum_[N] = {};
};

template <class T, class Loss>
void step_tiles(const NewtonArgs<T>& args, int64_t first, int64_t last) {
  ScratchLoan<T> scratch;
  for (int64_t t = first; t < last; t += kLanes<T>)
    NewtonTile<T, Loss>(args, t, last - t < kLanes<T> ? last - t : kLanes<T>, *scratch).step();
}

}  // namespace

template <class T>
void newton_step(const NewtonArgs<T>& args, int64_t first, int64_t last) {
  switch (args.loss) {
    case kSquaredHinge: return step_tiles<T, OfMargin<T, SquaredHinge<T>>>(args, first, last);
    case kHuberHinge: return step_tiles<T, OfMargin<T, HuberHinge<T>>>(args, first, last);
    case kPoisson: return step_tiles<T, Poisson<T>>(args, first, last);
    default: return step_tiles<T, OfMargin<T, Logistic<T>>>(args, first, last);
  }
}

template void newton_step<float>(const NewtonArgs<float>&, int64_t, int64_t);
template void newton_step<double>(const NewtonArgs<double>&, int64_t, int64_t);

}  // namespace xmcjax::XMCJAX_ISA
