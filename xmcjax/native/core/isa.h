// The tables of kernels, one per instruction set, and the choice among them at run time.
#pragma once

#include <cstdint>

#include "interface/ids.h"

namespace xmcjax {

// A CSR matrix of n rows and d columns: row i holds the entries offset[i] .. offset[i+1]-1.
template <class T>
struct Csr {
  int64_t n, d;
  const T* value;
  const int32_t* column;
  const int64_t* offset;
};

// An array that may be constant along the rows, along the lanes, or both (stride 0).
template <class T>
struct Broadcast {
  const T* data;
  int64_t row_stride, lane_stride;
};

// Codes of solvers/_base.py::Status.
enum Status : int32_t {
  kFresh = -1,
  kRunning = 0,
  kConverged = 1,
  kMaxSteps = 2,
  kLineSearchFailed = 3,
  kNonFinite = 4,
};

// One Newton step of the lanes of solvers/newton_cg.py; the fields are those of its State and
// HParams. The lane-last arrays have `lanes` columns.
template <class T>
struct NewtonArgs {
  Csr<T> X;
  int64_t lanes;
  const int8_t* y;       // [n, lanes], +1 or -1
  Broadcast<T> weight;   // c of the lane problem
  Broadcast<T> shift;    // o of the lane problem
  int32_t loss;
  T loss_parameter;
  int32_t penalty;
  T penalty_parameter;
  T l2, l2_bias;         // of the penalty; l2_bias < 0: no bias; 0: free; > 0: regularised
  T cg_tolerance, cg_progress, preconditioner;
  int32_t max_cg, max_steps, max_backtracks;
  T armijo, decrement;
  const T* tolerance;    // [lanes] bound on the norm of the gradient
  T *w, *z, *direction;  // [d, lanes], [n, lanes], [d, lanes], updated in place
  T *bias, *direction_bias, *slope, *value, *gradient_norm, *multiplier;  // [lanes]
  int32_t *status, *steps, *cg_steps, *active;                            // [lanes]
};

// The k best labels of each row and their scores, best first, into which a block of labels is merged
// (models/_block_scores.py).
template <class T>
struct MergeTopkArgs {
  Csr<T> X;
  const T *W, *b;        // [d, lanes] and [lanes]; a bias of -inf keeps a label out
  int64_t lanes;         // a multiple of lane_tile
  int32_t first_label;   // of the block, above all that were merged before
  int64_t k;
  T* scores;             // [n, k], changed in place
  int32_t* labels;       // [n, k]
};

// Projections of `rows` vectors of m entries (projections/_knapsack.py and _topk.py); the numbers of
// a vector are those of its row.
template <class T>
struct ProjectionArgs {
  int64_t rows, m;
  const T *b, *radius, *rho;
  const T *lower, *upper;  // the box; the top-k sets have k for them
  bool at_most;            // whether the radius bounds the sum of a box or is the sum
  int64_t k;
  T* x;              // [rows, m]
  T *width, *tight;  // [rows]: 1ᵀx/k of the top-k sets; 1 where the radius holds, else 0
};

// Dual ascent over instances; the fields from weights on are those of State in solvers/instance_dual.py.
template <class T>
struct InstanceDualArgs {
  int32_t features, set;
  int64_t n, d, m;         // instances, features, classes
  const T* X;              // [n, d]; the matrix of inner products [n, n]
  Csr<T> csr;
  const int32_t* y;        // [n]
  const T* squared_norms;  // [n]
  const T* bound;          // [lanes, n], r of each instance; 0 leaves it out
  const int32_t* k;        // [lanes]
  int64_t block, sweeps;   // instances scored at once, visits of each while they are at hand
  T tolerance;             // a lane has converged when the gap is at most this part of the primal objective
  int64_t max_epochs;
  int64_t count;           // epochs of this call at most
  int64_t epochs_per_check, first_check;  // when the gap is worked out
  uint32_t seed;           // of the orders of the visits
  int64_t weights_size;    // of a lane
  int64_t slots;           // 0: dual variables [lanes, n, m]; else entries kept of an instance
  int64_t history_rows;
  T* weights;              // [lanes, weights_size]: W as the features want it
  T* dual;                 // [lanes, n, m], or [lanes, n, slots] with the classes in index
  int32_t* index;
  T *primal, *dual_objective, *gap, *estimate, *ratio;                               // [lanes]
  int32_t *status, *epochs, *checks, *changed, *support, *truncated;                 // [lanes]
  T* history;              // [lanes, history_rows, 3]
};

// Multinomial logistic regression (solvers/multinomial): weights are [d, classes].
template <class T>
struct SoftmaxPassArgs {
  Csr<T> X;
  int64_t classes;
  const int32_t* y;   // [n]
  const T* weight;    // [n], of the instances; one of weight 0 does not count
  const T *W, *bias;  // [d, classes], [classes]
  T* loss;            // Σ c (log Σ e^z - z_y)
  T* gradient;        // [d, classes], Xᵀ c (P - Y)
  T* bias_gradient;   // [classes], Σ c (P - Y)
};

struct SoftmaxRoundCounts {
  int64_t pairs;          // instance and class visited more than once
  int64_t active_epochs;  // epochs over those
  int64_t steps;          // of Newton's method in the rows of the full epoch
  int64_t skipped;        // rows in which it found nothing
};

template <class T>
struct SoftmaxRoundArgs {
  Csr<T> X;
  int64_t classes;
  const T *weight, *squared_norms;  // [n]
  const T* bias;                    // [classes]
  const int32_t* order;             // [n], of the visits
  T l2;
  T *W, *log_p;                     // [d, classes], [n, classes], changed in place
  SoftmaxRoundCounts* counts;
};

// Dual ascent of a multi-class SVM; see multiclass.h.
template <class T>
struct MulticlassArgs;
class MulticlassAscent;
class MulticlassProximal;

template <class T>
struct Kernels {
  int lane_tile;  // lanes that fill a vector of 64 bytes
#define XMCJAX_KERNEL(name, result, parameters) result(*name) parameters;
#include "interface/kernels.def"
};

#define XMCJAX_DECLARE_ISA(name)            \
  namespace name {                          \
  const Kernels<float>& kernels_float();    \
  const Kernels<double>& kernels_double();  \
  }
XMCJAX_DECLARE_ISA(baseline)
XMCJAX_DECLARE_ISA(avx2)
XMCJAX_DECLARE_ISA(avx512)
#undef XMCJAX_DECLARE_ISA

// "avx512", "avx2" or "baseline": the best this processor runs, or what the environment
// variable XMCJAX_ISA names where the processor runs that.
const char* isa_name();

template <class T>
const Kernels<T>& kernels();
template <>
const Kernels<float>& kernels<float>();
template <>
const Kernels<double>& kernels<double>();

}  // namespace xmcjax
