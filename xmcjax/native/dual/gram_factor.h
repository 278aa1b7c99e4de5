// A Cholesky factor of I + ρ XᵀX for sparse X, in double: features are eliminated one by one as long as few others are
// left beside them, and what remains is a dense matrix.
#pragma once

#include <cstdint>
#include <vector>

#include "core/arrays.h"

namespace xmcjax {

// With the features in the order of elimination, K = I + ρ XᵀX and S the dense part that remains,
//
//   K = L (I ⊕ S) Lᵀ,   L = [L₁ 0; L₂ I],
//
// where column s of L₁ and L₂ belongs to the s-th feature that is eliminated.
//
// The order is that of Amestoy, Davis and Duff, "An approximate minimum degree ordering algorithm", 1996, on the
// cliques that the rows of X are in XᵀX; the numbers come column by column, each from those before (left-looking).
template <class T>
class GramFactor {
 public:
  explicit GramFactor(const Csr<T>& X);

  // Finds the order; once `most` entries of L have been found, what remains counts as dense.
  void eliminate(int64_t most);
  int64_t sparse() const { return int64_t(offset_.size()) - 1; }
  int64_t dense() const { return int64_t(order_.size()) - sparse(); }
  int64_t entries() const { return offset_.back(); }

  // L, and the lower half of S [dense, dense].
  void factor(double rho, double* S);

  // The features in the order of elimination, and of column s the reciprocal of its diagonal, the features below it,
  // and their values.
  const int32_t* order() const { return order_.data(); }
  double reciprocal(int64_t s) const { return reciprocal_[s]; }
  int64_t begin(int64_t s) const { return offset_[s]; }
  int64_t end(int64_t s) const { return offset_[s + 1]; }
  const int32_t* feature() const { return feature_.data(); }
  const T* value() const { return narrow_.data(); }
  const double* wide() const { return value_.data(); }

 private:
  void place_rows();

  const Csr<T> X_;
  std::vector<int64_t> column_offset_;  // X by columns: rows, and places of the entries in X
  std::vector<int32_t> column_row_;
  std::vector<int64_t> column_entry_;
  std::vector<int32_t> order_, place_;  // place of a feature in the order
  std::vector<int64_t> offset_;  // [sparse + 1]
  std::vector<int32_t> row_,
      feature_;  // places and features below the diagonal, places ascending in a column
  std::vector<double> value_, reciprocal_;
  std::vector<T> narrow_;
};

}  // namespace xmcjax
