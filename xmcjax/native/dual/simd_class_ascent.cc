// Lee-Lin-Wahba by dual ascent with the classes as lanes (Alber et al. 2017, Algorithms 1 and 2): given the mean of
// the weights, every class is a problem of its own, and the classes of a panel visit an instance side by side.
//
// The weights of class c are V_c + u: V_c = -Σ_i α_ic x_i in panels, and u = -mean_c V_c, which is brought up to date
// after each tenth of an epoch from the sums of the changes of its instances, so that it costs one product with the
// rows of the tenth.
//
// With several processes each has some of the classes, and the changes of the mean are summed over the processes.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "dual/driver.h"
#include "dual/panels.h"

namespace xmcjax::XMCJAX_ISA {

template <class T>
MulticlassAscent* pair_ascent(const MulticlassNewArgs<T>& args);  // simd_pair_ascent.cc
template <class T>
MulticlassAscent* centred_ascent(const MulticlassNewArgs<T>& args);  // simd_centred_ascent.cc

namespace {

constexpr int kTenths = 10;

template <class T>
class ClassAscent final : public Driver<T, SharedAscent> {
  using Base = Driver<T, SharedAscent>;
  using Base::C_, Base::form_, Base::least, Base::m_, Base::norm2_, Base::random_, Base::threads_, Base::X_,
      Base::y_;
  static constexpr int N = kLanes<T>;

 public:
  explicit ClassAscent(const MulticlassNewArgs<T>& args)
      : Base(args), classes_{args.first, args.last}, V_(X_.d, classes_.last - classes_.first),
        alpha_(V_.count() * X_.n * N), mean_(X_.d, T(0)), mean_change_(X_.d, T(0)), shift_(X_.n, T(0)),
        idle_(V_.count(), std::vector<uint8_t>(X_.n, 0)), change_(V_.count(), std::vector<T>(X_.n)),
        order_(X_.n) {
    std::iota(order_.begin(), order_.end(), 0);
    for (int64_t q = 0; q < V_.count(); ++q)
      for (int64_t i = 0; i < X_.n; ++i)
        if (!(norm2_[i] > 0)) store(alpha(q, i), in_lanes(exists(q, i), T(form_.unopposed())));
  }

  Assessment assess(double tolerance) override {
    project_mean();
    const int64_t parts = parts_of(X_.n);
    return this->summed(V_.count() * parts, [&](int64_t first, int64_t last, Assessment* found) {
      for (; first < last; ++first) found[first] = judge(first / parts, first % parts, least(tolerance));
    });
  }

  Sweep sweep(double tolerance, bool shrink) override {
    Sweep all{0, 0};
    for (int64_t number = 0; number < parts(); ++number) {
      const Sweep one = part(number, tolerance, shrink);
      all.violation = std::max(all.violation, one.violation);
      all.visited += one.visited;
      move_mean(mean_change_.data());
    }
    return all;
  }

  int64_t parts() const override { return kTenths; }
  Sweep part(int64_t number, double tolerance, bool shrink) override {
    if (number == 0) random_.shuffle(order_);
    const int64_t first = X_.n * number / parts(), last = X_.n * (number + 1) / parts();
    std::vector<Sweep> found(V_.count());
    project_mean(first, last);
    parallel(V_.count(), 1, threads_, [&](int64_t from, int64_t to) {
      for (int64_t q = from; q < to; ++q) pass(q, first, last, least(tolerance), shrink, found[q]);
    });
    update_mean(first, last);
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

  void get_weights(void* out) const override {
    T* W = static_cast<T*>(out);
    V_.get(W, threads_);
    for (int64_t j = 0; j < X_.d; ++j)
      for (int64_t c = 0, m = classes_.last - classes_.first; c < m; ++c) W[j * m + c] += mean_[j];
  }

 protected:
  void take_row(int64_t i, std::vector<DualEntry>& row) const override {
    for (int64_t q = 0; q < V_.count(); ++q)
      for (int l = 0; l < N; ++l)
        if (alpha(q, i)[l] != 0) row.push_back({int32_t(classes_.first + q * N + l), double(alpha(q, i)[l])});
  }
  void clear() override {
    V_.clear();
    std::fill(mean_.begin(), mean_.end(), T(0));
    for (int64_t q = 0; q < V_.count(); ++q) {
      std::fill(idle_[q].begin(), idle_[q].end(), 0);
      for (int64_t i = 0; i < X_.n; ++i)
        if (norm2_[i] > 0) store(alpha(q, i), Vec<T>{});
    }
  }
  void put_row(int64_t i, const std::vector<DualEntry>& row) override {
    if (!(norm2_[i] > 0)) return;
    double sum = 0;
    for (const DualEntry& e : row) {
      sum += e.value;
      if (!classes_.has(e.c)) continue;
      const int64_t q = (e.c - classes_.first) / N, l = (e.c - classes_.first) % N;
      alpha(q, i)[l] = T(e.value);
      row_add_lane(X_, i, T(-e.value), V_.panel(q) + l, N);
    }
    // u = -mean_c V_c
    row_add_lane(X_, i, T(sum / double(m_)), mean_.data(), 1);
  }
  void settle_alpha() override {}

 private:
  T* alpha(int64_t q, int64_t i) const { return alpha_.get() + (q * X_.n + i) * N; }

  // Lanes with a dual variable: classes but the instance's own.
  unsigned exists(int64_t q, int64_t i) const {
    const int64_t own = y_[i] - classes_.first - q * N;
    unsigned lanes = V_.lanes(q);
    if (own >= 0 && own < N) lanes &= ~(1u << own);
    return lanes;
  }
  static Vec<T> in_lanes(unsigned lanes, T value) {
    Vec<T> v{};
    for (int l = 0; l < N; ++l) v[l] = lanes >> l & 1 ? value : T(0);
    return v;
  }

  // u·x for all rows, and for those of a stretch of the order
  void project_mean() {
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

  // The gains 1 + z, which are the slopes too, and the projected gradient of the lanes of a panel.
  struct Slopes {
    Vec<T> gains, violation;
  };
  Slopes slopes(int64_t q, int64_t i, Vec<T> a) const {
    const Vec<T> gains = 1 + (row_dot_tile(X_, i, V_.panel(q), N) + shift_[i]);
    Vec<T> violation = projected(gains, a, C_);
    const unsigned lanes = exists(q, i);
    if (lanes != (1u << N) - 1) violation = violation * in_lanes(lanes, T(1));
    return {gains, violation};
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
      const Vec<T> a = load(alpha(q, i));
      const Slopes at = slopes(q, i, a);
      if (!lanes_where(at.violation > tolerance)) {
        if (lanes_where(at.violation > worst)) worst = largest_lane(at.violation);
        idle_[q][i] += idle_[q][i] < kIdle;
        continue;
      }
      worst = std::max(worst, largest_lane(at.violation));
      // δ = clip(g / k, -α, C - α) where the violation is large enough
      Vec<T> next = a + at.gains * (1 / norm2_[i]);
      next = minimum(maximum(next, Vec<T>{}), broadcast(C_));
      next = select(at.violation > tolerance, next, a);
      const Vec<T> delta = next - a;
      const bool moved = nonzero_lanes(delta) != 0;
      idle_[q][i] = moved ? 0 : std::min(kIdle, idle_[q][i] + 1);
      if (!moved) continue;
      store(alpha(q, i), next);
      row_add_tile(X_, i, -delta, V_.panel(q), N);
      change_[q][i] += sum_of_lanes<T>(delta);
    }
    done.violation = std::max(done.violation, double(worst));
  }

  // Loss, dual objective and violation of a part of the rows in the lanes of a panel.
  Assessment judge(int64_t q, int64_t part, T tolerance) {
    Tally tally;
    T worst = 0;
    const int64_t last = std::min((part + 1) * kPart, X_.n);
    const Poll poll;
    for (int64_t i = part * kPart; i < last; ++i) {
      poll(entries(X_, i));
      const Vec<T> a = load(alpha(q, i));
      const Slopes at = slopes(q, i, a);
      if (lanes_where(at.violation > worst)) worst = largest_lane(at.violation);
      if (lanes_where(at.violation > tolerance)) idle_[q][i] = 0;
      const unsigned lanes = exists(q, i);
      for (int l = 0; l < N; ++l) {
        if (!(lanes >> l & 1)) continue;
        const double gain = double(at.gains[l]), b = double(a[l]);
        tally.loss = form_.more_loss(tally.loss, gain);
        tally.dual += form_.dual_gain(b);
        tally.norm += b * (1 - gain);
      }
    }
    tally.worst = double(worst);
    return tally.at(form_.C);
  }

  const Classes classes_;  // those that this has
  Panels<T> V_;
  Zeros<T> alpha_;  // [panels][n][N]
  std::vector<T> mean_, mean_change_, shift_;  // u, what it grows by, and u·x of each row
  std::vector<std::vector<uint8_t>> idle_;
  std::vector<std::vector<T>> change_;  // Σ_c δ_ic of the tenth under way, a panel at a time
  std::vector<int32_t> order_;
};

}  // namespace

template <class T>
MulticlassAscent* multiclass_ascent(const MulticlassNewArgs<T>& args) {
  if (args.method == kCentred) return centred_ascent(args);
  const Formulation form{args.formulation, args.classes, args.C};
  return form.pairs() ? pair_ascent(args) : new ClassAscent<T>(args);
}
template MulticlassAscent* multiclass_ascent(const MulticlassNewArgs<float>&);
template MulticlassAscent* multiclass_ascent(const MulticlassNewArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
