#include "dual/gram_factor.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include "core/interrupt.h"

namespace xmcjax {
namespace {

// Elimination ends at a feature that has at least this part of the features that remain beside it: the rest is dense.
constexpr double kFull = 0.7;
// Entries that the search for an order may look at, for each entry of X; after them the rest counts as dense.
constexpr int64_t kEffort = 20;

// Of the features in more than kRare rows, the kFrequent most frequent ones count as dense from the beginning: to look
// through their rows again and again takes most of the time, and they end as dense ones anyway.
constexpr int64_t kRare = 16, kFrequent = 512;

// The quotient graph: features, and elements that are cliques of features. Rows of X are the first elements; when a
// feature is eliminated, its neighbours become an element.
class Graph {
 public:
  template <class T>
  explicit Graph(const Csr<T>& X, const std::vector<int64_t>& column_offset)
      : inside_(X.n), held_(X.d), size_(X.n, 0), degree_(X.d, 0), gone_(X.d, false), dense_(X.d, false),
        alive_(X.d) {
    std::vector<int32_t> frequent;
    const auto rows = [&](int32_t j) { return column_offset[j + 1] - column_offset[j]; };
    for (int64_t j = 0; j < X.d; ++j)
      if (rows(int32_t(j)) > kRare) frequent.push_back(int32_t(j));
    const auto more = [&](int32_t a, int32_t b) { return rows(a) != rows(b) ? rows(a) > rows(b) : a < b; };
    const int64_t count = std::min<int64_t>(kFrequent, int64_t(frequent.size()));
    std::nth_element(frequent.begin(), frequent.begin() + count, frequent.end(), more);
    for (int64_t k = 0; k < count; ++k) dense_[frequent[k]] = true;
    for (int64_t i = 0; i < X.n; ++i) {
      inside_[i].assign(X.column + X.offset[i], X.column + X.offset[i + 1]);
      for (const int32_t j : inside_[i])
        if (!dense_[j]) held_[j].push_back(int32_t(i)), ++size_[i];
    }
    for (int64_t j = 0; j < X.d; ++j) {
      if (dense_[j]) continue;
      int64_t degree = 0;
      for (const int32_t e : held_[j]) degree += size_[e] - 1;
      offer(int32_t(j), std::min(degree, alive_ - 1));
    }
    marked_.assign(X.d, -1);
    outside_.assign(X.n, 0);
    looked_.assign(X.n, -1);
  }

  // Eliminates a feature of about the least degree, and puts its neighbours into `beside`. -1 where the rest is dense.
  int32_t eliminate(std::vector<int32_t>& beside, int64_t& work) {
    int32_t p = -1;
    while (!offers_.empty() && p < 0) {
      const auto [degree, j] = offers_.top();
      offers_.pop();
      if (!gone_[j] && degree == degree_[j]) p = j;
    }
    if (p < 0) return -1;
    beside.clear();
    marked_[p] = p;
    for (const int32_t e : held_[p]) {
      work += int64_t(inside_[e].size());
      for (const int32_t j : inside_[e])
        if (marked_[j] != p) marked_[j] = p, beside.push_back(j);
    }
    if (beside.size() > 1 && double(beside.size()) >= kFull * double(alive_ - 1)) return -1;
    for (const int32_t e : held_[p]) std::vector<int32_t>().swap(inside_[e]);
    gone_[p] = true;
    --alive_;
    if (held_[p].empty()) return p;
    const int32_t made = held_[p].front();  // its number is free
    std::vector<int32_t>().swap(held_[p]);
    inside_[made] = beside;
    // outside_: how many features of each other element are not beside p, dense ones apart
    int64_t others = -1;
    for (const int32_t i : beside) {
      if (dense_[i]) continue;
      ++others;
      std::vector<int32_t>& held = held_[i];
      work += int64_t(held.size());
      held.erase(std::remove_if(held.begin(), held.end(),
                                [&](int32_t e) { return e == made || inside_[e].empty(); }),
                 held.end());
      for (const int32_t e : held) {
        if (looked_[e] != p) looked_[e] = p, outside_[e] = size_[e];
        --outside_[e];
      }
    }
    size_[made] = int32_t(others) + 1;
    for (const int32_t i : beside) {
      if (dense_[i]) continue;
      std::vector<int32_t>& held = held_[i];
      int64_t degree = others;
      size_t kept = 0;
      for (const int32_t e : held) {
        if (outside_[e] == 0 && within(e, p, work)) continue;  // a part of the new element
        degree += outside_[e];
        held[kept++] = e;
      }
      held.resize(kept);
      held.push_back(made);
      offer(i, std::min({alive_ - 1, degree_[i] + others, degree}));
    }
    return p;
  }

  bool gone(int64_t j) const { return gone_[j]; }

 private:
  // Whether all features of an element are beside p.
  bool within(int32_t e, int32_t p, int64_t& work) const {
    work += int64_t(inside_[e].size());
    return std::all_of(inside_[e].begin(), inside_[e].end(), [&](int32_t j) { return marked_[j] == p; });
  }
  void offer(int32_t j, int64_t degree) {
    degree_[j] = degree;
    offers_.push({degree, j});
  }

  std::vector<std::vector<int32_t>> inside_, held_;  // features of an element, elements of a feature
  std::vector<int32_t> size_;                        // features of an element, dense ones apart
  std::vector<int64_t> degree_;
  std::vector<bool> gone_, dense_;
  int64_t alive_;
  std::vector<int32_t> marked_, outside_, looked_;
  using Offer = std::pair<int64_t, int32_t>;
  std::priority_queue<Offer, std::vector<Offer>, std::greater<Offer>> offers_;
};

}  // namespace

template <class T>
GramFactor<T>::GramFactor(const Csr<T>& X) : X_(X), column_offset_(X.d + 1, 0), offset_{0} {
  const int64_t entries = X.offset[X.n];
  for (int64_t e = 0; e < entries; ++e) ++column_offset_[X.column[e] + 1];
  for (int64_t j = 0; j < X.d; ++j) column_offset_[j + 1] += column_offset_[j];
  std::vector<int64_t> next(column_offset_.begin(), column_offset_.end() - 1);
  column_row_.resize(entries);
  column_entry_.resize(entries);
  for (int64_t i = 0; i < X.n; ++i)
    for (int64_t e = X.offset[i]; e < X.offset[i + 1]; ++e) {
      const int64_t at = next[X.column[e]]++;
      column_row_[at] = int32_t(i);
      column_entry_[at] = e;
    }
}

template <class T>
void GramFactor<T>::eliminate(int64_t most) {
  Graph graph(X_, column_offset_);
  const Poll poll;
  std::vector<int32_t> beside;
  int64_t work = 0;
  order_.clear(), feature_.clear(), offset_ = {0};
  while (int64_t(feature_.size()) < most) {
    const int64_t before = work;
    const int32_t p = graph.eliminate(beside, work);
    poll(work - before);
    if (p < 0) break;
    order_.push_back(p);
    feature_.insert(feature_.end(), beside.begin(), beside.end());
    offset_.push_back(int64_t(feature_.size()));
    if (work > kEffort * X_.offset[X_.n]) break;
  }
  for (int64_t j = 0; j < X_.d; ++j)
    if (!graph.gone(j)) order_.push_back(int32_t(j));
  place_rows();
}

template <class T>
void GramFactor<T>::place_rows() {
  place_.resize(X_.d);
  for (int64_t s = 0; s < X_.d; ++s) place_[order_[s]] = int32_t(s);
  row_.resize(feature_.size());
  for (int64_t s = 0; s < sparse(); ++s) {
    int32_t* row = row_.data();
    for (int64_t e = begin(s); e < end(s); ++e) row[e] = place_[feature_[e]];
    std::sort(row + begin(s), row + end(s));
    for (int64_t e = begin(s); e < end(s); ++e) feature_[e] = order_[row[e]];
  }
  value_.resize(row_.size());
  narrow_.resize(row_.size());
  reciprocal_.resize(sparse());
}

template <class T>
void GramFactor<T>::factor(double rho, double* S) {
  const int64_t count = sparse(), size = dense();
  const Poll poll;
  std::fill(S, S + size * size, 0.0);
  std::vector<std::pair<int64_t, double>> left;
  for (int64_t i = 0; i < X_.n; ++i) {
    left.clear();
    for (int64_t e = X_.offset[i]; e < X_.offset[i + 1]; ++e)
      if (const int64_t k = place_[X_.column[e]] - count; k >= 0) left.push_back({k, double(X_.value[e])});
    poll(int64_t(left.size() * left.size()));
    for (const auto& [a, v] : left)
      for (const auto& [b, w] : left)
        if (b <= a) S[a * size + b] += rho * v * w;
  }
  for (int64_t k = 0; k < size; ++k) S[k * size + k] += 1;

  // the columns before, listed by the place of their next row: the first of each list, and the one after each column
  std::vector<int64_t> first(count, -1), after(count, -1), at(count);
  std::vector<double> sum(X_.d, 0.0);
  const auto link = [&](int64_t k) {
    if (at[k] < end(k) && row_[at[k]] < count) after[k] = first[row_[at[k]]], first[row_[at[k]]] = k;
  };
  for (int64_t s = 0; s < count; ++s) {
    // K_ps = δ_ps + ρ Σ_i x_ip x_is
    double diagonal = 1;
    const int32_t j = order_[s];
    for (int64_t c = column_offset_[j]; c < column_offset_[j + 1]; ++c) {
      const int64_t i = column_row_[c];
      const double v = rho * double(X_.value[column_entry_[c]]);
      poll(X_.offset[i + 1] - X_.offset[i]);
      for (int64_t e = X_.offset[i]; e < X_.offset[i + 1]; ++e) {
        const int64_t place = place_[X_.column[e]];
        if (place > s) sum[place] += v * double(X_.value[e]);
        if (place == s) diagonal += v * double(X_.value[e]);
      }
    }
    // less Σ_k L_pk L_sk
    for (int64_t k = first[s], next; k >= 0; k = next) {
      next = after[k];
      const double l = value_[at[k]];
      diagonal -= l * l;
      poll(end(k) - at[k]);
      for (int64_t e = ++at[k]; e < end(k); ++e) sum[row_[e]] -= l * value_[e];
      link(k);
    }
    reciprocal_[s] = 1 / std::sqrt(std::max(diagonal, 1.0));  // K - I is positive semidefinite
    for (int64_t e = begin(s); e < end(s); ++e) {
      value_[e] = sum[row_[e]] * reciprocal_[s];
      narrow_[e] = T(value_[e]);
      sum[row_[e]] = 0;
    }
    at[s] = begin(s);
    link(s);
    const int64_t below =
        std::lower_bound(row_.begin() + begin(s), row_.begin() + end(s), int32_t(count)) - row_.begin();
    poll((end(s) - below) * (end(s) - below) / 2);
    for (int64_t a = below; a < end(s); ++a) {
      double* out = S + (row_[a] - count) * size;
      for (int64_t b = below; b <= a; ++b) out[row_[b] - count] -= value_[a] * value_[b];
    }
  }
}

template class GramFactor<float>;
template class GramFactor<double>;

}  // namespace xmcjax
