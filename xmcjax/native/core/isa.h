// The tables of kernels, one per instruction set, and the choice among them at run time.
#pragma once

#include <cstdint>

#include "interface/calls.h"
#include "interface/ids.h"

namespace xmcjax {

// Codes of solvers/_base.py::Status.
enum Status : int32_t {
  kFresh = -1,
  kRunning = 0,
  kConverged = 1,
  kMaxSteps = 2,
  kLineSearchFailed = 3,
  kNonFinite = 4,
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
