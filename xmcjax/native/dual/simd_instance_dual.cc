// Dual ascent over instances (solvers/instance_dual.py): epochs of visits, and the duality gap.
//
// A lane is one problem over the shared features: min ½‖W‖² + Σ_i r_i φ(z_i). A visit makes the dual
// variables of one instance optimal, the others being fixed (Lapin et al. 2015, Algorithm 1).
//
// Scores are worked out for a block of instances at once, so that the weights are read once for
// all of them; after a visit the scores of the block follow by the products among its rows, and the
// weights are changed at the end of the block: the iterates are those of one visit after another.
// Further sweeps over the block cost no product with the weights.
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "core/largest.h"
#include "dual/entropy_set.h"
#include "dual/instance_features.h"
#include "dual/instance_sets.h"

namespace xmcjax::XMCJAX_ISA {
namespace {

// The dual variables of one lane, as rows of `padded` entries and back.
template <class T>
class DualRows {
 public:
  DualRows(const InstanceDualArgs<T>& args, int64_t lane)
      : m_(args.classes), slots_(args.slots), value_(args.dual + lane * args.n * args.kept),
        index_(args.index + lane * args.n * args.slots) {}

  void get(int64_t i, T* x, int64_t padded) const {
    if (!slots_) {
      std::memcpy(x, value_ + i * m_, m_ * sizeof(T));
      std::memset(x + m_, 0, (padded - m_) * sizeof(T));
      return;
    }
    std::memset(x, 0, padded * sizeof(T));
    for (int64_t s = i * slots_; s < (i + 1) * slots_; ++s)
      if (value_[s] != 0) x[index_[s]] = value_[s];
  }

  // Whether there are slots for all of x.
  bool fits(const T* x) const {
    if (!slots_) return true;
    int64_t used = 0;
    for (int64_t j = 0; j < m_; j += kWide<T>) used += __builtin_popcount(nonzero(load_wide(x + j)));
    return used <= slots_;
  }
  int64_t slots() const { return slots_; }

  void put(int64_t i, const T* x) const {
    if (!slots_) {
      std::memcpy(value_ + i * m_, x, m_ * sizeof(T));
      return;
    }
    int64_t s = i * slots_;
    for (int64_t j = 0; j < m_; ++j)
      if (x[j] != 0) index_[s] = int32_t(j), value_[s++] = x[j];
    for (; s < (i + 1) * slots_; ++s) value_[s] = 0, index_[s] = 0;
  }

 private:
  int64_t m_, slots_;
  T* value_;
  int32_t* index_;
};

// A lane without what depends on its set, which is a visit and the gap.
template <class T>
class Lane {
 public:
  // `block`: instances at once. `features` have room for as many.
  Lane(const InstanceDualArgs<T>& args, int64_t lane, Features<T>& features, int64_t block)
      : args_(args), lane_(lane), n_(args.n), m_(args.classes), padded_(whole<T>(m_)), block_(block),
        // Not a power of two: the entries of one instance must not fall into one set of the cache.
        stride_(block_ > 1 ? whole<T>(block_) + kWide<T> : 1), features_(features), dual_(args, lane),
        bound_(args.bound + lane * args.n), Z_(padded_ * stride_ + kWide<T>),
        gram_(block_ > 1 ? block_ * stride_ : 0), changes_(block_ * padded_), z_(padded_), h_(padded_),
        b_(padded_), x_(padded_), next_(padded_), work_(projection_work(padded_)) {}
  virtual ~Lane() = default;

  // Epochs until the lane has ended, or as many as the call allows.
  void advance() {
    for (int64_t e = 0; e < args_.count && args_.status[lane_] == kRunning; ++e) {
      epoch();
      const int64_t epochs = ++args_.epochs[lane_], checks = args_.checks[lane_];
      // relative to P, which is about the sum of the gap and D as the visits found them
      const T about = T(gap_ + objective_), estimate = about > 0 ? T(gap_) / about : T(gap_);
      args_.estimate[lane_] = estimate;
      args_.changed[lane_] = changed_;
      args_.truncated[lane_] = truncated_;
      const bool due =
          (estimate * args_.ratio[lane_] <= args_.tolerance && epochs >= args_.epochs_per_check * checks) ||
          epochs >= args_.first_check << std::min<int64_t>(checks, 25) || epochs >= args_.max_epochs ||
          !std::isfinite(estimate);
      if (!due) continue;
      check(estimate);
      if (truncated_) break;  // there may be more slots before the next epoch
    }
    features_.finish();
  }

  // P, D, their gap and the number of instances with dual variables.
  virtual void evaluate() = 0;

 protected:
  // Visits the p-th of the block's `size` instances; the scores from `first` on are kept up to date.
  virtual void visit(int64_t i, int64_t p, int64_t first, int64_t size, bool estimate) = 0;

  // Works out the true gap, and whether the lane has ended.
  void check(T estimate) {
    evaluate();
    const T gap = args_.gap[lane_], primal = args_.primal[lane_];
    int32_t& status = args_.status[lane_];
    if (args_.epochs[lane_] >= args_.max_epochs) status = kMaxSteps;
    // A gap below 0 by more than rounding is that of dual variables outside of the set (solvers/_accuracy.py).
    const T rounding = std::sqrt(std::sqrt(std::numeric_limits<T>::epsilon()));
    if (gap <= args_.tolerance * primal && gap >= -rounding * primal) status = kConverged;
    if (!(std::isfinite(gap) && std::isfinite(primal))) status = kNonFinite;
    if (estimate > 0) args_.ratio[lane_] = (primal > 0 ? gap / primal : gap) / estimate;
    const int64_t row = std::min<int64_t>(args_.checks[lane_]++, args_.records - 1);
    if (row < 0) return;
    T* entry = args_.history + (lane_ * args_.records + row) * 3;
    entry[0] = T(args_.epochs[lane_]), entry[1] = primal, entry[2] = args_.dual_objective[lane_];
  }

  // The instances with a loss, shuffled (Fisher and Yates) by a hash of seed, epoch and place.
  std::vector<int32_t> order() const {
    const uint32_t start = mixed(args_.seed + uint32_t(args_.epochs[lane_]) * 0x9e3779b9u);
    std::vector<int32_t> all(n_), rows;
    for (int64_t i = 0; i < n_; ++i) all[i] = int32_t(i);
    for (int64_t i = n_ - 1; i > 0; --i)
      std::swap(all[i], all[mixed(start + uint32_t(i) * 0x9e3779b9u) % uint32_t(i + 1)]);
    rows.reserve(n_);
    for (int32_t i : all)
      if (bound_[i] > 0) rows.push_back(i);
    return rows;
  }
  static uint32_t mixed(uint32_t h) {  // the last steps of MurmurHash3
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    return h ^ (h >> 16);
  }

  void epoch() {
    gap_ = objective_ = 0;
    changed_ = truncated_ = 0;
    const std::vector<int32_t> rows = order();
    const int64_t count = int64_t(rows.size());
    const int64_t sweeps = block_ > 1 ? args_.sweeps : 1;
    const Poll poll;
    for (int64_t first = 0; first < count; first += block_) {
      const int64_t size = std::min(block_, count - first);
      poll(size * (work_of_a_visit() + block_ * args_.columns / kWide<T>));
      const int32_t* ids = rows.data() + first;
      features_.take(ids, size);
      features_.scores(Z_.get(), stride_);
      if (size > 1) features_.gram(gram_.get(), stride_);
      for (int64_t sweep = 0; sweep < sweeps; ++sweep, poll(size * (size + kVisit) * padded_ / kWide<T>))
        for (int64_t p = 0; p < size; ++p) {
          // Rows of the next block, in any order, come from memory during the visits of this one.
          if (sweep == 0 && first + block_ + p < count) features_.prefetch(ids[block_ + p]);
          visit(ids[p], p, sweep + 1 < sweeps ? 0 : p + 1, size, sweep == 0);
        }
      for (int64_t p = 0; p < size; ++p) {
        T* change = changes_.get() + p * padded_;
        features_.add_row(p, change);
        std::memset(change, 0, padded_ * sizeof(T));
      }
    }
  }

  // The work of a visit, about, in products of a vector register: its scores, and kVisit passes over its classes.
  static constexpr int64_t kVisit = 20;
  int64_t work_of_a_visit() const {
    const int64_t row = args_.features == kCsrFeatures ? args_.csr.offset[n_] / n_ + 1 : args_.columns;
    return (row + kVisit) * padded_ / kWide<T> + 1;
  }

  // Works out h; returns whether the scores are finite.
  bool margins(int64_t i, int64_t p) {
    const int64_t y = args_.y[i];
    const T* z = Z_.get();
    if (stride_ > 1) {
      for (int64_t j = 0; j < m_; ++j) z_[j] = z[j * stride_ + p];
      z = z_.get();
    }
    const T shift = 1 - z[y];
    Wide<T> zero{};
    for (int64_t j = 0; j < padded_; j += kWide<T>) {
      const Wide<T> v = load_wide(z + j);
      zero += v * T(0);
      store_wide(h_.get() + j, v + shift);
    }
    h_[y] = -std::numeric_limits<T>::infinity();
    for (int64_t j = m_; j < padded_; ++j) h_[j] = -std::numeric_limits<T>::infinity();
    return T(total(zero)) == 0;
  }

  // Makes all of b -inf except its largest entries, as many as there are slots. The first visits have many equal
  // entries: those that stay are taken from a class on that differs from instance to instance.
  void keep_largest(int64_t i) {
    T* b = b_.get();
    double* work = work_.get();
    const int64_t kept = dual_.slots();
    for (int64_t j = 0; j < m_; ++j) work[j] = double(b[j]);
    largest_first(work, kept - 1, m_);
    const T least = T(work[kept - 1]);
    int64_t equal = kept;
    for (int64_t j = 0; j < m_; ++j) equal -= b[j] > least;
    const int64_t start = int64_t(uint64_t(i) * 0x9e3779b97f4a7c15u % uint64_t(m_));
    for (int64_t s = 0; s < m_; ++s) {
      T& value = b[s + start < m_ ? s + start : s + start - m_];
      if (value > least || (value == least && equal-- > 0)) continue;
      value = -std::numeric_limits<T>::infinity();
    }
  }

  // Takes x to next, where they differ by more than the rounding of the largest entry. The entries can be far below the
  // bound of the set, where the rows of features are long or k is large.
  void change(int64_t i, int64_t p, int64_t first, int64_t size) {
    constexpr int N = kWide<T>;
    T *x = x_.get(), *next = next_.get(), *change = changes_.get() + p * padded_;
    Wide<T> most{};
    for (int64_t j = 0; j < padded_; j += N) most = maximum(most, load_wide(next + j));
    const T tiny = std::numeric_limits<T>::epsilon() * largest<T>(most);
    bool any = false;
    for (int64_t j = 0; j < padded_; j += N) {
      const Wide<T> old = load_wide(x + j), now = load_wide(next + j), step = now - old;
      // an entry that comes to 0 does so to the bit
      const auto moved = (step > tiny) | (step < -tiny) | ((now == T(0)) & (old > T(0)));
      store_wide(next + j, moved ? now : old);
      any |= nonzero(moved ? wide(T(1)) : Wide<T>{}) != 0;
    }
    if (!any) return;
    dual_.put(i, next);
    ++changed_;
    const int64_t y = args_.y[i], start = first / N * N;
    const T* g = gram_.get() + p * stride_;
    T total_step = 0;
    for (int64_t j = 0; j < padded_; j += N) {
      const Wide<T> step = load_wide(next + j) - load_wide(x + j);
      unsigned mask = nonzero(step);
      if (!mask) continue;
      store_wide(change + j, load_wide(change + j) - step);
      for (; mask; mask &= mask - 1) {
        const int64_t l = j + __builtin_ctz(mask);
        const T s = next[l] - x[l];
        total_step += s;
        if (size > 1) add_scaled(-s, g + start, size - start, Z_.get() + l * stride_ + start);
      }
    }
    change[y] += total_step;
    if (size > 1) add_scaled(total_step, g + start, size - start, Z_.get() + y * stride_ + start);
  }

  const InstanceDualArgs<T>& args_;
  int64_t lane_, n_, m_, padded_, block_, stride_;
  Features<T>& features_;
  DualRows<T> dual_;
  const T* bound_;
  Zeros<T> Z_, gram_, changes_, z_, h_, b_, x_, next_;
  Zeros<double> work_;
  double gap_ = 0, objective_ = 0;
  int32_t changed_ = 0, truncated_ = 0;
};

template <class T, class Set>
class LaneOfSet final : public Lane<T> {
  using Base = Lane<T>;
  using Base::args_, Base::b_, Base::block_, Base::bound_, Base::dual_, Base::features_, Base::gap_, Base::h_,
      Base::lane_, Base::m_, Base::n_, Base::next_, Base::objective_, Base::padded_, Base::stride_,
      Base::truncated_, Base::work_, Base::x_, Base::Z_, Base::change, Base::keep_largest, Base::margins,
      Base::work_of_a_visit;

 public:
  LaneOfSet(const InstanceDualArgs<T>& args, int64_t lane, Features<T>& features, int64_t block)
      : Base(args, lane, features, block), set_(args.k[lane], args.gamma[lane]) {}

  void evaluate() override {
    double gap = 0, sum = 0, norm = 0;
    int32_t support = 0;
    const Poll poll;
    for (int64_t first = 0; first < n_; first += block_) {
      const int64_t size = std::min(block_, n_ - first);
      poll(size * work_of_a_visit());
      std::vector<int32_t> ids(size);
      for (int64_t p = 0; p < size; ++p) ids[p] = int32_t(first + p);
      features_.take(ids.data(), size);
      features_.scores(Z_.get(), stride_);
      for (int64_t p = 0; p < size; ++p) {
        const int64_t i = first + p;
        if (!(bound_[i] > 0)) continue;
        dual_.get(i, x_.get(), padded_);
        if (!margins(i, p)) gap = std::numeric_limits<double>::quiet_NaN();
        double inner = 0, total = 0;
        for (int64_t j = 0; j < m_; ++j)
          if (x_[j] != 0) inner += double(x_[j]) * double(h_[j]), total += double(x_[j]);
        support += total != 0;
        if (std::isnan(gap)) continue;
        // rφ - ⟨x, h⟩ + ½ρ‖x‖² summed is P - D, and ⟨a_i, z_i⟩ = 1ᵀx - ⟨x, h⟩ summed is ‖W‖²
        const double penalty = set_.penalty(x_.get(), m_, bound_[i]);
        gap += set_.support(h_.get(), m_, double(bound_[i]), work_.get()) - inner + penalty;
        sum += total - penalty;
        norm += total - inner;
      }
    }
    const double dual = sum - norm / 2;
    args_.gap[lane_] = T(gap);
    args_.dual_objective[lane_] = T(dual);
    args_.primal[lane_] = T(dual + gap);
    args_.support[lane_] = support;
  }

 private:
  void visit(int64_t i, int64_t p, int64_t first, int64_t size, bool estimate) override {
    constexpr int N = kWide<T>;
    const int64_t y = args_.y[i];
    const T r = bound_[i], norm2 = args_.squared_norms[i];
    T *h = h_.get(), *b = b_.get(), *x = x_.get(), *next = next_.get();
    dual_.get(i, x, padded_);
    if (!margins(i, p)) {
      gap_ = std::numeric_limits<double>::quiet_NaN();
      return;
    }
    Wide<T> sums{};
    for (int64_t j = 0; j < padded_; j += N) sums += load_wide(x + j);
    const T sum = T(total(sums));
    T gap, inner;
    if (norm2 > 0) {
      const T ridge = set_.ridge(r), top_level = set_.top_level(r, sum), inverse = 1 / (norm2 + ridge);
      const T bias = ridge > 0 ? norm2 * inverse : T(1);
      const T infinity = std::numeric_limits<T>::infinity();
      PieceSum<T> pieces;
      Wide<T> products{}, rest_max = wide(-infinity), top_min = wide(infinity);
      for (int64_t j = 0; j < padded_; j += N) {
        // b = (q_j + 1 - q_y)/‖x_i‖², q = z - ‖x_i‖² a, and with a smoothing s b
        const Wide<T> hj = load_wide(h + j), xj = load_wide(x + j), bj = hj * inverse + bias * (xj + sum);
        store_wide(b + j, bj);
        const auto free = xj > T(0), top = xj >= top_level;
        pieces.add(bj, free & ~top, top);
        products += free ? xj * hj : Wide<T>{};
        rest_max = maximum(rest_max, free ? wide(-infinity) : bj);
        top_min = minimum(top_min, top ? bj : wide(infinity));
      }
      inner = T(total(products));
      const Visit<T> v{h,
                       b,
                       x,
                       next,
                       m_,
                       padded_,
                       r,
                       norm2,
                       bias,
                       sum,
                       inner,
                       pieces.pieces(),
                       largest<T>(rest_max),
                       -largest<T>(-top_min),
                       work_.get()};
      gap = set_.visit(v, estimate);
      if (!dual_.fits(next)) {
        // An x over fewer classes is feasible and raises the dual as well.
        ++truncated_;
        keep_largest(i);
        set_.search(v);
      }
    } else {
      set_.unopposed(y, m_, r, next);
      if (!dual_.fits(next)) {
        ++truncated_;
        int64_t left = dual_.slots();
        for (int64_t j = 0; j < m_; ++j)
          if (next[j] != 0 && left-- <= 0) next[j] = 0;
      }
      inner = sum;
      gap = T(set_.support(h, m_, double(r), work_.get()) - double(sum) + set_.penalty(x, m_, r));
    }
    if (estimate) {
      gap_ += double(gap);
      objective_ += 0.5 * (double(sum) + double(inner)) - set_.penalty(x, m_, r);  // 1ᵀx - ½⟨a, z⟩ - ½ρ‖x‖²
    }
    change(i, p, first, size);
  }

  const Set set_;
};

template <class T>
std::unique_ptr<Features<T>> features_of(const InstanceDualArgs<T>& args, int64_t lane, int64_t& block) {
  T* weights = args.weights + lane * args.first * args.second;
  switch (args.features) {
#define XMCJAX_FEATURES(name, Class)                                                      \
  case k##Class:                                                                          \
    block = Class<T>::kInBlocks ? std::max<int64_t>(1, std::min(args.block, args.n)) : 1; \
    return std::make_unique<Class<T>>(args, weights, block);
#include "interface/ids.def"
    default: unknown_id("features", args.features);
  }
}

template <class T>
std::unique_ptr<Lane<T>> lane_of(const InstanceDualArgs<T>& args, int64_t lane, Features<T>& features,
                                 int64_t block) {
  switch (args.set) {
#define XMCJAX_SET(name, Class) \
  case k##Class: return std::make_unique<LaneOfSet<T, Class<T>>>(args, lane, features, block);
#include "interface/ids.def"
    default: unknown_id("sets", args.set);
  }
}

// The arguments of instance_gap as those of instance_dual; nothing that is read is changed.
template <class T>
InstanceDualArgs<T> for_reading(const InstanceGapArgs<T>& args) {
  InstanceDualArgs<T> all{};
  all.lanes = args.lanes, all.n = args.n, all.rows = args.rows, all.columns = args.columns;
  all.first = args.first, all.second = args.second, all.kept = args.kept, all.slots = args.slots;
  all.classes = args.classes, all.block = args.block, all.features = args.features, all.set = args.set;
  all.X = args.X, all.csr = args.csr, all.y = args.y, all.squared_norms = args.squared_norms;
  all.bound = args.bound, all.k = args.k, all.gamma = args.gamma;
  all.weights = const_cast<T*>(args.weights), all.dual = const_cast<T*>(args.dual);
  all.index = const_cast<int32_t*>(args.index);
  all.primal = args.primal, all.dual_objective = args.dual_objective, all.gap = args.gap;
  all.support = args.support;
  return all;
}

}  // namespace

template <class T>
void instance_dual(const InstanceDualArgs<T>& args, int64_t lane) {
  int64_t block;
  const auto features = features_of(args, lane, block);
  lane_of(args, lane, *features, block)->advance();
}
template <class T>
void instance_gap(const InstanceGapArgs<T>& args, int64_t lane) {
  const InstanceDualArgs<T> all = for_reading(args);
  int64_t block;
  const auto features = features_of(all, lane, block);
  lane_of(all, lane, *features, block)->evaluate();
}
template void instance_dual<float>(const InstanceDualArgs<float>&, int64_t);
template void instance_dual<double>(const InstanceDualArgs<double>&, int64_t);
template void instance_gap<float>(const InstanceGapArgs<float>&, int64_t);
template void instance_gap<double>(const InstanceGapArgs<double>&, int64_t);

}  // namespace xmcjax::XMCJAX_ISA
