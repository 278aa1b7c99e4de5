// Lee-Lin-Wahba by dual ascent over instances: a visit moves all dual variables of an instance at once, and the mean of
// the weights is exact after it.
//
// Where C is large the variables of an instance have far to go and move together: a step δ of all of them costs
// k ‖δ‖² (m - 1) / m² only, because the mean takes most of it back. With the mean fixed, as in simd_class_ascent.cc,
// a visit goes an m-th of the way; here it goes all of it:
//
//   max_δ  gᵀδ - ½ k (‖δ‖² - (1ᵀδ)²/m),  0 <= α + δ <= C,
//   α + δ = clip(α + g/k + s/m, 0, C) with s = 1ᵀδ,
//
// one unknown s, the root of a decreasing, piecewise linear function with slopes from -1 to -1/m.
//
// Where C is large thousands of sweeps remain. Each begins at an extrapolation of the two before (Nesterov 1983),
//
//   α' = clip(α_k + β_k (α_k - α_{k-1}), 0, C),  β_k = (t_k - 1)/t_{k+1},  t_{k+1} = (1 + √(1 + 4 t_k²))/2,
//
// and t begins at 1 again after a sweep that led back: (α_{k+1} - α')ᵀ(α_{k+1} - α_k) < 0 (O'Donoghue and Candès 2015).
//
// Threads share the classes of every visit: each works out the gains of its own, all of them find the same s, each
// changes its own. They meet once a visit, and no sum depends on how many they are.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dual/driver.h"
#include "dual/panels.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

template <class T>
class CentredAscent final : public Driver<T, MulticlassAscent> {
  using Base = Driver<T, MulticlassAscent>;
  using Base::active_, Base::C_, Base::form_, Base::least, Base::m_, Base::norm2_, Base::random_, Base::rows_,
      Base::threads_, Base::X_, Base::y_;
  static constexpr int N = kLanes<T>;
  // kBlock: classes of a partial sum. kBlocks: blocks of classes that it takes to keep a thread busy.
  static constexpr int64_t kBlock = 128, kBlocks = 3;

  // What a visit needs of a block: Σ_c α_c, and the largest violation.
  struct alignas(64) Block {
    double sum;
    T violation;
  };
  // (α_{k+1} - α')ᵀ(α_{k+1} - α_k) of the classes of a block, on a cache line of its own.
  struct alignas(64) Progress {
    double sum = 0;
  };
  struct Shared {
    explicit Shared(int64_t width = 0) : b(width), block((width + kBlock - 1) / kBlock) {}
    Zeros<T> b;
    std::vector<Block> block;
  };

 public:
  explicit CentredAscent(const MulticlassNewArgs<T>& args)
      : Base(args), width_((m_ + N - 1) / N * N), W_(X_.d * width_), alpha_(X_.n * width_),
        before_(X_.n * width_), idle_(X_.n, 0) {
    if (args.cost) cost_.assign(args.cost, args.cost + X_.n);
    for (Shared& one : shared_) one = Shared(width_);
    for (int64_t i = 0; i < X_.n; ++i)
      for (int64_t c = 0; c < m_ && !(norm2_[i] > 0); ++c)
        alpha(i)[c] = form_.exists(c, y_[i]) ? upper(i) : T(0);
  }

  Assessment assess(double tolerance) override {
    if (changed_) rebuild();
    const Assessment all = this->summed(parts_of(X_.n), [&](int64_t first, int64_t last, Assessment* found) {
      for (; first < last; ++first) found[first] = judge(first, least(tolerance));
    });
    this->wake([&](int32_t i) { return idle_[i]; });
    return all;
  }

  Sweep sweep(double tolerance, bool shrink) override {
    changed_ = true;
    Sweep done{0, this->share()};
    extrapolate();
    random_.shuffle(active_);
    const T enough = least(tolerance);
    const int64_t blocks = int64_t(shared_[0].block.size());
    std::vector<Progress> progress(blocks);
    size_t kept = 0;
    T worst = 0;
    side_by_side(std::max<int64_t>(1, std::min(threads_, blocks / kBlocks)),
                 [&](int64_t t, int64_t count, Meeting& meeting) {
                   const int64_t first = blocks * t / count, last = blocks * (t + 1) / count;
                   const Poll poll;
                   for (size_t k = 0; k < active_.size(); ++k) {
                     const int32_t i = active_[k];
                     poll(2 * entries(X_, i) * (last - first) * (kBlock / N));
                     Shared& shared = shared_[k % 2];  // no thread is further ahead than the next visit
                     look(i, first, last, shared);
                     if (count > 1) meeting.wait();
                     T violation = 0;
                     for (const Block& one : shared.block) violation = std::max(violation, one.violation);
                     if (violation > enough) change(i, first, last, shared, progress);
                     if (t) continue;
                     worst = std::max(worst, violation);
                     idle_[i] = violation > enough || !shrink ? 0 : idle_[i] + 1;
                     if (idle_[i] < kIdle) active_[kept++] = i;
                   }
                 });
    active_.resize(kept);
    double forward = 0;
    for (const Progress& one : progress) forward += one.sum;
    if (forward < 0) t_ = 1;
    done.violation = double(worst);
    return done;
  }

  void get_weights(void* out) const override {
    T* W = static_cast<T*>(out);
    for (int64_t j = 0; j < X_.d; ++j)
      std::copy(W_.get() + j * width_, W_.get() + j * width_ + m_, W + j * m_);
  }

 protected:
  void take_row(int64_t i, std::vector<DualEntry>& row) const override {
    for (int64_t c = 0; c < m_; ++c)
      if (alpha(i)[c] != 0) row.push_back({int32_t(c), double(alpha(i)[c])});
  }
  void clear() override {
    for (const int32_t i : rows_) {
      std::fill(alpha(i), alpha(i) + width_, T(0));
      idle_[i] = 1;  // its change since the sweep before is no direction
    }
  }
  void put_row(int64_t i, const std::vector<DualEntry>& row) override {
    if (!(norm2_[i] > 0)) return;
    for (const DualEntry& e : row) alpha(i)[e.c] = T(e.value);
  }
  void settle_alpha() override {
    rebuild();
    active_ = rows_;
    t_ = 1;
  }

 private:
  // C of a row
  T upper(int64_t i) const { return cost_.empty() ? C_ : T(cost_[i]); }
  T* alpha(int64_t i) const { return alpha_.get() + i * width_; }
  T* before(int64_t i) const { return before_.get() + i * width_; }

  // Goes on from where the last sweep ended, in its direction; a row that the sweep did not change stays.
  void extrapolate() {
    const double next = (1 + std::sqrt(1 + 4 * t_ * t_)) / 2;
    const T beta = T((t_ - 1) / next);
    t_ = next;
    parallel(width_, kBlock, threads_, [&](int64_t first, int64_t last) {
      const Poll poll;
      for (const int32_t i : rows_) {
        if (idle_[i] > 1) continue;  // as it was before
        poll(entries(X_, i) * (last - first) / N);
        for (int64_t c = first; c < last; c += N) {
          const Vec<T> old = load(alpha(i) + c), step = beta * (old - load(before(i) + c));
          store(before(i) + c, old);
          if (idle_[i]) continue;
          const Vec<T> now = clip(old + step, upper(i));
          store(alpha(i) + c, now);
          // w_c -= δ_c x; the mean follows
          if (nonzero_lanes(now - old)) row_add_tile(X_, i, old - now, W_.get() + c, width_);
        }
      }
    });
    centre();
  }

  // w_c = Σ_i (1ᵀα_i/m - α_ic) x_i, anew and summed in double: in thousands of changes rounding adds up, and where
  // C is large, large terms leave a small sum.
  void rebuild() {
    changed_ = false;
    std::vector<double> mean(X_.n);
    for (const int32_t i : rows_) {
      for (int64_t c = 0; c < width_; c += N) mean[i] += total(load(alpha(i) + c));
      mean[i] /= double(m_);
    }
    parallel(width_ / N, 1, threads_, [&](int64_t first, int64_t last) {
      Zeros<double> sums(X_.d * N);
      const Poll poll;
      for (int64_t c = first * N; c < last * N; c += N) {
        if (c > first * N) std::fill(sums.get(), sums.get() + X_.d * N, 0.0);
        for (const int32_t i : rows_) {
          poll(2 * entries(X_, i));
          double change[N];
          for (int64_t l = 0; l < N; ++l) change[l] = mean[i] - double(alpha(i)[c + l]);
          for (int64_t p = X_.offset[i]; p < X_.offset[i + 1]; ++p)
            for (int64_t l = 0; l < N; l += kLanes<double>) {
              double* sum = sums.get() + X_.column[p] * N + l;
              store(sum, load(sum) + double(X_.value[p]) * load(change + l));
            }
        }
        for (int64_t j = 0; j < X_.d; ++j)
          for (int64_t l = 0; l < N; ++l) W_[j * width_ + c + l] = T(sums[j * N + l]);
      }
    });
    centre();
  }

  // Σ_c w_c = 0, which rounding has moved; columns that are no classes become 0.
  void centre() {
    parallel(X_.d, kPart, threads_, [&](int64_t first, int64_t last) {
      for (int64_t j = first; j < last; ++j) {
        T* w = W_.get() + j * width_;
        double sum = 0;
        for (int64_t c = 0; c < m_; ++c) sum += double(w[c]);
        const T mean = T(sum / double(m_));
        for (int64_t c = 0; c < m_; ++c) w[c] -= mean;
        for (int64_t c = m_; c < width_; ++c) w[c] = 0;
      }
    });
  }

  // The gains 1 + w_c·x of a row in classes first .. last-1, 0 where there is no variable.
  void gains(int64_t i, int64_t first, int64_t last, T* gain) const {
    for (int64_t c = first; c < last; c += N) store(gain + c, 1 + row_dot_tile(X_, i, W_.get() + c, width_));
    if (y_[i] >= first && y_[i] < last) gain[y_[i]] = 0;
    for (int64_t c = std::max(m_, first); c < last; ++c) gain[c] = 0;
  }

  // b = α + g/k of some blocks of an instance, with what is needed of each block.
  void look(int64_t i, int64_t first, int64_t last, Shared& shared) const {
    T* b = shared.b.get();
    const T *a = alpha(i), inverse = 1 / norm2_[i], most = upper(i);
    for (int64_t q = first; q < last; ++q) {
      const int64_t from = q * kBlock, to = std::min(from + kBlock, width_);
      gains(i, from, to, b);
      Vec<T> worst{}, sum{};
      for (int64_t c = from; c < to; c += N) {
        const Vec<T> g = load(b + c), old = load(a + c);
        worst = maximum(worst, projected(g, old, most));
        sum += old;
        store(b + c, old + inverse * g);
      }
      // columns without a variable: never above 0
      const T never = -std::numeric_limits<T>::infinity();
      if (y_[i] >= from && y_[i] < to) b[y_[i]] = never;
      for (int64_t c = std::max(m_, from); c < to; ++c) b[c] = never;
      shared.block[q] = {total(sum), largest_lane(worst)};
    }
  }

  // Makes the variables of an instance optimal in some blocks, given b in all of them.
  void change(int64_t i, int64_t first, int64_t last, const Shared& shared, std::vector<Progress>& progress) {
    double sum = 0;
    for (const Block& one : shared.block) sum += one.sum;
    const T* b = shared.b.get();
    const T most = upper(i), shift = T(root(b, sum, most) / double(m_));
    T* a = alpha(i);
    for (int64_t q = first; q < last; ++q) {
      Vec<T> forward{};
      for (int64_t c = q * kBlock; c < std::min((q + 1) * kBlock, width_); c += N) {
        const Vec<T> now = clip(load(b + c) + shift, most), delta = now - load(a + c);
        store(a + c, now);
        // w_c -= δ_c x - (s/m) x
        row_add_tile(X_, i, shift - delta, W_.get() + c, width_);
        forward += delta * (now - load(before(i) + c));
      }
      progress[q].sum += total(forward);
    }
  }

  static Vec<T> clip(Vec<T> v, T most) { return minimum(maximum(v, Vec<T>{}), broadcast(most)); }
  static double total(const Vec<T>& v) { return sum_of_lanes<double>(v); }

  // The root s of Σ_c clip(b_c + s/m, 0, C) - Σ_c α_c - s: Newton's method between bounds.
  double root(const T* b, double before, T most) const {
    double low = -before, high = double(most) * double(m_ - 1) - before, s = 0;
    for (int step = 0; step < 60; ++step) {
      const T shift = T(s / double(m_));
      Vec<T> sum{};
      int64_t inside = 0;
      for (int64_t c = 0; c < width_; c += N) {
        const Vec<T> v = load(b + c) + shift, w = clip(v, most);
        sum += w;
        inside += __builtin_popcount(lanes_where((v > 0) & (v < most)));
      }
      const double now = total(sum) - before, excess = now - s;
      (excess > 0 ? low : high) = s;
      double to = s + excess / (1 - double(inside) / double(m_));
      if (!(to > low && to < high)) to = (low + high) / 2;
      if (std::fabs(to - s) <= 4 * std::numeric_limits<T>::epsilon() * (std::fabs(now) + before)) return to;
      s = to;
    }
    return s;
  }

  // Loss, dual objective and violation of a part of the rows.
  Assessment judge(int64_t part, T tolerance) {
    Tally tally;
    T worst = 0;
    std::vector<T> gain(width_);
    const int64_t last = std::min((part + 1) * kPart, X_.n);
    const Poll poll;
    for (int64_t i = part * kPart; i < last; ++i) {
      poll(entries(X_, i) * (width_ / N));
      gains(i, 0, width_, gain.data());
      const T *a = alpha(i), most = upper(i);
      Vec<T> losses{}, sum{}, product{}, violation{};
      for (int64_t c = 0; c < width_; c += N) {
        const Vec<T> g = load(gain.data() + c), old = load(a + c);
        violation = maximum(violation, projected(g, old, most));
        losses += maximum(g, Vec<T>{});
        sum += old;
        product += old * (1 - g);
      }
      worst = std::max(worst, largest_lane(violation));
      if (largest_lane(violation) > tolerance) idle_[i] = 0;
      tally.loss += (cost_.empty() ? 1 : cost_[i]) * total(losses), tally.dual += total(sum),
          tally.norm += total(product);
    }
    tally.worst = double(worst);
    return tally.at(cost_.empty() ? form_.C : 1);
  }

  const int64_t width_;  // classes of whole vectors
  std::vector<double> cost_;  // C of each row, where they differ
  bool changed_ = false;  // whether α has changed since W was worked out from it
  Zeros<T> W_, alpha_, before_;  // [d, width], [n, width], and α of the sweep before
  double t_ = 1;  // t_k of the extrapolation
  std::vector<uint8_t> idle_;
  Shared shared_[2];
};

}  // namespace

template <class T>
MulticlassAscent* centred_ascent(const MulticlassNewArgs<T>& args) {
  return new CentredAscent<T>(args);
}
template MulticlassAscent* centred_ascent(const MulticlassNewArgs<float>&);
template MulticlassAscent* centred_ascent(const MulticlassNewArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
