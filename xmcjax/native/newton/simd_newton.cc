// One step of the truncated Newton method of solvers/newton_cg.py for a tile of lanes, in one
// call: minimise over the step and the bias together, take the gradient, solve for the next
// direction. The jnp step there is the reference and its test compares the two.
//
// The full product X·direction is made for all lanes of two tiles at once, in one pass over X. Everything
// else is made lane by lane over the few rows that matter to a lane, or, where these are many, over all
// rows for the whole tile. Which of the two depends on the lane alone, so that its bits do not depend on
// its neighbours.
//
// lane_tile.h has the arrays of a tile and the product, tile_directions.h how a step ends.
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
      Base::first_, Base::fresh_, Base::kAhead, Base::N, Base::own_, Base::padded_, Base::plane_,
      Base::running_, Base::s_, Base::stride_, Base::t_, Base::wide_, Base::width_, Base::X_, Base::z_,
      Base::begin_search, Base::close_lists, Base::close_step, Base::close_tile, Base::for_blocks,
      Base::gather, Base::gradient, Base::lanes_of, Base::margins_after, Base::most_active, Base::move,
      Base::multiply, Base::multiply_two, Base::open_lists, Base::open_tile, Base::prefetch,
      Base::running_lanes, Base::solve_broad, Base::solve_lane, Base::solved, Base::take_gradient;

 public:
  // `gathers`: whether the loss vanishes beyond the margin, so that the rows near it are gathered.
  NewtonTile(const NewtonArgs<T>& args, int64_t first, int64_t width, Scratch<T>& scratch,
             TileScratch<T>& own, bool gathers)
      : Base(args, first, width, scratch, own), gathers_(gathers) {
    for (int l = 0; l < width_; ++l) wide_[l] = !gathers;
  }
  virtual ~NewtonTile() = default;

  // Of two tiles side by side, the second perhaps without lanes.
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
  // False where the search has left the box in which the rows were gathered.
  virtual bool search_near(int l) = 0;
  // The lanes that look at all rows, together.
  virtual void search_wide() = 0;
  // The active rows of a lane among those near, with its value and sums.
  virtual void list_active(int l) = 0;
  // The same for the lanes that looked at all rows, or that have many active ones. Those with many are broad:
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
      Base::first_, Base::fresh_, Base::highest_, Base::kept_, Base::longest_, Base::loss_value_,
      Base::lowest_, Base::N, Base::own_, Base::plane_, Base::running_, Base::s_, Base::slope_sum_,
      Base::stride_, Base::t_, Base::wide_, Base::width_, Base::X_, Base::y_, Base::z_, Base::lanes_of,
      Base::margins, Base::margins_after, Base::most_active;
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

  bool search_near(int l) override {
    PlaneSearch<T>& plane = plane_[l];
    while (plane.searching()) {
      if (plane.t() > longest_[l] || plane.beta() > highest_[l] || plane.beta() < lowest_[l]) return false;
      plane.advance(own_.near[l].sums(loss_, plane.t(), plane.beta(), fresh_[l]));
    }
    return true;
  }

  void search_wide() override {
    constexpr unsigned kRegisterLanes = ~(~0u << kWide<T>);
    const auto searches = [&](int l) { return running_[l] && wide_[l] && plane_[l].searching(); };
    while (true) {
      unsigned lanes = 0;
      for (int l = 0; l < width_; ++l) {
        t_[l] = plane_[l].t(), beta_[l] = plane_[l].beta();
        lanes |= unsigned(searches(l)) << l;
      }
      if (!lanes) return;
      PlaneTotals totals{};
      const Poll poll;
      for (int64_t first = 0; first < X_.n; first += 256) {
        const int64_t last = first + 256 < X_.n ? first + 256 : X_.n;
        for (int part = 0; part < N; part += kWide<T>)
          if (lanes >> part & kRegisterLanes) add_sums(part, first, last, totals);
        poll(kPasses * 256);
      }
      for (int l = 0; l < width_; ++l)
        if (lanes >> l & 1)
          plane_[l].advance(
              {totals[0][l], totals[1][l], totals[2][l], totals[3][l], totals[4][l], totals[5][l]});
    }
  }

  static Wide<T> loaded_register(const T* p) {
    if constexpr (kWide<T> == N) return loaded(p);
    else return load_wide(p);
  }

  using PlaneTotals = double[6][N];  // in the order of PlaneSums
  // Adds the sums over some rows for a register of lanes, whose six sums stay in registers.
  void add_sums(int part, int64_t first, int64_t last, PlaneTotals& totals) const {
    using W = Wide<T>;
    const W t = register_of<T>(t_, part), beta = register_of<T>(beta_, part);
    const auto kept = register_of<T>(kept_, part);
    W c = register_of<T>(constant_weight_, part), shift{};
    W change{}, slope{}, slope_m{}, curvature{}, curvature_m{}, curvature_mm{};
    for (int64_t i = first; i < last; ++i) {
      const W y = load_signs_wide<T>(y_ + i * stride_ + part), m = load_wide(margins(i) + part);
      const W z = select(kept, loaded_register(z_ + i * stride_ + part), W{});
      if (a_.weight.row_stride) c = register_of<T>(lanes_of(a_.weight, i), part);
      if (a_.shift.data) shift = register_of<T>(lanes_of(a_.shift, i), part);
      W before, after, one, two;
      loss_(a_.shift.data ? z + shift : z, y, before, one, two);
      W at = z + t * m + beta;
      if (a_.shift.data) at += shift;
      loss_(at, y, after, one, two);
      before *= c, after *= c, one *= c, two *= c;
      change += select(kept, after - before, after);
      slope += one;
      slope_m += one * m;
      curvature += two;
      curvature_m += two * m;
      curvature_mm += two * m * m;
    }
    int k = 0;
    for (const W& sum : {change, slope, slope_m, curvature, curvature_m, curvature_mm}) {
      const LanesOf<W> lanes(sum);
      for (int l = 0; l < kWide<T>; ++l) totals[k][part + l] += lanes[l];
      ++k;
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

template <class T, class Loss>
void step_tiles(const NewtonArgs<T>& args) {
  ScratchLoan<T> loan;
  Scratch<T>& scratch = *loan;
  constexpr int64_t N = kLanes<T>;
  for (int64_t t = 0; t < args.lanes; t += 2 * N) {
    const int64_t lanes = args.lanes - t;
    TileOfLoss<T, Loss> one(args, t, lanes < N ? lanes : N, scratch, scratch.tile[0]);
    TileOfLoss<T, Loss> other(args, t + N,
                              lanes < N       ? 0
                              : lanes < 2 * N ? lanes - N
                                              : N,
                              scratch, scratch.tile[1]);
    NewtonTile<T>::step(one, other);
  }
}

}  // namespace

template <class T>
void newton_step(const NewtonArgs<T>& args) {
  with_loss<T>(args.loss, [&](auto loss) { step_tiles<T, typename decltype(loss)::type>(args); });
}

template void newton_step<float>(const NewtonArgs<float>&);
template void newton_step<double>(const NewtonArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
