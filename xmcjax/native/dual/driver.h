// What every dual ascent over a matrix of features does, whatever its formulation and its store of α: the rows that
// have a length, which of them are shrunk, sums over parts of them. Included by the simd_*.cc files only.
#pragma once

#include <algorithm>
#include <vector>

#include "core/csr_rows.h"
#include "core/parallel.h"
#include "dual/formulations.h"
#include "dual/random.h"

namespace xmcjax::XMCJAX_ISA {

// Sweeps without a change after which an instance is left out.
constexpr int kIdle = 3;
// A change is made where the violation exceeds this part of the tolerance: violations up to the tolerance
// itself, left as they are, would add up to a large gap.
constexpr double kStep = 0.1;
// Instances of a partial sum: sums do not depend on the number of threads.
constexpr int64_t kPart = 256;

inline int64_t parts_of(int64_t count) { return (count + kPart - 1) / kPart; }

template <class T>
double squared_norm(const Csr<T>& X, int64_t i) {
  double sum = 0;
  for (int64_t p = X.offset[i]; p < X.offset[i + 1]; ++p) sum += double(X.value[p]) * double(X.value[p]);
  return sum;
}

// `Ascent` is the interface that it implements.
template <class T, class Ascent>
class Driver : public Ascent {
 protected:
  explicit Driver(const MulticlassNewArgs<T>& args)
      : Ascent(args.X.n), X_(args.X), y_(args.y), m_(args.classes),
        form_{args.formulation, args.classes, args.C}, C_(T(args.C)), threads_(args.threads),
        random_(args.seed), norm2_(X_.n) {
    for (int64_t i = 0; i < X_.n; ++i) {
      norm2_[i] = T(squared_norm(X_, i));
      if (norm2_[i] > 0 && (!args.rows || args.rows[y_[i]])) rows_.push_back(int32_t(i));
    }
    active_ = rows_;
  }

  static T least(double tolerance) { return T(kStep * tolerance); }

  // What f(first, last, found) puts into found[first .. last-1], summed over `count` parts.
  template <class F>
  Assessment summed(int64_t count, F&& f) const {
    std::vector<Assessment> found(count);
    parallel(count, 1, threads_, [&](int64_t first, int64_t last) { f(first, last, found.data()); });
    Assessment all{0, 0, 0};
    for (const Assessment& one : found) add(one, all);
    return all;
  }
  static void add(const Assessment& one, Assessment& all) {
    all.primal += one.primal, all.dual += one.dual;
    all.violation = std::max(all.violation, one.violation);
  }

  // wake() lists the instances that are not shrunk; share() is their share of all rows.
  template <class Idle>
  void wake(Idle&& idle) {
    active_.clear();
    for (const int32_t i : rows_)
      if (idle(i) < kIdle) active_.push_back(i);
  }
  double share() const { return double(active_.size()) / double(std::max<size_t>(rows_.size(), 1)); }

  const Csr<T> X_;
  const int32_t* y_;
  const int64_t m_;
  const Formulation form_;
  const T C_;
  const int64_t threads_;
  Random random_;
  std::vector<T> norm2_;
  std::vector<int32_t> rows_, active_;  // of this place, without rows of zeros
};

}  // namespace xmcjax::XMCJAX_ISA
