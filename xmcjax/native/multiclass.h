// Multi-class SVMs by dual ascent on the host (solvers/multiclass_dual): what the kernels of each
// instruction set offer to ctypes_multiclass.cc.
#pragma once

#include <cstdint>

#include "isa.h"

namespace xmcjax {

// Numbers of solvers/multiclass_dual/_formulations.py::FORMULATIONS, in its order.
enum MulticlassFormulation : int32_t {
  kWestonWatkins = 0,
  kLeeLinWahba = 1,
  kCrammerSinger = 2,
  kOneVsRest = 3,
  kOneVsRestSquared = 4,
};

template <class T>
struct MulticlassArgs {
  Csr<T> X;          // kept by the caller
  const int32_t* y;  // [n], the class of each instance, kept by the caller
  int64_t m;         // classes
  int32_t formulation;
  double C;
  uint64_t seed;
  int64_t threads;
};

// At W and α, over all dual variables.
struct Assessment {
  double primal, dual, violation;
};

// One pass over the dual variables that are not shrunk.
struct Sweep {
  double violation;  // largest that it met
  double visited;    // share of all instances, or of all pairs of an instance and a panel of classes
};

// W and α of one problem. α comes and goes as CSR arrays of [n, m], classes ascending in a row.
class DualPoint {
 public:
  virtual ~DualPoint() = default;
  virtual int64_t alpha_count() const = 0;
  virtual void get_alpha(int64_t* offset, int32_t* index, double* value) const = 0;
  virtual void set_alpha(const int64_t* offset, const int32_t* index, const double* value) = 0;
  virtual void get_weights(void* W) const = 0;  // [d, m] of the type of X
};

// Coordinate ascent.
class MulticlassAscent : public DualPoint {
 public:
  // Passes over everything at the W that stands. Shrunk variables that `tolerance` would change come back.
  virtual Assessment assess(double tolerance) = 0;
  // Variables with a violation far smaller than `tolerance` stay as they are.
  virtual Sweep sweep(double tolerance, bool shrink) = 0;
};

// Proximal point steps by Newton's method.
class MulticlassProximal : public DualPoint {
 public:
  int64_t newton_steps = 0, failures = 0;  // made; steps in a row that brought nothing
  // A step, and how far from the optimum it ends.
  virtual Assessment step(double tolerance) = 0;
};

}  // namespace xmcjax
