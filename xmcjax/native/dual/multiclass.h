// Multi-class SVMs by dual ascent on the host (solvers/multiclass_dual): what the kernels of each
// instruction set offer to multiclass_runs.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "core/isa.h"

namespace xmcjax {

// Objectives at W and α, and the largest violation over all dual variables.
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

// What multiclass_new makes.
enum Method : int64_t { kAscent = 0, kProximal = 1, kCentred = 2, kSplitting = 3 };

// The room, in numbers, of weights in panels on any processor; the widest vector has 64 bytes.
template <class T>
constexpr int64_t shared_room(int64_t d, int64_t m) {
  constexpr int64_t kMost = 64 / sizeof(T);
  return (m + kMost - 1) / kMost * kMost * d;
}

// A dual variable α_ic that is not zero.
struct DualEntry {
  int32_t c;
  double value;
};

// W and α of one problem. α comes and goes as CSR arrays of [n, m], classes ascending in a row.
class DualPoint {
 public:
  explicit DualPoint(int64_t n) : n_(n) {}
  virtual ~DualPoint() = default;
  virtual void get_weights(void* W) const = 0;  // [d, m] of the type of X
  int64_t rows() const { return n_; }
  virtual int64_t alpha_count() const = 0;
  virtual void get_alpha(int64_t* offset, int32_t* index, double* value) const = 0;
  virtual void set_alpha(const int64_t* offset, const int32_t* index, const double* value) = 0;

 protected:
  const int64_t n_;
};

// A DualPoint whose store of α gives and takes rows.
class DualPointByRow : public DualPoint {
 public:
  using DualPoint::DualPoint;

  int64_t alpha_count() const override;
  void get_alpha(int64_t* offset, int32_t* index, double* value) const override;
  void set_alpha(const int64_t* offset, const int32_t* index, const double* value) override;

 protected:
  virtual void take_row(int64_t i, std::vector<DualEntry>& row) const = 0;
  virtual void clear() = 0;  // α = 0, but for rows of zeros, whose α never changes
  virtual void put_row(int64_t i, const std::vector<DualEntry>& row) = 0;
  virtual void settle_alpha() = 0;  // after all rows

 private:
  const std::vector<DualEntry>& taken(int64_t i, std::vector<DualEntry>& row) const;
};

// Coordinate ascent.
class MulticlassAscent : public DualPointByRow {
 public:
  using DualPointByRow::DualPointByRow;
  // Passes over everything at the present W. Shrunk variables that a sweep with `tolerance` would change come back.
  virtual Assessment assess(double tolerance) = 0;
  // Variables with a violation far smaller than `tolerance` stay as they are.
  virtual Sweep sweep(double tolerance, bool shrink) = 0;
};

// Ascent over several places, each of which has the dual variables of some of the rows. A part of a sweep leaves the
// weights as they are; then every place follows what all places have changed.
class RowAscent : public MulticlassAscent {
 public:
  using MulticlassAscent::MulticlassAscent;
  // Makes part `number` of `parts` of a sweep; returns the largest violation that it met. Steps are as if the squared
  // lengths of the rows were `caution` times as large.
  virtual double part(int64_t number, int64_t parts, double tolerance, double caution) = 0;
  // After the parts of a sweep: counts the sweeps in a row that did not change an instance, for shrinking; returns the
  // share of the instances that is not shrunk.
  virtual double settle(bool shrink) = 0;
  // The moves of the last part, its changes of dual variables: how many they are; and the rows, classes and changes, of
  // the type of X, of `count` of them.
  virtual int64_t moves() const = 0;
  virtual void get_moves(int64_t first, int64_t count, int32_t* row, int32_t* c, void* delta) const = 0;
  // Makes moves in the weights of the classes that this place moves.
  virtual void follow_moves(const int32_t* row, const int32_t* c, const void* delta, int64_t count) = 0;
};

// How far coordinate ascent has come. at: the objectives of all classes and their largest violation. passes: those over
// the rows, for one-vs-rest of the class that has made most. left_out: the share of the rows that the last sweeps left
// out, for one-vs-rest a mean over the classes. running: how many problems could go on.
struct Advanced {
  Assessment at;
  double passes, left_out;
  int64_t running;
};

// Coordinate ascent that looks for itself when to go on.
class MulticlassAdvancing : public DualPoint {
 public:
  using DualPoint::DualPoint;
  // Goes on until the gap is at most `tolerance` times P, or for `passes` passes.
  virtual Advanced advance(double tolerance, double passes, bool shrink) = 0;
};

// MulticlassAdvancing for one-vs-rest, with or without ridge: each label goes on to the end of its own problem.
class MulticlassSeparate : public MulticlassAdvancing {
 public:
  using MulticlassAdvancing::MulticlassAdvancing;
  virtual int64_t labels() const = 0;
  // P of each label, its gap P - D, and the passes that it has made.
  virtual void ended(double* primal, double* gap, double* passes) const = 0;
};

// Ascent over several processes, each of which has some classes of Lee-Lin-Wahba. part(): a part of a sweep, which
// leaves the mean of the weights as it was. get_mean_change(): what this process has to add to the mean, [d].
// move_mean(): adds the sum of that over all processes.
class SharedAscent : public MulticlassAscent {
 public:
  using MulticlassAscent::MulticlassAscent;
  virtual int64_t parts() const = 0;  // of a sweep
  virtual Sweep part(int64_t number, double tolerance, bool shrink) = 0;
  virtual void get_mean_change(void* change) const = 0;
  virtual void move_mean(const void* change) = 0;
};

// Proximal point steps by Newton's method.
class MulticlassProximal : public DualPointByRow {
 public:
  using DualPointByRow::DualPointByRow;
  int64_t newton_steps = 0, failures = 0;  // made; steps in a row that brought nothing
  // A proximal step of `most` Newton steps at most; returns the objectives and the violation where it ends.
  virtual Assessment step(double tolerance, int64_t most) = 0;
};

// What the alternating direction method of multipliers begins with: ‖α‖² and ‖X W‖².
struct Begun {
  double variables, scores;
};
// At W and α⁺: Σ max(0, gain), Σ α⁺, ‖W‖², ‖O‖², and ‖α⁺ - A‖².
struct Looked {
  double loss, gain, primal, dual, moved;
};
// ‖Δ‖², and what the sparse part of a factor adds to ΔᵀK Δ.
struct Moved {
  double step, curved;
};

// The alternating direction method of multipliers for Lee-Lin-Wahba, of which the caller solves a dense system in each
// step. T of `right` and `solution` is that of X.
class MulticlassSplitting : public DualPointByRow {
 public:
  using DualPointByRow::DualPointByRow;
  // eliminate() orders the features for a factor of `most` entries at most, and returns the size of its dense part;
  // by_rows() goes by rows instead.
  virtual int64_t eliminate(int64_t most) = 0;
  virtual void by_rows() = 0;
  virtual bool factors() const = 0;  // whether it goes by features
  virtual int64_t size() const = 0;  // of the dense system
  virtual int64_t factor_entries() const = 0;
  virtual void factor(double rho, double* dense) = 0;
  virtual Begun begin() = 0;
  virtual Looked look(double rho, double relaxed, bool keep, void* right) = 0;
  virtual Moved move(double rho, double relaxed, const void* solution) = 0;
  // From now on get_weights gives the present W, or get_alpha gives the α⁺ of the last look that kept it.
  virtual void keep_weights() = 0;
  virtual void keep_alpha() = 0;
};

}  // namespace xmcjax
