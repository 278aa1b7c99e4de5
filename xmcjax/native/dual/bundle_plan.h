// Which instances a match of two bundles of classes visits, where threads play the bundles against each other.
//
// Matches of a round touch different bundles. An instance has dual variables for the classes of its own bundle
// and for those of others that it has met; it visits each of the others in the match of the two bundles, and
// those of its own on one of these occasions. One that has met no other bundle may go to any match of its own:
// such instances fill up the matches that would end before their round.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace xmcjax {

// An instance in a match; inner: with the classes of its own bundle as well. idle: sweeps without a change.
struct Visit {
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

class BundlePlan {
 public:
  static constexpr int64_t kMost = 64;  // bundles, as many as `met` has bits

  // An even number of bundles, or none.
  explicit BundlePlan(int64_t bundles = 0) : matches_(bundles / 2), visits_(rounds() * matches_), of_(bundles * bundles) {
    for (int64_t r = 0; r < rounds(); ++r)
      for (int64_t j = 0; j < matches_; ++j)
        of_[first(r, j) * bundles + second(r, j)] = of_[second(r, j) * bundles + first(r, j)] = r * matches_ + j;
  }

  int64_t matches() const { return matches_; }  // of a round
  int64_t rounds() const { return matches_ ? 2 * matches_ - 1 : 0; }
  // The bundles of match j of round r: round_pairs of solvers/multiclass_dual/_schedule.py
  int64_t first(int64_t r, int64_t j) const { return j ? (r + j) % rounds() : rounds(); }
  int64_t second(int64_t r, int64_t j) const { return j ? (r - j + rounds()) % rounds() : r; }
  std::vector<Visit>& visits(int64_t r, int64_t j) { return visits_[r * matches_ + j]; }

  // Visits that fill() has entered.
  int64_t size() const { return size_; }

  void fill(const std::vector<Whereabouts>& instances) {
    const int64_t bundles = 2 * matches_;
    std::vector<int64_t> load(visits_.size(), 0);
    std::vector<std::vector<const Whereabouts*>> free(bundles);
    for (auto& list : visits_) list.clear();
    size_ = 0;
    const auto add = [&](int64_t match, const Whereabouts& at, bool inner) {
      visits_[match].push_back({at.i, inner, 0});
      load[match] += at.cost;
      ++size_;
    };
    for (const Whereabouts& at : instances) {
      uint64_t others = at.met & ~(uint64_t(1) << at.own);
      if (!others) free[at.own].push_back(&at);
      for (bool inner = true; others; others &= others - 1, inner = false)
        add(of_[at.own * bundles + __builtin_ctzll(others)], at, inner);
    }
    // bundles by turns, each instance where its match is furthest behind the longest of the round
    std::vector<int64_t> longest(rounds(), 0);
    for (size_t match = 0; match < load.size(); ++match)
      longest[match / matches_] = std::max(longest[match / matches_], load[match]);
    size_t most = 0;
    for (const auto& list : free) most = std::max(most, list.size());
    for (size_t k = 0; k < most; ++k)
      for (int64_t own = 0; own < bundles; ++own) {
        if (k >= free[own].size()) continue;
        int64_t best = -1, slack = 0;
        for (int64_t other = 0; other < bundles; ++other) {
          if (other == own) continue;
          const int64_t match = of_[own * bundles + other], here = longest[match / matches_] - load[match];
          if (best < 0 || here > slack) best = match, slack = here;
        }
        add(best, *free[own][k], true);
        longest[best / matches_] = std::max(longest[best / matches_], load[best]);
      }
  }

 private:
  int64_t matches_, size_ = 0;
  std::vector<std::vector<Visit>> visits_;  // [rounds * matches]
  std::vector<int64_t> of_;                 // [bundles, bundles]: the match of two
};

}  // namespace xmcjax
