// Multi-class SVMs by dual ascent on the host (solvers/multiclass_dual): what the kernels of each
// instruction set offer to multiclass_runs.cc.
#pragma once

#include <cstdint>
#include <vector>

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

// What multiclass_new makes.
enum Method : int64_t { kAscent = 0, kProximal = 1, kCentred = 2, kSplitting = 3 };

// Numbers that weights in panels need on any processor, whose widest vector has 64 bytes.
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

// One whose store of α gives and takes its rows.
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
  // Passes over everything at the W that stands. Shrunk variables that `tolerance` would change come back.
  virtual Assessment assess(double tolerance) = 0;
  // Variables with a violation far smaller than `tolerance` stay as they are.
  virtual Sweep sweep(double tolerance, bool shrink) = 0;
};

// Over several places, each of which has the dual variables of some of the rows. A part of a sweep leaves the weights
// as they are; then all places follow what all of them have changed.
class RowAscent : public MulticlassAscent {
 public:
  using MulticlassAscent::MulticlassAscent;
  // Part `number` of `parts` of a sweep; the largest violation that it met. Steps are those of rows whose squared
  // lengths are `caution` times as large.
  virtual double part(int64_t number, int64_t parts, double tolerance, double caution) = 0;
  // After the parts of a sweep: counts what did not change; the share of the instances that is not shrunk.
  virtual double settle(bool shrink) = 0;
  // What the last part changed in its dual variables: how many, and the rows, classes and changes, of the type of X, of
  // `count` of them.
  virtual int64_t moves() const = 0;
  virtual void get_moves(int64_t first, int64_t count, int32_t* row, int32_t* c, void* delta) const = 0;
  // Makes moves in the weights of the classes that are its own to move.
  virtual void follow_moves(const int32_t* row, const int32_t* c, const void* delta, int64_t count) = 0;
};

// How far coordinate ascent has come: the objectives of all classes and their largest violation; passes over the rows,
// of one against the rest those that the slowest class has made, and the share of the rows that last sweeps left out,
// there a mean over the classes; and how many problems could go on.
struct Advanced {
  Assessment at;
  double passes, left_out;
  int64_t running;
};

// Coordinate ascent that looks for itself when to go on.
class MulticlassAdvancing : public DualPoint {
 public:
  using DualPoint::DualPoint;
  // Goes on until the gap is at most `tolerance` of P, or for so many passes.
  virtual Advanced advance(double tolerance, double passes, bool shrink) = 0;
};

// That of one against the rest, with or without ridge, which goes on with each label to the end of its own.
class MulticlassSeparate : public MulticlassAdvancing {
 public:
  using MulticlassAdvancing::MulticlassAdvancing;
  virtual int64_t labels() const = 0;
  // P of each label, its gap P - D, and the passes that it has made.
  virtual void ended(double* primal, double* gap, double* passes) const = 0;
};

// Over several processes, each of which has some classes of Lee-Lin-Wahba: a part of a sweep, which leaves the mean of
// the weights as it was; what this process has to add to the mean, [d]; and the sum of all of them.
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
  // A step of so many Newton steps at most, and how far from the optimum it ends.
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
// ‖Δ‖², and what the sparse part of a factor has of ΔᵀK Δ.
struct Moved {
  double step, curved;
};

// The alternating direction method of multipliers for Lee-Lin-Wahba, of which the caller solves a dense system in each
// step. T of `right` and `solution` is that of X.
class MulticlassSplitting : public DualPointByRow {
 public:
  using DualPointByRow::DualPointByRow;
  // Orders the features for a factor, of `most` entries at most: the size of the dense part. Or goes by rows.
  virtual int64_t eliminate(int64_t most) = 0;
  virtual void by_rows() = 0;
  virtual bool factors() const = 0;  // by features
  virtual int64_t size() const = 0;  // of the dense system
  virtual int64_t factor_entries() const = 0;
  virtual void factor(double rho, double* dense) = 0;
  virtual Begun begin() = 0;
  virtual Looked look(double rho, double relaxed, bool keep, void* right) = 0;
  virtual Moved move(double rho, double relaxed, const void* solution) = 0;
  // W is what get_weights gives from now on; and the α⁺ of the last look that kept it is what α comes out as.
  virtual void keep_weights() = 0;
  virtual void keep_alpha() = 0;
};

}  // namespace xmcjax
