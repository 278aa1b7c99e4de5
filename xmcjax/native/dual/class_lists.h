// The classes that matter to an instance, as simd_pair_ascent.cc keeps them. Included by the simd_*.cc files only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dual/multiclass.h"
#include "dual/panels.h"
#include "projections/projection_math.h"

namespace xmcjax::XMCJAX_ISA {

// A class stays in the list while its gain is at most this far below the gain at which its variable grows.
constexpr double kNear = 0.02;

template <class T>
struct ListEntry {
  int32_t c;
  T alpha, gain;
};

// The entries first .. last-1 of a list.
template <class T>
struct ListStretch {
  ListEntry<T>*first, *last;
  ListEntry<T>* begin() const { return first; }
  ListEntry<T>* end() const { return last; }
  int64_t size() const { return last - first; }
  // Σ α
  T sum() const {
    T all = 0;
    for (const ListEntry<T>* e = first; e != last; ++e) all += e->alpha;
    return all;
  }
};

template <class Entry, class F>
void drop_if(std::vector<Entry>& list, F unwanted) {
  list.erase(std::remove_if(list.begin(), list.end(), unwanted), list.end());
}

// An instance, on cache lines of its own: threads write to those of different ones.
template <class T>
struct alignas(64) ListedInstance {
  std::vector<ListEntry<T>> list;  // classes ascending
  T norm2 = 0;
  T left_out = 0;  // gains above 0 of classes that are not in the list, summed
  T floor = T(-kNear);  // gains below which a class with α = 0 does not matter
  int32_t y = 0;
  uint8_t idle = 0, moved = 0;

  ListStretch<T> whole() { return {list.data(), list.data() + list.size()}; }
  // Takes more classes into the list.
  void join(const std::vector<ListEntry<T>>& more) {
    if (more.empty()) return;
    list.insert(list.end(), more.begin(), more.end());
    std::sort(list.begin(), list.end(),
              [](const ListEntry<T>& a, const ListEntry<T>& b) { return a.c < b.c; });
    idle = 0;
  }
  // The entries of some classes.
  ListStretch<T> stretch(Classes classes) {
    ListEntry<T>*first = list.data(), *last = first + list.size();
    while (first != last && first->c < classes.first) ++first;
    while (first != last && last[-1].c >= classes.last) --last;
    return {first, last};
  }
  size_t at_bound(T C) const {
    return size_t(
        std::count_if(list.begin(), list.end(), [&](const ListEntry<T>& e) { return e.alpha >= C; }));
  }
  // Variables that end neither at 0 nor at C.
  int64_t inside(T C) const {
    return std::count_if(list.begin(), list.end(),
                         [&](const ListEntry<T>& e) { return e.alpha > 0 && e.alpha < C; });
  }
  // Drops what does not matter at the gains that were last worked out.
  void prune() {
    drop_if(list, [&](const ListEntry<T>& e) { return !(e.alpha > 0) && e.gain <= floor; });
  }
};

// Classes whose weights are moved, whole panels of them: those that are marked, or all.
struct Moved {
  const int8_t* marked = nullptr;
  bool has(int64_t c) const { return !marked || marked[c]; }
};

// Brings the gains of entries of row i, which is of class y, up to date.
template <class T>
void bring_gains(const Csr<T>& X, int64_t i, int32_t y, ListStretch<T> list, const Panels<T>& W) {
  constexpr int N = Panels<T>::N;
  const int64_t own_panel = y / N;
  const Vec<T> own = row_dot_tile(X, i, W.panel(own_panel), N);
  const T base = 1 - own[y % N];
  for (ListEntry<T>* e = list.first; e != list.last;) {
    const int64_t q = e->c / N;
    const Vec<T> g = (q == own_panel ? own : row_dot_tile(X, i, W.panel(q), N)) + base;
    for (; e != list.last && e->c / N == q; ++e) e->gain = g[e->c % N];
  }
}

// 1 in one lane of a tile and 0 in the others. It is loaded from a constant: the load of a vector whose numbers were
// just stored one by one would wait for them.
template <class T>
inline Vec<T> one_lane(int64_t lane) {
  constexpr int N = kLanes<T>;
  struct Line {
    T numbers[2 * N] = {};
    constexpr Line() { numbers[N] = 1; }
  };
  alignas(64) static constexpr Line kLine;
  return load(kLine.numbers + N - lane);
}

// w_y += Σ_c δ_c x, w_c -= δ_c x, of the panels that `moved` has
template <class T>
void spread(const Csr<T>& X, int64_t i, int32_t y, ListStretch<T> list, const T* delta, const Panels<T>& W,
            const Moved& moved) {
  constexpr int N = Panels<T>::N;
  const int64_t count = list.size(), own_panel = y / N;
  T total = 0;
  for (int64_t e = 0; e < count; ++e) total += delta[e];
  bool own_done = false;
  for (int64_t e = 0; e < count;) {
    const int64_t q = list.first[e].c / N;
    Vec<T> lanes{};
    bool some = false;
    for (; e < count && list.first[e].c / N == q; ++e) {
      lanes -= delta[e] * one_lane<T>(list.first[e].c % N);
      some |= delta[e] != 0;
    }
    if (q == own_panel) lanes += total * one_lane<T>(y % N), own_done = some = true;
    if (some && moved.has(q * N)) row_add_tile(X, i, lanes, W.panel(q), N);
  }
  if (!own_done && moved.has(y)) row_add_lane(X, i, total, W.panel(own_panel) + y % N, N);
}

// The changes δ_ic that a part of a sweep makes in dual variables, of which other places are told: in the order in
// which they were made, those of a visit side by side and their classes ascending.
template <class T>
struct Moves {
  std::vector<int32_t> row, c;
  std::vector<T> delta;

  void clear() { row.clear(), c.clear(), delta.clear(); }
  void add(int32_t i, ListStretch<T> list, const T* change) {
    for (const ListEntry<T>* e = list.first; e != list.last; ++e, ++change)
      if (*change != 0) row.push_back(i), c.push_back(e->c), delta.push_back(*change);
  }
  void get(int64_t first, int64_t count, int32_t* rows, int32_t* classes, T* changes) const {
    std::copy_n(row.begin() + first, count, rows);
    std::copy_n(c.begin() + first, count, classes);
    std::copy_n(delta.begin() + first, count, changes);
  }
};

// visit(k, i, list, δ) for each visit, of row i, whose changes begin with the k-th.
template <class T, class F>
void each_visit(const int32_t* row, const int32_t* c, const T* delta, int64_t count, F visit) {
  std::vector<ListEntry<T>> list;
  for (int64_t k = 0, first = 0; k < count; first = k) {
    for (list.clear(); k < count && row[k] == row[first] && (k == first || c[k] > c[k - 1]); ++k)
      list.push_back({c[k], 0, 0});
    visit(first, row[first], ListStretch<T>{list.data(), list.data() + list.size()}, delta + first);
  }
}

// What the solution of a block works with; each thread has its own.
template <class T>
struct ListScratch {
  explicit ListScratch(int64_t m) : b(m), next(m), work(projection_work(m)) {}
  std::vector<T> b, next;
  std::vector<double> work;
  std::vector<ListEntry<T>> some;
  Moves<T>* moves = nullptr;  // where the changes are written down, if anywhere
  T caution = 1;  // of steps, RowAscent::part
};

// The classes with the highest gains that are not in the list of a row, `most` at most.
template <class T>
class ListCandidates {
 public:
  void begin(T floor) { bound_ = floor; }
  T bound() const { return bound_; }
  T left_out() const { return left_out_; }
  const std::vector<ListEntry<T>>& all() const { return hit_; }
  // Counts the sum of the gains above 0 of some classes as left out; take() follows for those above the bound.
  void leave(T sum) { left_out_ += sum; }
  void take(int32_t c, T gain, size_t most) {
    const auto higher = [](const ListEntry<T>& a, const ListEntry<T>& b) { return a.gain > b.gain; };
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
  std::vector<ListEntry<T>> hit_;
  T bound_;
  T left_out_ = 0;  // the sum of the gains above 0 that found no place
};

}  // namespace xmcjax::XMCJAX_ISA
