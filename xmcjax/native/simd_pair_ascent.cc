// Weston-Watkins and Crammer-Singer by dual ascent over instances, each with its dual variables at
// once: a block of α_ic for one i is a projection onto a box or simplex with a bias term (Keerthi et
// al. 2008; projection_math.h).
//
// Of the m - 1 variables of an instance few end above zero. A pass over everything at fixed weights,
// panel by panel, gives each instance the list of the classes that matter to it: α_ic > 0, or a gain
// close to where it would begin to grow. Sweeps between such passes visit those only. So the passes
// over everything cost one product X W, whose violation and gap they know exactly, and the sweeps
// touch the weights of a few classes.
//
// Threads and processes play bundles of classes against each other by the schedule of the paper (Algorithm 5,
// with bundles in the place of classes): a match of two bundles visits the instances of both, and of the lists of
// either the classes of the other, so that matches of a round touch different weights.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "multiclass.h"
#include "panels.h"
#include "parallel.h"
#include "projection_math.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

// Sweeps without a change after which an instance is left out.
constexpr int kIdle = 3;
// Gains this far below where a variable grows keep its class in the list.
constexpr double kNear = 0.02;
// A change is made where the violation exceeds this part of the tolerance: what stays behind at the
// tolerance itself would leave a large gap.
constexpr double kStep = 0.1;
// Classes an instance begins with, and those that one pass may add: fewer as long as a violation exceeds
// kFar, because what the weights of today suggest may not matter tomorrow.
constexpr int kFirst = 16, kSome = 32, kMost = 256;
constexpr double kFar = 0.1;
// Instances that it takes to keep threads busy.
constexpr int64_t kWorth = 1000;

template <class T>
class PairAscent final : public MulticlassAscent {
  static constexpr int N = kLanes<T>;

  struct Entry {
    int32_t c;
    T alpha, gain;
  };
  // What the solution of a block needs, one for each thread.
  struct Scratch {
    explicit Scratch(int64_t m) : b(m), next(m), work(projection_work(m)) {}
    std::vector<T> b, next;
    std::vector<double> work;
  };

 public:
  explicit PairAscent(const MulticlassArgs<T>& args)
      : X_(args.X), y_(args.y), m_(args.m), simplex_(args.formulation == kCrammerSinger), C_(T(args.C)),
        rounding_(C_ * std::pow(std::numeric_limits<T>::epsilon(), T(0.6))), threads_(args.threads),
        random_(args.seed), W_(X_.d, m_), lists_(X_.n), norm2_(X_.n), left_out_(X_.n, T(0)),
        floor_(X_.n, T(-kNear)), idle_(X_.n, 0), moved_(X_.n, 0), class_first_(m_ + 1, 0), scratch_(m_ + N) {
    for (int64_t i = 0; i < X_.n; ++i) {
      double k = 0;
      for (int64_t p = X_.offset[i]; p < X_.offset[i + 1]; ++p) k += double(X_.value[p]) * double(X_.value[p]);
      norm2_[i] = T(k);
      if (norm2_[i] > 0) rows_.push_back(int32_t(i));
    }
    zeros_ = X_.n - int64_t(rows_.size());
    active_ = by_class_ = rows_;
    std::stable_sort(by_class_.begin(), by_class_.end(), [&](int32_t a, int32_t b) { return y_[a] < y_[b]; });
    for (const int32_t i : rows_) ++class_first_[y_[i] + 1];
    for (int64_t c = 0; c < m_; ++c) class_first_[c + 1] += class_first_[c];
  }

  Assessment assess(double tolerance) override {
    if (fresh_) return begin();
    const int64_t rows = int64_t(rows_.size());
    const int64_t parts = (rows + kPart - 1) / kPart;
    std::vector<Assessment> found(parts);
    parallel(parts, 1, threads_, [&](int64_t first, int64_t last) {
      const int64_t end = std::min(last * kPart, rows);
      refresh(rows_.data() + first * kPart, rows_.data() + end, {0, m_});
      for (int64_t part = first; part < last; ++part)
        found[part] = judge(rows_.data() + part * kPart, rows_.data() + std::min((part + 1) * kPart, rows), {0, m_},
                            T(kStep * tolerance));
    });
    wake();
    Assessment all = rows_of_zeros();
    for (const Assessment& one : found) {
      all.primal += one.primal, all.dual += one.dual;
      all.violation = std::max(all.violation, one.violation);
    }
    worst_ = all.violation;
    return all;
  }

  Sweep sweep(double tolerance, bool shrink) override {
    Sweep done{0, share()};
    const std::vector<int64_t> bundles = cut_for_threads();
    if (bundles.empty()) {
      random_.shuffle(active_);
      for (const int32_t i : active_)
        done.violation = std::max(done.violation, double(visit(i, {0, m_}, T(kStep * tolerance), scratch_)));
    } else {
      const int64_t matches = int64_t(bundles.size()) / 2, rounds = 2 * matches - 1;
      const uint64_t seed = random_.next();
      std::vector<double> worst(matches, 0);
      std::vector<Scratch> scratch(matches, Scratch(m_ + N));
      for (int64_t r = 0; r < rounds; ++r)
        parallel(matches, 1, threads_, [&](int64_t first, int64_t last) {
          for (int64_t j = first; j < last; ++j) {
            // round_pairs of solvers/multiclass_dual/_schedule.py
            const int64_t a = j ? (r + j) % rounds : rounds, b = j ? (r - j + rounds) % rounds : r;
            const Match match{{bundles[a], a < rounds ? bundles[a + 1] : m_}, {bundles[b], bundles[b + 1]}, r == 0};
            worst[j] = std::max(worst[j], play(match, T(kStep * tolerance), seed + uint64_t(r * matches + j), scratch[j]));
          }
        });
      for (const double w : worst) done.violation = std::max(done.violation, w);
    }
    settle(shrink);
    return done;
  }

  Assessment examine(const Match& match, double tolerance) override {
    Assessment all{0, 0, 0};
    const auto side = [&](Classes own, Classes other) {
      const int32_t* first = by_class_.data() + class_first_[own.first];
      const int32_t* last = by_class_.data() + class_first_[own.last];
      refresh(first, last, other);
      const Assessment one = judge(first, last, other, T(kStep * tolerance));
      all.primal += one.primal, all.dual += one.dual;
      all.violation = std::max(all.violation, one.violation);
    };
    side(match.a, match.b);
    side(match.b, match.a);
    if (match.inner) side(match.a, match.a), side(match.b, match.b);
    return all;
  }

  double play(const Match& match, double tolerance) override {
    return play(match, T(kStep * tolerance), random_.next(), scratch_);
  }

  double settle(bool shrink) override {
    size_t kept = 0;
    for (const int32_t i : active_) {
      if (moved_[i]) {
        idle_[i] = 0;
      } else if (idle_[i] < kIdle) {
        ++idle_[i];
      }
      moved_[i] = 0;
      if (!shrink || idle_[i] < kIdle) active_[kept++] = i;
    }
    active_.resize(kept);
    return share();
  }

  void begin_epoch(double violation) override {
    worst_ = violation;
    wake();
  }

  int64_t nonzero_rows(Classes classes, int32_t* row) const override {
    int64_t count = 0;
    for (int64_t j = 0; j < X_.d; ++j) {
      bool some = false;
      for (int64_t c = classes.first; c < classes.last; ++c) some |= lane(c)[j * N] != 0;
      if (some) row[count++] = int32_t(j);
    }
    return count;
  }
  void get_rows(Classes classes, const int32_t* row, int64_t rows, void* out) const override {
    T* value = static_cast<T*>(out);
    for (int64_t k = 0; k < rows; ++k)
      for (int64_t c = classes.first; c < classes.last; ++c) *value++ = lane(c)[row[k] * N];
  }
  void set_rows(Classes classes, const int32_t* row, int64_t rows, const void* in) override {
    const T* value = static_cast<const T*>(in);
    for (int64_t c = classes.first; c < classes.last; ++c)
      for (int64_t j = 0; j < X_.d; ++j) lane(c)[j * N] = 0;
    for (int64_t k = 0; k < rows; ++k)
      for (int64_t c = classes.first; c < classes.last; ++c) lane(c)[row[k] * N] = *value++;
  }

  int64_t alpha_count() const override {
    int64_t count = zeros_ * (simplex_ ? 1 : m_ - 1);
    for (const auto& list : lists_)
      for (const Entry& e : list) count += e.alpha > 0;
    return count;
  }

  void get_alpha(int64_t* offset, int32_t* index, double* value) const override {
    int64_t at = 0;
    for (int64_t i = 0; i < X_.n; ++i) {
      offset[i] = at;
      for (const Entry& e : lists_[i])
        if (e.alpha > 0) index[at] = e.c, value[at++] = double(e.alpha);
      if (norm2_[i] > 0) continue;
      // A row of zeros has all its variables at the bound, or any of them with Crammer-Singer.
      for (int32_t c = 0, left = int32_t(simplex_ ? 1 : m_ - 1); left; ++c)
        if (c != y_[i]) index[at] = c, value[at++] = double(C_), --left;
    }
    offset[X_.n] = at;
  }

  void set_alpha(const int64_t* offset, const int32_t* index, const double* value) override {
    W_.clear();
    for (int64_t i = 0; i < X_.n; ++i) {
      lists_[i].clear();
      if (!(norm2_[i] > 0)) continue;
      T sum = 0;
      for (int64_t p = offset[i]; p < offset[i + 1]; ++p) {
        lists_[i].push_back({index[p], T(value[p]), 0});
        row_add_lane(X_, i, T(-value[p]), lane(index[p]), N);
        sum += T(value[p]);
      }
      if (sum > 0) row_add_lane(X_, i, sum, lane(y_[i]), N);
      idle_[i] = 0;
    }
    fresh_ = false;
  }

  void get_weights(void* W) const override { W_.get(static_cast<T*>(W)); }

 private:
  // Instances that one partial sum is about: sums do not depend on the number of threads.
  static constexpr int64_t kPart = 256;

  T* lane(int64_t c) const { return W_.panel(c / N) + c % N; }

  double share() const { return double(active_.size()) / double(std::max<size_t>(rows_.size(), 1)); }

  // Instances that are not shrunk.
  void wake() {
    active_.clear();
    for (const int32_t i : rows_)
      if (idle_[i] < kIdle) active_.push_back(i);
  }

  // Where bundles of classes begin that threads may play against each other: whole panels, about as many
  // instances in each; empty where one thread is enough, and for Crammer-Singer, whose variables of an
  // instance are bound together by their sum.
  std::vector<int64_t> cut_for_threads() const {
    const int64_t count = 2 * threads_;
    if (simplex_ || threads_ < 2 || W_.count() < count || int64_t(active_.size()) < kWorth) return {};
    std::vector<int64_t> bundles;
    const int64_t rows = int64_t(rows_.size());
    for (int64_t q = 0; q < W_.count(); ++q) {
      const int64_t b = int64_t(bundles.size());
      // no later than leaves a panel for each of the bundles to come
      if (b < count && (class_first_[q * N] * count >= b * rows || W_.count() - q == count - b))
        bundles.push_back(q * N);
    }
    return bundles;
  }

  double play(const Match& match, T tolerance, uint64_t seed, Scratch& scratch) {
    std::vector<int32_t> order;
    for (const Classes& side : {match.a, match.b})
      for (int64_t k = class_first_[side.first]; k < class_first_[side.last]; ++k)
        if (idle_[by_class_[k]] < kIdle) order.push_back(by_class_[k]);
    Random(seed).shuffle(order);
    double worst = 0;
    for (const int32_t i : order) {
      const bool from_a = y_[i] >= match.a.first && y_[i] < match.a.last;
      const Classes own = from_a ? match.a : match.b, other = from_a ? match.b : match.a;
      if (!match.inner) {
        worst = std::max(worst, double(visit(i, other, tolerance, scratch)));
      } else if (own.last == other.first || other.last == own.first) {  // neighbours: one stretch of classes
        const Classes both{std::min(own.first, other.first), std::max(own.last, other.last)};
        worst = std::max(worst, double(visit(i, both, tolerance, scratch)));
      } else {
        worst = std::max(worst, double(visit(i, own, tolerance, scratch)));
        worst = std::max(worst, double(visit(i, other, tolerance, scratch)));
      }
    }
    return worst;
  }

  Assessment rows_of_zeros() const {
    const double loss = double(zeros_) * double(C_) * double(simplex_ ? 1 : m_ - 1);
    return {loss, loss, 0};
  }

  // At W = 0 every gain is 1: an instance begins with a few classes at random.
  Assessment begin() {
    fresh_ = false;
    for (const int32_t i : rows_) {
      auto& list = lists_[i];
      const int64_t count = std::min<int64_t>(m_ - 1, kFirst);
      // a run of classes from a random one on, which a panel or two hold
      const int64_t start = random_.below(m_);
      for (int64_t j = 0; int64_t(list.size()) < count; ++j) {
        const int32_t c = int32_t((start + j) % m_);
        if (c != y_[i]) list.push_back({c, 0, 0});
      }
      std::sort(list.begin(), list.end(), [](const Entry& a, const Entry& b) { return a.c < b.c; });
    }
    Assessment all = rows_of_zeros();
    all.primal += double(rows_.size()) * double(C_) * double(simplex_ ? 1 : m_ - 1);
    all.violation = rows_.empty() ? 0 : 1;
    return all;
  }

  // The classes with the highest gains that are not in the list of a row, `most` at most.
  class Candidates {
   public:
    void begin(T floor) { bound_ = floor; }
    T bound() const { return bound_; }
    T left_out() const { return left_out_; }
    const std::vector<Entry>& all() const { return hit_; }
    // Gains above 0 of classes of which take() is told only where they are above the bound.
    void leave(T sum) { left_out_ += sum; }
    void take(int32_t c, T gain, size_t most) {
      const auto higher = [](const Entry& a, const Entry& b) { return a.gain > b.gain; };
      if (gain <= bound_) return;
      left_out_ -= gain > 0 ? gain : 0;
      hit_.push_back({c, 0, gain});
      if (hit_.size() < most) return;
      // a heap with the lowest on top
      if (hit_.size() == most) {
        std::make_heap(hit_.begin(), hit_.end(), higher);
      } else {
        std::push_heap(hit_.begin(), hit_.end(), higher);
        std::pop_heap(hit_.begin(), hit_.end(), higher);
        left_out_ += hit_.back().gain > 0 ? hit_.back().gain : 0;
        hit_.pop_back();
      }
      bound_ = hit_.front().gain;
    }

   private:
    std::vector<Entry> hit_;
    T bound_;
    T left_out_ = 0;  // the sum of the gains above 0 that found no place
  };

  // At fixed weights, panel by panel, over some classes: the gains of the entries of the lists of rows
  // first .. last-1, and the classes that join them. Lists lose what no longer matters.
  void refresh(const int32_t* first, const int32_t* last, Classes classes) {
    const size_t most = worst_ > kFar ? kSome : kMost;
    const int64_t rows = last - first;
    std::vector<Candidates> found(rows);
    std::vector<T> base(rows), bound(rows);
    std::vector<int32_t> cursor(rows, 0), next(rows);  // next: class of the entry at the cursor
    const auto class_at = [&](int32_t i, int32_t e) {
      return e < int32_t(lists_[i].size()) ? lists_[i][e].c : std::numeric_limits<int32_t>::max();
    };
    for (int64_t k = 0; k < rows; ++k) {
      const int32_t i = first[k];
      base[k] = 1 - row_dot_lane(X_, i, lane(y_[i]), N);
      found[k].begin(floor_[i]);
      bound[k] = std::min(floor_[i], T(0));
      while ((next[k] = class_at(i, cursor[k])) < classes.first) ++cursor[k];
    }
    for (int64_t q = classes.first / N; q * N < classes.last; ++q) {
      const T* panel = W_.panel(q);
      const int32_t from = int32_t(q * N), to = int32_t(std::min(q * N + N, classes.last));
      unsigned lanes = (1u << (to - from)) - 1;
      if (classes.first > from) lanes &= ~((1u << (classes.first - from)) - 1);
      for (int64_t k = 0; k < rows; ++k) {
        const int32_t i = first[k];
        const Vec<T> g = row_dot_tile(X_, i, panel, N) + base[k];
        unsigned high = lanes_above<T>(g, bound[k]) & lanes;
        if (!high && next[k] >= to) continue;
        alignas(64) T gain[N];
        store(gain, g);
        const int32_t own = y_[i] - from;
        if (own >= 0 && own < N) high &= ~(1u << own), gain[own] = 0;
        for (; next[k] < to; next[k] = class_at(i, ++cursor[k])) {
          T& here = gain[next[k] - from];
          lists_[i][cursor[k]].gain = here;
          high &= ~(1u << (next[k] - from)), here = 0;
        }
        if (!high) continue;
        if (!simplex_) {
          T sum = 0;
          for (int64_t l = 0; l < N; ++l) sum += lanes >> l & 1 && gain[l] > 0 ? gain[l] : 0;
          found[k].leave(sum);
          high &= lanes_above<T>(g, found[k].bound());
        }
        for (; high; high &= high - 1)
          found[k].take(from + __builtin_ctz(high), gain[__builtin_ctz(high)], most);
        bound[k] = std::min(found[k].bound(), T(0));
      }
    }
    for (int64_t k = 0; k < rows; ++k) {
      const int32_t i = first[k];
      const std::vector<Entry>& more = found[k].all();
      left_out_[i] = std::max(T(0), found[k].left_out());
      prune(i, classes);
      if (more.empty()) continue;
      auto& list = lists_[i];
      list.insert(list.end(), more.begin(), more.end());
      std::sort(list.begin(), list.end(), [](const Entry& a, const Entry& b) { return a.c < b.c; });
      idle_[i] = 0;
    }
  }

  void prune(int32_t i, Classes classes) {
    auto& list = lists_[i];
    list.erase(std::remove_if(list.begin(), list.end(),
                              [&](const Entry& e) {
                                return classes.has(e.c) && !(e.alpha > 0) && e.gain <= floor_[i];
                              }),
               list.end());
  }

  // Loss, dual objective and violation of rows in some classes, whose gains are known.
  Assessment judge(const int32_t* first, const int32_t* last, Classes classes, T tolerance) {
    double loss = 0, sum = 0, norm = 0, worst = 0;
    for (; first != last; ++first) {
      const int32_t i = *first;
      double row = simplex_ ? 0 : double(left_out_[i]);
      for (const Entry& e : lists_[i]) {
        if (!classes.has(e.c)) continue;
        row = simplex_ ? std::max(row, double(e.gain)) : row + std::max(0.0, double(e.gain));
        sum += double(e.alpha);
        // ‖W‖² = Σ_i Σ_c α_ic (z_i,y_i - z_ic)
        norm += double(e.alpha) * (1 - double(e.gain));
      }
      loss += row;
      const T violation = violated(i, classes);
      if (violation > tolerance) idle_[i] = 0;
      worst = std::max(worst, double(violation));
    }
    return {double(C_) * loss + norm / 2, sum - norm / 2, worst};
  }

  // |projected gradient|, the largest of the instance; for Crammer-Singer the largest gain less the
  // smallest of what could fall, as in LIBLINEAR.
  T violated(int32_t i, Classes classes) {
    T worst = 0;
    if (!simplex_) {
      for (const Entry& e : lists_[i]) {
        if (!classes.has(e.c)) continue;
        if ((e.alpha <= 0 && e.gain < 0) || (e.alpha >= C_ && e.gain > 0)) continue;
        worst = std::max(worst, std::fabs(e.gain));
      }
      return worst;
    }
    T sum = 0, highest = 0, lowest = std::numeric_limits<T>::infinity();
    for (const Entry& e : lists_[i]) {
      sum += e.alpha;
      highest = std::max(highest, e.gain);
      if (e.alpha > rounding_) lowest = std::min(lowest, e.gain);
    }
    if (C_ - sum > rounding_) lowest = std::min(lowest, T(0));  // the slack, whose gain is 0
    floor_[i] = std::min(lowest, highest) - T(kNear);
    return std::max(T(0), highest - lowest);
  }

  // Entries of the list that are about some classes.
  struct Stretch {
    Entry *begin, *end;
    int64_t size() const { return end - begin; }
  };
  Stretch stretch(int32_t i, Classes classes) {
    Entry* begin = lists_[i].data();
    Entry* end = begin + lists_[i].size();
    while (begin != end && begin->c < classes.first) ++begin;
    while (begin != end && end[-1].c >= classes.last) --end;
    return {begin, end};
  }

  // Brings the gains of the entries up to date.
  void look(int32_t i, Stretch list) {
    const int64_t own_panel = y_[i] / N;
    const Vec<T> own = row_dot_tile(X_, i, W_.panel(own_panel), N);
    const T base = 1 - own[y_[i] % N];
    for (Entry* e = list.begin; e != list.end;) {
      const int64_t q = e->c / N;
      const Vec<T> g = (q == own_panel ? own : row_dot_tile(X_, i, W_.panel(q), N)) + base;
      for (; e != list.end && e->c / N == q; ++e) e->gain = g[e->c % N];
    }
  }

  // w_y += Σ_c δ_c x, w_c -= δ_c x
  void spread(int32_t i, Stretch list, const T* delta) {
    const int64_t count = list.size(), own_panel = y_[i] / N;
    T total = 0;
    for (int64_t e = 0; e < count; ++e) total += delta[e];
    bool own_done = false;
    for (int64_t e = 0; e < count;) {
      const int64_t q = list.begin[e].c / N;
      alignas(64) T lanes[N] = {};
      bool some = false;
      for (; e < count && list.begin[e].c / N == q; ++e) {
        lanes[list.begin[e].c % N] = -delta[e];
        some |= delta[e] != 0;
      }
      if (q == own_panel) lanes[y_[i] % N] = total, own_done = some = true;
      if (some) row_add_tile(X_, i, load(lanes), W_.panel(q), N);
    }
    if (!own_done) row_add_lane(X_, i, total, W_.panel(own_panel) + y_[i] % N, N);
  }

  // Makes the variables of the list in some classes optimal, the others being fixed; the violation before.
  T visit(int32_t i, Classes classes, T tolerance, Scratch& scratch) {
    const Stretch list = stretch(i, classes);
    if (!list.size()) return 0;
    look(i, list);
    const T violation = violated(i, classes);
    if (violation > tolerance && solve(i, list, scratch)) moved_[i] = 1;
    prune(i, classes);
    return violation;
  }

  // The block of the entries, and W; whether anything changed.
  bool solve(int32_t i, Stretch list, Scratch& scratch) {
    const int64_t count = list.size();
    T sum = 0;
    for (const Entry* e = list.begin; e != list.end; ++e) sum += e->alpha;
    // min ½‖a - b‖² + ½(1ᵀa)² over the box or simplex, b = g / k + a + 1ᵀa
    const T inverse = 1 / norm2_[i], infinity = std::numeric_limits<T>::infinity();
    T *b = scratch.b.data(), *next = scratch.next.data();
    for (int64_t e = 0; e < count; ++e) b[e] = list.begin[e].gain * inverse + list.begin[e].alpha + sum;
    const Clip<T> c = simplex_ ? capped_simplex(b, count, double(C_), double(infinity), 1, scratch.work.data())
                               : capped_simplex(b, count, double(infinity), double(C_), 1, scratch.work.data());
    apply(c, b, count, next);
    bool changed = false;
    for (int64_t e = 0; e < count; ++e) {
      b[e] = next[e] - list.begin[e].alpha;
      changed |= b[e] != 0;
      list.begin[e].alpha = next[e];
    }
    if (changed) spread(i, list, b);
    return changed;
  }

  const Csr<T> X_;
  const int32_t* y_;
  const int64_t m_;
  const bool simplex_;
  const T C_;
  const T rounding_;  // as in CrammerSinger.violation of _formulations.py
  const int64_t threads_;
  Random random_;
  Panels<T> W_;
  std::vector<std::vector<Entry>> lists_;
  std::vector<T> norm2_;
  std::vector<T> left_out_;      // gains above 0 of classes that are not in the list, summed
  std::vector<T> floor_;         // gains below which a class with α = 0 does not matter
  std::vector<uint8_t> idle_, moved_;
  std::vector<int32_t> rows_, active_, by_class_;  // without rows of zeros
  std::vector<int64_t> class_first_;               // where a class begins in by_class_
  int64_t zeros_ = 0;
  double worst_ = 1;  // violation that the last pass over everything found
  bool fresh_ = true;
  Scratch scratch_;
};

}  // namespace

template <class T>
MulticlassAscent* pair_ascent(const MulticlassArgs<T>& args) {
  return new PairAscent<T>(args);
}
template MulticlassAscent* pair_ascent(const MulticlassArgs<float>&);
template MulticlassAscent* pair_ascent(const MulticlassArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
