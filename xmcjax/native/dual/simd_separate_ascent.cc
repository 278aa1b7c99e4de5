// One against the rest by dual coordinate ascent: a binary SVM for each label, which needs nothing of the others. A row
// may have any number of labels; in a multi-class problem it has one, its class.
//
// Ascent alternates between looks at all rows and sweeps over some. A look works out the scores of as many labels as
// fill a vector in one pass over the features, and the part of the gap that is a row's own,
//
//   P - D = Σ_i C_i φ(h_i) - α_i h_i + ½ ρ_i α_i²,   h_i = 1 - s_i ⟨w, x_i⟩,   w = Σ_i s_i α_i x_i,   s_i = ±1,
//
// none of which is negative. Sweeps then visit the rows with most of the gap, in random order and one label at a time,
// so that the label's weights stay in the cache, until little of the gap of these rows is left; the next look shows
// what the other rows have gained. A label whose gap is small enough makes room for the next one.
//
// With many labels a row has few of them and is negative in all others. The background is the SVM of which all rows are
// negative. A label starts from the dual variables of the background, except in its own rows, and has to find only the
// difference. Where the rows without the label have a weight below 1, it starts from so much of these dual variables.
// Of its own dual variables only those are kept that differ from what it starts from.
//
// A bias without a penalty, whose feature has one value, has a centre instead: P has ½ (u - centre)² of its weight u,
// the dual variables say by how much u differs from the centre, and the parts of the gap above are the same. Where the
// rows have little of the gap beside what is left of Σ_i s_i α_i = 0, the centre moves to u, and u moves as far again
// (the method of multipliers).
//
// Hsieh, Chang, Lin, Keerthi and Sundararajan, "A dual coordinate descent method for large-scale linear SVM", 2008.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "dual/driver.h"
#include "dual/row_features.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

// What a look counts as, in passes of a label: the labels of a panel share its pass over the features.
constexpr double kLook = 0.125;
// kMany: labels from which on there is a background. kBackgroundGap: its tolerance, relative to that of the labels.
// kBackgroundPasses: its passes at most, or as many as there are labels if these are more: they cost one pass of all.
constexpr int64_t kMany = 8;
constexpr double kBackgroundGap = 0.25, kBackgroundPasses = 100;
// The centre of a free bias moves once the gap of the rows is at most this part of the gap that the bias adds.
constexpr double kMoves = 0.1;

// The hinge loss of a row with the cost C_i, or the squared one; for numbers or vectors.
template <class T, bool squared>
struct Hinge {
  template <class V>
  V upper(V cost) const {
    return squared ? V{} + std::numeric_limits<T>::infinity() : cost;
  }
  // ρ = 1 / 2C_i
  template <class V>
  V ridge(V cost) const {
    return squared ? T(1) / (cost + cost) : V{};
  }
  template <class V>
  V loss(V h) const {
    const V lost = maximum(h, V{});
    return squared ? lost * lost : lost;
  }
  // The step of a variable to where its slope would be 0: (h - ρ α) / (‖x‖² + ρ). `inverse` is 1 / ‖x‖².
  T step(T h, T a, T cost, T inverse) const {
    if (!squared) return h * inverse;
    const T rho = ridge(cost);
    return (h - rho * a) * inverse / (1 + rho * inverse);
  }
  // Part of the gap that is the row's own.
  template <class V>
  V part(V h, V a, V cost) const {
    if (!squared) return select(h > 0, (cost - a) * h, -a * h);
    // ½ ρ (2C h - α)², or where h <= 0 the gap without a loss, α (½ ρ α - h)
    const V half = ridge(cost) / 2, off = (cost + cost) * h - a;
    return select(h > 0, half * off * off, a * (half * a - h));
  }
};

template <class T, class Rows>
class SeparateAscent final : public MulticlassSeparate {
  static constexpr int N = kLanes<T>;

 public:
  explicit SeparateAscent(const SeparateNewArgs<T>& args)
      : MulticlassSeparate(args.X.n), d_(args.X.d), padded_(in_vectors<T>(n_)), width_(in_vectors<T>(d_)),
        first_(args.first), count_(args.labels), threads_(args.threads),
        squared_(args.formulation == kOneVsRestSquared), free_(args.free),
        own_first_(args.offset, args.offset + count_ + 1), own_(args.row, args.row + own_first_[count_]),
        positive_(args.positive, args.positive + count_), negative_(args.negative, args.negative + count_),
        of_(args.of), X_(args.X), rows_(args.X), cost_(padded_), inverse_(n_), background_(n_),
        W_(Zeros<T>::large((count_ + 1) * width_)) {
    std::copy_n(args.cost, n_, cost_.get());
    std::fill(cost_.get() + n_, cost_.get() + padded_, T(1));
    for (int64_t i = 0; i < n_; ++i) inverse_[i] = T(1 / squared_norm(X_, i));
    label_.reserve(count_ + 1);
    for (int64_t c = kBackground; c < count_; ++c)
      label_.emplace_back(args.seed +
                          0x9e3779b97f4a7c15u * uint64_t(c == kBackground ? 1 : args.number[c] + 2));
  }

  Advanced advance(double tolerance, double passes, bool shrink) override {
    const Goal goal{tolerance, passes, shrink};
    if (!of(0).begun && of_ >= kMany && !free_ && passes > 0) {
      run(kBackground, 0, {kBackgroundGap * tolerance, std::max(kBackgroundPasses, double(of_)), shrink});
      each(kBackground, [&](int64_t i, T a) { background_[i] = a; });
      of(kBackground) = Label(0);
    }
    parallel(count_, 1, threads_, [&](int64_t first, int64_t last) { run(first, last, goal); });
    Advanced all{{0, 0, 0}, 0, 0, 0};
    for (int64_t c = 0; c < count_; ++c) {
      const Label& one = of(c);
      all.at.primal += one.primal, all.at.dual += one.primal - one.gap;
      all.at.violation = std::max(all.at.violation, one.violation);
      all.passes = std::max(all.passes, one.passes);
      all.left_out += one.left_out / double(count_);
      all.running += one.running;
    }
    return all;
  }

  int64_t labels() const override { return count_; }
  void ended(double* primal, double* gap, double* passes) const override {
    for (int64_t c = 0; c < count_; ++c)
      primal[c] = of(c).primal, gap[c] = of(c).gap, passes[c] = of(c).passes;
  }

  void get_weights(void* out) const override { by_features(weights(0), width_, d_, count_, threads_, out); }

  int64_t alpha_count() const override {
    int64_t count = 0;
    for (int64_t c = 0; c < count_; ++c) each(c, [&](int64_t, T) { ++count; });
    return count;
  }
  void get_alpha(int64_t* offset, int32_t* index, double* value) const override {
    std::vector<int64_t> next(n_ + 1, 0);
    for (int64_t c = 0; c < count_; ++c) each(c, [&](int64_t i, T) { ++next[i + 1]; });
    for (int64_t i = 0; i < n_; ++i) next[i + 1] += next[i];
    std::copy(next.begin(), next.end(), offset);
    for (int64_t c = 0; c < count_; ++c)
      each(c, [&](int64_t i, T a) { index[next[i]] = int32_t(first_ + c), value[next[i]++] = double(a); });
  }
  void set_alpha(const int64_t* offset, const int32_t* index, const double* value) override {
    std::fill(W_.get(), W_.get() + (count_ + 1) * width_, T(0));
    for (Label& one : label_) {
      one.index.clear(), one.value.clear();
      one.centre = 0;
      one.begun = true, one.gap = one.least = std::numeric_limits<double>::infinity();
    }
    std::fill(background_.get(), background_.get() + n_, T(0));
    std::vector<int64_t> own(own_first_.begin(), own_first_.end() - 1);  // the next row of each label
    for (int64_t i = 0; i < n_; ++i) {
      for (int64_t p = offset[i]; p < offset[i + 1]; ++p) {
        const int64_t c = index[p] - first_;
        if (c < 0 || c >= count_ || value[p] == 0 || !filled(i)) continue;
        while (own[c] < own_first_[c + 1] && own_[own[c]] < i) ++own[c];
        const bool has = own[c] < own_first_[c + 1] && own_[own[c]] == i;
        of(c).index.push_back(int32_t(i)), of(c).value.push_back(T(value[p]));
        rows_.add(i, T(has ? value[p] : -value[p]), weights(c));
      }
    }
  }

 private:
  static constexpr int64_t kBackground = -1;  // as the number of a label

  // A label between calls, at the weights that it has.
  struct Label {
    explicit Label(uint64_t seed) : random(seed) {}
    Random random;
    bool begun = false, running = true;
    double primal = 0, gap = std::numeric_limits<double>::infinity(), violation = 0;
    T centre = 0;  // of a free bias
    double of_bias = 0;  // what the free bias adds to the gap
    double passes = 0, left_out = 0;  // passes made; share of the rows that the last sweep left out
    // the gap when it last fell by a tenth, and the passes made then
    double least = std::numeric_limits<double>::infinity(), since = 0;
    std::vector<int32_t> index;  // where its dual variables differ from those that it starts from, ascending
    std::vector<T> value;
  };
  struct Goal {
    double tolerance, passes;
    bool shrink;
  };

  // Labels under way in a thread, side by side.
  struct Slots {
    Slots(int64_t count, const SeparateAscent& of)
        : w(Rows::lanes(count) * of.width_), alpha(count * of.padded_), sign(count * of.padded_),
          z(Rows::lanes(count) * of.padded_), part(of.padded_), rest(of.rows_) {}
    Zeros<T> w, alpha;
    Zeros<int8_t> sign;  // s_i
    Zeros<T> z;
    Zeros<T> part;  // each row's part of the gap of the label that is looked at
    typename Rows::Scratch rest;
    std::vector<int32_t> list;
  };

  bool filled(int64_t i) const { return X_.offset[i] < X_.offset[i + 1]; }
  Label& of(int64_t c) { return label_[c + 1]; }
  const Label& of(int64_t c) const { return label_[c + 1]; }
  T* weights(int64_t c) const { return W_.get() + (c + 1) * width_; }
  // Factors of a label: positive() and negative() of the weights of rows with it and without it, share() of the dual
  // variables of the background.
  T positive(int64_t c) const { return T(c == kBackground ? 1 : positive_[c]); }
  T negative(int64_t c) const { return T(c == kBackground ? 1 : negative_[c]); }
  T share(int64_t c) const { return std::min(negative(c), T(1)); }
  // f(i) for the rows of a label.
  template <class F>
  void own(int64_t c, F&& f) const {
    if (c == kBackground) return;
    for (int64_t p = own_first_[c]; p < own_first_[c + 1]; ++p) f(own_[p]);
  }
  // f(i, a) for all rows, with the dual variables from which a label starts. A row of zeros keeps its own for ever:
  // there h = 1, where C_i φ has the slope C_i, or 2C_i if φ is squared.
  template <class F>
  void start(int64_t c, F&& f) const {
    const int64_t last = c == kBackground ? 0 : own_first_[c + 1];
    int64_t p = c == kBackground ? 0 : own_first_[c];
    const T share = this->share(c), times = T(squared_ ? 2 : 1);
    for (int64_t i = 0; i < n_; ++i) {
      const bool has = p < last && own_[p] == i;
      p += has;
      f(i, !filled(i) ? times * cost_[i] * (has ? positive(c) : negative(c))
           : has      ? T(0)
                      : share * background_[i]);
    }
  }
  // f(i, α_i) for the dual variables that are not zero.
  template <class F>
  void each(int64_t c, F&& f) const {
    const Label& one = of(c);
    size_t e = 0;
    start(c, [&](int64_t i, T a) {
      if (e < one.index.size() && one.index[e] == i) a = one.value[e++];
      if (a != 0) f(i, a);
    });
  }

  void run(int64_t first, int64_t last, const Goal& goal) {
    const int64_t room = std::min<int64_t>(N, last - first);
    Slots slots(room, *this);
    std::vector<int64_t> c;  // under way
    std::vector<double> until;  // passes that each may come to
    while (true) {
      for (; int64_t(c.size()) < room && first < last; ++first) {
        Label& one = of(first);
        if (one.begun && one.gap <= goal.tolerance * one.primal) {
          one.running = false;
          continue;
        }
        begin(first, slots, int64_t(c.size()));
        c.push_back(first), until.push_back(one.passes + goal.passes);
      }
      if (c.empty()) return;
      const int64_t count = int64_t(c.size());
      rows_.scores(slots.w.get(), width_, count, slots.z.get(), padded_, slots.rest);
      for (int64_t s = count; s-- > 0;) {
        const T small = squared_ ? look<true>(c[s], slots, s, goal) : look<false>(c[s], slots, s, goal);
        Label& one = of(c[s]);
        // a gap that is NaN ends it too, and a gap that rounding keeps from falling
        const bool moves = one.of_bias > 0 && one.gap - one.of_bias <= kMoves * one.of_bias;
        one.running = one.gap > goal.tolerance * one.primal && (moves || !slots.list.empty()) &&
                      one.passes - one.since <= std::max(kIdlePasses<T>, one.passes / 2);
        if (one.running && one.passes < until[s]) {
          if (moves) {
            T& u = slots.w.get()[s * width_ + d_ - 1];
            const T step = u - one.centre;
            one.centre = u, u += step;
            continue;
          }
          const auto go = squared_ ? &SeparateAscent::sweeps<true> : &SeparateAscent::sweeps<false>;
          (this->*go)(c[s], slots, s, small, goal.shrink, until[s]);
          continue;
        }
        end(c[s], slots, s);
        // the last slot takes the place of this one
        const int64_t other = int64_t(c.size()) - 1;
        if (s != other) {
          std::copy_n(slots.w.get() + other * width_, width_, slots.w.get() + s * width_);
          std::copy_n(slots.alpha.get() + other * padded_, padded_, slots.alpha.get() + s * padded_);
          std::copy_n(slots.sign.get() + other * padded_, padded_, slots.sign.get() + s * padded_);
        }
        c[s] = c[other], until[s] = until[other];
        c.pop_back(), until.pop_back();
      }
    }
  }

  // Puts a label into a slot.
  void begin(int64_t c, Slots& slots, int64_t slot) {
    Label& one = of(c);
    T *w = slots.w.get() + slot * width_, *alpha = slots.alpha.get() + slot * padded_;
    int8_t* sign = slots.sign.get() + slot * padded_;
    if (one.begun) {
      std::copy_n(weights(c), width_, w);
    } else {
      const T share = this->share(c);
      for (int64_t j = 0; j < width_; ++j) w[j] = share * weights(kBackground)[j];
      own(c, [&](int64_t i) { rows_.add(i, share * background_[i], w); });
    }
    start(c, [&](int64_t i, T a) { alpha[i] = a; });
    for (size_t e = 0; e < one.index.size(); ++e) alpha[one.index[e]] = one.value[e];
    std::fill(sign, sign + n_, int8_t(-1));
    own(c, [&](int64_t i) { sign[i] = 1; });
    one.begun = true;
  }

  // Takes a label out of its slot.
  void end(int64_t c, Slots& slots, int64_t slot) {
    Label& one = of(c);
    const T* alpha = slots.alpha.get() + slot * padded_;
    std::copy_n(slots.w.get() + slot * width_, width_, weights(c));
    one.index.clear(), one.value.clear();
    start(c, [&](int64_t i, T a) {
      if (alpha[i] != a) one.index.push_back(int32_t(i)), one.value.push_back(alpha[i]);
    });
  }

  // Works out the objectives and the violation of a label at its scores, and the list of rows for the sweeps to come.
  // Returns the part of the gap that a row on the list exceeds.
  template <bool squared>
  T look(int64_t c, Slots& slots, int64_t slot, const Goal& goal) {
    constexpr int K = kWide<T>;
    constexpr int64_t kBlock = 256;
    const Hinge<T, squared> hinge;
    T *z = slots.z.get() + slot * padded_, *parts = slots.part.get();
    const T* alpha = slots.alpha.get() + slot * padded_;
    const int8_t* sign = slots.sign.get() + slot * padded_;
    const Wide<T> positive = wide(this->positive(c)), negative = wide(this->negative(c));
    std::fill(z + n_, z + padded_, T(0));  // with α = 0, and s = 0
    const Poll poll;
    poll(padded_ / K * kVisit);
    double gap = 0, loss = 0;
    int64_t loose = 0;
    Wide<T> worst{};
    for (int64_t first = 0; first < padded_; first += kBlock) {
      Wide<T> gaps{}, losses{};
      for (int64_t i = first; i < std::min(first + kBlock, padded_); i += K) {
        const Wide<T> s = load_signs_wide<T>(sign + i), h = s * (s - load_wide(z + i)),
                      a = load_wide(alpha + i);
        const Wide<T> cost = select(s > 0, positive, negative) * load_wide(cost_.get() + i);
        const Wide<T> own = hinge.part(h, a, cost);
        store_wide(parts + i, own);
        gaps += own, losses += cost * hinge.loss(h);
        loose += __builtin_popcount(nonzero(own));
        worst = maximum(worst, projected(h - hinge.ridge(cost) * a, a, hinge.upper(cost)));
      }
      gap += double(total(gaps)), loss += double(total(losses));
    }
    Label& one = of(c);
    double norm2 = 0;
    for (int64_t j = 0; j < width_; j += K) {
      const Wide<T> w = load_wide(slots.w.get() + slot * width_ + j);
      norm2 += double(total(w * w));
    }
    one.of_bias = 0;
    if (free_) {
      const double u = double(slots.w.get()[slot * width_ + d_ - 1]), off = u - double(one.centre);
      // if α were cut to Σ s α = 0, the dual objective would be less by about |off u|
      norm2 -= u * u, one.of_bias = std::abs(off) * (std::abs(off) + std::abs(u));
      gap += one.of_bias;
    }
    one.primal = norm2 / 2 + loss;
    one.gap = gap, one.violation = double(largest<T>(worst));
    one.passes += kLook;
    if (gap < 0.9 * one.least) one.least = gap, one.since = one.passes;

    // a bias moves only once rows have little of the gap
    const double enough = goal.tolerance * one.primal,
                 rest = one.of_bias > 0 ? std::min(enough, kMoves * one.of_bias) : enough;
    const double little = std::max(kSmall * (gap - one.of_bias), kRest * rest);
    const T small = goal.shrink ? T(little / double(std::max<int64_t>(loose, 1))) : T(0);
    slots.list.clear();
    for (int64_t i = 0; i < padded_; i += K)
      for (unsigned some = lanes_where(load_wide(parts + i) > small); some; some &= some - 1)
        slots.list.push_back(int32_t(i + __builtin_ctz(some)));
    one.left_out = 1 - double(slots.list.size()) / double(n_);
    return small;
  }

  template <bool squared>
  void sweeps(int64_t c, Slots& slots, int64_t slot, T small, bool shrink, double until) {
    Label& one = of(c);
    const Hinge<T, squared> hinge;
    T *w = slots.w.get() + slot * width_, *alpha = slots.alpha.get() + slot * padded_;
    const int8_t* sign = slots.sign.get() + slot * padded_;
    const T *inverse = inverse_.get(), *costs = cost_.get(), positive = this->positive(c),
            negative = this->negative(c);
    std::vector<int32_t>& list = slots.list;
    const Poll poll;
    for (int sweep = 0; sweep < kSweeps && !list.empty() && one.passes < until; ++sweep) {
      one.random.shuffle(list);
      one.passes += double(list.size()) / double(n_);
      double left = 0;
      size_t kept = 0;
      const size_t last = list.size() - 1;
      for (size_t k = 0; k <= last; ++k) {
        const int32_t i = list[k], soon = list[std::min(k + kAhead, last)];
        rows_.prefetch(soon), __builtin_prefetch(alpha + soon), __builtin_prefetch(sign + soon);
        poll(rows_.work(i));
        const T s = T(sign[i]), cost = costs[i] * (sign[i] > 0 ? positive : negative);
        const T a = alpha[i], h = 1 - s * rows_.dot(i, w), share = hinge.part(h, a, cost);
        const bool stays = share > small;
        if (stays || !shrink) list[kept++] = i;
        if (!stays) continue;
        left += double(share);
        // α = clip(α + (h - ρ α) / (‖x‖² + ρ), 0, C)
        const T next = std::min(std::max(a + hinge.step(h, a, cost, inverse[i]), T(0)), hinge.upper(cost));
        if (next == a) continue;
        alpha[i] = next;
        rows_.add(i, s * (next - a), w);
      }
      list.resize(kept);
      if (left <= kFall * (one.gap - one.of_bias)) return;
    }
  }

  static constexpr int64_t kVisit = 10;  // products of a vector in a look, about

  const int64_t d_, padded_, width_;  // features; rows and features in whole vectors
  const int64_t first_, count_, threads_;  // labels: the number of the first, and how many
  const bool squared_, free_;
  const std::vector<int64_t> own_first_;  // the rows of each label
  const std::vector<int32_t> own_;
  const std::vector<double> positive_, negative_;  // weights of the rows with each label and without it
  const int64_t of_;  // labels of the whole problem, to which these belong
  const Csr<T> X_;
  const Rows rows_;
  Zeros<T> cost_, inverse_, background_;  // C of the rows, 1 / ‖x_i‖², and α of the background
  Zeros<T> W_;  // of the background and all labels, [1 + labels, width]
  std::vector<Label> label_;  // the background first
};

}  // namespace

template <class T>
MulticlassSeparate* multiclass_separate(const SeparateNewArgs<T>& args) {
  if (args.dense) return new SeparateAscent<T, DenseRows<T>>(args);
  return new SeparateAscent<T, SparseRows<T>>(args);
}
template MulticlassSeparate* multiclass_separate(const SeparateNewArgs<float>&);
template MulticlassSeparate* multiclass_separate(const SeparateNewArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
