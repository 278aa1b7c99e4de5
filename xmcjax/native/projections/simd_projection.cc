// The projections of a batch of vectors, one after the other.
#include <vector>

#include "core/interrupt.h"
#include "core/isa.h"
#include "projections/projection_math.h"
#include "projections/weighted.h"

namespace xmcjax::XMCJAX_ISA {

constexpr int64_t kPasses = 4;  // passes over a vector that a projection makes, about

template <class T>
void project_box(const BoxArgs<T>& args) {
  std::vector<double> work(projection_work(args.m));
  const Poll poll;
  for (int64_t i = 0; i < args.batch; ++i, poll(kPasses * args.m)) {
    const T* b = args.b + i * args.m;
    const double r = double(args.radius[i]);
    // k entries at a rounded bound are off by k times its rounding, for which the other entries would make up
    const double upper = args.by_k ? r / double(args.k[i]) : double(args.upper[i]);
    Clip<T> c = args.at_most ? capped_simplex(b, args.m, r, upper, double(args.rho[i]), work.data())
                             : knapsack(b, args.m, r, double(args.lower[i]), upper, work.data());
    if (args.by_k && c.upper > 0) c.upper = args.upper[i];
    apply(c, b, args.m, args.x + i * args.m);
    args.tight[i] = T(c.tight);
  }
}

template <class T>
void project_weighted(const WeightedArgs<T>& args) {
  const int64_t m = args.m;
  std::vector<double> work(projection::weighted_work(m));
  const Poll poll;
  for (int64_t i = 0; i < args.batch; ++i, poll(2 * kPasses * m)) {
    const int64_t at = i * m;
    weighted_knapsack(args.b + at, double(args.radius[i]), args.lower + at, args.upper + at,
                      args.weights + at, m, work.data(), args.x + at, args.threshold + i);
  }
}

template <class T>
void project_topk(const TopkArgs<T>& args) {
  std::vector<double> work(projection_work(args.m));
  const Poll poll;
  for (int64_t i = 0; i < args.batch; ++i, poll(kPasses * args.m)) {
    const T* b = args.b + i * args.m;
    const Clip<T> c =
        topk_simplex(b, args.m, args.k, double(args.radius[i]), double(args.rho[i]), work.data());
    apply(c, b, args.m, args.x + i * args.m);
    args.width[i] = c.upper;
    args.tight[i] = T(c.tight);
  }
}

template void project_box<float>(const BoxArgs<float>&);
template void project_box<double>(const BoxArgs<double>&);
template void project_weighted<float>(const WeightedArgs<float>&);
template void project_weighted<double>(const WeightedArgs<double>&);
template void project_topk<float>(const TopkArgs<float>&);
template void project_topk<double>(const TopkArgs<double>&);

}  // namespace xmcjax::XMCJAX_ISA
