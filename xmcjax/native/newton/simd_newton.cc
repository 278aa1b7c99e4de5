// One step of the truncated Newton method of solvers/newton_cg.py for a tile of lanes, in one
// call: minimise over the step and the bias together, take the gradient, solve for the next
// direction. The jnp step there is the reference and its test compares the two.
//
// The full product X·direction is made for all lanes of two tiles at once, in one pass over X. Everything
// else is made lane by lane over the few rows that matter to a lane, or, where these are many, over all
// rows. Which of the two depends on the lane alone; over all rows the whole tile is worked on, or a lane alone
// where few are left, which adds the same numbers in the same order (all_rows.h). So the bits of a lane do not
// depend on its neighbours.
//
// lane_tile.h has the arrays of a tile and the product, tile_directions.h how a step ends.
#include <algorithm>

#include "newton/margin_losses.h"
#include "newton/tile_directions.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

// What does not depend on the loss, which is compiled once for all of them.
template <class T>
class NewtonTile : protected TileDirections<T> {
 protected:
  using Base = TileDirections<T>;
  using Base::a_, Base::any_broad_, Base::beta_, Base::broad_, Base::constant_weight_, Base::direction_,
      Base::first_, Base::fresh_, Base::highest_, Base::kAhead, Base::longest_, Base::lowest_, Base::N,
      Base::own_, Base::padded_, Base::plane_, Base::running_, Base::s_, Base::stride_, Base::t_, Base::wide_,
      Base::width_, Base::X_, Base::y_, Base::z_, Base::begin_search, Base::close_lists, Base::close_step,
      Base::close_tile, Base::for_blocks, Base::gather, Base::gradient, Base::lanes_of, Base::margins,
      Base::margins_after, Base::most_active, Base::move, Base::multiply, Base::multiply_two,
      Base::open_lists, Base::open_tile, Base::prefetch, Base::running_lanes, Base::solve_broad,
      Base::solve_lane, Base::solved, Base::take_gradient;

 public:
  // `gathers`: whether the loss vanishes beyond the margin, so that the rows near it are gathered.
  NewtonTile(const NewtonArgs<T>& args, int64_t first, int64_t width, Scratch<T>& scratch,
             TileScratch<T>& own, bool gathers)
      : Base(args, first, width, scratch, own), gathers_(gathers) {
    for (int l = 0; l < width_; ++l) wide_[l] = !gathers;
  }
  virtual ~NewtonTile() = default;

  // A step of two tiles side by side, the second perhaps without lanes.
  static void step(NewtonTile& one, NewtonTile& other) {
    const bool both = one.width_ == N && other.width_ == N && one.running_lanes() && other.running_lanes();
    for (NewtonTile* tile : {&one, &other})
      if (tile->running_lanes()) tile->open();
    if (both) {
      multiply_two(one, other);
    } else {
      if (one.running_lanes()) one.multiply();
      if (other.running_lanes()) other.multiply();
    }
    for (NewtonTile* tile : {&one, &other})
      if (tile->opened_) tile->take_step();
    solve_broad(one, other);
    for (NewtonTile* tile : {&one, &other})
      if (tile->opened_) tile->close();
  }

 protected:
  using PlaneTotals = double[kPlaneSums][N];  // in the order of PlaneSums

  // The sums at a point of the search: near_sums(), of lane l over the rows near it; alone_sums(), of the lane that is
  // worked on alone since begin_alone().
  virtual PlaneSums near_sums(int l, T t, T beta) const = 0;
  virtual void begin_alone(int l) = 0;
  virtual PlaneSums alone_sums(T t, T beta) const = 0;
  // For the register of lanes from `part` on and some rows: take_before() keeps the losses that all passes compare
  // with, add_sums() adds the sums to the totals.
  virtual void take_before(int part, int64_t first, int64_t last) = 0;
  virtual void add_sums(int part, int64_t first, int64_t last, PlaneTotals& totals) const = 0;
  // Lists the active rows of a lane among those near, with its value and sums.
  virtual void list_active(int l) = 0;
  // The same for the lanes `wide`, which looked at all rows or have many active ones. Those with many are broad:
  // their products are made together, over the rows that are active in any of them.
  virtual void collect_wide(unsigned wide) = 0;

 private:
  void open() {
    opened_ = true;
    open_tile();
    constant_weight_ = lanes_of(a_.weight, 0);
    own_.step_margins.resize(X_.n * N);
    begin_search();
    open_lists(gathers_ ? running_lanes() : 0);
  }

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

  // The plane search of every lane.
  void search() {
    while (close_lists(), true) {
      unsigned again = 0;
      for (int l = 0; l < width_; ++l)
        if (running_[l] && !wide_[l] && !search_near(l)) again |= 1u << l;
      if (!again) break;
      open_lists(again);
      for_blocks([&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) prefetch(i + kAhead);
        gather(first, last);
      });
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

  // False where the search has left the box in which the rows were gathered.
  bool search_near(int l) {
    PlaneSearch<T>& plane = plane_[l];
    while (plane.searching()) {
      if (plane.t() > longest_[l] || plane.beta() > highest_[l] || plane.beta() < lowest_[l]) return false;
      plane.advance(near_sums(l, plane.t(), plane.beta()));
    }
    return true;
  }

  // The lanes that look at all rows, together or, where they are few, one by one.
  void search_wide() {
    constexpr unsigned kRegisterLanes = ~(~0u << kWide<T>);
    // A pass over the tile costs about as much as `few` passes over single lanes.
    const int few = gathers_ ? 1 : N / 4;
    const auto searches = [&](int l) { return running_[l] && wide_[l] && plane_[l].searching(); };
    for (bool first_pass = true;; first_pass = false) {
      unsigned lanes = 0;
      for (int l = 0; l < width_; ++l) {
        t_[l] = plane_[l].t(), beta_[l] = plane_[l].beta();
        lanes |= unsigned(searches(l)) << l;
      }
      if (__builtin_popcount(lanes) <= few) {
        for (int l = 0; l < width_; ++l)
          if (lanes >> l & 1) search_alone(l);
        return;
      }
      const bool keeps = first_pass && !gathers_;
      if (keeps) s_.before.resize(X_.n * N);
      PlaneTotals totals{};
      const Poll poll;
      for (int64_t first = 0; first < X_.n; first += kRowsOfSum) {
        const int64_t last = first + kRowsOfSum < X_.n ? first + kRowsOfSum : X_.n;
        for (int part = 0; part < N; part += kWide<T>) {
          if (!(lanes >> part & kRegisterLanes)) continue;
          if (keeps) take_before(part, first, last);
          add_sums(part, first, last, totals);
        }
        poll(kPasses * kRowsOfSum);
      }
      for (int l = 0; l < width_; ++l)
        if (lanes >> l & 1)
          plane_[l].advance(
              {totals[0][l], totals[1][l], totals[2][l], totals[3][l], totals[4][l], totals[5][l]});
    }
  }

  void search_alone(int l) {
    const Broadcast<T>&c = a_.weight, &o = a_.shift;
    const int64_t number = first_ + l;
    s_.lone.take(X_.n, o.data != nullptr, [&](int64_t i, T& z, T& m, T& y, T& weight, T& shift) {
      z = fresh_[l] ? T(0) : z_[i * stride_ + l];
      m = margins(i)[l];
      y = T(y_[i * stride_ + l]);
      weight = c.data[i * c.row_stride + number * c.lane_stride];
      if (o.data) shift = o.data[i * o.row_stride + number * o.lane_stride];
    });
    begin_alone(l);
    while (plane_[l].searching()) plane_[l].advance(alone_sums(plane_[l].t(), plane_[l].beta()));
  }

  // z += t m + β, the value, and the rows whose slope or curvature is not zero.
  void collect_active() {
    unsigned wide = 0;
    for (int l = 0; l < width_; ++l) {
      std::vector<Entry<T>>& entries = s_.entries[l];
      entries.clear();
      if (!running_[l]) continue;
      if (!wide_[l]) {
        list_active(l);
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

  const bool gathers_;
  bool opened_ = false;
};

template <class T, class Loss>
class TileOfLoss final : public NewtonTile<T> {
  using Base = NewtonTile<T>;
  using Base::a_, Base::any_broad_, Base::beta_, Base::broad_, Base::constant_weight_, Base::curvature_sum_,
      Base::first_, Base::fresh_, Base::kept_, Base::loss_value_, Base::N, Base::own_, Base::s_,
      Base::slope_sum_, Base::stride_, Base::t_, Base::width_, Base::X_, Base::y_, Base::z_, Base::lanes_of,
      Base::margins, Base::margins_after, Base::most_active;
  using typename Base::PlaneTotals;
  using V = Vec<T>;

 public:
  TileOfLoss(const NewtonArgs<T>& args, int64_t first, int64_t width, Scratch<T>& scratch,
             TileScratch<T>& own)
      : Base(args, first, width, scratch, own, Loss::kVanishes), loss_(args.loss_parameter) {}

 private:
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

  PlaneSums near_sums(int l, T t, T beta) const override {
    return own_.near[l].sums(loss_, t, beta, fresh_[l]);
  }
  void begin_alone(int l) override { s_.lone.begin(loss_, fresh_[l]); }
  PlaneSums alone_sums(T t, T beta) const override { return s_.lone.sums(loss_, t, beta); }

  static Wide<T> loaded_register(const T* p) {
    if constexpr (kWide<T> == N) return loaded(p);
    else return load_wide(p);
  }

  // z, c and o of a row for a register of lanes.
  struct Row {
    Wide<T> z, c, shift;
  };
  Row row_of(int part, int64_t i) const {
    Row row{select(register_of<T>(kept_, part), loaded_register(z_ + i * stride_ + part), Wide<T>{}), {}, {}};
    row.c = register_of<T>(a_.weight.row_stride ? lanes_of(a_.weight, i) : constant_weight_, part);
    if (a_.shift.data) row.shift = register_of<T>(lanes_of(a_.shift, i), part);
    return row;
  }

  // The losses of a row at (0, 0), for a register of lanes; none in a fresh one.
  Wide<T> before(int part, const Row& row, Wide<T> y) const {
    const Wide<T> loss = loss_before(loss_, a_.shift.data ? row.z + row.shift : row.z, y, row.c);
    return select(register_of<T>(kept_, part), loss, Wide<T>{});
  }
  // Keeps these losses of some rows for all passes, where working them out costs more than reading them.
  void take_before(int part, int64_t first, int64_t last) override {
    for (int64_t i = first; i < last; ++i)
      store_wide(&s_.before[i * N + part],
                 before(part, row_of(part, i), load_signs_wide<T>(y_ + i * stride_ + part)));
  }

  // The six sums stay in registers.
  void add_sums(int part, int64_t first, int64_t last, PlaneTotals& totals) const override {
    using W = Wide<T>;
    const W t = register_of<T>(t_, part), beta = register_of<T>(beta_, part);
    W sums[kPlaneSums] = {};
    for (int64_t i = first; i < last; ++i) {
      const Row row = row_of(part, i);
      const W y = load_signs_wide<T>(y_ + i * stride_ + part), m = load_wide(margins(i) + part);
      W at = row.z + t * m + beta, terms[kPlaneSums];
      if (a_.shift.data) at += row.shift;
      W from;
      if constexpr (Loss::kVanishes) from = before(part, row, y);
      else from = load_wide(&s_.before[i * N + part]);
      plane_terms(loss_, at, m, y, row.c, from, terms);
      for (int k = 0; k < kPlaneSums; ++k) sums[k] += terms[k];
    }
    for (int k = 0; k < kPlaneSums; ++k) {
      const LanesOf<W> lanes(sums[k]);
      for (int l = 0; l < kWide<T>; ++l) totals[k][part + l] += lanes[l];
    }
  }

  void list_active(int l) override {
    own_.near[l].active(loss_, t_[l], beta_[l], s_.entries[l], loss_value_[l], slope_sum_[l],
                        curvature_sum_[l]);
  }

  void collect_wide(unsigned wide) override {
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
          if (!(mask & listing)) return;
          const LanesOf<V> first(slope), second(curvature);
          for (unsigned rest = mask & listing; rest; rest &= rest - 1) {
            const int l = __builtin_ctz(rest);
            s_.entries[l].push_back({int32_t(i), first[l], second[l]});
            if (int64_t(s_.entries[l].size()) > most_active()) listing &= ~(1u << l);
          }
        },
        [&] { values.flush(), slopes.flush(), curvatures.flush(); });
    const LanesOf<IntVec<T>> count(counts);
    for (int l = 0; l < width_; ++l) {
      if (!(wide >> l & 1)) continue;
      loss_value_[l] = values[l];
      slope_sum_[l] = slopes[l];
      curvature_sum_[l] = curvatures[l];
      a_.active[first_ + l] = int32_t(count[l]);
      if (count[l] > most_active()) broad_[l] = -1, any_broad_ = true;
    }
  }

  const Loss loss_;
};

}  // namespace

template <class T>
void newton_step(const NewtonArgs<T>& args) {
  ScratchLoan<T> loan;
  Scratch<T>& scratch = *loan;
  constexpr int64_t N = kLanes<T>;
  for (int64_t t = 0; t < args.lanes; t += 2 * N) {
    const int64_t lanes = std::min(args.lanes - t, 2 * N), width = std::min(lanes, N);
    with_loss<T>(args.loss, [&](auto loss) {
      using Tile = TileOfLoss<T, typename decltype(loss)::type>;
      Tile one(args, t, width, scratch, scratch.tile[0]);
      Tile other(args, t + N, lanes - width, scratch, scratch.tile[1]);
      NewtonTile<T>::step(one, other);
    });
  }
}

template void newton_step<float>(const NewtonArgs<float>&);
template void newton_step<double>(const NewtonArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
