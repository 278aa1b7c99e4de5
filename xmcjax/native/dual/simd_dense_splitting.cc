// Steps of the alternating direction method of multipliers with dense features (solvers/_admm_blocks.py), in the basis
// where XᵀX is diagonal, Λ:
//
//   α⁺ = row_map(M A + ρ h, ρ),  O = -Xᵀ coefficients(α⁺),  Δ = (W + 2 O - V) / (1 + ρ Λ),
//   W -= κ Δ,  A += κ (α⁺ - A),  V += κ (O - V)
//
// A block of instances passes through both products and the row map while it is in the cache. Scores and dual variables
// are of T, sums over instances and what is [classes, features] are in double.
#include <algorithm>
#include <limits>
#include <vector>

#include "core/aligned.h"
#include "core/interrupt.h"
#include "core/isa.h"
#include "core/largest.h"
#include "core/parallel.h"
#include "core/simd.h"
#include "dual/row_thresholds.h"
#include "products/thin_products.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

// Sums over instances are put together from at most so many parts, whatever the number of threads.
constexpr int64_t kParts = 8;
// The k largest numbers are kept in order where k is at most this.
constexpr int64_t kFew = 16;

// What a part of the blocks adds to sums over all instances.
struct Part {
  double loss = 0, gain = 0, moved = 0;
  std::vector<double> O;  // [classes, features]
};

template <class T>
class DenseSplitting {
  static constexpr int N = kWide<T>;
  using V = Wide<T>;

 public:
  explicit DenseSplitting(const DenseSplittingArgs<T>& args)
      : a_(args), m_(args.classes), rows_(args.lanes), size_(args.classes * args.features), W_(size_),
        parts_(std::min(kParts, args.blocks)) {}

  // Moves W, V and A on by `count` steps, of which the first has its O already. Where count is 0, works out α⁺ and O of
  // the next step instead.
  void run() {
    if (!a_.count) return look(true);
    for (int64_t step = 0; step < a_.count; ++step) {
      if (step) look(false);
      move();
    }
  }

 private:
  void look(bool checked) {
    for (int64_t e = 0; e < size_; ++e) W_[e] = T(a_.W[e]);
    parallel(int64_t(parts_.size()), 1, a_.threads, [&](int64_t first, int64_t last) {
      const Poll poll;
      const Zeros<T> Z(m_ * rows_);
      Column column(m_);
      for (int64_t g = first; g < last; ++g) {
        Part& part = parts_[g];
        part.loss = part.gain = part.moved = 0;
        part.O.assign(size_, 0.0);
        const int64_t count = int64_t(parts_.size());
        for (int64_t b = a_.blocks * g / count; b < a_.blocks * (g + 1) / count; ++b) {
          poll(2 * size_ * (rows_ / N));
          const T* X = a_.X + b * a_.features * rows_;
          thin::scores(X, W_.get(), m_, a_.features, rows_, Z.get());
          for (int64_t i = 0; i < rows_ && b * rows_ + i < a_.instances; i += N)
            visit(part, b, i, Z.get() + i, checked, column);
          clear_rest(b, Z.get());
          thin::gradient(X, Z.get(), m_, a_.features, rows_, part.O.data());
        }
      }
    });
    Part all;
    std::fill(a_.O, a_.O + size_, 0.0);
    for (const Part& part : parts_) {
      all.loss += part.loss, all.gain += part.gain, all.moved += part.moved;
      for (int64_t e = 0; e < size_; ++e) a_.O[e] += part.O[e];
    }
    if (a_.map == kMapBox) centre(a_.O);
    if (!checked) {
      a_.found[4] = all.moved;
      return;
    }
    double primal = 0, dual = 0;
    for (int64_t e = 0; e < size_; ++e) primal += a_.W[e] * a_.W[e], dual += a_.O[e] * a_.O[e];
    const double found[] = {all.loss, all.gain, primal, dual, all.moved};
    std::copy(found, found + 5, a_.found);
  }

  // Clears what stands in the last block behind its last vector of instances.
  void clear_rest(int64_t b, T* Z) const {
    const int64_t there = std::min(rows_, (a_.instances - b * rows_ + N - 1) / N * N);
    for (int64_t c = 0; c < m_ && there < rows_; ++c)
      std::fill(Z + c * rows_ + there, Z + (c + 1) * rows_, T(0));
  }

  void move() {
    double moved = 0;
    for (int64_t c = 0; c < m_; ++c) {
      double *W = a_.W + c * a_.features, *Vc = a_.V + c * a_.features;
      const double* O = a_.O + c * a_.features;
      for (int64_t j = 0; j < a_.features; ++j) {
        const double delta = (W[j] + 2 * O[j] - Vc[j]) / (1 + a_.rho * a_.eigenvalue[j]);
        W[j] -= a_.relaxed * delta;
        Vc[j] += a_.relaxed * (O[j] - Vc[j]);
        moved += a_.eigenvalue[j] * delta * delta;
      }
    }
    if (a_.map == kMapBox) centre(a_.W);
    a_.found[5] = moved;
  }

  // Subtracts the mean over the classes.
  void centre(double* W) const {
    for (int64_t j = 0; j < a_.features; ++j) {
      double sum = 0;
      for (int64_t c = 0; c < m_; ++c) sum += W[c * a_.features + j];
      for (int64_t c = 0; c < m_; ++c) W[c * a_.features + j] -= sum / double(m_);
    }
  }

  // For instances side by side: their scores z [m] give gains and losses, α⁺ and A, and z becomes -coefficients(α⁺).
  void visit(Part& part, int64_t b, int64_t i, T* z, bool checked, Column& column) {
    const int64_t first = (b * m_) * rows_ + i;
    const int32_t* y = a_.y + b * rows_ + i;
    V real{};
    for (int l = 0; l < N; ++l) real[l] = b * rows_ + i + l < a_.instances ? T(1) : T(0);
    const V share = load_wide(a_.share + b * rows_ + i);
    if (a_.map == kMapCapped || a_.map == kMapTopK) {
      pairs(part, first, b, i, y, real, share, z, checked, column);
    } else {
      single(part, first, y, real, share, z, checked);
    }
  }

  T& at_class(T* z, const int32_t* y, int l) const { return z[y[l] * rows_ + l]; }

  // h = 1 + z_c - z_y
  void pairs(Part& part, int64_t first, int64_t b, int64_t i, const int32_t* y, V real, V share, T* z,
             bool checked, Column& column) {
    T *A = a_.alpha + first, *next = a_.next + first;
    const T rho = T(a_.rho);
    const V r = share * T(a_.radius);
    V own{}, sums{};
    for (int l = 0; l < N; ++l) {
      own[l] = at_class(z, y, l);
      at_class(z, y, l) = -std::numeric_limits<T>::infinity();
    }
    const V shift = T(1) - own;
    if (checked) part.loss += total_loss(z, shift, real * share);
    for (int64_t c = 0; c < m_; ++c) {
      const V a = load_wide(A + c * rows_);
      sums += a;
      store_wide(z + c * rows_, a + rho * (load_wide(z + c * rows_) + shift));
    }
    T* level = a_.level + 2 * b * rows_ + i;
    Thresholds<T> at{load_wide(level), load_wide(level + rows_)};
    if (a_.map == kMapCapped) {
      threshold_capped(z, rows_, m_, sums, r, share * T(a_.radius / double(a_.k)), column, at);
    } else {
      threshold_topk(z, rows_, m_, a_.k, sums, r, column, at);
    }
    store_wide(level, at.level);
    store_wide(level + rows_, at.width);
    V gain{}, moved{}, change{};
    for (int64_t c = 0; c < m_; ++c) {
      const V x = real * at.clipped(load_wide(z + c * rows_));
      const V old = load_wide(A + c * rows_), step = x - old;
      gain += x, change += step, moved += step * step;
      store_wide(A + c * rows_, old + T(a_.relaxed) * step);
      store_wide(z + c * rows_, x);
      if (checked) store_wide(next + c * rows_, x);
    }
    for (int l = 0; l < N; ++l) at_class(z, y, l) = -gain[l];
    part.gain += double(total(gain));
    part.moved += double(total(moved + change * change));  // in the metric I + 11ᵀ
  }

  // Σ share φ(h) of h = z + shift, by the form of the loss that the k largest give
  double total_loss(const T* z, V shift, V share) const {
    const bool positive = a_.map == kMapCapped;
    const T least = positive ? T(0) : std::numeric_limits<T>::lowest();
    V sum{};
    if (a_.k == m_ - 1) {
      for (int64_t c = 0; c < m_; ++c) {
        const V h = load_wide(z + c * rows_) + shift;
        sum += select(h > least, h, V{});
      }
    } else if (a_.k <= kFew) {
      V top[kFew];
      for (int64_t j = 0; j < a_.k; ++j) top[j] = wide(least);
      for (int64_t c = 0; c < m_; ++c) {
        V h = load_wide(z + c * rows_) + shift;
        for (int64_t j = 0; j < a_.k; ++j) {
          const V higher = maximum(h, top[j]);
          h = minimum(h, top[j]), top[j] = higher;
        }
      }
      for (int64_t j = 0; j < a_.k; ++j) sum += top[j];
    } else {
      std::vector<T> h(m_);
      for (int l = 0; l < N; ++l) {
        for (int64_t c = 0; c < m_; ++c) h[c] = std::max(z[c * rows_ + l] + shift[l], least);
        largest_first(h.data(), a_.k - 1, m_);
        for (int64_t j = 0; j < a_.k; ++j) sum[l] += h[j];
      }
    }
    return double(total(share * maximum(sum, V{}))) / double(a_.k);
  }

  // h = 1 + z_c, or 1 ∓ z_c with - for c = y
  void single(Part& part, int64_t first, const int32_t* y, V real, V share, T* z, bool checked) {
    T *A = a_.alpha + first, *next = a_.next + first;
    const T rho = T(a_.rho), relaxed = T(a_.relaxed);
    const V C = share * T(a_.radius);
    const bool squared = a_.map == kMapSignedRay;
    const double ridge = squared ? 0.5 / a_.radius : 0;
    V shrink{};
    for (int l = 0; l < N; ++l) {
      shrink[l] = T(1 / (1 + a_.rho * (ridge / double(share[l]))));
      T& own = at_class(z, y, l);
      own = a_.map == kMapBox ? -std::numeric_limits<T>::infinity() : -own;
    }
    V gain{}, moved{}, loss{}, square{};
    for (int64_t c = 0; c < m_; ++c) {
      const V h = load_wide(z + c * rows_) + T(1), old = load_wide(A + c * rows_);
      const V positive = maximum(h, V{}), free = maximum(old + rho * h, V{});
      loss += squared ? positive * positive : positive;
      const V x = real * (squared ? free * shrink : minimum(free, C)), step = x - old;
      gain += x, square += x * x, moved += step * step;
      store_wide(A + c * rows_, old + relaxed * step);
      store_wide(z + c * rows_, x);
      if (checked) store_wide(next + c * rows_, x);
    }
    part.loss += double(total(real * share * loss));
    part.gain += double(total(gain)) - ridge / 2 * double(total(square / share));
    part.moved += double(total(moved));
    if (a_.map == kMapBox) {
      const V mean = gain / T(m_);
      for (int64_t c = 0; c < m_; ++c) store_wide(z + c * rows_, load_wide(z + c * rows_) - mean);
    } else {
      for (int l = 0; l < N; ++l) at_class(z, y, l) = -at_class(z, y, l);
    }
  }

  const DenseSplittingArgs<T>& a_;
  const int64_t m_, rows_, size_;
  Zeros<T> W_;
  std::vector<Part> parts_;
};

}  // namespace

template <class T>
void dense_splitting(const DenseSplittingArgs<T>& args) {
  DenseSplitting<T>(args).run();
}
template void dense_splitting<float>(const DenseSplittingArgs<float>&);
template void dense_splitting<double>(const DenseSplittingArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
