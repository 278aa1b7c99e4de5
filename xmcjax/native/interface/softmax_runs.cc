// The calls of Newton's method for multinomial logistic regression (solvers/multinomial/block_newton.py): sums over rows
// in pieces, and the loops of conjugate gradients.
#include <algorithm>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "interface/runs.h"

namespace xmcjax {

constexpr int64_t kSumRows = 1024;  // of a partial sum; these are added up in the order of the rows
constexpr int64_t kHessianTile = 64;  // the rows of a block are a multiple of this
constexpr int64_t kSumGroups = 16;  // groups of blocks at most; their sums are added up in order
constexpr int64_t kSumNumbers = 1 << 14;  // numbers of such sums that a thread adds up at least

// f(first, last, sums) over pieces of the rows, whose `count` sums are added up in order.
template <class F>
void summed(int64_t n, int64_t threads, int64_t count, double* sums, F&& f) {
  std::vector<double> parts(size_t(count * ((n + kSumRows - 1) / kSumRows)));
  parallel(n, kSumRows, threads, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i += kSumRows)
      f(i, std::min(i + kSumRows, last), parts.data() + count * (i / kSumRows));
  });
  for (int64_t s = 0; s < count; ++s) sums[s] = 0;
  for (size_t p = 0; p < parts.size(); ++p) sums[p % size_t(count)] += parts[p];
}

// The `count` sums of a kernel over pieces of the rows.
template <class Args>
void run_summed(const Args& args, int64_t n, int64_t count,
                void (*kernel)(const Args&, int64_t, int64_t, double*)) {
  summed(n, args.threads, count, args.sums,
         [&](int64_t first, int64_t last, double* sums) { kernel(args, first, last, sums); });
}

template <class Args>
void check_rows(const Args& args, const std::string& call) {
  if (args.rows % kHessianTile) throw BadArgument(call + ": expected rows in a multiple of 64");
}

// check_rows for blocks that also need room for n rows.
template <class Args>
void check_blocks(const Args& args, const std::string& call) {
  check_rows(args, call);
  if (args.n > args.blocks * args.rows)
    throw BadArgument(call + ": expected blocks of " + std::to_string(args.n) + " rows");
}

// out = Σ of a kernel over the blocks of dense features; parts is a working array with a sum for each group of them.
template <class Args, class Sum>
void over_blocks(const Args& args, std::vector<Sum>& parts,
                 void (*kernel)(const Args&, int64_t, int64_t, Sum*)) {
  const int64_t size = args.classes * args.features, groups = std::min(args.blocks, kSumGroups);
  parts.resize(size_t(groups * size));
  parallel(groups, 1, args.threads, [&](int64_t first, int64_t last) {
    for (int64_t g = first; g < last; ++g) {
      Sum* own = parts.data() + g * size;
      std::fill(own, own + size, Sum(0));
      kernel(args, args.blocks * g / groups, args.blocks * (g + 1) / groups, own);
    }
  });
  parallel(size, kSumNumbers, args.threads, [&](int64_t first, int64_t last) {
    for (int64_t e = first; e < last; ++e) {
      Sum all = 0;
      for (int64_t g = 0; g < groups; ++g) all += parts[size_t(g * size + e)];
      args.out[e] = std::decay_t<decltype(*args.out)>(all);
    }
  });
}

template <class T>
void run(SoftmaxHessianArgs<T>& args) {
  check_rows(args, "softmax_hessian");
  std::vector<T> parts;
  over_blocks(args, parts, kernels<T>().softmax_hessian);
}
XMCJAX_RUNS(SoftmaxHessianArgs)

template <class T>
void run(SoftmaxSolveArgs<T>& args) {
  check_rows(args, "softmax_solve");
  std::vector<T> parts;
  SoftmaxHessianArgs<T> given{};
  given.blocks = args.blocks, given.rows = args.rows;
  given.features = args.features, given.classes = args.classes;
  given.X = args.X, given.P = args.P, given.weight = args.weight, given.y = args.y,
  given.threads = args.threads;
  kernels<T>().softmax_solve(args, [&](const T* V, T* out) {
    given.V = V, given.out = out;
    over_blocks(given, parts, kernels<T>().softmax_hessian);
  });
}
XMCJAX_RUNS(SoftmaxSolveArgs)

template <class T>
void run(SoftmaxScoresByClassArgs<T>& args) {
  check_blocks(args, "softmax_scores_by_class");
  over_rows(args, args.blocks, 1, kernels<T>().softmax_scores_by_class);
}
XMCJAX_RUNS(SoftmaxScoresByClassArgs)

template <class T>
void run(SoftmaxGradientByClassArgs<T>& args) {
  check_blocks(args, "softmax_gradient_by_class");
  std::vector<double> parts;
  over_blocks(args, parts, kernels<T>().softmax_gradient_by_class);
}
XMCJAX_RUNS(SoftmaxGradientByClassArgs)

template <class T>
void run(SoftmaxBlocksArgs<T>& args) {
  check_rows(args, "softmax_blocks");
  over_rows(args, args.classes, 1, kernels<T>().softmax_blocks);
}
XMCJAX_RUNS(SoftmaxBlocksArgs)

// The kernels of conjugate gradients, for vectors of any number of classes or of two classes in one column.
template <class T>
struct SolveKernels {
  decltype(Kernels<T>::softmax_curved) curved;
  decltype(Kernels<T>::softmax_sums) sums;
  decltype(Kernels<T>::centred_turn) turn;
  decltype(Kernels<T>::centred_step) step;
};

template <class T>
void solve_csr(const SoftmaxSolveCsrArgs<T>& args, const SolveKernels<T>& of) {
  const int64_t m = args.classes, size = args.features * m;
  T *p = args.vectors, *q = p + size, *z = q + size;
  std::vector<double> curved(size_t(args.X.n));  // what each row adds to pᵀH p
  SoftmaxProductArgs<T> back{};
  back.X = args.Xt, back.V = args.U, back.classes = m, back.out = q;
  const auto over = [&](int64_t count, double* sums, auto&& kernel) {
    summed(args.features, args.threads, count, sums,
           [&](int64_t first, int64_t last, double* part) { kernel(first, last, part); });
  };
  const auto step = [&](T a, double* sums) {
    over(3, sums, [&](int64_t first, int64_t last, double* part) { of.step(args, a, first, last, part); });
  };
  const auto turn = [&](T by) {
    double squares;  // ridge pᵀp
    over(1, &squares,
         [&](int64_t first, int64_t last, double* part) { of.turn(args, by, first, last, part); });
    return squares;
  };
  std::fill(args.x, args.x + size, T(0));
  std::fill(p, z, T(0));
  double now[3];  // rᵀz, Σ r² of the weights, Σ |r| of the intercepts
  step(T(0), now);
  double ridged = turn(T(0));
  const double most = std::max(args.least[0] * now[0], args.least[1]);
  const auto enough = [&] { return now[0] <= most || (now[1] <= args.least[2] && now[2] <= args.least[3]); };
  double products = 0, fall = 0;
  if (enough()) {
    std::copy(z, z + size, args.x);
    fall = now[0];
  } else {
    while (products < args.max_steps && now[0] > 0) {
      parallel(args.X.n, kRows, args.threads,
               [&](int64_t first, int64_t last) { of.curved(args, p, first, last, curved.data() + first); });
      double along = ridged;  // pᵀ(H + ridge I) p
      for (size_t i = 0; i < curved.size(); i += kSumRows) {
        const auto at = curved.begin() + i;
        along += std::accumulate(at, at + std::min(size_t(kSumRows), curved.size() - i), 0.0);
      }
      parallel(args.X.d, kRows, args.threads,
               [&](int64_t first, int64_t last) { kernels<T>().softmax_product(back, first, last); });
      if (args.intercept) of.sums(args.U, args.X.n, m, q + args.X.d * m);
      ++products;
      if (!(along > 0)) break;
      const double before = now[0], a = before / along;
      fall += a * before;
      step(T(a), now);
      if (enough()) break;
      ridged = turn(T(now[0] / before));
    }
  }
  args.sums[0] = products, args.sums[1] = fall;
}

// solve_csr for two classes, whose vectors are (-s, s): s alone is worked out.
template <class T>
void solve_opposite(const SoftmaxSolveCsrArgs<T>& args, const SolveKernels<T>& of) {
  const int64_t n = args.X.n, features = args.features;
  // the working arrays, which have two columns, hold one of each: args.vectors holds p, q, z, r, the diagonal and x,
  // args.U the scores and weights of the rows
  SoftmaxSolveCsrArgs<T> one = args;
  T *r = args.vectors + 3 * features, *inverse = r + features, *w = args.U + n;
  one.classes = 1, one.r = r, one.inverse = inverse, one.x = inverse + features, one.P = w;
  for (int64_t i = 0; i < n; ++i) w[i] = 2 * args.weight[i] * args.P[2 * i] * args.P[2 * i + 1];
  for (int64_t j = 0; j < features; ++j) {
    r[j] = (args.r[2 * j + 1] - args.r[2 * j]) / 2;
    inverse[j] = (args.inverse[2 * j + 1] + args.inverse[2 * j]) / 2;
  }
  solve_csr(one, of);
  for (int64_t j = 0; j < features; ++j) {
    args.x[2 * j] = -one.x[j], args.x[2 * j + 1] = one.x[j];
    args.r[2 * j] = -one.r[j], args.r[2 * j + 1] = one.r[j];
  }
}

template <class T>
void run(SoftmaxSolveCsrArgs<T>& args) {
  // X has a column for each row of Xᵀ, and the other way round
  args.X.d = args.Xt.n, args.Xt.d = args.X.n;
  if (args.features != args.X.d + 1)
    throw BadArgument("softmax_solve_csr: expected vectors with a row for each feature and one more");
  const Kernels<T>& of = kernels<T>();
  if (args.classes == 2)
    return solve_opposite<T>(args,
                             {of.opposite_curved, of.opposite_sums, of.opposite_turn, of.opposite_step});
  solve_csr<T>(args, {of.softmax_curved, of.softmax_sums, of.centred_turn, of.centred_step});
}
XMCJAX_RUNS(SoftmaxSolveCsrArgs)

template <class T>
void run(SoftmaxProductArgs<T>& args) {
  over_rows(args, args.X.n, kRows, kernels<T>().softmax_product);
}
XMCJAX_RUNS(SoftmaxProductArgs)

template <class T>
void run(SoftmaxDiagonalArgs<T>& args) {
  if (args.features != args.Xt.n + 1)
    throw BadArgument("softmax_diagonal: expected a result with a row for each feature and one more");
  over_rows(args, args.features, 1, kernels<T>().softmax_diagonal);
}
XMCJAX_RUNS(SoftmaxDiagonalArgs)

template <class T>
void run(SoftmaxRightSideArgs<T>& args) {
  run_summed(args, args.rows, 3, kernels<T>().softmax_right_side);
}
XMCJAX_RUNS(SoftmaxRightSideArgs)

template <class T>
void run(SoftmaxMovedArgs<T>& args) {
  run_summed(args, args.rows, 2, kernels<T>().softmax_moved);
}
XMCJAX_RUNS(SoftmaxMovedArgs)

template <class T>
void run(SoftmaxAlongArgs<T>& args) {
  run_summed(args, args.n, 3, kernels<T>().softmax_along);
}
XMCJAX_RUNS(SoftmaxAlongArgs)

template <class T>
void run(SoftmaxAlongByClassArgs<T>& args) {
  run_summed(args, args.n, 3, kernels<T>().softmax_along_by_class);
}
XMCJAX_RUNS(SoftmaxAlongByClassArgs)

template <class T>
void run(SoftmaxResidualsArgs<T>& args) {
  over_rows(args, args.n, kRows, kernels<T>().softmax_residuals);
}
XMCJAX_RUNS(SoftmaxResidualsArgs)

template <class T>
void run(SoftmaxSteppedArgs<T>& args) {
  summed(args.n, args.threads, args.classes, args.totals, [&](int64_t first, int64_t last, double* totals) {
    kernels<T>().softmax_stepped(args, first, last, totals);
  });
}
XMCJAX_RUNS(SoftmaxSteppedArgs)

template <class T>
void run(SoftmaxDistancesArgs<T>& args) {
  over_rows(args, args.n, kRows, kernels<T>().softmax_distances);
}
XMCJAX_RUNS(SoftmaxDistancesArgs)

}  // namespace xmcjax
