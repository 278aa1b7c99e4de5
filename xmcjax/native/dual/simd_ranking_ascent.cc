// The multi-label SVM by dual coordinate ascent: every label of a row is to stand above all others (solvers/
// multiclass_dual/_ranking.py). With one label per row it is the SVM of Crammer and Singer.
//
// For labels Y_i of row i, the others being N_i, and scores z = W x_i,
//
//   P = ½‖W‖² + Σ_i C_i [1 + max_N z - min_Y z]₊,   D = Σ_i s_i - ½‖W‖²,   W = Σ_i a_i x_iᵀ,
//   a_Y >= 0,  a_N <= 0,  Σ_Y a = -Σ_N a = s_i <= C_i.
//
// Ascent alternates between looks at all rows and sweeps over some. A look works out the scores of as many labels as
// fill a vector in one pass over the features, and finds for each row the labels of N that violate its constraints
// most. Sweeps visit the rows with most of the gap in random order. A visit makes several variables of a row optimal
// together: those of Y, of the labels that the look found, and of the labels of N that have a variable. With q = ‖x‖²
// they are the point of the set that is nearest to b = a + (y/2 - z)/q, y = ±1. Without the bound on s that point is
//
//   a_Y = max(b - t, 0),  a_N = min(b - t, 0)  with the t for which they sum to 0;
//
// where s is above C_i, Y and N have a threshold each, by which they sum to ±C_i.
//
// Lapin, Hein and Schiele, "Analysis and optimization of loss functions for multiclass, top-k, and multilabel
// classification", 2018 (SVM^ML); Crammer and Singer, "A family of additive online algorithms for category ranking",
// 2003.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "core/parallel.h"
#include "dual/driver.h"
#include "dual/row_features.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

// Labels of N that a look finds for a row at most.
constexpr int kFound = 8;

// A variable of a visit. b: less the part that all of Y or all of N have in common; where ‖x‖² is small that part is so
// much larger than C that sums would lose the rest. a: what the variable becomes.
struct Variable {
  double b, a;
  bool own;  // of Y
};

// The threshold t with Σ max(0, ±(b - t)) = C over the variables of Y (+) or of N (-), of which there is one at least.
double simplex_threshold(const std::vector<Variable>& row, bool own, double C) {
  const double sign = own ? 1 : -1;
  double t = -std::numeric_limits<double>::infinity();
  for (size_t left = row.size() + 1;;) {  // t ascends: a sign b below it never comes back
    double sum = -C;
    size_t count = 0;
    for (const Variable& v : row)
      if (v.own == own && sign * v.b > t) sum += sign * v.b, ++count;
    if (count == 0 || count >= left) return sign * t;  // rounding may bring one back
    left = count, t = sum / double(count);
  }
}

// Puts the point of the set that is nearest to b into a; the common part of N is less than that of Y by `apart`.
void nearest(std::vector<Variable>& row, double apart, double C) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto at = [apart](const Variable& v) { return v.own ? v.b : v.b - apart; };
  double high = -infinity, low = infinity;  // the largest b of Y and the smallest of N
  for (const Variable& v : row) {
    if (v.own) high = std::max(high, at(v));
    else low = std::min(low, at(v));
  }
  if (!(high > low)) {
    for (Variable& v : row) v.a = 0;
    return;
  }
  // Σ_Y max(0, b - t) + Σ_N min(0, b - t) falls from above 0 at low to below 0 at high
  double t = low + (high - low) / 2;
  for (int round = 0; round < 200; ++round) {
    double sum = 0, count = 0;
    for (const Variable& v : row)
      if (v.own ? at(v) > t : at(v) < t) sum += at(v), ++count;
    const double value = sum - count * t;
    if (value > 0) low = t;
    else high = t;
    double next = count > 0 ? sum / count : t;
    if (next == t) break;
    if (!(next > low && next < high)) next = low + (high - low) / 2;
    if (!(next > low && next < high)) break;  // neighbours
    t = next;
  }
  double s = 0;
  for (const Variable& v : row)
    if (v.own) s += std::max(v.b - t, 0.0);
  double above = t, below = t + apart;  // thresholds of Variable::b, for Y and for N
  if (s > C) above = simplex_threshold(row, true, C), below = simplex_threshold(row, false, C);
  for (Variable& v : row) v.a = v.own ? std::max(v.b - above, 0.0) : std::min(v.b - below, 0.0);
}

template <class T, class Rows>
class RankingAscent final : public MulticlassAdvancing {
  static constexpr int N = kLanes<T>;

 public:
  explicit RankingAscent(const RankingNewArgs<T>& args)
      : MulticlassAdvancing(args.X.n), d_(args.X.d), m_(args.classes), padded_(in_vectors<T>(n_)),
        width_(in_vectors<T>(d_)), threads_(args.threads), first_(args.offset, args.offset + n_ + 1),
        label_(args.label, args.label + first_[n_]), cost_(args.cost, args.cost + n_), norm2_(n_), X_(args.X),
        rows_(args.X), random_(args.seed), W_(Zeros<T>::large(m_ * width_)), own_(first_[n_], T(0)),
        others_(n_), part_(n_), by_label_(m_ + 1, 0), row_of_(first_[n_]) {
    for (int64_t i = 0; i < n_; ++i) {
      norm2_[i] = squared_norm(X_, i);
      if (counts(i) && filled(i)) rows_that_count_.push_back(int32_t(i));
    }
    for (int64_t p = 0; p < first_[n_]; ++p) ++by_label_[label_[p] + 1];
    for (int64_t c = 0; c < m_; ++c) by_label_[c + 1] += by_label_[c];
    std::vector<int64_t> next(by_label_.begin(), by_label_.end() - 1);
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t p = first_[i]; p < first_[i + 1]; ++p) row_of_[next[label_[p]]++] = int32_t(i);
    begin();
    for (const int32_t i : rows_that_count_) any(i);
  }

  Advanced advance(double tolerance, double passes, bool shrink) override {
    const double until = passes_ + passes;
    while (true) {
      const T small = look(tolerance, shrink);
      // a gap that is NaN ends it too, and a gap that rounding keeps from falling
      const bool running = gap_ > tolerance * primal_ && !list_.empty() &&
                           passes_ - since_ <= std::max(kIdlePasses<T>, passes_ / 2);
      if (!running || passes_ >= until)
        return {{primal_, primal_ - gap_, violation_}, passes_, left_out_, running};
      sweeps(small, shrink, until);
    }
  }

  void get_weights(void* out) const override { by_features(W_.get(), width_, d_, m_, threads_, out); }

  int64_t alpha_count() const override {
    int64_t count = 0;
    for (int64_t i = 0; i < n_; ++i) each(i, [&](int32_t, T) { ++count; });
    return count;
  }
  void get_alpha(int64_t* offset, int32_t* index, double* value) const override {
    int64_t at = offset[0] = 0;
    std::vector<DualEntry> row;
    for (int64_t i = 0; i < n_; offset[++i] = at) {
      row.clear();
      each(i, [&](int32_t c, T a) { row.push_back({c, double(a)}); });
      std::sort(row.begin(), row.end(), [](const DualEntry& a, const DualEntry& b) { return a.c < b.c; });
      for (const DualEntry& e : row) index[at] = e.c, value[at++] = e.value;
    }
  }
  void set_alpha(const int64_t* offset, const int32_t* index, const double* value) override {
    std::fill(W_.get(), W_.get() + m_ * width_, T(0));
    std::fill(own_.begin(), own_.end(), T(0));
    for (auto& row : others_) row.clear();
    begin();
    for (const int32_t i : rows_that_count_) {
      int64_t q = first_[i];
      for (int64_t p = offset[i]; p < offset[i + 1]; ++p) {
        const int32_t c = index[p];
        const T a = T(value[p]);
        while (q < first_[i + 1] && label_[q] < c) ++q;
        const bool own = q < first_[i + 1] && label_[q] == c;
        if (a == 0 || own != (a > 0)) continue;  // α of a row with other labels
        if (own) own_[q] = a;
        else others_[i].push_back({c, a});
        rows_.add(i, a, weights(c));
      }
    }
  }

 private:
  struct Entry {
    int32_t c;
    T a;
  };

  bool filled(int64_t i) const { return norm2_[i] > 0; }
  // Whether the row has a loss.
  bool counts(int64_t i) const {
    const int64_t labels = first_[i + 1] - first_[i];
    return cost_[i] > 0 && labels > 0 && labels < m_;
  }
  T* weights(int64_t c) const { return W_.get() + c * width_; }
  template <class F>
  void each(int64_t i, F&& f) const {
    for (int64_t p = first_[i]; p < first_[i + 1]; ++p)
      if (own_[p] != 0) f(label_[p], own_[p]);
    for (const Entry& e : others_[i])
      if (e.a != 0) f(e.c, e.a);
  }

  // The state before the first pass. A row of zeros has the loss C whatever W is: any s = C is best.
  void begin() {
    passes_ = since_ = 0;
    least_ = std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < n_; ++i) {
      if (!counts(i) || filled(i)) continue;
      int32_t other = 0;
      for (int64_t p = first_[i]; p < first_[i + 1] && label_[p] == other; ++p) ++other;
      own_[first_[i]] = T(cost_[i]);
      others_[i].assign(1, {other, -T(cost_[i])});
    }
  }

  // Gives a row entries of some random labels of N: with W = 0 no label violates more than another.
  void any(int64_t i) {
    int64_t c = random_.below(m_);
    for (int64_t left = m_; left > 0 && others_[i].size() < size_t(kFound);
         --left, c = c + 1 < m_ ? c + 1 : 0)
      if (!std::binary_search(label_.begin() + first_[i], label_.begin() + first_[i + 1], int32_t(c)))
        others_[i].push_back({int32_t(c), T(0)});
  }

  // What a look sees of a row at the present W, over Y and the labels of N that it has entries of.
  struct Seen {
    T least, most;  // of z: min over Y, max over the entries of N
    T low, high;  // of z too: min over N with a < 0, max over Y with a > 0
    double s, inner;  // Σ_Y a, ⟨a, z⟩
  };
  Seen seen(int64_t i) const {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    Seen at{infinity, -infinity, infinity, -infinity, 0, 0};
    for (int64_t p = first_[i]; p < first_[i + 1]; ++p) {
      const T z = rows_.dot(i, weights(label_[p])), a = own_[p];
      at.least = std::min(at.least, z);
      if (!(a > 0)) continue;
      at.high = std::max(at.high, z);
      at.s += double(a), at.inner += double(a) * double(z);
    }
    for (const Entry& e : others_[i]) {
      const T z = rows_.dot(i, weights(e.c));
      at.most = std::max(at.most, z);
      if (!(e.a < 0)) continue;
      at.low = std::min(at.low, z);
      at.inner += double(e.a) * double(z);
    }
    return at;
  }

  // Works out the objectives and the violation at the present W, for each row the labels of N that violate most, and
  // the list of rows for the sweeps to come. Returns the part of the gap that a row on the list exceeds.
  T look(double tolerance, bool shrink) {
    std::vector<Seen> all(n_);
    Array<T> floor(padded_, std::numeric_limits<T>::infinity()), most(padded_, -floor[0]);
    std::vector<Entry> found(n_ * kFound, Entry{-1, -floor[0]});  // labels and their scores
    parallel(int64_t(rows_that_count_.size()), kPart, threads_, [&](int64_t first, int64_t last) {
      const Poll poll;
      for (; first < last; ++first) {
        const int32_t i = rows_that_count_[first];
        poll(rows_.work(i) * visited(i));
        std::vector<Entry>& others = others_[i];
        if (passes_ > 0)
          others.erase(std::remove_if(others.begin(), others.end(), [](const Entry& e) { return e.a == 0; }),
                       others.end());
        all[i] = seen(i);
        // Only a label whose score is above this could change something.
        floor[i] = all[i].s > 0 ? all[i].low : all[i].least - 1;
      }
    });
    const int64_t panels = (m_ + N - 1) / N;
    const int64_t slots = std::max<int64_t>(1, std::min(threads_, panels));
    for (int64_t q = 0; q < panels; q += slots) scan(q, std::min(q + slots, panels), floor, most, found);

    double gap = 0, norm2 = 0, loss = 0, worst = 0;
    int64_t loose = 0;
    for (int64_t i = 0; i < n_; ++i) {
      part_[i] = 0;
      if (!counts(i)) continue;
      if (!filled(i)) {
        loss += cost_[i];
        continue;
      }
      const Seen& at = all[i];
      const double gain = 1 + double(most[i]) - double(at.least), lost = std::max(gain, 0.0);
      const double own = cost_[i] * lost - (at.s - at.inner);
      const bool below = at.s < cost_[i];
      double last = below ? 0 : gain;  // the smallest gain of a pair with variables that are not 0
      if (at.s > 0) last = std::min(last, 1 + double(at.low) - double(at.high));
      worst = std::max(worst, (below ? lost : gain) - last);
      part_[i] = T(own), gap += own, loss += cost_[i] * lost, norm2 += at.inner;
      loose += own > 0;
      if (passes_ > 0) insert(i, found.data() + i * kFound);
    }
    primal_ = norm2 / 2 + loss, gap_ = gap, violation_ = worst;
    passes_ += 1;
    if (gap < 0.9 * least_) least_ = gap, since_ = passes_;
    const double little = std::max(kSmall * gap, kRest * tolerance * primal_);
    const T small = shrink ? T(little / double(std::max<int64_t>(loose, 1))) : T(0);
    list_.clear();
    for (const int32_t i : rows_that_count_)
      if (part_[i] > small) list_.push_back(i);
    left_out_ = 1 - double(list_.size()) / double(std::max<size_t>(rows_that_count_.size(), 1));
    return small;
  }

  // The largest scores of N, and the labels that have them where they are above `floor`, in some panels of labels.
  void scan(int64_t first, int64_t last, const Array<T>& floor, Array<T>& most, std::vector<Entry>& found) {
    const int64_t count = last - first;
    while (int64_t(scores_.size()) < count) scores_.push_back(std::make_unique<Scores>(*this));
    parallel(count, 1, threads_, [&](int64_t k, int64_t end) {
      for (; k < end; ++k) {
        const int64_t c = (first + k) * N, some = std::min<int64_t>(N, m_ - c);
        Scores& z = *scores_[k];
        rows_.scores(weights(c), width_, some, z.value.get(), padded_, z.rest);
        for (int64_t l = 0; l < some; ++l)
          for (int64_t p = by_label_[c + l]; p < by_label_[c + l + 1]; ++p)
            z.value[l * padded_ + row_of_[p]] = -std::numeric_limits<T>::infinity();
      }
    });
    parallel(padded_, kPart, threads_, [&](int64_t begin, int64_t end) {
      constexpr int K = kWide<T>;
      for (int64_t k = 0; k < count; ++k)
        for (int64_t l = 0, c = (first + k) * N; l < std::min<int64_t>(N, m_ - c); ++l) {
          const T* z = scores_[k]->value.get() + l * padded_;
          for (int64_t i = begin; i < end; i += K) {
            const Wide<T> v = load_wide(z + i);
            store_wide(most.data() + i, maximum(load_wide(most.data() + i), v));
            for (unsigned some = lanes_where(v > load_wide(floor.data() + i)); some; some &= some - 1) {
              const int64_t row = i + __builtin_ctz(some);
              keep(int32_t(c + l), z[row], found.data() + row * kFound);
            }
          }
        }
    });
  }
  // Takes a label among the best so far, which descend.
  static void keep(int32_t c, T z, Entry* best) {
    if (!(z > best[kFound - 1].a)) return;
    int k = kFound - 1;
    for (; k > 0 && z > best[k - 1].a; --k) best[k] = best[k - 1];
    best[k] = {c, z};
  }
  // Gives a row an entry for each label that was found.
  void insert(int64_t i, const Entry* best) {
    std::vector<Entry>& others = others_[i];
    const size_t before = others.size();
    for (int k = 0; k < kFound && best[k].c >= 0; ++k) {
      const auto end = others.begin() + before;
      if (std::none_of(others.begin(), end, [&](const Entry& e) { return e.c == best[k].c; }))
        others.push_back({best[k].c, T(0)});
    }
  }

  int64_t visited(int64_t i) const { return first_[i + 1] - first_[i] + int64_t(others_[i].size()); }

  void sweeps(T small, bool shrink, double until) {
    const Poll poll;
    const double all = double(rows_that_count_.size());
    for (int sweep = 0; sweep < kSweeps && !list_.empty() && passes_ < until; ++sweep) {
      random_.shuffle(list_);
      passes_ += double(list_.size()) / all;
      double left = 0;
      size_t kept = 0;
      const size_t last = list_.size() - 1;
      for (size_t k = 0; k <= last; ++k) {
        const int32_t i = list_[k];
        rows_.prefetch(list_[std::min(k + kAhead, last)]);
        poll(2 * rows_.work(i) * visited(i));
        const double share = visit(i, double(small));
        const bool stays = share > double(small);
        if (stays || !shrink) list_[kept++] = i;
        if (stays) left += share;
      }
      list_.resize(kept);
      if (left <= kFall * gap_) return;
    }
  }

  // Makes the variables of a row optimal, if its part of the gap, over the labels that it has entries of, is larger
  // than `small`. Returns that part.
  double visit(int64_t i, double small) {
    const int64_t own = first_[i + 1] - first_[i];
    std::vector<Entry>& others = others_[i];
    variable_.resize(own + others.size());
    const double inverse = 1 / norm2_[i];
    double least = std::numeric_limits<double>::infinity(), most = -least, s = 0, inner = 0;
    for (int64_t k = 0; k < own; ++k) {
      const double z = double(rows_.dot(i, weights(label_[first_[i] + k]))), a = double(own_[first_[i] + k]);
      least = std::min(least, z), s += a, inner += a * z;
      variable_[k] = {z, a, true};
    }
    for (size_t k = 0; k < others.size(); ++k) {
      const double z = double(rows_.dot(i, weights(others[k].c))), a = double(others[k].a);
      most = std::max(most, z), inner += a * z;
      variable_[own + k] = {z, a, false};
    }
    const double gain = 1 + most - least, share = cost_[i] * std::max(gain, 0.0) - (s - inner);
    if (!(share > small)) return share;
    // b = a + (y/2 - z)/q, less (1/2 - least)/q of Y and (-1/2 - most)/q of N
    for (Variable& v : variable_) v.b = v.a + ((v.own ? least : most) - v.b) * inverse;
    nearest(variable_, gain * inverse, cost_[i]);
    for (int64_t k = 0; k < own; ++k) change(i, label_[first_[i] + k], variable_[k].a, own_[first_[i] + k]);
    for (size_t k = 0; k < others.size(); ++k) change(i, others[k].c, variable_[own + k].a, others[k].a);
    return share;
  }
  void change(int64_t i, int64_t c, double to, T& a) {
    const T next = T(to), step = next - a;
    if (step == 0 || !std::isfinite(step)) return;
    a = next;
    rows_.add(i, step, weights(c));
  }

  static constexpr int64_t kPart = 256;  // rows that a thread takes at least, a multiple of the lanes

  // Scores of the labels of a panel, label by label.
  struct Scores {
    explicit Scores(const RankingAscent& of) : value(Rows::lanes(N) * of.padded_), rest(of.rows_) {}
    Zeros<T> value;
    typename Rows::Scratch rest;
  };

  const int64_t d_, m_, padded_, width_;  // features and labels; rows and features in whole vectors
  const int64_t threads_;
  const std::vector<int64_t> first_;  // the labels of each row
  const std::vector<int32_t> label_;
  const std::vector<double> cost_;
  std::vector<double> norm2_;
  const Csr<T> X_;
  const Rows rows_;
  Random random_;
  Zeros<T> W_;  // [m, width]
  std::vector<T> own_;  // a of Y, in the order of label_
  std::vector<std::vector<Entry>> others_;  // a of N, and labels that a look has found
  std::vector<T> part_;  // of the gap
  std::vector<int64_t> by_label_;  // the rows of each label
  std::vector<int32_t> row_of_;
  std::vector<int32_t> rows_that_count_, list_;
  std::vector<Variable> variable_;
  std::vector<std::unique_ptr<Scores>> scores_;
  double passes_ = 0, left_out_ = 0, primal_ = 0, gap_ = 0, violation_ = 0;
  double least_ = 0, since_ = 0;  // the gap when it last fell by a tenth, and the passes made then
};

}  // namespace

template <class T>
MulticlassAdvancing* multiclass_ranking(const RankingNewArgs<T>& args) {
  if (args.dense) return new RankingAscent<T, DenseRows<T>>(args);
  return new RankingAscent<T, SparseRows<T>>(args);
}
template MulticlassAdvancing* multiclass_ranking(const RankingNewArgs<float>&);
template MulticlassAdvancing* multiclass_ranking(const RankingNewArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
