#include "dual/bundle_plan.h"

namespace xmcjax {

Bundles::Bundles(const std::vector<int64_t>& class_first, int64_t width, int64_t threads) : width_(width) {
  const int64_t m = int64_t(class_first.size()) - 1, panels = (m + width - 1) / width;
  const int64_t count = std::min(2 * threads, kMostBundles);
  if (threads < 2 || panels < count) return;
  for (int64_t q = 0; q < panels; ++q) {
    const int64_t b = int64_t(first_.size());
    // a bundle begins early enough to leave a panel for each bundle to come
    if (b < count && (class_first[q * width] * count >= b * class_first[m] || panels - q == count - b))
      first_.push_back(q * width);
    of_.push_back(int32_t(first_.size()) - 1);
  }
  first_.push_back(m);
}

void BundlePlan::fill(const std::vector<Whereabouts>& instances) {
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
  // the bundles take turns; each of their instances goes to the match that is furthest behind the longest of its round
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

}  // namespace xmcjax
