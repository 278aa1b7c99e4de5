// Which instances a match of two bundles of classes visits, where threads play the bundles against each other.
//
// Matches of a round touch different bundles. An instance has dual variables for classes of its own bundle and of
// other bundles that it has met. It visits those of another bundle in the match of this bundle with its own, and
// those of its own bundle in one of these matches. An instance that has met no other bundle may go to any match of
// its own bundle: such instances fill up the matches that would end before their round.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "dual/multiclass.h"

namespace xmcjax {

// An instance in a match; inner: with the classes of its own bundle as well. idle: sweeps without a change.
struct PlannedVisit {
  int32_t i;
  bool inner;
  uint8_t idle;
};

// An instance and where the classes of its list are: bit b of `met` for bundle b.
struct Whereabouts {
  int32_t i;
  int32_t own;
  uint64_t met;
  int64_t cost;  // of a visit
};

constexpr int64_t kMostBundles = 64;  // as many as `met` has bits

// Bundles of classes that threads may play against each other: whole panels of `width` classes, with about as many
// instances in each bundle as in the others; no bundles where one thread is enough.
class Bundles {
 public:
  Bundles() = default;
  // class_first: instances before those of each class, [classes + 1].
  Bundles(const std::vector<int64_t>& class_first, int64_t width, int64_t threads);

  int64_t count() const { return std::max<int64_t>(int64_t(first_.size()) - 1, 0); }
  Classes classes(int64_t b) const { return {first_[b], first_[b + 1]}; }
  int32_t of(int64_t c) const { return of_[c / width_]; }

 private:
  int64_t width_ = 1;
  std::vector<int64_t> first_;  // the class with which each begins, and last the number of classes
  std::vector<int32_t> of_;  // the bundle of each panel
};

class BundlePlan {
 public:
  // An even number of bundles, or none.
  explicit BundlePlan(int64_t bundles = 0)
      : matches_(bundles / 2), visits_(rounds() * matches_), of_(bundles * bundles) {
    for (int64_t r = 0; r < rounds(); ++r)
      for (int64_t j = 0; j < matches_; ++j)
        of_[first(r, j) * bundles + second(r, j)] = of_[second(r, j) * bundles + first(r, j)] =
            r * matches_ + j;
  }

  int64_t matches() const { return matches_; }  // of a round
  int64_t rounds() const { return matches_ ? 2 * matches_ - 1 : 0; }
  // The bundles of match j of round r: round_pairs of solvers/multiclass_dual/_schedule.py
  int64_t first(int64_t r, int64_t j) const { return j ? (r + j) % rounds() : rounds(); }
  int64_t second(int64_t r, int64_t j) const { return j ? (r - j + rounds()) % rounds() : r; }
  std::vector<PlannedVisit>& visits(int64_t r, int64_t j) { return visits_[r * matches_ + j]; }

  // Visits that fill() has entered.
  int64_t size() const { return size_; }

  void fill(const std::vector<Whereabouts>& instances);

 private:
  int64_t matches_, size_ = 0;
  std::vector<std::vector<PlannedVisit>> visits_;  // [rounds * matches]
  std::vector<int64_t> of_;  // [bundles, bundles]: the match of two
};

}  // namespace xmcjax
