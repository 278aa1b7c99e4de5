// Multi-class SVMs by dual ascent on the host (solvers/multiclass_dual): what the kernels of each
// instruction set offer to ctypes_multiclass.cc.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "core/isa.h"

namespace xmcjax {

// At W and α, over all dual variables.
struct Assessment {
  double primal, dual, violation;
};

// One pass over the dual variables that are not shrunk.
struct Sweep {
  double violation;  // largest that it met
  double visited;    // share of all instances, or of all pairs of an instance and a panel of classes
};

// Classes first .. last-1.
struct Classes {
  int64_t first, last;
  bool has(int64_t c) const { return c >= first && c < last; }
};

// ‖x_i‖²
template <class T>
double squared_norm(const Csr<T>& X, int64_t i) {
  double sum = 0;
  for (int64_t p = X.offset[i]; p < X.offset[i + 1]; ++p) sum += double(X.value[p]) * double(X.value[p]);
  return sum;
}

template <class T>
struct MulticlassArgs {
  Csr<T> X;          // kept by the caller
  const int32_t* y;  // [n], the class of each instance, kept by the caller
  int64_t m;         // classes
  Classes classes;   // those that a process of several has; all of them for Weston-Watkins
  int32_t formulation;
  double C;
  uint64_t seed;
  int64_t threads;
  bool by_instance;  // Lee-Lin-Wahba: over instances (simd_centred_ascent.cc) rather than over classes
};

// Two bundles of classes that play against each other; inner: each against itself as well.
struct Match {
  Classes a, b;
  bool inner;
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

  // Weston-Watkins over several processes, each of which has the dual variables of the matches that it hosts.
  // Loss, dual objective and violation of the variables of a match; as assess() it finds what matters.
  virtual Assessment examine(const Match&, double) { unsupported(); }
  // Visits the instances of a match; the largest violation that it met.
  virtual double play(const Match&, double) { unsupported(); }
  // After the matches of an epoch: counts what did not change; the share of the instances that is not shrunk.
  virtual double settle(bool) { unsupported(); }
  // Before the matches of an epoch, with the violation of all that was last examined.
  virtual void begin_epoch(double) { unsupported(); }
  // Rows of W that are not zero in some classes: how many, and their numbers; their values there [rows, classes].
  virtual int64_t nonzero_rows(Classes, int32_t*) const { unsupported(); }
  virtual void get_rows(Classes, const int32_t*, int64_t, void*) const { unsupported(); }
  // Other rows become 0 in these classes.
  virtual void set_rows(Classes, const int32_t*, int64_t, const void*) { unsupported(); }

  // Lee-Lin-Wahba over several processes, each of which has some classes: a tenth of a sweep, which leaves the mean
  // of the weights as it was; what this process has to add to the mean, [d]; and the sum of all of them.
  virtual Sweep part(int64_t, double, bool) { unsupported(); }
  virtual void get_mean_change(void*) const { unsupported(); }
  virtual void move_mean(const void*) { unsupported(); }

 private:
  [[noreturn]] static void unsupported() { throw std::logic_error("not for this formulation"); }
};

// Proximal point steps by Newton's method.
class MulticlassProximal : public DualPoint {
 public:
  int64_t newton_steps = 0, failures = 0;  // made; steps in a row that brought nothing
  // A step, and how far from the optimum it ends.
  virtual Assessment step(double tolerance) = 0;
};

}  // namespace xmcjax
