// One against the rest by dual coordinate ascent: a binary SVM for each class, which needs nothing of the others.
//
// Ascent alternates between looks at all rows and sweeps over some. A look works out the scores of as many classes as
// fill a vector in one pass over the features, and the part of the gap that is a row's own,
//
//   P - D = Σ_i C φ(h_i) - α_i h_i + ½ ρ α_i²,   h_i = 1 - s_i ⟨w, x_i⟩,   w = Σ_i s_i α_i x_i,   s_i = ±1,
//
// none of which is negative. Sweeps then visit the rows with most of it, in random order and one class at a time, so
// that its weights stay in the cache, until little of it is left; what the others have gained shows the next look. A
// class whose gap is small enough makes room for the next one.
//
// With many classes a row is positive in one of them and negative in all others. The background is the SVM of which
// all rows are negative: a class starts from its dual variables, but for its own rows, and has to find only
// the difference. What is kept of its dual variables is where they differ from the background.
//
// Hsieh, Chang, Lin, Keerthi and Sundararajan, "A dual coordinate descent method for large-scale linear SVM", 2008.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "dual/driver.h"
#include "dual/panels.h"
#include "dual/row_features.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

// What a look counts as, in passes: that of a panel, shared by its classes.
constexpr double kLook = 0.125;
// Rows whose part of the gap is below this share of the mean are left out until the next look; so are rows that all
// together have less than this share of the gap that is asked for.
constexpr double kSmall = 0.03, kRest = 0.5;
// Sweeps in a row: until this share of the gap is left, and at most so many.
constexpr double kFall = 0.2;
constexpr int kSweeps = 10;
// Classes from which on there is a background; its gap, relative to that of the classes, and passes at most, or as many
// as there are classes: they cost what one pass of all classes does.
constexpr int64_t kMany = 8;
constexpr double kBackgroundGap = 0.25, kBackgroundPasses = 100;

template <class T, class Rows>
class SeparateAscent final : public MulticlassSeparate {
  static constexpr int N = kLanes<T>;
  // Passes without a fall of the gap by a tenth after which rounding is taken to be the reason, at least; it may also
  // be half of all passes.
  static constexpr double kIdlePasses = sizeof(T) == 4 ? 200 : 1000;

 public:
  explicit SeparateAscent(const MulticlassArgs<T>& args)
      : MulticlassSeparate(args.X.n), d_(args.X.d), padded_(in_vectors<T>(n_)),
        width_(in_vectors<T>(d_)), y_(args.y), classes_(args.classes), count_(args.classes.last - args.classes.first),
        threads_(args.threads), form_{args.formulation, args.m, args.C},
        hinge_{T(args.C), T(form_.upper()), T(form_.ridge()), form_.squared()}, X_(args.X), rows_(args.X), inverse_(n_), background_(n_),
        W_((count_ + 1) * width_), own_first_(count_ + 1, 0), own_(), class_() {
    std::vector<int32_t> of_class(count_ + 1, 0);
    for (int64_t i = 0; i < n_; ++i) {
      inverse_[i] = T(1 / (squared_norm(X_, i) + form_.ridge()));
      if (!filled(i)) background_[i] = T(form_.unopposed());
      if (classes_.has(y_[i])) ++own_first_[y_[i] - classes_.first + 1];
    }
    for (int64_t c = 0; c < count_; ++c) own_first_[c + 1] += own_first_[c];
    own_.resize(own_first_[count_]);
    std::vector<int64_t> next(own_first_.begin(), own_first_.end());
    for (int64_t i = 0; i < n_; ++i)
      if (classes_.has(y_[i])) own_[next[y_[i] - classes_.first]++] = int32_t(i);
    class_.reserve(count_ + 1);
    for (int64_t c = kBackground; c < count_; ++c)
      class_.emplace_back(args.seed + 0x9e3779b97f4a7c15u * uint64_t(number(c) + 2));
  }

  Advanced advance(double tolerance, double passes, bool shrink) override {
    const Goal goal{tolerance, passes, shrink};
    if (!class_of(0).begun && form_.m >= kMany && passes > 0) {
      run(kBackground, 0, {kBackgroundGap * tolerance, std::max(kBackgroundPasses, double(form_.m)), shrink});
      each(kBackground, [&](int64_t i, T a) { background_[i] = a; });
      class_of(kBackground) = Class(0);
    }
    parallel(count_, 1, threads_, [&](int64_t first, int64_t last) { run(first, last, goal); });
    Advanced all{{0, 0, 0}, 0, 0, 0};
    for (int64_t c = 0; c < count_; ++c) {
      const Class& one = class_of(c);
      all.at.primal += one.primal, all.at.dual += one.primal - one.gap;
      all.at.violation = std::max(all.at.violation, one.violation);
      all.passes = std::max(all.passes, one.passes);
      all.left_out += one.left_out / double(count_);
      all.running += one.running;
    }
    return all;
  }

  void get_weights(void* out) const override {
    constexpr int64_t kFeatures = 64;  // at a time, so that their lines stay in the cache
    T* W = static_cast<T*>(out);
    parallel(d_, kFeatures, threads_, [&](int64_t first, int64_t end) {
      for (; first < end; first += kFeatures)
        for (int64_t c = 0; c < count_; ++c)
          for (int64_t j = first; j < std::min(first + kFeatures, end); ++j) W[j * count_ + c] = weights(c)[j];
    });
  }

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
      each(c, [&](int64_t i, T a) { index[next[i]] = int32_t(classes_.first + c), value[next[i]++] = double(a); });
  }
  void set_alpha(const int64_t* offset, const int32_t* index, const double* value) override {
    std::fill(W_.get(), W_.get() + (count_ + 1) * width_, T(0));
    for (Class& one : class_) {
      one.index.clear(), one.value.clear();
      one.begun = true, one.gap = one.least = std::numeric_limits<double>::infinity();
    }
    for (int64_t i = 0; i < n_; ++i) {
      if (!filled(i)) continue;
      background_[i] = 0;
      for (int64_t p = offset[i]; p < offset[i + 1]; ++p) {
        if (!classes_.has(index[p]) || value[p] == 0) continue;
        const int64_t c = index[p] - classes_.first;
        class_of(c).index.push_back(int32_t(i)), class_of(c).value.push_back(T(value[p]));
        rows_.add(i, T(form_.sign(index[p], y_[i]) * value[p]), weights(c));
      }
    }
  }

 private:
  static constexpr int64_t kBackground = -1;  // as the number of a class

  // A class between calls, at the weights that it has.
  struct Class {
    explicit Class(uint64_t seed) : random(seed) {}
    Random random;
    bool begun = false, running = true;
    double primal = 0, gap = std::numeric_limits<double>::infinity(), violation = 0;
    double passes = 0, left_out = 0;  // passes made; share of the rows that the last sweep left out
    double least = std::numeric_limits<double>::infinity(), since = 0;  // of the gap, after so many passes
    std::vector<int32_t> index;  // where its dual variables differ from the background, ascending
    std::vector<T> value;
  };
  struct Goal {
    double tolerance, passes;
    bool shrink;
  };

  // Classes under way in a thread, side by side.
  struct Slots {
    Slots(int64_t count, const SeparateAscent& of)
        : w(Rows::lanes(count) * of.width_), alpha(count * of.padded_), z(Rows::lanes(count) * of.padded_),
          part(of.padded_), rest(of.rows_) {}
    Zeros<T> w, alpha, z;
    Zeros<T> part;  // of the gap, of the class that is looked at
    typename Rows::Scratch rest;
    std::vector<int32_t> list;
  };

  bool filled(int64_t i) const { return X_.offset[i] < X_.offset[i + 1]; }
  Class& class_of(int64_t c) { return class_[c + 1]; }
  const Class& class_of(int64_t c) const { return class_[c + 1]; }
  T* weights(int64_t c) const { return W_.get() + (c + 1) * width_; }
  // The class as y has it; none for the background.
  int64_t number(int64_t c) const { return c == kBackground ? -1 : classes_.first + c; }
  // f(i) for the rows of a class that are not zero.
  template <class F>
  void of_class(int64_t c, F&& f) const {
    if (c == kBackground) return;
    for (int64_t p = own_first_[c]; p < own_first_[c + 1]; ++p)
      if (filled(own_[p])) f(own_[p]);
  }
  // Where a class starts, and what is kept of its dual variables differs from.
  T start(int64_t c, int64_t i) const { return y_[i] == number(c) && filled(i) ? T(0) : background_[i]; }
  // f(i, α_i) for the dual variables that are not zero.
  template <class F>
  void each(int64_t c, F&& f) const {
    const Class& one = class_of(c);
    size_t e = 0;
    for (int64_t i = 0; i < n_; ++i) {
      const T a = e < one.index.size() && one.index[e] == i ? one.value[e++] : start(c, i);
      if (a != 0) f(i, a);
    }
  }

  // Of the loss; a copy of its own stays in registers.
  struct Hinge {
    T C, upper, ridge;
    bool squared;
    // Part of the gap that is a row's own, of numbers or of vectors.
    template <class V>
    V part(V h, V a) const {
      if (!squared) return select(h > 0, (C - a) * h, -a * h);
      // ½ ρ (2C h - α)², or with h <= 0 what is left of it
      const V off = (2 * C) * h - a, half = V{} + ridge / 2;
      return select(h > 0, half * off * off, a * (half * a - h));
    }
  };

  void run(int64_t first, int64_t last, const Goal& goal) {
    const int64_t room = std::min<int64_t>(N, last - first);
    Slots slots(room, *this);
    std::vector<int64_t> c;        // under way
    std::vector<double> until;     // passes that each may come to
    while (true) {
      for (; int64_t(c.size()) < room && first < last; ++first) {
        Class& one = class_of(first);
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
        const T small = look(c[s], slots, s, goal);
        Class& one = class_of(c[s]);
        // a gap that is no number ends it too, and one that rounding keeps up
        one.running = one.gap > goal.tolerance * one.primal && !slots.list.empty() &&
                      one.passes - one.since <= std::max(kIdlePasses, one.passes / 2);
        if (one.running && one.passes < until[s]) {
          sweeps(c[s], slots, s, small, goal.shrink, until[s]);
          continue;
        }
        end(c[s], slots, s);
        // the last slot takes its place
        const int64_t other = int64_t(c.size()) - 1;
        if (s != other) {
          std::copy_n(slots.w.get() + other * width_, width_, slots.w.get() + s * width_);
          std::copy_n(slots.alpha.get() + other * padded_, padded_, slots.alpha.get() + s * padded_);
        }
        c[s] = c[other], until[s] = until[other];
        c.pop_back(), until.pop_back();
      }
    }
  }

  // Puts a class into a slot.
  void begin(int64_t c, Slots& slots, int64_t slot) {
    Class& one = class_of(c);
    T *w = slots.w.get() + slot * width_, *alpha = slots.alpha.get() + slot * padded_;
    std::copy_n(weights(one.begun ? c : kBackground), width_, w);
    std::copy_n(background_.get(), n_, alpha);
    of_class(c, [&](int64_t i) {
      if (!one.begun && alpha[i] != 0) rows_.add(i, alpha[i], w);
      alpha[i] = 0;
    });
    for (size_t e = 0; e < one.index.size(); ++e) alpha[one.index[e]] = one.value[e];
    one.begun = true;
  }

  // Takes it out.
  void end(int64_t c, Slots& slots, int64_t slot) {
    Class& one = class_of(c);
    const T* alpha = slots.alpha.get() + slot * padded_;
    std::copy_n(slots.w.get() + slot * width_, width_, weights(c));
    one.index.clear(), one.value.clear();
    for (int64_t i = 0; i < n_; ++i)
      if (alpha[i] != start(c, i)) one.index.push_back(int32_t(i)), one.value.push_back(alpha[i]);
  }

  // Objectives and violation of a class at its scores, and the list of rows for the sweeps to come. Returns the part
  // of the gap that a row has to have for it.
  T look(int64_t c, Slots& slots, int64_t slot, const Goal& goal) {
    constexpr int K = kWide<T>;
    constexpr int64_t kBlock = 256;
    const Hinge hinge = hinge_;
    T *z = slots.z.get() + slot * padded_, *parts = slots.part.get();
    const T* alpha = slots.alpha.get() + slot * padded_;
    of_class(c, [&](int64_t i) { z[i] = -z[i]; });
    std::fill(z + n_, z + padded_, T(-2));  // h < 0, with α = 0
    const Poll poll;
    poll(padded_ / K * kVisit);
    double gap = 0, loss = 0;
    int64_t loose = 0;
    Wide<T> worst{};
    for (int64_t first = 0; first < padded_; first += kBlock) {
      Wide<T> gaps{}, losses{};
      for (int64_t i = first; i < std::min(first + kBlock, padded_); i += K) {
        const Wide<T> h = 1 + load_wide(z + i), a = load_wide(alpha + i), own = hinge.part(h, a);
        const Wide<T> lost = maximum(h, Wide<T>{});
        store_wide(parts + i, own);
        gaps += own, losses += hinge.squared ? lost * lost : lost;
        loose += __builtin_popcount(nonzero(own));
        worst = maximum(worst, projected(h - hinge.ridge * a, a, hinge.upper));
      }
      gap += double(total(gaps)), loss += double(total(losses));
    }
    Class& one = class_of(c);
    double norm2 = 0;
    for (int64_t j = 0; j < width_; j += K) {
      const Wide<T> w = load_wide(slots.w.get() + slot * width_ + j);
      norm2 += double(total(w * w));
    }
    one.primal = norm2 / 2 + double(hinge.C) * loss;
    one.gap = gap, one.violation = double(largest<T>(worst));
    one.passes += kLook;
    if (gap < 0.9 * one.least) one.least = gap, one.since = one.passes;

    const double little = std::max(kSmall * gap, kRest * goal.tolerance * one.primal);
    const T small = goal.shrink ? T(little / double(std::max<int64_t>(loose, 1))) : T(0);
    slots.list.clear();
    for (int64_t i = 0; i < padded_; i += K)
      for (unsigned some = lanes_where(load_wide(parts + i) > small); some; some &= some - 1)
        slots.list.push_back(int32_t(i + __builtin_ctz(some)));
    one.left_out = 1 - double(slots.list.size()) / double(n_);
    return small;
  }

  void sweeps(int64_t c, Slots& slots, int64_t slot, T small, bool shrink, double until) {
    Class& one = class_of(c);
    const int64_t own = number(c);
    const Hinge hinge = hinge_;
    T *w = slots.w.get() + slot * width_, *alpha = slots.alpha.get() + slot * padded_;
    std::vector<int32_t>& list = slots.list;
    const T* inverse = inverse_.get();
    const int32_t* y = y_;
    const Poll poll;
    for (int sweep = 0; sweep < kSweeps && !list.empty() && one.passes < until; ++sweep) {
      one.random.shuffle(list);
      one.passes += double(list.size()) / double(n_);
      double left = 0;
      size_t kept = 0;
      const size_t last = list.size() - 1;
      for (size_t k = 0; k <= last; ++k) {
        const int32_t i = list[k], soon = list[std::min(k + kAhead, last)];
        rows_.prefetch(soon), __builtin_prefetch(alpha + soon), __builtin_prefetch(y + soon);
        poll(rows_.work(i));
        const T s = y[i] == own ? T(1) : T(-1), a = alpha[i], h = 1 - s * rows_.dot(i, w), share = hinge.part(h, a);
        const bool stays = share > small;
        if (stays || !shrink) list[kept++] = i;
        if (!stays) continue;
        left += double(share);
        // α = clip(α + (h - ρ α) / (‖x‖² + ρ), 0, C)
        const T next = std::min(std::max(a + (h - hinge.ridge * a) * inverse[i], T(0)), hinge.upper);
        if (next == a) continue;
        alpha[i] = next;
        rows_.add(i, s * (next - a), w);
      }
      list.resize(kept);
      if (left <= kFall * one.gap) return;
    }
  }

  static constexpr size_t kAhead = 6;     // visits from which on a row is fetched
  static constexpr int64_t kVisit = 10;  // products of a vector in a look, about

  const int64_t d_, padded_, width_;  // features; rows and features in whole vectors
  const int32_t* y_;
  const Classes classes_;
  const int64_t count_, threads_;
  const Formulation form_;
  const Hinge hinge_;
  const Csr<T> X_;
  const Rows rows_;
  Zeros<T> inverse_, background_;     // 1 / (‖x_i‖² + ρ), and α of the background
  LargeZeros<T> W_;                   // of the background and all classes, [1 + classes, width]
  std::vector<int64_t> own_first_;    // the rows of each class
  std::vector<int32_t> own_;
  std::vector<Class> class_;          // the background first
};

}  // namespace

template <class T>
MulticlassSeparate* multiclass_separate(const MulticlassArgs<T>& args) {
  if (args.dense) return new SeparateAscent<T, DenseRows<T>>(args);
  return new SeparateAscent<T, SparseRows<T>>(args);
}
template MulticlassSeparate* multiclass_separate(const MulticlassArgs<float>&);
template MulticlassSeparate* multiclass_separate(const MulticlassArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
