// The calls of the kernels: which rows or lanes a thread takes, and checks of the arguments beyond their shapes.
#include "interface/runs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace xmcjax {

template <class T>
void run(MatmatArgs<T>& args) {
  parallel(args.X.n, kRows, args.threads, [&](int64_t first, int64_t last) {
    kernels<T>().matmat(args.X, args.V, args.out, args.lanes, first, last);
  });
}
XMCJAX_RUNS(MatmatArgs)

template <class T>
void run(RmatmatArgs<T>& args) {
  parallel(args.lanes, kernels<T>().lane_tile, args.threads, [&](int64_t first, int64_t last) {
    kernels<T>().rmatmat(args.X, args.C, args.out, args.lanes, first, last);
  });
}
XMCJAX_RUNS(RmatmatArgs)

template <class T>
void run(GramMatmatArgs<T>& args) {
  parallel(args.lanes, kernels<T>().lane_tile, args.threads, [&](int64_t first, int64_t last) {
    kernels<T>().gram_matmat(args.X, args.D, args.V, args.out, args.lanes, first, last);
  });
}
XMCJAX_RUNS(GramMatmatArgs)

template <class T>
void run(InnerArgs<T>& args) {
  over_rows(args, args.Y.n, kRows, kernels<T>().inner);
}
XMCJAX_RUNS(InnerArgs)

// Whether W has a row for every feature of X; the sizes of both are then known.
template <class Args>
void check_features(Args& args) {
  const int32_t* column = args.X.column;
  const int32_t* end = column + args.X.offset[args.X.n];
  if (!std::all_of(column, end, [&](int32_t j) { return j >= 0 && j < args.W.n; }))
    throw BadArgument("expected W with a row for every feature of X");
  args.X.d = args.W.n;
  args.W.d = args.labels;
}

template <class T>
void run(PredictScoresArgs<T>& args) {
  check_features(args);
  if (!args.labels) return;
  over_rows(args, args.X.n, 1, kernels<T>().predict_scores);
}
XMCJAX_RUNS(PredictScoresArgs)

template <class T>
void run(PredictFewArgs<T>& args) {
  over_rows(args, args.W.n, kRows, kernels<T>().predict_few);
}
XMCJAX_RUNS(PredictFewArgs)

template <class T>
void run(PredictTopkArgs<T>& args) {
  check_features(args);
  if (args.k < 1) throw BadArgument("predict_topk: expected k >= 1");
  if (!args.labels) return;
  over_rows(args, args.X.n, 1, kernels<T>().predict_topk);
}
XMCJAX_RUNS(PredictTopkArgs)

template <class T>
void run(BestLabelsArgs<T>& args) {
  if (args.k < 1) throw BadArgument("best_labels: expected k >= 1");
  if (!args.labels) return;
  over_rows(args, args.n, 1, kernels<T>().best_labels);
}
XMCJAX_RUNS(BestLabelsArgs)

template <class T>
void run(NewtonArgs<T>& args) {
  // A shift that is a single zero is no shift.
  if (!args.shift.row_stride && !args.shift.lane_stride && *args.shift.data == T(0))
    args.shift.data = nullptr;
  const auto step = args.penalty == kL2Penalty ? kernels<T>().newton_step : kernels<T>().penalised_step;
  step(args);
}
XMCJAX_RUNS(NewtonArgs)

XMCJAX_RUNS_KERNEL(LaneLossesArgs, lane_losses)
XMCJAX_RUNS_KERNEL(RisenArgs, risen_losses)

template <class T>
void run(BoxArgs<T>& args) {
  if (args.m < 1) throw BadArgument("project_box: expected vectors with an entry");
  if (args.by_k && !args.at_most) throw BadArgument("project_box: expected by_k with at_most alone");
  kernels<T>().project_box(args);
}
XMCJAX_RUNS(BoxArgs)

template <class T>
void run(WeightedArgs<T>& args) {
  if (args.m < 1) throw BadArgument("project_weighted: expected vectors with an entry");
  kernels<T>().project_weighted(args);
}
XMCJAX_RUNS(WeightedArgs)

template <class T>
void run(TopkArgs<T>& args) {
  if (args.k < 1 || args.k > args.m)
    throw BadArgument("project_topk: expected 1 <= k <= the length of the vectors");
  kernels<T>().project_topk(args);
}
XMCJAX_RUNS(TopkArgs)

// Checks the arguments of dual ascent over instances, beyond their shapes.
template <class Args>
void check_instances(const Args& args, const std::string& call) {
  const auto expect = [&](bool right, const std::string& what) {
    if (!right) throw BadArgument(call + ": expected " + what);
  };
  const bool csr = args.features == kCsrFeatures;
  expect((csr ? args.csr.n : args.rows) == args.n,
         "features with a row for each of " + std::to_string(args.n) + " instances");
  expect(args.features != kGramFeatures || args.columns == args.n, "inner products [n, n]");
  expect(csr ? args.second == args.classes : args.first == args.classes && args.second == args.columns,
         "weights [lanes, classes, columns], of CSR features [lanes, columns, classes]");
  expect(args.kept == (args.slots ? args.slots : args.classes),
         "as many dual variables as classes, or as slots");
  expect(args.block >= 1, "a block of at least one instance");
  const int64_t most = args.slots ? args.slots : args.classes - 1;
  expect(std::all_of(args.k, args.k + args.lanes, [&](int32_t k) { return k >= 1 && k <= most; }),
         "k from 1 to " + std::to_string(most));
  expect(std::all_of(args.gamma, args.gamma + args.lanes,
                     [](auto gamma) { return gamma >= 0 && std::isfinite(gamma); }),
         "a finite gamma of at least 0");
  expect(std::all_of(args.index, args.index + args.lanes * args.n * args.slots,
                     [&](int32_t c) { return c >= 0 && c < args.classes; }),
         "classes of the slots below " + std::to_string(args.classes));
}

template <class T>
void run(InstanceDualArgs<T>& args) {
  check_instances(args, "instance_dual");
  if (args.sweeps < 1) throw BadArgument("instance_dual: expected at least one sweep");
  parallel(args.lanes, 1, args.threads, [&](int64_t first, int64_t last) {
    for (int64_t lane = first; lane < last; ++lane)
      if (args.status[lane] == kRunning) kernels<T>().instance_dual(args, lane);
  });
}
XMCJAX_RUNS(InstanceDualArgs)

template <class T>
void run(InstanceGapArgs<T>& args) {
  check_instances(args, "instance_gap");
  parallel(args.lanes, 1, args.threads, [&](int64_t first, int64_t last) {
    for (int64_t lane = first; lane < last; ++lane) kernels<T>().instance_gap(args, lane);
  });
}
XMCJAX_RUNS(InstanceGapArgs)

XMCJAX_RUNS_KERNEL(SoftmaxPassArgs, softmax_pass)
XMCJAX_RUNS_KERNEL(SoftmaxExponentialsArgs, softmax_exponentials)
XMCJAX_RUNS_KERNEL(SoftmaxGradientArgs, softmax_gradient)

template <class T>
void run(SoftmaxRoundArgs<T>& args) {
  int64_t counts[4] = {};
  kernels<T>().softmax_round(args, counts);
  for (int c = 0; c < 4; ++c)
    args.counts[c] = int32_t(std::min<int64_t>(counts[c], std::numeric_limits<int32_t>::max()));
}
XMCJAX_RUNS(SoftmaxRoundArgs)

}  // namespace xmcjax
