// Weston-Watkins and Crammer-Singer by dual ascent over instances, each with its dual variables at
// once: a block of α_ic for one i is a projection onto a box or simplex with a bias term (Keerthi et
// al. 2008; projection_math.h).
//
// Of the m - 1 variables of an instance few end above zero. A pass over everything at fixed weights,
// panel by panel, gives each instance the list of the classes that matter to it: α_ic > 0, or a gain
// close to where it would begin to grow. Sweeps between such passes visit only the classes on the lists.
// So a pass over everything costs one product X W, and knows the violation and the gap exactly, and a
// sweep touches the weights of a few classes.
//
// Threads play bundles of classes against each other by the schedule of the paper (Algorithm 5, with bundles in the
// place of classes): a match of two bundles visits the instances of both, those only that have classes of the other
// on their lists (bundle_plan.h), so that matches of a round touch different weights. Places of several processes
// have some of the rows each, and move the weights together (solvers/multiclass_dual/_row_places.py).
#include <algorithm>
#include <limits>
#include <vector>

#include "dual/bundle_plan.h"
#include "dual/class_lists.h"
#include "dual/driver.h"
#include "dual/fetching.h"
#include "dual/instance_sets.h"
#include "dual/panels.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

// kFirst: classes that an instance begins with. kSome, kMost: classes that one pass may add, kSome as long as a
// violation exceeds kFar, because early weights may suggest classes that do not matter later. As many as stand at C may
// always join: where C is small most variables end there, and classes on the list cannot take the place of others.
constexpr int kFirst = 16, kSome = 32, kMost = 256;
constexpr double kFar = 0.1;
// Instances that it takes to keep threads busy.
constexpr int64_t kWorth = 1000;
// An instance with more than kTogether variables inside their bounds has many; kMany: see matched().
constexpr int64_t kTogether = 6;
constexpr double kMany = 0.4;

template <class T>
class PairAscent final : public Driver<T, RowAscent> {
  using Base = Driver<T, RowAscent>;
  using Base::active_, Base::C_, Base::form_, Base::least, Base::m_, Base::random_, Base::rows_, Base::share,
      Base::threads_, Base::X_, Base::y_;
  static constexpr int N = kLanes<T>;
  using Entry = ListEntry<T>;
  using Stretch = ListStretch<T>;
  using Instance = ListedInstance<T>;
  using Candidates = ListCandidates<T>;
  using Scratch = ListScratch<T>;

 public:
  explicit PairAscent(const MulticlassNewArgs<T>& args) : Base(args), W_(X_.d, m_, args.shared), at_(X_.n) {
    if (args.rows) has_.assign(args.rows, args.rows + m_), moved_.assign(args.moved, args.moved + m_);
    for (int64_t i = 0; i < X_.n; ++i) at_[i].norm2 = this->norm2_[i], at_[i].y = args.y[i];
    std::vector<int64_t> class_first(m_ + 1, 0);
    for (const int32_t i : rows_) ++class_first[at_[i].y + 1];
    for (int64_t c = 0; c < m_; ++c) class_first[c + 1] += class_first[c];
    // One thread is enough for the variables of Crammer-Singer, which are bound together by their sum.
    if (!form_.simplex()) bundles_ = Bundles(class_first, N, threads_);
    plan_ = BundlePlan(bundles_.count());
    scratch_.assign(std::max<int64_t>(plan_.matches(), 1), Scratch(m_ + N));
  }

  Assessment assess(double tolerance) override {
    if (fresh_) return begin();
    const int64_t rows = int64_t(rows_.size());
    Assessment all = this->summed(parts_of(rows), [&](int64_t first, int64_t last, Assessment* found) {
      refresh(rows_.data() + first * kPart, rows_.data() + std::min(last * kPart, rows), {0, m_});
      for (; first < last; ++first)
        found[first] = judge(rows_.data() + first * kPart, rows_.data() + std::min((first + 1) * kPart, rows),
                             {0, m_}, least(tolerance));
    });
    this->wake([&](int32_t i) { return at_[i].idle; });
    cut_.clear();
    planned_ = false;
    Base::add(rows_of_zeros(), all);
    worst_ = all.violation;
    return all;
  }

  Sweep sweep(double tolerance, bool shrink) override {
    Sweep done{0, share()};
    const T enough = least(tolerance);
    if (!matched()) {
      random_.shuffle(active_);
      const Poll poll;
      for (size_t k = 0; k < active_.size(); ++k) {
        fetch(k, active_.size(), [&](size_t v) { return active_[v]; });
        poll(work(active_[k]));
        done.violation = std::max(done.violation, double(visit(active_[k], enough, scratch_[0])));
      }
    } else {
      const int64_t matches = plan_.matches();
      const uint64_t seed = random_.next();
      std::vector<double> worst(matches, 0);
      std::vector<int64_t> visited(matches, 0);
      side_by_side(std::min(threads_, matches), [&](int64_t t, int64_t count, Meeting& meeting) {
        for (int64_t r = 0; r < plan_.rounds(); ++r, meeting.wait())
          for (int64_t j = t; j < matches; j += count) {
            const Classes a = bundles_.classes(plan_.first(r, j)), b = bundles_.classes(plan_.second(r, j));
            std::vector<PlannedVisit>& visits = plan_.visits(r, j);
            if (shrink) drop_idle(visits);
            Random(seed + uint64_t(r * matches + j)).shuffle(visits);
            worst[j] = std::max(worst[j], play(a, b, visits, enough, scratch_[j]));
            visited[j] += int64_t(visits.size());
          }
      });
      int64_t all = 0;
      for (int64_t j = 0; j < matches; ++j)
        all += visited[j], done.violation = std::max(done.violation, worst[j]);
      // an instance in several matches counts once
      done.visited = planned_share_ * double(all) / double(std::max<int64_t>(plan_.size(), 1));
    }
    settle(shrink);
    return done;
  }

  double part(int64_t number, int64_t parts, double tolerance, double caution) override {
    if (number == 0) random_.shuffle(active_), cut_.clear();
    if (int64_t(cut_.size()) != parts + 1) cut(parts);
    const T enough = least(tolerance);
    T worst = 0;
    Scratch& scratch = scratch_[0];
    moves_.clear();
    scratch.moves = &moves_, scratch.caution = T(caution);
    const Poll poll;
    for (int64_t k = cut_[number], last = cut_[number + 1]; k < last; ++k) {
      fetch(size_t(k), size_t(last), [&](size_t v) { return active_[v]; });
      poll(work(active_[k]));
      worst = std::max(worst, visit(active_[k], enough, scratch));
    }
    scratch.moves = nullptr, scratch.caution = 1;
    return double(worst);
  }

  double settle(bool shrink) override {
    size_t kept = 0;
    for (const int32_t i : active_) {
      Instance& at = at_[i];
      at.idle = at.moved || !shrink ? 0 : at.idle + 1;
      at.moved = 0;
      if (at.idle < kIdle) active_[kept++] = i;
    }
    active_.resize(kept);
    cut_.clear();
    return share();
  }

  int64_t moves() const override { return int64_t(moves_.delta.size()); }
  void get_moves(int64_t first, int64_t count, int32_t* row, int32_t* c, void* delta) const override {
    moves_.get(first, count, row, c, static_cast<T*>(delta));
  }
  void follow_moves(const int32_t* row, const int32_t* c, const void* delta, int64_t count) override {
    const Moved moved{moved_.empty() ? nullptr : moved_.data()};
    const Poll poll;
    each_visit(row, c, static_cast<const T*>(delta), count,
               [&](int64_t k, int32_t i, Stretch list, const T* change) {
                 for (int64_t e = k, last = k + list.size(); e < last; ++e)
                   fetch_moves(X_, y_, W_, moved, row, c, e, count);
                 poll(entries(X_, i));
                 spread(X_, i, y_[i], list, change, W_, moved);
               });
  }

  void get_weights(void* W) const override { W_.get(static_cast<T*>(W), threads_); }

 protected:
  void take_row(int64_t i, std::vector<DualEntry>& row) const override {
    for (const Entry& e : at_[i].list)
      if (e.alpha > 0) row.push_back({e.c, double(e.alpha)});
    if (at_[i].norm2 > 0 || !own(i)) return;
    // A row of zeros has all its variables at the bound, or any of them with Crammer-Singer.
    for (int32_t c = 0; int64_t(row.size()) < form_.driven(); ++c)
      if (c != at_[i].y) row.push_back({c, double(C_)});
  }
  void clear() override {
    W_.clear();
    for (Instance& at : at_) at.list.clear(), at.idle = 0;
  }
  void put_row(int64_t i, const std::vector<DualEntry>& row) override {
    Instance& at = at_[i];
    if (!(at.norm2 > 0)) return;
    std::vector<T> alpha;
    for (const DualEntry& e : row) at.list.push_back({e.c, T(e.value), 0}), alpha.push_back(T(e.value));
    if (!alpha.empty()) spread(X_, i, at.y, at.whole(), alpha.data(), W_, {});
    if (!own(i)) at.list.clear();
  }
  void settle_alpha() override { fresh_ = planned_ = false; }

 private:
  // What a visit costs beside the products of its row with panels, in entries of the row.
  static constexpr int64_t kVisit = 40;

  // The work of a visit, at most, in products of a vector register.
  int64_t work(int32_t i) const {
    return kVisit + (X_.offset[i + 1] - X_.offset[i]) * (1 + int64_t(at_[i].list.size()));
  }

  // Cuts a sweep into parts that take equally long: places wait for the slowest part.
  void cut(int64_t parts) {
    int64_t all = 0, done = 0, part = 0;
    for (const int32_t i : active_) all += work(i);
    cut_.assign(parts + 1, int64_t(active_.size()));
    for (size_t k = 0; k < active_.size(); ++k) {
      const int64_t here = work(active_[k]);
      for (; part * all <= (done + here / 2) * parts; ++part) cut_[part] = int64_t(k);
      done += here;
    }
  }

  // Whether threads play matches in a sweep. Not where more than the share kMany of the instances has many variables
  // inside their bounds: these are bound together by their sum and by w_y, and it takes tens of sweeps for them to come
  // to rest if each match has a few of them.
  bool matched() {
    if (!plan_.matches() || int64_t(active_.size()) < kWorth) return false;
    if (!planned_) plan();
    return !bound_together_;
  }

  // Plans which match visits which instances, until the lists grow again.
  void plan() {
    const auto many = [&](int32_t i) { return at_[i].inside(C_) > kTogether; };
    bound_together_ = double(std::count_if(rows_.begin(), rows_.end(), many)) > kMany * double(rows_.size());
    planned_ = true;
    if (bound_together_) return;
    std::vector<Whereabouts> known(active_.size());
    parallel(int64_t(active_.size()), kPart, threads_, [&](int64_t first, int64_t last) {
      for (int64_t k = first; k < last; ++k) {
        const int32_t i = active_[k];
        Whereabouts here{i, bundles_.of(at_[i].y), 0, 1};  // cost: first panels, then the work of a visit
        int64_t panel = -1;
        for (const Entry& e : at_[i].list) {
          here.cost += e.c / N != panel;
          panel = e.c / N;
          here.met |= uint64_t(1) << bundles_.of(e.c);
        }
        here.cost = kVisit + here.cost * (X_.offset[i + 1] - X_.offset[i]);
        known[k] = here;
      }
    });
    plan_.fill(known);
    planned_share_ = share();
  }

  void drop_idle(std::vector<PlannedVisit>& visits) const {
    drop_if(visits, [&](const PlannedVisit& v) { return v.idle >= kIdle || at_[v.i].idle >= kIdle; });
  }

  // Visits instances of two bundles of classes one after the other; the largest violation met.
  double play(Classes a, Classes b, std::vector<PlannedVisit>& visits, T tolerance, Scratch& scratch) {
    T worst = 0;
    const Poll poll;
    for (size_t k = 0; k < visits.size(); ++k) {
      fetch(k, visits.size(), [&](size_t v) { return visits[v].i; });
      PlannedVisit& v = visits[k];
      poll(work(v.i));
      const auto [own, other] = a.has(at_[v.i].y) ? std::pair(a, b) : std::pair(b, a);
      const Classes with = v.inner ? own : other;
      const bool above = with.first > other.first;
      const T violation = visit_some(v.i, above ? other : with, above ? with : other, tolerance, scratch);
      v.idle = violation > tolerance ? 0 : v.idle + 1;
      worst = std::max(worst, violation);
    }
    return double(worst);
  }

  // Whether this place has the row.
  bool own(int64_t i) const { return has_.empty() || has_[y_[i]]; }

  // P of some rows whose gains are all 1; for rows of zeros D is the same.
  double at_zero(size_t rows) const { return double(rows) * double(C_) * double(form_.driven()); }
  Assessment rows_of_zeros() const {
    size_t all = 0;
    for (int64_t i = 0; i < X_.n; ++i) all += own(i);
    const double loss = at_zero(all - rows_.size());
    return {loss, loss, 0};
  }

  // At W = 0 every gain is 1: an instance begins with a few classes at random.
  Assessment begin() {
    fresh_ = false;
    std::vector<Entry> some;
    for (const int32_t i : rows_) {
      some.clear();
      // a run of classes from a random one on, which a panel or two hold
      for (int64_t c = random_.below(m_); int64_t(some.size()) < std::min<int64_t>(m_ - 1, kFirst); ++c)
        if (c % m_ != at_[i].y) some.push_back({int32_t(c % m_), 0, 0});
      at_[i].join(some);
    }
    Assessment all = rows_of_zeros();
    Base::add({at_zero(rows_.size()), 0, rows_.empty() ? 0.0 : 1.0}, all);
    return all;
  }

  // Works out, at fixed weights and panel by panel over some classes, the gains of the entries of the lists of rows
  // first .. last-1, and the classes that join the lists. Lists lose what no longer matters.
  void refresh(const int32_t* first, const int32_t* last, Classes classes) {
    const size_t most = worst_ > kFar ? kSome : kMost;
    const int64_t rows = last - first;
    std::vector<Candidates> found(rows);
    std::vector<T> base(rows), bound(rows);
    std::vector<int32_t> cursor(rows, 0), next(rows);  // next: class of the entry at the cursor
    std::vector<size_t> room(rows, most);
    const auto class_at = [&](int32_t i, int32_t e) {
      return e < int32_t(at_[i].list.size()) ? at_[i].list[e].c : std::numeric_limits<int32_t>::max();
    };
    for (int64_t k = 0; k < rows; ++k) {
      const int32_t i = first[k];
      base[k] = 1 - row_dot_lane(X_, i, W_.lane(at_[i].y), N);
      found[k].begin(at_[i].floor);
      bound[k] = std::min(at_[i].floor, T(0));
      if (!form_.simplex()) room[k] = std::max(most, at_[i].at_bound(C_));
      while ((next[k] = class_at(i, cursor[k])) < classes.first) ++cursor[k];
    }
    const Poll poll;
    for (int64_t q = classes.first / N; q * N < classes.last; ++q) {
      const T* panel = W_.panel(q);
      const int32_t from = int32_t(q * N), to = int32_t(std::min(q * N + N, classes.last));
      unsigned lanes = (1u << (to - from)) - 1;
      if (classes.first > from) lanes &= ~((1u << (classes.first - from)) - 1);
      for (int64_t k = 0; k < rows; ++k) {
        const int32_t i = first[k];
        poll(entries(X_, i));
        const Vec<T> g = row_dot_tile(X_, i, panel, N) + base[k];
        unsigned high = lanes_where(g > bound[k]) & lanes;
        if (!high && next[k] >= to) continue;
        alignas(64) T gain[N];
        store(gain, g);
        const int32_t own = at_[i].y - from;
        if (own >= 0 && own < N) high &= ~(1u << own), gain[own] = 0;
        for (; next[k] < to; next[k] = class_at(i, ++cursor[k])) {
          T& here = gain[next[k] - from];
          at_[i].list[cursor[k]].gain = here;
          high &= ~(1u << (next[k] - from)), here = 0;
        }
        if (!high) continue;
        if (!form_.simplex()) {
          T sum = 0;
          for (int64_t l = 0; l < N; ++l) sum += lanes >> l & 1 && gain[l] > 0 ? gain[l] : 0;
          found[k].leave(sum);
          high &= lanes_where(g > found[k].bound());
        }
        for (; high; high &= high - 1)
          found[k].take(from + __builtin_ctz(high), gain[__builtin_ctz(high)], room[k]);
        bound[k] = std::min(found[k].bound(), T(0));
      }
    }
    for (int64_t k = 0; k < rows; ++k) {
      const int32_t i = first[k];
      at_[i].left_out = std::max(T(0), found[k].left_out());
      at_[i].prune();
      at_[i].join(found[k].all());
    }
  }

  // Loss, dual objective and violation of rows in some classes, whose gains are known.
  Assessment judge(const int32_t* first, const int32_t* last, Classes classes, T tolerance) {
    Tally tally;
    for (; first != last; ++first) {
      Instance& at = at_[*first];
      const Stretch list = at.stretch(classes);
      double loss = form_.simplex() ? 0 : double(at.left_out);
      for (const Entry& e : list) {
        loss = form_.more_loss(loss, double(e.gain));
        tally.dual += double(e.alpha);
        tally.norm += double(e.alpha) * (1 - double(e.gain));
      }
      tally.loss += loss;
      const T violation = violated(at, list);
      if (violation > tolerance) at.idle = 0;
      tally.worst = std::max(tally.worst, double(violation));
    }
    return tally.at(double(C_));
  }

  // |projected gradient|, the largest of the instance.
  T violated(Instance& at, Stretch list) const {
    if (!form_.simplex()) {
      T worst = 0;
      for (const Entry& e : list) worst = std::max(worst, projected(e.gain, e.alpha, C_));
      return worst;
    }
    SimplexViolation<T> violation(C_, list.sum());
    for (const Entry& e : list) violation.add(e.gain, e.alpha);
    at.floor = violation.floor() - T(kNear);
    return violation.value();
  }

  template <class Row>
  void fetch(size_t k, size_t count, Row row) const {
    fetch_visits(X_, at_.data(), W_, k, count, row);
  }

  // Makes the variables of the list optimal; returns the violation before.
  T visit(int32_t i, T tolerance, Scratch& scratch) {
    Instance& at = at_[i];
    if (at.list.empty()) return 0;
    const T violation = improve(i, at.whole(), tolerance, scratch);
    at.prune();
    return violation;
  }

  // visit() for the variables of classes in `lower` or in `upper`, which is lower or lies above it; others are fixed.
  T visit_some(int32_t i, Classes lower, Classes upper, T tolerance, Scratch& scratch) {
    Instance& at = at_[i];
    const Stretch low = at.stretch(lower), high = at.stretch(upper);
    if (!low.size() && !high.size()) return 0;
    const Stretch both{low.size() ? low.first : high.first, high.size() ? high.last : low.last};
    T violation;
    if (low.first == high.first || both.size() == low.size() + high.size()) {
      violation = improve(i, both, tolerance, scratch);
    } else {  // others stand between them
      std::vector<Entry>& some = scratch.some;
      some.assign(low.first, low.last);
      some.insert(some.end(), high.first, high.last);
      violation = improve(i, {some.data(), some.data() + some.size()}, tolerance, scratch);
      std::copy(some.begin(), some.begin() + low.size(), low.first);
      std::copy(some.begin() + low.size(), some.end(), high.first);
    }
    at.prune();
    return violation;
  }

  T improve(int32_t i, Stretch list, T tolerance, Scratch& scratch) {
    bring_gains(X_, i, at_[i].y, list, W_);
    const T violation = violated(at_[i], list);
    if (violation > tolerance && solve(i, list, scratch)) at_[i].moved = 1;
    return violation;
  }

  // Solves the block of the entries, and moves W or notes the moves; whether anything changed.
  bool solve(int32_t i, Stretch list, Scratch& scratch) {
    const int64_t count = list.size();
    // the visit of instance_sets.h: b = g / k + a + 1ᵀa
    const T inverse = 1 / (scratch.caution * at_[i].norm2), sum = list.sum();
    T *b = scratch.b.data(), *next = scratch.next.data();
    for (int64_t e = 0; e < count; ++e) b[e] = list.first[e].gain * inverse + list.first[e].alpha + sum;
    const Clip<T> c = form_.simplex() ? TopKBeta<T>(1).nearest(b, count, C_, scratch.work.data())
                                      : Box<T>(1).nearest(b, count, C_, scratch.work.data());
    apply(c, b, count, next);
    bool changed = false;
    for (int64_t e = 0; e < count; ++e) {
      b[e] = next[e] - list.first[e].alpha;
      changed |= b[e] != 0;
      list.first[e].alpha = next[e];
    }
    if (!changed) return false;
    if (scratch.moves) {
      scratch.moves->add(i, list, b);
    } else {
      spread(X_, i, at_[i].y, list, b, W_, {});
    }
    return changed;
  }

  Panels<T> W_;
  // Of several places: the classes whose rows this one has, and those whose weights it moves; empty for all.
  std::vector<int8_t> has_, moved_;
  std::vector<Instance> at_;
  Bundles bundles_;  // that threads play
  BundlePlan plan_;
  bool planned_ = false, bound_together_ = false;
  double planned_share_ = 1;  // of the instances in the plan
  double worst_ = 1;  // violation that the last pass over everything found
  bool fresh_ = true;
  std::vector<Scratch> scratch_;  // of each match of a round
  Moves<T> moves_;  // of the last part
  std::vector<int64_t> cut_;  // where the parts of a sweep begin in active_ as it is, and the last one ends
};

}  // namespace

template <class T>
MulticlassAscent* pair_ascent(const MulticlassNewArgs<T>& args) {
  return new PairAscent<T>(args);
}
template MulticlassAscent* pair_ascent(const MulticlassNewArgs<float>&);
template MulticlassAscent* pair_ascent(const MulticlassNewArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
