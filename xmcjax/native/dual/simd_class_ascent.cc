// Lee-Lin-Wahba and one against the rest by dual ascent with the classes as lanes (Alber et al. 2017,
// paper 001, Algorithms 1 and 2): given the mean of the weights, every class is a problem of its own, and
// the classes of a panel visit an instance side by side.
//
// The weights of class c are V_c + u: V_c = Σ_i ± α_ic x_i in panels, and u = -mean_c V_c for
// Lee-Lin-Wahba, which is brought up to date after each tenth of an epoch from the sums of the changes
// of its instances, so that it costs one product with the rows of the tenth.
//
// A process of several has some of the classes; what the mean has changed by is then summed over them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "dual/multiclass.h"
#include "dual/panels.h"

namespace xmcjax::XMCJAX_ISA {

template <class T>
MulticlassAscent* pair_ascent(const MulticlassArgs<T>& args);  // simd_pair_ascent.cc
template <class T>
MulticlassAscent* centred_ascent(const MulticlassArgs<T>& args);  // simd_centred_ascent.cc

namespace {

constexpr int kIdle = 3;    // epochs without a change after which a panel leaves an instance out
constexpr int kTenths = 10;
constexpr double kStep = 0.1;  // as in simd_pair_ascent.cc

template <class T>
class ClassAscent final : public MulticlassAscent {
  static constexpr int N = kLanes<T>;

 public:
  explicit ClassAscent(const MulticlassArgs<T>& args)
      : X_(args.X), y_(args.y), m_(args.m), classes_(args.classes), centred_(args.formulation == kLeeLinWahba),
        upper_(args.formulation == kOneVsRestSquared ? std::numeric_limits<T>::infinity() : T(args.C)),
        ridge_(args.formulation == kOneVsRestSquared ? T(0.5 / args.C) : T(0)), C_(T(args.C)),
        threads_(args.threads), random_(args.seed), V_(X_.d, classes_.last - classes_.first), alpha_(V_.count() * X_.n * N), norm2_(X_.n),
        mean_(X_.d, T(0)), mean_change_(X_.d, T(0)), shift_(X_.n, T(0)), idle_(V_.count(), std::vector<uint8_t>(X_.n, 0)),
        change_(V_.count(), std::vector<T>(centred_ ? X_.n : 0)), order_(X_.n) {
    for (int64_t i = 0; i < X_.n; ++i) {
      norm2_[i] = T(squared_norm(X_, i));
      order_[i] = int32_t(i);
    }
    // A row of zeros has its variables where the loss alone drives them.
    for (int64_t q = 0; q < V_.count(); ++q)
      for (int64_t i = 0; i < X_.n; ++i)
        if (!(norm2_[i] > 0)) store(alpha(q, i), select(exists(q, i), bound()));
  }

  Assessment assess(double tolerance) override {
    project_mean();
    const int64_t parts = (X_.n + kPart - 1) / kPart;
    std::vector<Assessment> found(V_.count() * parts);
    parallel(V_.count(), 1, threads_, [&](int64_t first, int64_t last) {
      for (int64_t q = first; q < last; ++q)
        for (int64_t part = 0; part < parts; ++part) found[q * parts + part] = judge(q, part, T(kStep * tolerance));
    });
    Assessment all{0, 0, 0};
    for (const Assessment& one : found) {
      all.primal += one.primal, all.dual += one.dual;
      all.violation = std::max(all.violation, one.violation);
    }
    return all;
  }

  Sweep sweep(double tolerance, bool shrink) override {
    Sweep all{0, 0};
    for (int64_t tenth = 0; tenth < (centred_ ? kTenths : 1); ++tenth) {
      const Sweep one = part(tenth, tolerance, shrink);
      all.violation = std::max(all.violation, one.violation);
      all.visited += one.visited;
      if (centred_) move_mean(mean_change_.data());
    }
    return all;
  }

  Sweep part(int64_t tenth, double tolerance, bool shrink) override {
    if (tenth == 0) random_.shuffle(order_);
    const int64_t parts = centred_ ? kTenths : 1;
    const int64_t first = X_.n * tenth / parts, last = X_.n * (tenth + 1) / parts;
    std::vector<Sweep> found(V_.count());
    if (centred_) project_mean(first, last);
    parallel(V_.count(), 1, threads_, [&](int64_t from, int64_t to) {
      for (int64_t q = from; q < to; ++q) pass(q, first, last, T(kStep * tolerance), shrink, found[q]);
    });
    if (centred_) update_mean(first, last);
    Sweep done{0, 0};
    for (const Sweep& one : found) {
      done.violation = std::max(done.violation, one.violation);
      done.visited += one.visited / (double(X_.n) * double(V_.count()));
    }
    return done;
  }
  void get_mean_change(void* out) const override {
    std::copy(mean_change_.begin(), mean_change_.end(), static_cast<T*>(out));
  }
  void move_mean(const void* change) override {
    for (int64_t j = 0; j < X_.d; ++j) mean_[j] += static_cast<const T*>(change)[j];
  }

  int64_t alpha_count() const override {
    int64_t count = 0;
    for (int64_t q = 0; q < V_.count(); ++q)
      for (int64_t i = 0; i < X_.n; ++i) count += __builtin_popcount(nonzero_lanes(load(alpha(q, i))));
    return count;
  }

  void get_alpha(int64_t* offset, int32_t* index, double* value) const override {
    int64_t at = 0;
    for (int64_t i = 0; i < X_.n; ++i) {
      offset[i] = at;
      for (int64_t q = 0; q < V_.count(); ++q)
        for (int l = 0; l < N; ++l)
          if (alpha(q, i)[l] != 0) index[at] = int32_t(classes_.first + q * N + l), value[at++] = double(alpha(q, i)[l]);
    }
    offset[X_.n] = at;
  }

  void set_alpha(const int64_t* offset, const int32_t* index, const double* value) override {
    V_.clear();
    std::fill(mean_.begin(), mean_.end(), T(0));
    for (int64_t q = 0; q < V_.count(); ++q) {
      std::fill(idle_[q].begin(), idle_[q].end(), 0);
      for (int64_t i = 0; i < X_.n; ++i)
        if (norm2_[i] > 0) store(alpha(q, i), Vec<T>{});
    }
    for (int64_t i = 0; i < X_.n; ++i) {
      if (!(norm2_[i] > 0)) continue;
      for (int64_t p = offset[i]; p < offset[i + 1]; ++p) {
        if (!classes_.has(index[p])) continue;
        const int64_t q = (index[p] - classes_.first) / N, l = (index[p] - classes_.first) % N;
        alpha(q, i)[l] = T(value[p]);
        row_add_lane(X_, i, !centred_ && index[p] == y_[i] ? T(value[p]) : T(-value[p]), V_.panel(q) + l, N);
      }
    }
    if (!centred_) return;
    // u = -mean_c V_c
    for (int64_t i = 0; i < X_.n; ++i) {
      double sum = 0;
      for (int64_t p = offset[i]; p < offset[i + 1]; ++p) sum += value[p];
      if (norm2_[i] > 0) row_add_lane(X_, i, T(sum / double(m_)), mean_.data(), 1);
    }
  }

  void get_weights(void* out) const override {
    T* W = static_cast<T*>(out);
    V_.get(W, threads_);
    if (!centred_) return;
    for (int64_t j = 0; j < X_.d; ++j)
      for (int64_t c = 0, m = classes_.last - classes_.first; c < m; ++c) W[j * m + c] += mean_[j];
  }

 private:
  static constexpr int64_t kPart = 256;

  T* alpha(int64_t q, int64_t i) const { return alpha_.get() + (q * X_.n + i) * N; }

  // Lanes with a dual variable: classes but, for Lee-Lin-Wahba, the instance's own.
  unsigned exists(int64_t q, int64_t i) const {
    const int64_t own = y_[i] - classes_.first - q * N;
    unsigned lanes = V_.lanes(q);
    if (centred_ && own >= 0 && own < N) lanes &= ~(1u << own);
    return lanes;
  }
  static Vec<T> select(unsigned lanes, T value) {
    Vec<T> v{};
    for (int l = 0; l < N; ++l) v[l] = lanes >> l & 1 ? value : T(0);
    return v;
  }
  // Where a variable of a row of zeros ends: at the bound, or where its slope 1 - ρ α is zero.
  T bound() const { return ridge_ > 0 ? 1 / ridge_ : upper_; }

  // -1, or +1 in the lane of the instance's own class (one against the rest)
  Vec<T> signs(int64_t q, int64_t i) const {
    Vec<T> s = broadcast(T(-1));
    const int64_t own = y_[i] - classes_.first - q * N;
    if (!centred_ && own >= 0 && own < N) s[own] = 1;
    return s;
  }

  // u·x for all rows, and for those of a stretch of the order
  void project_mean() {
    if (!centred_) return;
    for (int64_t i = 0; i < X_.n; ++i) shift_[i] = row_dot_lane(X_, i, mean_.data(), 1);
  }
  void project_mean(int64_t first, int64_t last) {
    for (int64_t k = first; k < last; ++k) shift_[order_[k]] = row_dot_lane(X_, order_[k], mean_.data(), 1);
  }
  // What u grows by: (1/m) Σ_i (Σ_c δ_ic) x_i
  void update_mean(int64_t first, int64_t last) {
    std::fill(mean_change_.begin(), mean_change_.end(), T(0));
    for (int64_t k = first; k < last; ++k) {
      T sum = 0;
      for (auto& change : change_) sum += change[order_[k]], change[order_[k]] = 0;
      if (sum != 0) row_add_lane(X_, order_[k], sum / T(m_), mean_change_.data(), 1);
    }
  }

  // The gains 1 + linear(z) and the projected gradient of the lanes of a panel.
  struct Slopes {
    Vec<T> gains, slope, violation;
  };
  Slopes slopes(int64_t q, int64_t i, Vec<T> a, Vec<T> s) const {
    const Vec<T> gains = 1 - s * (row_dot_tile(X_, i, V_.panel(q), N) + shift_[i]);
    const Vec<T> slope = gains - ridge_ * a;
    Vec<T> violation = slope;
    violation = a <= 0 ? maximum<T>(violation, Vec<T>{}) : violation;
    violation = a >= upper_ ? minimum<T>(violation, Vec<T>{}) : violation;
    violation = absolute<T>(violation);
    const unsigned lanes = exists(q, i);
    if (lanes != (1u << N) - 1) violation = violation * select(lanes, T(1));
    return {gains, slope, violation};
  }
  static T largest_lane(Vec<T> v) {
    T most = v[0];
    for (int l = 1; l < N; ++l) most = v[l] > most ? v[l] : most;
    return most;
  }

  void pass(int64_t q, int64_t first, int64_t last, T tolerance, bool shrink, Sweep& done) {
    T worst = 0;
    const Poll poll;
    for (int64_t k = first; k < last; ++k) {
      const int32_t i = order_[k];
      poll(entries(X_, i));
      if (shrink && idle_[q][i] >= kIdle) continue;
      if (!(norm2_[i] > 0)) continue;
      done.visited += 1;
      const Vec<T> a = load(alpha(q, i)), s = signs(q, i);
      const Slopes at = slopes(q, i, a, s);
      if (!lanes_above<T>(at.violation, tolerance)) {
        if (lanes_above<T>(at.violation, worst)) worst = largest_lane(at.violation);
        idle_[q][i] += idle_[q][i] < kIdle;
        continue;
      }
      worst = std::max(worst, largest_lane(at.violation));
      // δ = clip((g - ρ α) / (k + ρ), -α, C - α) where the violation is large enough
      Vec<T> next = a + at.slope * (1 / (norm2_[i] + ridge_));
      next = minimum<T>(maximum<T>(next, Vec<T>{}), broadcast(upper_));
      next = at.violation > tolerance ? next : a;
      const Vec<T> delta = next - a;
      const bool moved = nonzero_lanes(delta) != 0;
      idle_[q][i] = moved ? 0 : std::min(kIdle, idle_[q][i] + 1);
      if (!moved) continue;
      store(alpha(q, i), next);
      row_add_tile(X_, i, s * delta, V_.panel(q), N);
      if (centred_) {
        T sum = 0;
        for (int l = 0; l < N; ++l) sum += delta[l];
        change_[q][i] += sum;
      }
    }
    done.violation = std::max(done.violation, double(worst));
  }

  // Loss, dual objective and violation of a part of the rows in the lanes of a panel.
  Assessment judge(int64_t q, int64_t part, T tolerance) {
    double loss = 0, dual = 0, norm = 0;
    T worst = 0;
    const int64_t last = std::min((part + 1) * kPart, X_.n);
    const Poll poll;
    for (int64_t i = part * kPart; i < last; ++i) {
      poll(entries(X_, i));
      const Vec<T> a = load(alpha(q, i));
      const Slopes at = slopes(q, i, a, signs(q, i));
      if (lanes_above<T>(at.violation, worst)) worst = largest_lane(at.violation);
      if (lanes_above<T>(at.violation, tolerance)) idle_[q][i] = 0;
      const unsigned lanes = exists(q, i);
      for (int l = 0; l < N; ++l) {
        if (!(lanes >> l & 1)) continue;
        const double g = std::max(0.0, double(at.gains[l])), b = double(a[l]);
        loss += ridge_ > 0 ? g * g : g;
        dual += b - double(ridge_) / 2 * b * b;
        // ‖W‖² = Σ_i Σ_c α_ic (1 - g_ic)
        norm += b * (1 - double(at.gains[l]));
      }
    }
    return {double(C_) * loss + norm / 2, dual - norm / 2, double(worst)};
  }

  const Csr<T> X_;
  const int32_t* y_;
  const int64_t m_;
  const Classes classes_;  // those that this has
  const bool centred_;
  const T upper_, ridge_, C_;
  const int64_t threads_;
  Random random_;
  Panels<T> V_;
  Zeros<T> alpha_;  // [panels][n][N]
  std::vector<T> norm2_, mean_, mean_change_, shift_;  // u, what it grows by, and u·x of each row
  std::vector<std::vector<uint8_t>> idle_;
  std::vector<std::vector<T>> change_;  // Σ_c δ_ic of the tenth under way, a panel at a time
  std::vector<int32_t> order_;
};

}  // namespace

template <class T>
MulticlassAscent* multiclass_ascent(const MulticlassArgs<T>& args) {
  if (args.by_instance) return centred_ascent(args);
  const bool pairs = args.formulation == kWestonWatkins || args.formulation == kCrammerSinger;
  return pairs ? pair_ascent(args) : new ClassAscent<T>(args);
}
template MulticlassAscent* multiclass_ascent(const MulticlassArgs<float>&);
template MulticlassAscent* multiclass_ascent(const MulticlassArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
